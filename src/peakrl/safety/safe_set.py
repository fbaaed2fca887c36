"""The safe set: the safe actions of each step and state, and the reasons why others are not (`viability`).

It depends on the possible outcomes and the constraints of the model, not on probabilities. A policy that takes only
safe actions never violates; if a first state is not safe, no policy satisfies every constraint.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property, singledispatch
from pathlib import Path
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from peakrl.compile import Target, as_model
from peakrl.errors import StorageError
from peakrl.model_file import restored_model
from peakrl.policy.export import as_csv, as_json, written
from peakrl.records import FileKind, Record
from peakrl.safety.reasons import Reason, reason_of, why_infeasible
from peakrl.tabular import TabularModel, store_model
from peakrl.types import Bools, Ints
from peakrl.viability import SafeSteps, dead_end_distances

#: The file of a safe set.
SAFE_SET = FileKind("safe_set")


class StepCount(NamedTuple):
    """How much is safe at a step, among the states that can occur there."""

    #: Counted from 0.
    step: int
    #: States that can occur.
    states: int
    #: Those from which a policy exists that never violates.
    safe_states: int
    #: Actions of all of these states.
    actions: int
    #: Those after which a policy exists that never violates.
    safe_actions: int


class SafeSet:
    """The states and actions from which every constraint of a model can be satisfied with certainty.

    Made by `safe_set(model)`; also `solve(model).safe_set`.

    Examples
    --------
    >>> import peakrl
    >>> safe = peakrl.safe_set(peakrl.problems.energy_harvesting(peak_power=3, battery=4))
    >>> safe.actions((2, 4))
    [0, 1, 2, 3]
    >>> print(safe.reason((2, 4), 4))
    at step 0 in state (2, 4) action 4 violates 'peak power' by 1
    """

    def __init__(self, model: TabularModel, steps: SafeSteps | None = None) -> None:
        #: The model it belongs to.
        self.model = model
        #: Which actions and states are safe at which step; by default from the model alone.
        self.steps = model.safe if steps is None else steps

    def __repr__(self) -> str:
        safe, states = sum(each.safe_states for each in self.counts), sum(each.states for each in self.counts)
        what = "states, for ever" if self.model.steps is None else "(step, state) pairs"
        start = "the start is in it" if self.feasible else "the start is not in it"
        return f"<SafeSet of {self.model.name!r}: {safe:,} of {states:,} {what}, {start}>"

    @property
    def feasible(self) -> bool:
        """Whether every first state is safe, so that some policy satisfies every constraint."""
        return bool(self.steps.slots(0)[self.model.first_slot].all())

    @property
    def entries(self) -> Bools:
        """[entry]: which actions are safe; a byte for each step, state and action, computed on first use."""
        return self.steps.entries

    @property
    def nodes(self) -> Bools:
        """[node]: which states are safe."""
        return self.steps.nodes

    @property
    def infeasible_reason(self) -> str | None:
        """Why no policy satisfies every constraint, step by step; None if `feasible`."""
        return None if self.feasible else why_infeasible(self.model, self._distance)

    # What may be done ----------------------------------------------------------------------------------------

    def contains(self, state: Hashable, step: int = 0) -> bool:
        """Return whether every constraint can be satisfied from this state on; an unknown state is an error."""
        return self.holds(self.node_of(step, state))

    def holds(self, node: int) -> bool:
        """Return whether a node is safe."""
        return self.steps.slot(*divmod(node, self.model.num_slots))  # step 0 for layered models, whose strides are 0

    def actions(self, state: Hashable, step: int = 0) -> list[Hashable]:
        """Return the safe actions; none if the state is not safe."""
        model = self.model
        rows = model.rows_of_slot(model.slot_of(step, state))
        return [model.action_of_row(row) for row in rows if self.steps.row(step, row)]

    def mask(self, state: Hashable, step: int = 0) -> Bools:
        """Return [action]: True if it is available and safe, in the order of `model.action_labels`; read-only."""
        return self.mask_of(self.node_of(step, state))

    def reason(self, state: Hashable, action: Hashable, step: int = 0) -> Reason | None:
        """Return why an action is not safe, step by step; None if it is safe. `str` returns a sentence."""
        row = self.model.row_of(step, state, action)
        if self.steps.row(step, row):
            return None
        return reason_of(self.model, self._distance, step, self.model.slot_of(step, state), row)

    @cached_property
    def _distance(self) -> Ints:
        model = self.model
        layout = model.one_step if model.steps is None else model.layout
        return dead_end_distances(layout, self.model.keeps, self.nodes)

    # Masks by index ------------------------------------------------------------------------------------------

    def node_of(self, step: int, state: Hashable) -> int:
        """Return the index of a step and state for `mask_of` and `masks`."""
        return self.model.slot_of(step, state) + step * self.model.node_stride

    def mask_of(self, node: int) -> Bools:
        """Return [action]: the mask of a node; read-only."""
        step, slot = divmod(node, self.model.num_slots)  # step 0 for layered models, whose strides are 0
        mask = np.zeros(len(self.model.action_labels), np.bool_)
        rows = self.model.rows_of_slot(slot)
        mask[self.model.row_action[rows.start : rows.stop]] = self.steps.rows(step, slice(rows.start, rows.stop))
        mask.flags.writeable = False
        return mask

    @property
    def masks(self) -> Bools:
        """[node, action]: every mask, a byte for each step, state and action."""
        model = self.model
        masks = np.zeros((model.num_nodes, len(model.action_labels)), np.bool_)
        for step in range(model.lines if model.stationary else 1):
            masks[step * model.node_stride + model.slot_of_row, model.row_action] = self.steps.rows(step)
        return masks

    # Export and files -------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> tuple[StepCount, ...]:
        """How much is safe at each step, among the states that can occur there."""
        return tuple(self._count(step) for step in range(self.model.lines))

    def _count(self, step: int) -> StepCount:
        layout = self.model
        first, last = layout.step_slots[step].tolist()
        here = slice(step * layout.node_stride + first, step * layout.node_stride + last)
        offered = np.diff(layout.row_start[first : last + 1])
        reached = self.model.reachable[here] & (offered > 0)
        rows = slice(int(layout.row_start[first]), int(layout.row_start[last]))
        safe = self.steps.rows(step, rows) & np.repeat(reached, offered)
        counts = (
            reached.sum(),
            (reached & self.steps.slots(step, slice(first, last))).sum(),
            offered[reached].sum(),
            safe.sum(),
        )
        return StepCount(step, *map(int, counts))

    def _table(self) -> Iterator[tuple[Any, ...]]:
        model = self.model
        for step, slot, _ in model.decisions():
            for row in model.rows_of_slot(slot):
                verdict = self.steps.row(step, row), not model.keeps[row]
                yield step, model.state_of_slot(slot), model.action_of_row(row), *verdict

    COLUMNS = ("step", "state", "action", "safe", "violates")

    def to_csv(self, path: str | Path | None = None) -> str:
        """Return every action of every state as a line of CSV, safe or not; with `path` write it there too."""
        return written(as_csv(self.COLUMNS, self._table()), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return every action of every state as JSON, safe or not; with `path` write it there too."""
        head = {"problem": self.model.name, "horizon": self.model.steps}
        return written(as_json(head, self.COLUMNS, self._table()), path)

    def save(self, path: str | Path, *, with_model: bool = False) -> None:
        """Write the safe set to one file for `peakrl.load`: four bytes for each state and action.

        `with_model` puts the model beside it, so that the file can be read without the problem.
        """
        model = self.model
        plain = {"problem": model.name, "digest": model.digest, "horizon": model.steps}
        record = Record(plain, {"row_from": self.steps.row_from})
        if with_model:
            record.add("model", store_model(self.model))
        SAFE_SET.write(path, record)


@singledispatch
def safe_set(target: Target, *, horizon: float | EllipsisType | None = ...) -> SafeSet:
    """Return the safe set of a model or problem: the actions after which a policy exists that never violates.

    It depends only on the possible outcomes and the constraints of the model; probabilities may be wrong. A
    `ContinuousProblem` takes the arguments of `peakrl.continuous.grid_safe_set` instead.

    Parameters
    ----------
    target
        A model or problem.
    horizon
        For how many steps the constraints must be satisfied, by default those of the target. None or `math.inf`: for
        ever, with one mask for all steps. Only models in which nothing depends on the step have another horizon.

    Returns
    -------
    SafeSet

    Examples
    --------
    >>> import peakrl
    >>> safe = peakrl.safe_set(peakrl.problems.energy_harvesting(peak_power=8))
    >>> safe.feasible
    True
    """
    model = as_model(target)
    return SafeSet(model if horizon is ... else model.with_horizon(horizon))


def load_safe_set(path: str | Path, model: Target | None = None) -> SafeSet:
    """Load the safe set that was saved at `path`, for `model` (a model or problem) or for the model in the file.

    Every number is checked against the model.
    """
    known = None if model is None else as_model(model)
    with SAFE_SET.reading(path) as record:
        if known is None:
            if "model" not in record.plain:
                raise StorageError(
                    f"{path} contains a safe set without its model: pass the problem or model, or save with "
                    "with_model=True"
                )
            known = restored_model(path, record.part("model"))
        if known.stationary:
            known = known.with_horizon(record.plain["horizon"])
        if record.plain["digest"] != known.digest:
            problem = record.plain["problem"]
            raise StorageError(
                f"{path} contains the safe set of another problem or version, {problem!r}, not of {known!r}"
            )
        found = SafeSet(known)
        if not np.array_equal(record.arrays["row_from"], found.steps.row_from):
            raise ValueError(f"its content is not the safe set of {known.name!r}")
    return found
