"""The machine of docs/if-you-come-from.md, without an end: cold, warm or hot, of which hot violates."""

from peakrl.problem import Outcome, Problem


class Machine(Problem):
    """Running earns 2 and heats, resting cools."""

    name, horizon, constraint_names, stationary = "machine", None, ("not hot",), True

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return ("rest", "run")

    def outcomes(self, step, state, action):
        met = (-1.0,) if state == 2 else (1.0,)
        if action == "rest":
            return [Outcome(1.0, max(state - 1, 0), 0.0, met)]
        chances = {0: {0: 0.5, 1: 0.5}, 1: {1: 0.4, 2: 0.6}, 2: {2: 1.0}}[state]
        return [Outcome(chance, following, 2.0, met) for following, chance in chances.items()]
