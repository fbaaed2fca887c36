"""Random problems and slippery grids on which certificates are counted.

An instance is a number, drawn from a generator of its own; draws that no policy can keep are made again. How many
episodes they should take was set on the "first" draws; none of the others had a part in any setting.

    random    5 to 20 states, 2 to 5 actions, 5 to 10 steps, one or two constraints; a fifth of the pairs violates; two
              or three next states for even numbers, all of them for odd ones
    grid      4 x 4 to 6 x 6 cells, 10 to 20 steps; a move slips to either side with probability 0.1, an eighth of the
              cells are holes, in which everything violates; each step at the goal earns 1
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from peakrl.model.tabular import TabularModel
from peakrl.planning import solve

Generator = np.random.Generator
#: Sides and steps of the grids.
GRIDS = ((4, 10), (4, 15), (5, 15), (5, 20), (6, 20))
SLIP = 0.1
#: Rows and columns of a move up, right, down, left.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def drawn(family: str, number: int) -> TabularModel:
    """Return an instance of a family."""
    make, seed = FAMILIES[family]
    generator = np.random.default_rng(seed + number if family.startswith("first") else [seed, number])
    while True:
        model = make(generator, number)
        best = solve(model)
        if best.feasible and best.value > 0.5:
            return model


def random_problem(generator: Generator, number: int, *, first: bool = False) -> TabularModel:
    """Return a random problem; of the `first` draws rewards come before constraints, and all states are in order."""
    states, actions, horizon = (int(generator.integers(*between)) for between in ((5, 21), (2, 6), (5, 11)))
    constraints = int(generator.integers(1, 3))
    transitions = np.zeros((states, actions, states))
    for state in range(states):
        for action in range(actions):
            size = int(generator.integers(2, 4)) if number % 2 == 0 else states
            every = first and size == states
            chosen = np.arange(states) if every else generator.choice(states, size, replace=False)
            transitions[state, action, chosen] = generator.dirichlet(np.ones(size))
    shape = constraints, states, actions
    rewards = generator.random((states, actions)) if first else None
    margins = np.where(generator.random(shape) < 0.2 / constraints, -generator.random(shape), generator.random(shape))
    return TabularModel.from_arrays(
        transitions, generator.random((states, actions)) if rewards is None else rewards, margins, horizon,
        reward_range=(0.0, 1.0), constraint_bounds=[1.0] * constraints, name=f"random {number}",
    )  # fmt: skip


def grid(generator: Generator, number: int) -> TabularModel:
    """Return a slippery grid."""
    side, horizon = GRIDS[number % len(GRIDS)]
    cells = side * side
    goal, holes = cells - 1, set(generator.choice(np.arange(1, cells - 1), cells // 8, replace=False).tolist())
    transitions, rewards, margins = np.zeros((cells, 4, cells)), np.zeros((cells, 4)), np.ones((1, cells, 4))
    for cell in range(cells):
        for action in range(4):
            if cell == goal or cell in holes:
                transitions[cell, action, cell] = 1.0
                continue
            for turn, chance in ((0, 1 - 2 * SLIP), (1, SLIP), (-1, SLIP)):
                down, right = MOVES[(action + turn) % 4]
                row, column = cell // side + down, cell % side + right
                row, column = min(max(row, 0), side - 1), min(max(column, 0), side - 1)
                transitions[cell, action, row * side + column] += chance
    rewards[goal] = 1.0
    margins[0, sorted(holes)] = -1.0
    return TabularModel.from_arrays(
        transitions, rewards, margins, horizon, reward_range=(0.0, 1.0), constraint_bounds=[1.0], name=f"grid {number}"
    )


#: How each is drawn, and the seed of the family.
FAMILIES: dict[str, tuple[Callable[[Generator, int], TabularModel], int]] = {
    "random": (random_problem, 71),
    "grid": (grid, 72),
    "first random": (partial(random_problem, first=True), 1000),
    "first grid": (grid, 2000),
}
