"""The problems on which everybody must agree with the safe set, action by action."""

from __future__ import annotations

import peakrl
from peakrl.problems import energy_harvesting, scheduling_example


class Inventory(peakrl.Problem):
    """Stock with a lead time of two steps and a demand of 0 to 2; there must be enough, and room for what comes."""

    name, horizon, constraint_names, stationary = "inventory", 6, ("stock", "room"), True

    def initial(self):
        return [(1.0, (6, 0, 0))]

    def actions(self, step, state):
        return range(3)

    def outcomes(self, step, state, action):
        stock, soon, later = state
        for demand in range(3):
            left = stock - demand
            arrived = max(left, 0) + soon
            after = (min(arrived, 10), later, action)
            yield peakrl.Outcome(1 / 3, after, -float(stock), (float(left), 10.0 - arrived))


BUILT_IN = {
    "energy harvesting": energy_harvesting(horizon=4, battery=6, max_arrival=5, mean=3, std=2, peak_power=3),
    "scheduling 1": scheduling_example(1),
    "scheduling 2": scheduling_example(2),
    "scheduling 3": scheduling_example(3),
    "inventory": Inventory(),
}
#: The same problem as the paper has it: 176,190 actions of states that can be met.
PAPERS_SIZE = "energy harvesting, the paper's size"


def problem_of(name):
    return energy_harvesting() if name == PAPERS_SIZE else BUILT_IN[name]
