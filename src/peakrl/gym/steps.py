"""Observations that tell the step: it stands in front of numbers, and beside whatever has names.

    Discrete(n)              ->  MultiDiscrete([H + 1, n])           [step, number]
    MultiDiscrete([a, b])    ->  MultiDiscrete([H + 1, a, b])        [step, ...]
    Dict({...})              ->  Dict({"step": Discrete(H + 1), ...})

Step H comes after the last action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from peakrl.tabular import TabularModel


def needs_step(model: TabularModel) -> bool:
    """Does a problem that changes with the step have a state that can be met at several of them?"""
    if model.stationary:
        return False
    met = model.slot_state[: int(model.step_slots[-1, 1])]
    return len(np.unique(met)) < len(met)


def space_with_step(space: spaces.Space[Any], horizon: int) -> spaces.Space[Any]:
    """Return the space of observations that tell the step."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({"step": spaces.Discrete(horizon + 1), **space.spaces})
    sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.tolist()  # type: ignore[attr-defined]
    return spaces.MultiDiscrete([horizon + 1, *map(int, sizes)])


def shown_with_step(observation: Any, step: int) -> Any:
    """Return an observation that tells the step."""
    if isinstance(observation, dict):
        return {"step": step, **observation}
    return np.append(np.int64(step), observation)
