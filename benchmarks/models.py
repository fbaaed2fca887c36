"""Models that are timed: a random one of the shape of a model checker's benchmark, a sparse one of any size, queues."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from peakrl import ArrayProblem, Outcome, Problem, TabularModel

#: Of `random_model`: the share of pairs with a second outcome, and the far ones among next states; most lie near, as
#: breadth first has it.
BRANCHING, FAR, REACH = 0.1, 0.05, 1_000
#: Of `sparse_model`: actions, steps, and how far next states may lie from a state.
SPARSE_ACTIONS, SPARSE_HORIZON, SPARSE_REACH = 10, 10, 2_000


def random_model(states: int, horizon: int, seed: int = 0) -> TabularModel:
    """A stationary model without constraints: 3.2 actions a state and 1.1 outcomes an action on average."""
    rng = np.random.default_rng(seed)
    most = 5
    available = np.arange(most) < rng.choice([2, 3, 4, 5], states, p=[0.3, 0.35, 0.2, 0.15])[:, None]
    pairs = states * most
    sizes = 1 + (rng.random(pairs) < BRANCHING)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    state = np.repeat(np.arange(states), most).repeat(sizes)
    near = state + rng.integers(-REACH, REACH, starts[-1])
    following = np.where(rng.random(starts[-1]) < FAR, rng.integers(0, states, starts[-1]), near) % states
    first = rng.uniform(0.1, 0.9, pairs)
    probability = np.where(sizes.repeat(sizes) == 1, 1.0, first.repeat(sizes))
    second = starts[1:][sizes == 2] - 1
    probability[second] = 1.0 - first[sizes == 2]
    transitions = sparse.csr_matrix((probability, following, starts), shape=(pairs, states))
    rewards = rng.random((states, most))
    return TabularModel.from_arrays(transitions, rewards, np.empty((0, states, most)), horizon, available=available)


def sparse_model(states: int, seed: int = 0) -> TabularModel:
    """A stationary model of `states` states: 10 actions with 2 outcomes each, one constraint, 10 steps."""
    rng = np.random.default_rng(seed)
    pairs = states * SPARSE_ACTIONS
    state = np.repeat(np.arange(states), SPARSE_ACTIONS * 2)
    following = (state + rng.integers(0, min(states, SPARSE_REACH), pairs * 2)) % states
    chance = rng.uniform(0.1, 0.9, pairs)
    probability = np.stack([chance, 1.0 - chance], axis=1).ravel()
    starts = np.arange(0, pairs * 2 + 1, 2)
    transitions = sparse.csr_matrix((probability, following, starts), shape=(pairs, states))
    rewards = rng.random((states, SPARSE_ACTIONS))
    constraints = rng.normal(1.5, 1.0, (1, states, SPARSE_ACTIONS))
    return TabularModel.from_arrays(transitions, rewards, constraints, SPARSE_HORIZON, name=f"{states:,} states")


# Three queues and one server: each step one queue is served, at one of two speeds, and at most one customer arrives.
# With room for 46 in each queue 87,608 states and 525,648 pairs can be reached, most of them with four outcomes.

#: (probability, who arrives: how many in each queue)
ARRIVALS = ((0.4, (0, 0, 0)), (0.3, (1, 0, 0)), (0.2, (0, 1, 0)), (0.1, (0, 0, 1)))
ACTIONS = tuple((who, speed) for who in range(3) for speed in (1, 2))
CROWDED = 30


class Queues(ArrayProblem):
    """Asked about whole layers of states."""

    name, stationary, horizon = "queues", True, 150
    constraint_names = ("crowd",)
    all_actions = ACTIONS

    def __init__(self, room: int = 46) -> None:
        self.room = room
        self.state_ranges = {"first": (0, room), "second": (0, room), "third": (0, room)}

    def initial(self) -> Any:
        """Begin with empty queues."""
        return [(1.0, (0, 0, 0))]

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Serve, then a customer may arrive."""
        who, speed = action
        served = np.minimum(state[who], speed)
        left = tuple(queue - served if number == who else queue for number, queue in enumerate(state))
        reward, margin = served - 0.2 * speed, 3.0 * CROWDED - sum(left)
        return [
            Outcome(
                chance,
                tuple(np.minimum(queue + more, self.room) for queue, more in zip(left, arriving, strict=True)),
                reward,
                (margin,),
            )
            for chance, arriving in ARRIVALS
        ]


class PlainQueues(Problem):
    """The same, asked about one state after another."""

    name, stationary, horizon = "queues", True, 150
    constraint_names = ("crowd",)

    def __init__(self, room: int = 46) -> None:
        self.room = room

    def initial(self) -> Any:
        """Begin with empty queues."""
        return [(1.0, (0, 0, 0))]

    def actions(self, step: int, state: Any) -> Any:
        """Any queue, at any speed."""
        return ACTIONS

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Serve, then a customer may arrive."""
        who, speed = action
        served, room = min(state[who], speed), self.room
        a, b, c = (queue - served if number == who else queue for number, queue in enumerate(state))
        reward, margin = served - 0.2 * speed, (3.0 * CROWDED - a - b - c,)
        return [
            Outcome(chance, (min(a + i, room), min(b + j, room), min(c + k, room)), reward, margin)
            for chance, (i, j, k) in ARRIVALS
        ]
