"""A model in a file: plain values and arrays from which an equal one is rebuilt; on its own or as part of a run.

Equal means equal in every number and in order (`TabularModel.digest`), with equal labels. A model whose labels no file
can hold, or that is very large, is stored by its digest alone; whoever reads the file must then bring the model along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import ProblemError, StorageError
from peakrl.from_arrays import refuse_stuck_states
from peakrl.labels import Arrays, UnstorableLabel, load_labels, store_labels
from peakrl.memory import check_tables
from peakrl.space import frozen
from peakrl.storage import fields_of, read_record, write_record
from peakrl.tabular import TabularModel
from peakrl.types import Payoffs
from peakrl.validate import fault

#: What the file of a model is called in its head.
KIND = "model"
#: Larger models are not copied into every file of a run.
LARGEST_STORED = 1 << 30
TYPES: dict[str, type[Any]] = {
    "step_slots": np.int64, "step_distributions": np.int64, "row_start": np.int64, "row_distribution": np.int32,
    "outcome_start": np.int64, "outcome_next": np.int32, "outcome_probability": np.float64,
    "row_payoff": np.int32, "reward": np.float64, "constraints": np.float64,
    "slot_state": np.int32, "row_action": np.int32, "first_slot": np.int32, "first_probability": np.float64,
}  # fmt: skip
#: Those that belong to the payoffs; the others are the model's own.
PAYOFFS = Payoffs._fields[1:]
#: Arrays with two axes; all others have one.
TABLES = ("step_slots", "step_distributions", "constraints")


def save_model(model: TabularModel, path: str | Path) -> None:
    """Write a model to a file of its own, of any size, for `load_model`."""
    plain, arrays = store_model(model, largest=math.inf)
    if plain["left_out"] is not None:
        raise StorageError(f"cannot write {path}: {plain['left_out']}; use numbers, words and tuples of them")
    write_record(path, KIND, {"model": plain}, arrays)


def load_model(path: str | Path) -> TabularModel:
    """Return the model that `model.save(path)` wrote.

    Everything in the file is checked before it is used: one that `compile_model` could not have made is refused.
    """
    manifest, arrays = read_record(path, KIND)
    with fields_of(path):
        return restored_model(path, manifest["model"], arrays)


def store_model(model: TabularModel, *, largest: float | None = None) -> tuple[dict[str, Any], Arrays]:
    """Return plain values and arrays from which `restored_model` makes an equal model."""
    plain: dict[str, Any] = {"digest": model.digest, "name": model.name, "left_out": None}
    plain["spec"] = None if model.spec is None else dict(model.spec)
    if model.nbytes > (LARGEST_STORED if largest is None else largest):
        return plain | {"left_out": f"it takes {model.nbytes / 1e9:.1f} GB"}, {}
    try:
        states, state_arrays = store_labels(model.state_labels)
        actions, action_arrays = store_labels(model.action_labels)
    except UnstorableLabel as error:
        return plain | {"left_out": f"a file cannot hold a label such as {error}"}, {}
    numbers = {"horizon": model.horizon, "node_stride": model.node_stride, "entry_stride": model.entry_stride}
    plain |= {
        "states": states,
        "actions": actions,
        "layout": numbers,
        "payoff_stride": int(model.payoffs.stride),
        "stationary": bool(model.stationary),
        "constraint_names": list(model.constraint_names),
        "constraint_bounds": [float(bound) for bound in model.constraint_bounds],
        "reward_range": [float(end) for end in model.reward_range],
        "infeasible_reason": model.infeasible_reason,
    }
    arrays = {name: array_of(model, name) for name in TYPES}
    arrays |= {f"states.{name}": array for name, array in state_arrays.items()}
    arrays |= {f"actions.{name}": array for name, array in action_arrays.items()}
    return plain, arrays


def array_of(model: TabularModel, name: str) -> NDArray[Any]:
    """Return an array of a model or of its payoffs."""
    array: NDArray[Any] = getattr(model.payoffs if name in PAYOFFS else model, name)
    return array


def restored_model(path: str | Path, plain: Mapping[str, Any], arrays: Arrays) -> TabularModel:
    """Rebuild the model that a file holds, or say why it cannot be."""
    with fields_of(path):
        if plain["left_out"] is not None:
            raise StorageError(
                f"{path} does not hold its model {plain['name']!r}, since {plain['left_out']}: compile the same "
                "problem again and pass it as model= (on the command line: --problem FILE)"
            )
        model = rebuilt(plain, {name: checked(arrays[name], name) for name in TYPES}, arrays)
        model = replace(model, spec=spec_of(plain))
        wrong = fault(model)
        if wrong is not None:
            raise StorageError(f"{path} is damaged: its model is none, since {wrong}")
        try:
            check_tables(model.name, model.horizon, model.num_slots if model.stationary else 1)
            refuse_stuck_states(model)
        except ProblemError as error:
            raise StorageError(f"{path} is damaged: {error}") from error
        if model.digest != plain["digest"]:
            raise StorageError(f"{path} is damaged: its model does not match its digest")
    return model


def spec_of(plain: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the problem as data, where a file tells it; whoever builds it checks it."""
    spec = plain.get("spec")
    if spec is not None and not isinstance(spec, dict):
        raise ValueError(f"the problem's specification is {spec!r}")
    return spec


def checked(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return a frozen array, or raise where its type or its number of axes is wrong."""
    if array.dtype != TYPES[name] or array.ndim != (2 if name in TABLES else 1):
        raise ValueError(f"array {name!r} is {array.dtype} of shape {array.shape}")
    return frozen(array, TYPES[name], own=True)  # read from a file just now: nobody else holds it


def rebuilt(plain: Mapping[str, Any], own: Arrays, arrays: Arrays) -> TabularModel:
    """Put a model together."""

    def labels(what: str) -> Any:
        prefix = f"{what}."
        mine = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        return load_labels(plain[what], mine)

    (lo, hi), reason = plain["reward_range"], plain.get("infeasible_reason")
    fields: dict[str, Any] = {name: own[name] for name in TYPES if name not in PAYOFFS}
    # As it is stored, not assembled anew: whether it is a model is for `soundness.fault` to say.
    return TabularModel(
        name=str(plain["name"]),
        horizon=int(plain["layout"]["horizon"]),
        constraint_names=tuple(str(name) for name in plain["constraint_names"]),
        reward_range=(float(lo), float(hi)),
        constraint_bounds=tuple(float(bound) for bound in plain["constraint_bounds"]),
        stationary=bool(plain["stationary"]),
        state_labels=labels("states"),
        action_labels=labels("actions"),
        payoffs=Payoffs(int(plain["payoff_stride"]), *(own[name] for name in PAYOFFS)),
        infeasible_reason=None if reason is None else str(reason),
        **fields,
    )
