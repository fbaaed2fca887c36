"""Reading models from files: `load_model`, and the model that is part of a run's file.

A model that is read is equal to the stored one in every number, in order and in labels. A model with labels that a file
cannot hold, or a very large one, is stored by its digest alone; the reader must then provide the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from peakrl.errors import ProblemError, StorageError
from peakrl.labels import Arrays, load_labels
from peakrl.memory import check_tables
from peakrl.records import fields_of, read_record
from peakrl.space import frozen
from peakrl.tabular import ARRAY_TYPES, FILE_KIND, PAYOFF_ARRAYS, TABLES, TabularModel, refuse_stuck_states
from peakrl.types import Payoffs
from peakrl.validate import fault


def load_model(path: str | Path) -> TabularModel:
    """Return the model that `model.save(path)` wrote.

    Everything in the file is validated before it is used.
    """
    manifest, arrays = read_record(path, FILE_KIND)
    with fields_of(path):
        return restored_model(path, manifest["model"], arrays)


def restored_model(path: str | Path, plain: Mapping[str, Any], arrays: Arrays) -> TabularModel:
    """Build the model that a file holds, or raise."""
    with fields_of(path):
        if plain["left_out"] is not None:
            raise StorageError(
                f"{path} does not hold its model {plain['name']!r}, since {plain['left_out']}: compile the same "
                "problem again and pass it as model= (on the command line: --problem FILE)"
            )
        model = rebuilt(plain, {name: checked(arrays[name], name) for name in ARRAY_TYPES}, arrays)
        model = replace(model, spec=spec_of(plain))
        wrong = fault(model)
        if wrong is not None:
            raise StorageError(f"{path} is damaged: it does not hold a valid model, since {wrong}")
        try:
            check_tables(model.name, model.horizon, model.num_slots if model.stationary else 1)
            refuse_stuck_states(model)
        except ProblemError as error:
            raise StorageError(f"{path} is damaged: {error}") from error
        if model.digest != plain["digest"]:
            raise StorageError(f"{path} is damaged: its model does not match its digest")
    return model


def spec_of(plain: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the problem as data, if the file holds it; it is validated when it is built."""
    spec = plain.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise ValueError(f"the problem's specification is {spec!r}")
    return spec


def checked(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return a read-only array, or raise if its type or number of axes is wrong."""
    if array.dtype != ARRAY_TYPES[name] or array.ndim != (2 if name in TABLES else 1):
        raise ValueError(f"array {name!r} is {array.dtype} of shape {array.shape}")
    return frozen(array, ARRAY_TYPES[name], own=True)


def rebuilt(plain: Mapping[str, Any], own: Arrays, arrays: Arrays) -> TabularModel:
    """Build a model."""

    def labels(what: str) -> Any:
        prefix = f"{what}."
        mine = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        return load_labels(plain[what], mine)

    (lo, hi), reason = plain["reward_range"], plain.get("infeasible_reason")
    fields: dict[str, Any] = {name: own[name] for name in ARRAY_TYPES if name not in PAYOFF_ARRAYS}
    # As stored, not through `assemble`: `validate.fault` checks it.
    return TabularModel(
        name=str(plain["name"]),
        horizon=int(plain["layout"]["horizon"]),
        constraint_names=tuple(str(name) for name in plain["constraint_names"]),
        reward_range=(float(lo), float(hi)),
        constraint_bounds=tuple(float(bound) for bound in plain["constraint_bounds"]),
        stationary=bool(plain["stationary"]),
        state_labels=labels("states"),
        action_labels=labels("actions"),
        payoffs=Payoffs(int(plain["payoff_stride"]), *(own[name] for name in PAYOFF_ARRAYS)),
        infeasible_reason=None if reason is None else str(reason),
        **fields,
    )
