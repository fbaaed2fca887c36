"""Export of policies: what is known of the actions of a state, tables as JSON and CSV, and files.

Labels that JSON can represent (numbers, strings, None) are written as they are, a tuple as a list, anything else by its
`repr`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import StorageError
from peakrl.labels import UnstorableLabel, store_space
from peakrl.records import FileKind, Record
from peakrl.space import StateSpace
from peakrl.storage import quoted, write_file
from peakrl.tabular import TabularModel
from peakrl.types import Floats
from peakrl.visited import VisitedStates

#: What a learner knows of an entry: nothing, observed to violate, observed to lead to a dead end, or forbidden since
#: no declaration says that it is safe.
UNKNOWN, VIOLATED, DEAD_END, FORBIDDEN = 0, 1, 2, 3
#: The file of a policy.
POLICY = FileKind("policy")
#: Names of columns, and the rows under them.
Table = tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True)
class ActionView:
    """What is known of one action at a step in a state."""

    action: Hashable
    #: The probability that the policy takes it.
    probability: float
    #: The learner's Q (minus infinity: never again); None if the policy was not learned.
    value: float | None
    #: Whether it may violate a constraint immediately. On an environment True if that was observed, else None
    #: (unknown).
    violates: bool | None
    #: Whether it may, without violating itself, lead to a state from which no policy satisfies every constraint. On an
    #: environment True if that was observed, else None (unknown).
    dead_end: bool | None

    @property
    def safe(self) -> bool | None:
        """Whether every constraint can be satisfied after it, as in `safe_set`; None if unknown."""
        return is_safe(self.violates, self.dead_end)

    def __str__(self) -> str:
        parts = [f"{self.action!r}: taken with probability {self.probability:g}"]
        if self.value is not None:
            parts.append(f"value {self.value:g}")
        if self.violates:
            parts.append("violates")
        if self.dead_end:
            parts.append("leads to a dead end")
        return ", ".join(parts)


class Learned(Protocol):
    """What a learner knows of actions at the end of its run."""

    def values(self) -> Floats:
        """[entry]: Q."""

    def known(self) -> NDArray[np.int8] | None:
        """[entry]: UNKNOWN, VIOLATED, DEAD_END or FORBIDDEN; None if it is not recorded."""


def action_views(
    model: StateSpace, step: int, slot: int, probability: dict[int, float], values: Any = None, known: Any = None
) -> list[ActionView]:
    """Return what is known of every action of a stored state; `values` and `known` are [entry] or None."""
    views = []
    for row in model.rows_of_slot(slot):
        value = None if values is None else float(values[step * model.entry_stride + row])
        fails = failings(model, step, row, known)
        views.append(ActionView(model.action_of_row(row), probability.get(row, 0.0), value, *fails))
    return views


def failings(model: StateSpace, step: int, row: int, known: Any = None) -> tuple[bool | None, bool | None]:
    """Return whether a row may violate immediately, and whether it may otherwise lead to an unsafe state.

    A model determines this, whatever a learner has observed; without a model only observations, `known`, tell.
    """
    if isinstance(model, TabularModel):
        violates = not model.keeps[row]
        return violates, not violates and not model.safe.row(step, row)
    learned = UNKNOWN if known is None else int(known[step * model.entry_stride + row])
    return True if learned == VIOLATED else None, True if learned == DEAD_END else None


def is_safe(violates: bool | None, dead_end: bool | None) -> bool | None:
    """Return whether every constraint can be satisfied after an action; None if unknown."""
    if violates or dead_end:
        return False
    return None if violates is None or dead_end is None else True


def plain(label: Any) -> Any:
    """Return a label in JSON types."""
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple):
        return [plain(part) for part in label]
    if label is None or isinstance(label, bool | int | str):
        return label
    return label if isinstance(label, float) and math.isfinite(label) else repr(label)


def as_json(head: dict[str, Any], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a description and a table of decisions as JSON."""
    table = [dict(zip(columns, map(plain, row), strict=True)) for row in rows]
    return json.dumps({**head, "decisions": table}, indent=1, allow_nan=False) + "\n"


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table of decisions as CSV; labels other than strings and numbers are written as JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        shown = [plain(value) for value in row]
        writer.writerow(
            [quoted(value) if isinstance(value, str | int | float) else json.dumps(value) for value in shown]
        )
    return text.getvalue()


class Exported(ABC):
    """Base class of policies: export of the decision of each step and state."""

    model: StateSpace
    #: Name of what `_decisions` yields beside rows, if anything.
    _column: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _decisions(self, step: int, slot: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows that may be taken, each with what `_column` names."""

    @property
    def _learned(self) -> tuple[Any, Any]:
        """What the learner knows, [entry]: values, and `Learned.known`; None if nothing."""
        return None, None

    def _table(self) -> Table:
        """Every decision, one line each."""
        model, seen = self.model, self._learned[1]
        lines = (
            (
                step,
                model.state_of_slot(slot),
                model.action_of_row(row),
                *more,
                is_safe(*failings(model, step, row, seen)),
            )
            for step, slot, _ in model.decisions()
            for row, *more in self._decisions(step, slot)
        )
        return ("step", "state", "action", *self._column, "safe"), lines

    @abstractmethod
    def probabilities(self, step: int, state: Hashable) -> dict[Hashable, float]:
        """Return {action: probability}."""

    def _choice(self, step: int, state: Hashable) -> Any:
        """An action, or {action: probability} if it is drawn."""
        return self.probabilities(step, state)

    @abstractmethod
    def _stored(self) -> Record:
        """The content of a file: plain values including "form", and arrays."""

    def _head(self) -> dict[str, Any]:
        return {"problem": self.model.name, "horizon": self.model.steps}

    def __repr__(self) -> str:
        model = self.model
        return f"<{type(self).__name__} of {model.name!r}: {model.num_states:,} states, {model.span}>"

    def table(self, step: int) -> dict[Hashable, Any]:
        """Return {state: action} at `step` for every state that can occur there, sorted if possible.

        If actions are drawn it is {state: {action: probability}}.
        """
        states = in_order([self.model.state_of_slot(slot) for slot in self.model.decision_slots(step)])
        return {state: self._choice(step, state) for state in states}

    def save(self, path: str | Path) -> None:
        """Write the policy to one file for `peakrl.load`.

        To load it, the problem or its model is needed, except for policies that were learned on an environment.
        """
        record = self._stored()
        record.plain |= {"problem": self.model.name, "model": self.model.digest}
        if isinstance(self.model, VisitedStates):
            try:
                record.add("space", store_space(self.model))
            except UnstorableLabel as error:
                raise StorageError(f"cannot write {path}: a file cannot hold a state such as {error}") from None
        POLICY.write(path, record)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return every decision as JSON, and whether it is safe (null: unknown); with `path` write it there too.

        A stochastic policy lists the probability of each action, an averaged one the episode from which on it is taken.
        """
        return written(as_json(self._head(), *self._table()), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return every decision as a line of CSV, with the columns of `to_json`; with `path` write it there too."""
        return written(as_csv(*self._table()), path)


def in_order(labels: list[Hashable]) -> list[Hashable]:
    """Return labels, sorted if they can be compared."""
    try:
        return sorted(labels)  # type: ignore[type-var]  # labels that cannot be compared keep their order
    except TypeError:
        return labels


def written(text: str, path: str | Path | None) -> str:
    """Return a text; write it to `path` if one is given."""
    if path is not None:
        write_file(path, text.encode())
    return text
