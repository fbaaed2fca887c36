"""Policies in files: `policy.save(path)` writes one, `load_policy` reads it back for the same problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from peakrl.errors import PolicyError, StorageError
from peakrl.model.explore import Target, as_space
from peakrl.model.space import StateSpace
from peakrl.policy.choices import Choices
from peakrl.policy.export import KIND
from peakrl.policy.tables import AnyPolicy, AveragedPolicy, Policy, StochasticPolicy
from peakrl.storage import fields_of, read_record


def load_policy(path: str | Path, model: Target) -> AnyPolicy:
    """Return the policy that was saved at `path` for `model`, which may be a `Problem`.

    The file holds decisions by number, not the problem: one whose numbers differ is refused. What a learner knew of
    values and unsafe actions (`Policy.explain`) is kept by a run's file, not by a policy's.
    """
    plain, arrays = read_record(path, KIND)
    model = as_space(model)
    with fields_of(path):
        if plain["model"] != model.digest:
            raise StorageError(
                f"{path} holds a policy of another problem or version of it, {plain['problem']!r}, not of {model!r}"
            )
        try:
            return rebuilt(path, model, plain, arrays)
        except PolicyError as error:
            raise StorageError(f"{path} is damaged: {error}") from error


def rebuilt(path: str | Path, model: StateSpace, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> AnyPolicy:
    """Put a policy together; its own checks find what does not fit the model."""
    form = plain["form"]
    if form == "deterministic":
        return Policy(model, arrays["rows"])
    if form == "choices":
        return Policy(model, Choices.checked(model, arrays["choices"], int(plain.get("repeats", 0))))
    if form == "stochastic":
        return StochasticPolicy(model, arrays["weights"])
    if form == "averaged":
        columns = (arrays[name] for name in ("first", "change_episode", "change_node", "change_row"))
        return AveragedPolicy(model, int(plain["episodes"]), *columns)
    raise StorageError(f"{path} holds a policy of form {form!r}, which this peakrl does not know")
