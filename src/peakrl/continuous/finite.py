"""A continuous problem as a finite one: its states are the cells of a grid.

    P(c' | c, a)  ~  sum_w p_w  prod_j |I_j and c'_j| / |I_j|        I: bounds of the next state of cell c by choice a

Every cell that covers I has a probability above 0, and no other cell has one: what is possible is exact. How likely it
is is an approximation, since the next state need not be uniform on I, nor the state on c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from peakrl.array_problem import ArrayProblem
from peakrl.checks import check_horizon
from peakrl.continuous.grid import Grid
from peakrl.continuous.problem import ContinuousProblem
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome

#: The least share of what is possible, so that no probability underflows.
LEAST = 1e-9


class Image(NamedTuple):
    """What one path through the conditions leads to, from some cells by a choice."""

    #: [cell]: how likely the path is, whether nothing can be violated, the reward, and the share that does not exit.
    weight: Any
    proved: Any
    reward: Any
    inside: Any
    #: [coordinate]: cells [offset, cell] and the share of the image in them.
    spreads: list[tuple[Any, Any]]


class CellProblem(ArrayProblem):
    """The finite problem of `to_problem`: a state is a tuple of indices of cells, (-1, ..) after an exit."""

    stationary = True
    constraint_names: Sequence[str] = ("proved",)
    constraint_bounds: Sequence[float] = (1.0,)

    def __init__(self, problem: ContinuousProblem, grid: Grid, horizon: int | None) -> None:
        self.continuous, self.grid, self.horizon = problem, grid, horizon
        self.name = f"{problem.name} on a grid"
        sequences = problem.sequences.tolist()
        self.all_actions = list(map(tuple, sequences)) if problem.block > 1 else range(len(sequences))
        self.exits = "exit" in problem.outside
        counts = zip(problem.names, grid.cells, strict=True)
        self.state_ranges = {name: (-1 if self.exits else 0, count - 1) for name, count in counts}

    def initial(self) -> list[tuple[float, tuple[int, ...]]]:
        """Return the cells of the start, by the share of the start in each."""
        start, sides = self.continuous.start, []
        if not isinstance(start, tuple):
            raise ProblemError(f"{self.continuous.name!r} needs a start that is a point or a box: pass start=")
        for edges, low, high in zip(self.grid.edges, *start, strict=True):
            first = np.minimum(np.searchsorted(edges, low, "right"), len(edges) - 1) - 1
            cells, shares = spread(edges, low, high, first, np.maximum(first, np.searchsorted(edges, high) - 1))
            sides.append(list(zip(shares.tolist(), cells.tolist(), strict=True)))
        return [(float(np.prod([p for p, _ in pairs])), tuple(k for _, k in pairs)) for pairs in product(*sides)]

    def outcomes(self, step: int, state: Any, action: Any) -> Iterator[Outcome]:
        """Yield an outcome for each position in the index boxes, of probability 0 in states whose box is smaller."""
        over = np.asarray(state[0]) < 0
        images = list(self.images([np.maximum(field, 0) for field in state], self.all_actions.index(action)))
        proved: Any = np.where(over | np.all([image.proved for image in images], axis=0), 1.0, -1.0)
        reward: Any = np.where(over, 0.0, sum(image.weight * image.reward for image in images))
        chance: Any
        for image in images:
            for at in product(*(zip(*each, strict=True) for each in image.spreads)):
                chance = image.weight * image.inside * np.prod([shares for _, shares in at], axis=0)
                chance = np.where(over, 0.0, chance)
                yield Outcome(chance, tuple(cells for cells, _ in at), reward, (proved,))
        if self.exits:
            chance = np.where(over, 1.0, sum(image.weight * (1.0 - image.inside) for image in images))
            yield Outcome(chance, (-1,) * len(state), reward, (proved,))

    def images(self, index: list[Any], choice: int) -> Iterator[Image]:
        """Yield the image of cells by a choice, for each path of each part of the disturbance."""
        problem, grid, shape = self.continuous, self.grid, np.shape(index[0])
        low, high = ([edges[k + side] for edges, k in zip(grid.edges, index, strict=True)] for side in (0, 1))
        low, high = problem.widened(low, high, grid.error)
        weights = np.maximum(problem.weights, LEAST) / np.maximum(problem.weights, LEAST).sum()
        for parts in product(range(len(problem.weights)), repeat=problem.block):
            paths = list(problem.paths(low, high, choice, parts, grid.error))
            ways = sum(np.broadcast_to(path.alive, shape).astype(int) for path in paths)
            for path in paths:
                alive, proved, inside, spreads = np.broadcast_to(path.alive, shape), np.ones(shape, np.bool_), 1.0, []
                for holds in path.holds:
                    proved &= holds
                for j, (edges, image) in enumerate(zip(grid.edges, path.image, strict=True)):
                    cover = np.broadcast_to(grid.covering(path, j), (*shape, 2)).astype(np.int64)
                    first, last = np.where(cover[..., 0] < 0, ~cover[..., 0], cover[..., 0]), cover[..., 1]
                    proved &= cover[..., 0] >= 0
                    bounds = np.broadcast_to(image.low, shape), np.broadcast_to(image.high, shape)
                    if problem.outside[j] == "exit":
                        inside = inside * share_inside(edges, *bounds)
                    spreads.append(spread(edges, *bounds, first, last))
                earned = sum((reward.low + reward.high) / 2 for reward in path.rewards)
                weight = np.where(alive, np.prod(weights[list(parts)]) / ways, 0.0)
                yield Image(weight, proved | ~alive, np.where(alive, earned, 0.0), inside, spreads)


def spread(edges: Any, low: Any, high: Any, first: Any, last: Any) -> tuple[Any, Any]:
    """Return [offset, ..] the cells that cover intervals, and the share of an interval in each, 0 after the last."""
    low, high = np.fmax(low, edges[0]), np.fmin(high, edges[-1])  # also where nothing is known
    offset = np.arange(max(int(np.max(last - first)), 0) + 1).reshape(-1, *[1] * np.ndim(first))
    cells = np.clip(first + offset, 0, np.maximum(last, 0))
    inside = np.minimum(edges[cells + 1], high) - np.maximum(edges[cells], low)
    shares = np.where((offset == 0) | (first + offset <= last), np.maximum(inside, LEAST * (edges[1] - edges[0])), 0.0)
    return cells, shares / shares.sum(axis=0)


def share_inside(edges: Any, low: Any, high: Any) -> Any:
    """Return the share of intervals inside of the box: 0 or 1 only if that is certain."""
    with np.errstate(invalid="ignore"):
        part = np.fmax((np.minimum(high, edges[-1]) - np.maximum(low, edges[0])) / (high - low), 0.0)
    inside = np.where((low >= edges[0]) & (high <= edges[-1]), 1.0, np.clip(part, LEAST, 1 - LEAST))
    return np.where((high < edges[0]) | (low > edges[-1]), 0.0, inside)


def to_problem(
    problem: ContinuousProblem, *, cells: int | Sequence[int] = 100, horizon: int | None = None
) -> CellProblem:
    """Return a finite problem whose states are the cells of a grid, for learners and planners of finite problems.

    A state is the tuple of the indices of a cell, as in `Discretize`, and an action is its index, as in
    `to_gymnasium`. All cells that cover the image of a cell are possible next states, and an action that is not proved
    to satisfy all constraints on all of a cell violates the constraint "proved": the safe set is that of
    `safe_set(problem, cells=cells)`, and holds for the continuous problem. Probabilities and rewards are
    approximations: the share of the image's bounds that a cell covers, and the middle of the reward's bounds. For an
    environment behind `Discretize`, its observations must be exact (float64) and its grid have the ends of the box.

    Parameters
    ----------
    problem
        The problem, with a `start` that is a point or a box. With a `block`, actions are tuples of indices.
    cells
        Number of cells, one for all coordinates or one for each.
    horizon
        Number of steps, or of blocks of actions; None: without an end.

    Returns
    -------
    CellProblem
        An `ArrayProblem`.

    Examples
    --------
    >>> import peakrl
    >>> from peakrl.continuous import to_problem
    >>> cells = to_problem(peakrl.problems.room_temperature(), cells=60, horizon=24)
    >>> peakrl.learn(cells, episodes=500, assumptions=peakrl.Assumptions(support=cells)).violations
    0
    """
    return CellProblem(problem, Grid(problem, cells), check_horizon(horizon, "horizon", MOST_STEPS))
