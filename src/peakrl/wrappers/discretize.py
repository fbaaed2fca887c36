"""Cells in place of continuous observations, so that tables can be learned.

A cell hides where in it the process is, so that cells are no states: what follows an observation depends on the past as
well (state aliasing). Nothing that is learned is proved of the environment itself but what `simulate` and `certify`
find on it; that every action failed somewhere in a cell proves nothing about other points of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from peakrl.checks import LARGEST, check_count, shown
from peakrl.errors import SettingsError, TargetError
from peakrl.types import Floats, Longs


class Discretize(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations are the cells of a grid: a tuple of indices, one for each coordinate.

    Coordinate j has `cells[j]` cells of equal width from `low[j]` to `high[j]`; what lies outside belongs to the outer
    cells.

    Parameters
    ----------
    env
        A Gymnasium environment whose observations are a `Box`.
    cells
        The number of cells, for all coordinates or for each.
    low, high
        The ends of the grid, for all coordinates or for each. Default: the bounds of the space, which must be finite.

    Notes
    -----
    Cells are not states, so no result is exact. A certificate of a certified learner says that it rests on treating
    them as such, and infeasibility is never called proved, whatever is declared. `certify(env, policy)` judges the
    policy on the environment itself.

    Examples
    --------
    >>> import gymnasium, peakrl
    >>> cart = gymnasium.make("CartPole-v1")
    >>> env = peakrl.Discretize(cart, (6, 4, 12, 8), low=(-2.4, -2, -0.21, -2), high=(2.4, 2, 0.21, 2))
    >>> env.reset(seed=0)[0].tolist()
    [3, 1, 4, 3]
    """

    def __init__(self, env: Any, cells: int | Sequence[int], *, low: Any = None, high: Any = None) -> None:
        if not isinstance(env, gymnasium.Env):
            raise SettingsError(f"{env!r} is not a single Gymnasium environment; wrap each one of a vectorised one")
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box):
            raise SettingsError(
                f"the observation space is {shown(space)}; it must be a Box (gymnasium.wrappers.FlattenObservation "
                "makes one of a Dict or Tuple)"
            )
        size = int(np.prod(space.shape))
        counts = list(cells) if isinstance(cells, Sequence | np.ndarray) else [cells] * size
        if len(counts) != size:
            raise SettingsError(f"cells has {len(counts)} numbers for {size} coordinates")
        ends = [ends_of(low, space.low, "low", size), ends_of(high, space.high, "high", size)]
        if not (ends[0] < ends[1]).all():
            raise SettingsError(f"low {ends[0].tolist()} must be below high {ends[1].tolist()} in every coordinate")
        #: [coordinate]: the number of cells.
        self.cells: Longs = np.array([check_count(each, f"cells[{j}]") for j, each in enumerate(counts)])
        #: [coordinate]: the edges between cells, with the ends.
        self.edges: list[Floats] = [np.linspace(*pair) for pair in zip(*ends, self.cells + 1, strict=True)]
        self.observation_space = spaces.MultiDiscrete(self.cells)
        own = {name: value for name, value in env.metadata.get("peakrl", {}).items() if name != "states"}
        self.metadata = {**env.metadata, "peakrl": {**own, "aliased": True}}

    def observation(self, observation: Any) -> Longs:
        """Return the cell of an observation."""
        point = np.asarray(observation, np.float64).ravel()
        if np.isnan(point).any():
            raise TargetError(f"the observation {shown(observation)} contains NaN, which lies in no cell")
        found = [np.searchsorted(edges[1:-1], x, side="right") for edges, x in zip(self.edges, point, strict=True)]
        return np.array(found, np.int64)


def ends_of(given: Any, own: Any, name: str, size: int) -> Floats:
    """Return [coordinate]: where the grid begins or ends."""
    try:
        ends = np.broadcast_to(np.asarray(own if given is None else given, np.float64).ravel(), size)
    except (TypeError, ValueError):
        raise SettingsError(
            f"{name} is {shown(given)}; it must be a number, or one for each of {size} coordinates"
        ) from None
    infinite = np.flatnonzero(~(np.abs(ends) <= LARGEST)).tolist()
    if infinite:
        raise SettingsError(f"{name} is not finite in coordinate {', '.join(map(str, infinite))}: pass {name}=")
    return ends
