"""Values and targets of continuous problems: bounds on the best safe value, and sets from which a target is reached.

With I(c, a, w) the index boxes of a cell, a choice and a part w of the disturbance, which has the probability p_w, and
r_low, r_high bounds of the reward on the cell:

    low(c)  = max over safe a        of  r_low(c, a)  + discount sum_w p_w min of low over I(c, a, w)
    high(c) = max over a that may be of  r_high(c, a) + discount sum_w p_w max of high over I(c, a, w)

The policy that takes the maximiser of low in a cell that holds the state never violates, and is worth at least low(c)
from every point of c; no policy that never violates is worth more than high(c). An action may be safe if constraints
may be satisfied somewhere in the cell and its images are not certainly outside. Both operators are monotone: iterates
from below the value stay below, those from above stay above, so that each is a bound; rounding is subtracted.

A target is reached with certainty, and nothing is violated before, from

    R_0 = the cells inside of the target,    R_{k+1} = R_k and the cells with a choice all of whose images are in R_k
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_count, check_fraction
from peakrl.continuous import ContinuousProblem, GridSafeSet
from peakrl.continuous.grid import Grid
from peakrl.continuous.images import Images, Tables, advance, positions, strides
from peakrl.continuous.intervals import Interval, interval
from peakrl.continuous.problem import Box, box_of
from peakrl.continuous.safe_set import MOST_STEPS, fixed_point, swept
from peakrl.errors import PolicyError, ProblemError, SettingsError
from peakrl.jit import inlined, kernel
from peakrl.planning.solution import solve
from peakrl.progress import Progress
from peakrl.types import Bools, Floats, Ints, Longs
from peakrl.viability import FOREVER

#: Iteration stops when no value changes by more than this share of the largest reward.
TOLERANCE = 1e-9
EPS = 2.0**-52


@inlined
def extreme(
    tables: Tables, box: int, choice: int, position: Longs, values: Floats, strides: tuple[int, ...], largest: bool,
    index: Longs,
) -> float:  # fmt: skip
    """Return the largest or smallest value in an index box; minus infinity in an empty one. `index` is scratch."""
    best, at = -np.inf if largest else np.inf, 0
    for j in range(len(strides)):
        first = np.int64(tables[j][box, choice, position[j], 0])
        index[j] = first if first >= 0 else ~first
        if index[j] > tables[j][box, choice, position[j], 1]:
            return -np.inf
        at += index[j] * strides[j]
    while True:
        best = max(best, values[at]) if largest else min(best, values[at])
        j = len(strides) - 1
        while j >= 0:
            if index[j] < tables[j][box, choice, position[j], 1]:
                index[j] += 1
                at += strides[j]
                break
            first = np.int64(tables[j][box, choice, position[j], 0])
            first = first if first >= 0 else ~first
            at -= (index[j] - first) * strides[j]
            index[j] = first
            j -= 1
        if j < 0:
            return float(best)


@kernel
def backup(
    tables: Tables, offered: Bools, reward: Floats, steps: Longs, cells: tuple[int, ...], strides: tuple[int, ...],
    weights: Floats, discount: float, largest: bool, ahead: Floats, values: Floats, best: NDArray[np.int16],
) -> float:  # fmt: skip
    """Write the value of the best choice of each cell, minus infinity if there is none; return the largest change.

    `offered` is [cell, choice]. `ahead` may be the same array as `values`.
    """
    d, change = len(cells), 0.0
    paths = tables[0].shape[0] // weights.shape[0]
    index, scratch, position = np.zeros(d, np.int64), np.zeros(d, np.int64), np.zeros(d + 1, np.int64)
    for cell in range(values.shape[0]):
        positions(index, steps, strides, position)
        most, which = -np.inf, -1
        for choice in range(reward.shape[0]):
            if not offered[cell, choice]:
                continue
            total = 0.0
            for part in range(weights.shape[0]):
                found = -np.inf if largest else np.inf
                for path in range(paths):
                    value = extreme(tables, part * paths + path, choice, position, ahead, strides, largest, scratch)
                    found = max(found, value) if largest else min(found, value)
                total += weights[part] * found
            total = reward[choice, position[d]] + discount * total
            if total > most:
                most, which = total, choice
        if most != values[cell]:
            change = max(change, abs(most - values[cell]))
        values[cell], best[cell] = most, which
        advance(index, cells)
    return change


class GridPolicy:
    """A policy by cells; calling it with a state returns the index of an action, for environments.

    With a `block` of actions only `choice` is of use: it is asked once for each sequence.
    """

    def __init__(self, problem: ContinuousProblem, grid: Grid, best: NDArray[np.int16], rank: Floats) -> None:
        self.problem, self.grid = problem, grid
        #: [step, cell]: the index of the choice, -1 if none is known; one line if all steps have the same.
        self.best = best
        #: [step, cell]: of the cells that hold a point on edges, that with the largest number decides.
        self.rank = rank

    def choice(self, x: Any, step: int = 0) -> int:
        """Return the index of the choice in a state, in the order of `problem.choices`."""
        point, line = self.problem.point(x), min(step, len(self.best) - 1)
        held = [cell for cell in self.grid.locate(point[None])[0] if cell >= 0 and self.best[line, cell] >= 0]
        if not held:
            raise PolicyError(f"no choice is known to be good in {self.problem.named(point)}")
        return int(self.best[line, max(held, key=lambda cell: self.rank[line, cell])])

    def action(self, x: Any, step: int = 0) -> Any:
        """Return the action, or the sequence of actions of a block."""
        return self.problem.choices[self.choice(x, step)]

    def __call__(self, x: Any) -> int:
        if self.problem.block > 1 or len(self.best) > 1:
            raise PolicyError("this policy depends on the step or chooses sequences: call action(x, step)")
        return int(self.problem.sequences[self.choice(x), 0])


class GridSolution:
    """Bounds on the best value of a continuous problem without any violation, and a policy; made by `solve`."""

    def __init__(self, safe_set: GridSafeSet, policy: GridPolicy, low: Floats, high: Floats) -> None:
        self.safe_set, self.policy = safe_set, policy
        #: [cell]: the policy is worth at least `low` from every point of it, and no safe policy more than `high`.
        self.cell_low, self.cell_high = low, high

    def __repr__(self) -> str:
        start = self.safe_set.problem.start
        bounds = (
            f"value at least {self.value_low:.6g}, of at most {self.optimum_high:.6g}; "
            if isinstance(start, tuple)
            else ""
        )
        return f"<GridSolution of {self.safe_set.problem.name!r}: {bounds}{self.safe_set.share:.1%} of the box is safe>"

    def low(self, x: Any) -> Any:
        """Return what the policy is worth at least in a state or many; minus infinity if no choice is known."""
        return self._at(x, self.cell_low, np.max, -np.inf)

    def high(self, x: Any) -> Any:
        """Return what no policy that never violates exceeds; minus infinity outside of the box."""
        return self._at(x, self.cell_high, np.min, np.inf)

    @property
    def value_low(self) -> float:
        """What the policy is worth at least, from the `start` of the problem."""
        return self._from_start(self.cell_low)

    @property
    def optimum_high(self) -> float:
        """What no policy that never violates exceeds, from the `start` of the problem."""
        return self._from_start(self.cell_high)

    def _at(self, x: Any, values: Floats, reduce: Callable[..., Any], absent: float) -> Any:
        points = np.asarray(x, np.float64)
        cells = self.safe_set.grid.locate(points.reshape(-1, self.safe_set.problem.dimensions))
        found = reduce(np.where(cells >= 0, values[cells], absent), axis=1)
        found = np.where(cells[:, 0] >= 0, found, -np.inf)
        return float(found[0]) if points.ndim == 1 else found

    def _from_start(self, values: Floats) -> float:
        start, grid = self.safe_set.problem.start, self.safe_set.grid
        if not isinstance(start, tuple):
            raise PolicyError("the problem's start is not a point or a box: use low(x) and high(x)")
        if (start[0] == start[1]).all():
            return float(self.low(start[0]) if values is self.cell_low else self.high(start[0]))
        if (start[0] == start[1]).any():
            raise PolicyError("the problem's start is a box without volume: use low(x) and high(x)")
        shares = [
            np.maximum(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0) / (high - low)
            for edges, low, high in zip(grid.edges, *start, strict=True)
        ]
        share = np.prod(np.meshgrid(*shares, indexing="ij"), axis=0).reshape(-1)
        return float(np.sum(share[share > 0] * values[share > 0]))


class GridReach:
    """The states from which a target is reached with certainty and nothing is violated; made by `solve(reach=...)`."""

    def __init__(self, policy: GridPolicy, layer: Ints) -> None:
        self.policy, self.problem, self.grid = policy, policy.problem, policy.grid
        #: [cell]: the number of steps in which the target is reached at the latest; -1 if that is not known.
        self.layer = layer

    def __repr__(self) -> str:
        return f"<GridReach of {self.problem.name!r}: from {(self.layer >= 0).sum():,} of {self.grid.size:,} cells>"

    @property
    def share(self) -> float:
        """The share of the box from which the target is reached."""
        return float((self.layer >= 0).mean())

    def steps(self, x: Any) -> int | None:
        """Return in how many steps the target is reached at the latest from a state; None if that is not known."""
        cells = self.grid.locate(self.problem.point(x)[None])[0]
        found = [int(self.layer[cell]) for cell in cells if cell >= 0 and self.layer[cell] >= 0]
        return min(found, default=None)

    def contains(self, x: Any) -> bool:
        """Return whether the target is reached from a state."""
        return self.steps(x) is not None


@solve.register  # type: ignore[arg-type]  # other types of problems have other solutions
def solve_on_grid(  # type: ignore[misc]
    problem: ContinuousProblem,
    *,
    cells: int | Sequence[int] = 100,
    discount: float | None = None,
    horizon: int | None = None,
    reach: Box | Callable[[Sequence[Any]], Any] | None = None,
) -> GridSolution | GridReach:
    """Solve a continuous problem on a grid: bounds on the best safe value, or the set that reaches a target.

    Parameters
    ----------
    problem
        The problem; for values it has a `reward`.
    cells
        Number of cells, one for all coordinates or one for each.
    discount
        A reward after k steps counts discount^k as much.
    horizon
        Number of steps, in place of a discount.
    reach
        A target, in place of values: ranges of some coordinates by name, or a function of the state that returns
        arrays which are >= 0 inside of it.

    Returns
    -------
    GridSolution or GridReach

    Examples
    --------
    >>> import peakrl
    >>> best = peakrl.solve(peakrl.problems.continuous_harvesting(), cells=200, discount=0.95)
    >>> 31 < best.value_low < best.optimum_high < 35
    True
    """
    if [discount, horizon, reach].count(None) != 2:
        raise SettingsError("pass one of discount=, horizon= and reach=")
    if "exit" in problem.outside:
        raise ProblemError("solve does not support outside='exit': what follows an exit has no value")
    if reach is not None:
        return reached(Images(problem, Grid(problem, cells)), reach)
    if problem.reward is None:
        raise ProblemError(f"{problem.name!r} has no reward: pass reward=")
    factor = 1.0 if discount is None else check_fraction(discount, "discount")
    steps = None if horizon is None else check_count(horizon, "horizon", 1, MOST_STEPS)
    return valued(Images(problem, Grid(problem, cells), factor), factor, steps)


def valued(images: Images, discount: float, horizon: int | None) -> GridSolution:
    """Return bounds on values."""
    problem, grid, size = images.problem, images.grid, images.grid.size
    safe = fixed_point(images, horizon, 0.0)
    least, most = float(images.reward_low.min()), float(images.reward_high.max())
    if not np.isfinite(least) or not np.isfinite(most):
        raise ProblemError(f"the reward of {problem.name!r} is not bounded on the box")
    weights = np.array([np.prod(problem.weights[list(parts)]) for parts in images.parts])
    block_discount, rows = discount**problem.block, tuple(map(int, strides(grid.cells)))
    arrays, factors = (images.steps, grid.cells, rows), (weights / weights.sum(), block_discount)
    total = 1 / (1 - block_discount) if horizon is None else float(horizon)
    rounding = (len(weights) + 4) * EPS * max(abs(least), abs(most)) * total * total
    lows, highs, scratch = np.full(size, least * total), np.full(size, most * total), np.zeros(size, np.int16)
    lows[~safe.cells] = -np.inf
    possible = np.ascontiguousarray(images.by_cell(images.possible).T)
    if horizon is None:
        best = np.zeros((1, size), np.int16)
        with Progress(f"values of {problem.name}", unit="sweeps") as progress:
            for values, offered, reward, largest, out in (
                (lows, safe.kept > 0, images.reward_low, False, best[0]),
                (highs, possible, images.reward_high, True, scratch),
            ):
                for number in itertools.count(1):
                    change = backup(images.tables, offered, reward, *arrays, *factors, largest, values, values, out)
                    progress.reach(number, change=float(change))
                    if change <= TOLERANCE * max(abs(least), abs(most)):
                        break
        rank = lows[None]
    else:
        best, rank = np.zeros((horizon, size), np.int16), np.zeros((horizon, size))
        ahead_low, ahead_high = np.zeros(size), np.zeros(size)
        for step in reversed(range(horizon)):
            lows, highs = np.zeros(size), np.zeros(size)
            offered = safe.kept >= horizon - step
            backup(images.tables, offered, images.reward_low, *arrays, *factors, False, ahead_low, lows, best[step])
            backup(images.tables, possible, images.reward_high, *arrays, *factors, True, ahead_high, highs, scratch)
            ahead_low, ahead_high, rank[step] = lows, highs, lows
    return GridSolution(safe, GridPolicy(problem, grid, best, rank), lows - rounding, highs + rounding)


def reached(images: Images, target: Any) -> GridReach:
    """Return the cells from which a target is reached."""
    grid = images.grid
    layer = np.where(target_cells(images, target), 0, FOREVER).astype(np.int32)
    best = swept(images, layer, False, None, "reaching the target")
    layer[layer == FOREVER] = -1
    best[layer <= 0] = -1
    return GridReach(GridPolicy(images.problem, grid, best[None], -layer[None].astype(np.float64)), layer)


def target_cells(images: Images, target: Any) -> Bools:
    """Return [cell]: is all of it inside of the target?"""
    problem, grid = images.problem, images.grid
    low, high = images.axes(0, grid.cells[0])
    if isinstance(target, Mapping):
        names, least, most = box_of(target, "reach")
        if set(names) - set(problem.names):
            raise SettingsError(f"reach names {sorted(set(names) - set(problem.names))}; the box has {problem.names}")
        which = [problem.names.index(name) for name in names]
        parts = [(low[j] >= a) & (high[j] <= b) for j, a, b in zip(which, least, most, strict=True)]
    else:
        found = target([Interval(*ends) for ends in zip(low, high, strict=True)])
        parts = [interval(value).low >= 0 for value in (found if isinstance(found, list | tuple) else [found])]
    return np.broadcast_to(np.all(np.broadcast_arrays(*parts), axis=0), grid.cells).reshape(-1)
