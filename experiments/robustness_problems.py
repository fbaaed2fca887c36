"""Generated families of problems on which no learner was tuned: what makes each one hard, and how it is drawn.

An instance is a number: `instance(family, number)` draws it from a generator seeded by both, so that it is the same
everywhere. Draws that a family does not mean to have (a problem that cannot be met where it should be) are made again.
States and actions are numbers; rewards and constraints belong to pairs, so that a random reward or a random violation
shows in the state that follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve

Generator = np.random.Generator
#: Draws of one instance before its family is taken to be wrong.
MOST_DRAWS = 100


def instance(family: str, number: int) -> TabularModel:
    """Return an instance of a family: the same one for the same number."""
    if family not in FAMILIES:
        raise SettingsError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    generator = np.random.default_rng([list(FAMILIES).index(family), number])
    for _ in range(MOST_DRAWS):
        model = FAMILIES[family](generator)
        if solve(model).feasible == (family != INFEASIBLE):
            return model
    raise SettingsError(f"{family!r}: {MOST_DRAWS} draws gave no instance as it is meant to be")


def dense(generator: Generator) -> TabularModel:
    """Every state may follow every other; one pair in five violates."""
    states, actions = 12, 4
    transitions = generator.dirichlet(np.ones(states), (states, actions))
    rewards = generator.random((states, actions))
    return TabularModel.from_arrays(transitions, rewards, margins(generator, states, actions, 0.2), 10, name="dense")


def sparse(generator: Generator) -> TabularModel:
    """Few states follow a pair; one in five violates, and so states are lost that lead to nothing else."""
    states, actions = 25, 4
    transitions = few_outcomes(generator, states, actions, 3)
    rewards = generator.random((states, actions))
    return TabularModel.from_arrays(transitions, rewards, margins(generator, states, actions, 0.2), 12, name="sparse")


def step_dependent(generator: Generator) -> TabularModel:
    """Laws and rewards of their own at every step: nothing can be pooled."""
    horizon, states, actions = 6, 6, 3
    transitions = generator.dirichlet(np.full(states, 0.5), (horizon, states, actions))
    rewards = generator.random((horizon, states, actions))
    limits = np.stack([margins(generator, states, actions, 0.2) for _ in range(horizon)])
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="step-dependent")


def chain(generator: Generator) -> TabularModel:
    """The large reward lies at the far end of a chain, a small one at its beginning, and each step forward may fail."""
    states = int(generator.integers(6, 11))
    slip, small = generator.uniform(0.0, 0.3), generator.uniform(0.001, 0.02)
    order = generator.permuted(np.tile(np.arange(3), (states, 1)), axis=1)
    transitions, rewards = np.zeros((states, 3, states)), np.zeros((states, 3))
    limits = np.ones((1, states, 3))
    for state in range(states):
        back, forward, bad = order[state]
        transitions[state, back, max(state - 1, 0)] = 1.0
        transitions[state, forward, min(state + 1, states - 1)] += 1.0 - slip
        transitions[state, forward, max(state - 1, 0)] += slip
        transitions[state, bad, state] = 1.0
        limits[0, state, bad] = -1.0
    rewards[0, order[0, 0]] = small
    rewards[-1, order[-1, 1]] = 1.0
    return TabularModel.from_arrays(transitions, rewards, limits, 2 * states, name="chain")


def rare_catastrophe(generator: Generator) -> TabularModel:
    """The better half of the actions leads with probability 0.001 to where only violations are left."""
    states, actions, rare = 6, 4, 1e-3
    transitions = np.zeros((states + 1, actions, states + 1))
    transitions[:states, :, :states] = generator.dirichlet(np.ones(states), (states, actions))
    risky = np.zeros((states, actions), bool)
    risky[:, 0::2] = True
    risky = generator.permuted(risky, axis=1)
    transitions[:states][risky] *= 1.0 - rare
    transitions[:states, :, states][risky] = rare
    transitions[states, :, states] = 1.0
    rewards = np.zeros((states + 1, actions))
    rewards[:states] = 0.5 * generator.random((states, actions)) + 0.5 * risky
    limits = np.ones((1, states + 1, actions))
    limits[0, states] = -1.0
    return TabularModel.from_arrays(transitions, rewards, limits, 6, name="rare catastrophe")


def heavy_noise(generator: Generator) -> TabularModel:
    """Actions differ by a few per cent in how likely the one state is that earns anything."""
    states, actions, horizon = 6, 5, 5
    chance = 0.1 + 0.03 * generator.random((states, actions))
    chance[generator.random((states, actions)) < 0.1] = 0.0
    rest = generator.dirichlet(np.ones(states - 1), (states, actions))
    transitions = np.concatenate([rest * (1.0 - chance[..., None]), chance[..., None]], axis=2)
    rewards = np.zeros((states, actions))
    rewards[-1] = 1.0
    limits = margins(generator, states, actions, 0.15)
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="heavy noise")


def stock_or_queue(generator: Generator) -> TabularModel:
    """A stock that must not overflow, or a queue: as often the one as the other."""
    return stock(generator) if generator.random() < 0.5 else queue(generator)


def stock(generator: Generator) -> TabularModel:
    """Order before the demand is known; what is ordered must fit in, and what is missing is not sold."""
    room, most = int(generator.integers(8, 13)), 4
    demand = generator.dirichlet(np.ones(most + 1))
    price, cost, holding = 1.0, generator.uniform(0.2, 0.6), generator.uniform(0.01, 0.1)
    transitions, rewards = np.zeros((room + 1, most + 1, room + 1)), np.zeros((room + 1, most + 1))
    limits = np.ones((1, room + 1, most + 1))
    for held in range(room + 1):
        for order in range(most + 1):
            limits[0, held, order] = room - held - order
            ready = min(held + order, room)
            for wanted, chance in enumerate(demand):
                sold = min(ready, wanted)
                transitions[held, order, ready - sold] += chance
                rewards[held, order] += chance * price * sold
            rewards[held, order] -= cost * order + holding * ready
    return TabularModel.from_arrays(transitions, rewards, limits, 12, initial=room // 2, name="stock")


def queue(generator: Generator) -> TabularModel:
    """Serve slowly and cheaply or fast and dearly; a queue that has once been longer than allowed stays so."""
    room, rates = int(generator.integers(6, 10)), 3
    arrivals = generator.dirichlet([4.0, 2.0, 1.0])
    serve = np.sort(generator.uniform(0.2, 0.9, rates - 1))
    prices = np.sort(generator.uniform(0.0, 1.0, rates))
    transitions, rewards = np.zeros((room + 2, rates, room + 2)), np.zeros((room + 2, rates))
    limits = np.ones((1, room + 2, rates))
    limits[0, room + 1] = -1.0
    transitions[room + 1, :, room + 1] = 1.0
    for waiting in range(room + 1):
        for rate in range(rates):
            rewards[waiting, rate] = -prices[rate] - waiting / room
            # The fastest rate serves two for certain: it keeps every queue within bounds.
            served = [(2, 1.0)] if rate == rates - 1 else [(1, serve[rate]), (0, 1.0 - serve[rate])]
            for gone, chance in served:
                for come, likely in enumerate(arrivals):
                    transitions[waiting, rate, min(max(waiting - gone, 0) + come, room + 1)] += chance * likely
    rewards[room + 1] = rewards.min()
    return TabularModel.from_arrays(transitions, rewards, limits, 15, name="queue")


def grid(generator: Generator) -> TabularModel:
    """A slippery grid with one-way corridors: from their mouth on, a fall is certain but steps away."""
    side, horizon, slip = 5, 16, generator.uniform(0.05, 0.3)
    cells = side * side
    goal, corridor = cells - 1, 3
    mouths = generator.choice(np.arange(1, cells - 1), 3, replace=False)
    states = cells + len(mouths) * corridor
    transitions, rewards = np.zeros((states, 4, states)), np.zeros((states, 4))
    limits = np.ones((1, states, 4))
    for cell in range(cells):
        for action in range(4):
            for turn, chance in ((0, 1.0 - slip), (1, slip / 2), (3, slip / 2)):
                transitions[cell, action, beside(cell, (action + turn) % 4, side)] += chance
    for number, mouth in enumerate(mouths):
        for depth in range(corridor):
            place = cells + number * corridor + depth
            transitions[place, :, min(place + 1, cells + number * corridor + corridor - 1)] = 1.0
            limits[0, place, :] = -1.0 if depth == corridor - 1 else 1.0
        transitions[mouth] = 0.0
        transitions[mouth, :, cells + number * corridor] = 1.0
        rewards[mouth] = 0.3
    transitions[goal], rewards[goal] = 0.0, 1.0
    transitions[goal, :, goal] = 1.0
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="grid")


def beside(cell: int, direction: int, side: int) -> int:
    """Return the cell of a grid that lies up, right, down or left of another; the same one at the border."""
    row, column = divmod(cell, side)
    row += (-1, 0, 1, 0)[direction]
    column += (0, 1, 0, -1)[direction]
    return min(max(row, 0), side - 1) * side + min(max(column, 0), side - 1)


def many_actions(generator: Generator) -> TabularModel:
    """Forty actions in each of five states, most of them poor."""
    states, actions = 5, 40
    transitions = generator.dirichlet(np.full(states, 0.5), (states, actions))
    rewards = generator.beta(1.0, 3.0, (states, actions))
    limits = margins(generator, states, actions, 0.3)
    return TabularModel.from_arrays(transitions, rewards, limits, 5, name="many actions")


def several_constraints(generator: Generator) -> TabularModel:
    """Three constraints, each with its own sense of what is too much, and any state may be the first."""
    states, actions = 10, 6
    transitions = few_outcomes(generator, states, actions, 4)
    rewards = generator.random((states, actions))
    limits = np.concatenate([margins(generator, states, actions, 0.12) for _ in range(3)])
    first = generator.dirichlet(np.ones(states))
    return TabularModel.from_arrays(transitions, rewards, limits, 8, initial=first, name="several constraints")


def infeasible(generator: Generator) -> TabularModel:
    """No policy keeps the constraint: the least expected violation is wanted, and then the most reward."""
    states, actions = 10, 3
    transitions = few_outcomes(generator, states, actions, 3)
    rewards = generator.random((states, actions))
    limits = generator.uniform(-1.0, 0.4, (1, states, actions))
    return TabularModel.from_arrays(transitions, rewards, limits, 8, name="infeasible")


def margins(generator: Generator, states: int, actions: int, share: float) -> Floats:
    """Return (1, S, A): a share of the pairs violates by up to 1, the others have room."""
    size = generator.uniform(0.1, 1.0, (1, states, actions))
    fails = generator.random((1, states, actions)) < share
    # One action of each state keeps the constraint; it need not lead where that can go on.
    fails[0, np.arange(states), generator.integers(0, actions, states)] = False
    return np.where(fails, -size, size)


def few_outcomes(generator: Generator, states: int, actions: int, outcomes: int) -> NDArray[np.float64]:
    """Return laws (S, A, S) with a few possible next states each."""
    transitions = np.zeros((states, actions, states))
    for state in range(states):
        for action in range(actions):
            chosen = generator.choice(states, outcomes, replace=False)
            transitions[state, action, chosen] = generator.dirichlet(np.ones(outcomes))
    return transitions


INFEASIBLE = "infeasible"
#: How an instance of each family is drawn.
FAMILIES: dict[str, Callable[[Generator], TabularModel]] = {
    "dense": dense,
    "sparse": sparse,
    "step-dependent": step_dependent,
    "chains": chain,
    "rare catastrophe": rare_catastrophe,
    "heavy noise": heavy_noise,
    "stock and queues": stock_or_queue,
    "grids": grid,
    "many actions": many_actions,
    "several constraints": several_constraints,
    INFEASIBLE: infeasible,
}
