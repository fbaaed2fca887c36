"""Random draws, and a problem as an environment that draws as the kernels do."""

from __future__ import annotations


class Xoshiro:
    """xoshiro256++ seeded by splitmix64, in plain Python integers (Blackman and Vigna)."""

    MASK = (1 << 64) - 1

    def __init__(self, seed):
        self.state = []
        x = seed
        for _ in range(4):
            x = (x + 0x9E3779B97F4A7C15) & self.MASK
            z = x
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
            self.state.append(z ^ (z >> 31))

    def _rotate(self, x, k):
        return ((x << k) | (x >> (64 - k))) & self.MASK

    def word(self):
        s = self.state
        result = (self._rotate((s[0] + s[3]) & self.MASK, 23) + s[0]) & self.MASK
        t = (s[1] << 17) & self.MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = self._rotate(s[3], 45)
        return result

    def uniform(self):
        return (self.word() >> 11) * 2.0**-53


def alias_table(probabilities):
    """Walker's alias table of a list of probabilities by Vose's construction: [(accept, other column)]."""
    size = len(probabilities)
    accept, alias = [p * size for p in probabilities], list(range(size))
    poor = [column for column in range(size) if accept[column] < 1.0]
    rich = [column for column in range(size) if accept[column] >= 1.0]
    while poor and rich:
        taker, giver = poor.pop(), rich[-1]
        alias[taker] = giver
        accept[giver] -= 1.0 - accept[taker]
        if accept[giver] < 1.0:
            poor.append(rich.pop())
    for column in poor + rich:  # what is left is 1 up to rounding
        accept[column] = 1.0
    return list(zip(accept, alias, strict=True))


def order_met(problem):
    """{(step, state): place} in the order in which a breadth-first search meets them; without the step if stationary.

    Actions and outcomes are taken as the problem tells them, and every state is asked about when it is first met.
    """

    def key(step, state):
        return state if problem.stationary else (step, state)

    places, layer = {}, [state for p, state in problem.initial() if p > 0]
    for state in layer:
        places[key(0, state)] = len(places)
    for step in range(problem.horizon):
        following = []
        for state in layer:
            for action in problem.actions(step, state):
                for outcome in problem.outcomes(step, state, action):
                    if outcome.probability > 0 and key(step + 1, outcome.next_state) not in places:
                        places[key(step + 1, outcome.next_state)] = len(places)
                        following.append(outcome.next_state)
        layer = following
    return lambda step, state: places[key(step, state)]


class Walk:
    """A problem as an environment whose draws are those of the kernels: one number wherever two things can come out.

    Outcomes stand in the order in which their next states were met, then of their payoffs; equal ones are one, and so
    are those that lead to one state where the payoff does not depend on the outcome.
    """

    def __init__(self, problem, seed):
        self.problem, self.generator = problem, Xoshiro(seed)
        self.place, self.known = order_met(problem), {}
        self.first = [(p, state) for p, state in problem.initial() if p > 0]

    def draw(self, members):
        """One of (probability, ...) members by the alias method; the only one is not drawn."""
        if len(members) == 1:
            return members[0]
        scaled = self.generator.uniform() * len(members)
        column = int(scaled)
        accept, other = alias_table([member[0] for member in members])[column]
        return members[column if scaled - column < accept else other]

    def outcomes(self, step, state, action):
        """(probability, next state, reward, constraints), in order."""
        if (step, state, action) not in self.known:
            merged = {}
            for outcome in self.problem.outcomes(step, state, action):
                if outcome.probability > 0:
                    key = (outcome.next_state, (float(outcome.reward), *map(float, outcome.constraints)))
                    merged[key] = merged.get(key, 0.0) + outcome.probability
            payoffs = {payoff for _, payoff in merged}
            if len(payoffs) == 1:
                (payoff,), by_state = payoffs, {}
                for (following, _), p in merged.items():
                    by_state[following, payoff] = by_state.get((following, payoff), 0.0) + p
                merged = by_state
            ordered = sorted(merged.items(), key=lambda item: (self.place(step + 1, item[0][0]), item[0][1]))
            self.known[step, state, action] = [(p, following, *paid(payoff)) for (following, payoff), p in ordered]
        return self.known[step, state, action]

    def reset(self):
        self.step_number, self.state = 0, self.draw(self.first)[1]
        return self.state

    def actions(self):
        return list(self.problem.actions(self.step_number, self.state))

    def step(self, action):
        """(next state, reward, constraints)."""
        _, self.state, reward, constraints = self.draw(self.outcomes(self.step_number, self.state, action))
        self.step_number += 1
        return self.state, reward, constraints


def paid(payoff):
    """The reward and the constraint values of (reward, constraints...)."""
    return payoff[0], list(payoff[1:])


def simulate_by_walking(problem, episodes, seed, begin, choose):
    """(rewards, violations) of episodes in which begin(generator) is called first and choose(...) gives each action.

    `choose(begun, generator, step, state)` sees what begin returned.
    """
    walk = Walk(problem, seed)
    rewards, violations = [], []
    for _ in range(episodes):
        begun = begin(walk.generator)
        state, reward, violation = walk.reset(), 0.0, 0.0
        for step in range(problem.horizon):
            state, earned, constraints = walk.step(choose(begun, walk.generator, step, state))
            reward += earned
            for f in constraints:
                violation += max(-f, 0.0)
        rewards.append(reward)
        violations.append(violation)
    return rewards, violations


def pick(chances, number):
    """The action in whose stretch of [0, 1) `number` falls, actions in order."""
    for action, chance in chances.items():
        if number < chance:
            return action
        number -= chance
    return [action for action, chance in chances.items() if chance > 0][-1]
