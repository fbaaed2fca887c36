"""Results of a sweep from a file: whatever is summed up or drawn is checked, since anybody may have written them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.sweeps.tasks import Result

NUMBERS = (
    "value", "violation", "violation_probability", "averaged_value", "averaged_violation",
    "averaged_violation_probability",
)  # fmt: skip
#: Of an environment that shows no table: how many fresh episodes the figures come from, and their intervals.
SAMPLED = ("sampled", "value_low", "value_high", "violation_probability_high")
#: None where they are not known, of such an environment.
OPTIMA = ("optimum", "least_violation", "gap", "averaged_gap")
#: Columns of a stored curve.
CURVE = ("history_episode", "history_value", "history_violation")


def check_result(result: Result) -> None:
    """Raise ValueError where a result is none that a run of a sweep can have."""
    config, values = result.task.config, result.values
    for name in ("problem", "settings"):
        expect(isinstance(config[name], Mapping), f"config.{name}")
    for name in ("episodes", "seed"):
        expect(is_count(config[name]), f"config.{name}")
    for name in NUMBERS:
        expect(is_number(values[name]), name)
    unknown = values["optimum"] is None
    for name in OPTIMA:
        expect(values[name] is None if unknown else is_number(values[name]), name)
    expect(
        values["problem_feasible"] is None if unknown else isinstance(values["problem_feasible"], bool),
        "problem_feasible",
    )
    for name in SAMPLED:
        expect(values.get(name) is None or is_number(values[name]), name)
    expect(is_count(values.get("sampled")) if unknown else values.get("sampled") is None, "sampled")
    expect(isinstance(values.get("sampled_curve", False), bool), "sampled_curve")
    expect(values["feasible"] is None or isinstance(values["feasible"], bool), "feasible")
    expect(is_count(values["violations"]), "violations")
    expect(
        values["last_violation_episode"] is None or is_count(values["last_violation_episode"]), "last_violation_episode"
    )
    expect(math.isfinite(result.seconds), "seconds")
    if CURVE[0] in result.arrays:
        check_curve(result.arrays)


def check_curve(arrays: Mapping[str, Any]) -> None:
    """Raise where a curve is not made of points, one after another."""
    episode = arrays[CURVE[0]]
    expect(episode.ndim == 1 and len(episode) > 0 and episode.dtype.kind in "iu", CURVE[0])
    expect(bool((np.diff(episode.astype(np.float64)) > 0).all()), CURVE[0])
    for name in CURVE[1:]:
        column = arrays[name]
        expect(column.dtype.kind == "f" and column.shape == episode.shape and bool(np.isfinite(column).all()), name)


def is_number(value: Any) -> bool:
    """Is it a finite number?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def is_count(value: Any) -> bool:
    """Is it a whole number from 0 on, of at most 64 bits?"""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


def expect(right: bool, what: str) -> None:
    """Raise unless it is right."""
    if not right:
        raise ValueError(f"{what} cannot be what it is")
