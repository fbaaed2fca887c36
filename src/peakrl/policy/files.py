"""Policies in files: `policy.save(path)` writes one, `load_policy` reads it back.

What was learned on an environment brings the states that were visited along; of a problem the file holds decisions by
number, and whoever reads it brings the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.compile import Target, as_space
from peakrl.errors import PolicyError, StorageError
from peakrl.policy.binding import AnyPolicy
from peakrl.policy.choices import Table, checked_choices, shape_of, type_of
from peakrl.policy.export import KIND, SPACE
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import StateSpace
from peakrl.storage import fields_of, read_record, ready, streamed_record
from peakrl.visited import load_visited, part


def load_policy(path: str | Path, model: Target | None = None) -> AnyPolicy:
    """Return the policy that was saved at `path`; of a problem's policy `model` is that problem or its model.

    One learned on an environment needs neither the environment nor the run. For a problem the file holds decisions by
    number: a problem whose numbers differ is refused. What a learner knew of values and unsafe actions
    (`Policy.explain`) is kept by a run's file, not by a policy's.
    """
    plain, arrays = read_record(path, KIND)
    with fields_of(path):
        try:
            space = stored_space(path, plain, arrays) if model is None else as_space(model)
            if plain["model"] != space.digest:
                raise StorageError(
                    f"{path} holds a policy of another problem or version of it, {plain['problem']!r}, not of {space!r}"
                )
            return rebuilt(path, space, plain, arrays)
        except PolicyError as error:
            raise StorageError(f"{path} is damaged: {error}") from error


def stored_space(path: str | Path, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> StateSpace:
    """Return the states that a file holds beside its decisions."""
    if "space" not in plain:
        raise StorageError(
            f"{path} holds the decisions of a policy of {plain['problem']!r}, not that problem: pass it, or its model, "
            "as the second argument"
        )
    try:
        return load_visited(str(plain["problem"]), plain["space"], part(arrays, SPACE))
    except StorageError as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def rebuilt(path: str | Path, model: StateSpace, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> AnyPolicy:
    """Put a policy together; its own checks find what does not fit the model."""
    form = plain["form"]
    if form == "deterministic":
        return Policy(model, arrays["rows"])
    if form in ("choices", "runs"):
        return Policy(model, checked_choices(model, form, arrays))
    if form == "stochastic":
        return StochasticPolicy(model, arrays["weights"])
    if form == "averaged":
        columns = (arrays[name] for name in ("first", "change_episode", "change_node", "change_row"))
        return AveragedPolicy(model, int(plain["episodes"]), *columns)
    raise StorageError(f"{path} holds a policy of form {form!r}, which this peakrl does not know")


@contextmanager
def table_room(model: StateSpace, path: str | Path | None) -> Iterator[Callable[[], NDArray[Any]]]:
    """Yield what makes room for the choices of a policy: in memory, or in a policy file that is whole in the end."""
    if path is None:
        yield lambda: np.zeros(shape_of(model), type_of(model))
        return
    ready(path)  # said before the work begins
    head = {"problem": model.name, "model": model.digest, "form": Table.form}
    with ExitStack() as open_files:
        yield lambda: open_files.enter_context(
            streamed_record(path, KIND, head, "choices", shape_of(model), type_of(model))
        )
