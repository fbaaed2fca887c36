"""The practical learner from its formulas, with dictionaries."""

from __future__ import annotations

import math

from naive.draws import Walk
from naive.problems import decision_points


class PracticalTwin:
    """The practical learner from its formulas, with dictionaries; keys are (step, state, action).

    What settings decide, penalty and start [step], is given by the test; of the model no more is asked than whether one
    table serves every step, and the least reward.
    """

    #: The constants of the formulas: c of the adaptive step size and when it takes errors for chance, m after the
    #: proof, c of trials.
    window, settled, patience, doubt = 5.0, 20, 20.0, 3.0

    def __init__(self, problem, model, settings, *, penalty, start):
        self.problem, self.settings, self.penalty, self.start = problem, settings, penalty, list(start)
        self.stationary, self.least_reward = model.stationary, model.reward_range[0]
        self.horizon = problem.horizon
        self.remembers, self.proved = True, None
        points = {point: list(problem.actions(*point)) for point in decision_points(problem)}
        if self.stationary:
            # One table for all steps: a state has its place at every step, also where it cannot be met.
            offers = {state: actions for (_, state), actions in points.items()}
            points = {(step, state): actions for step in range(self.horizon) for state, actions in offers.items()}
        self.nodes = points
        self.q, self.max_violation, self.forbidden = {}, {}, set()
        self.begin()

    def begin(self):
        self.n, self.errors = {}, {}
        # The actions that trials take, by node; how often a state was met; the mean square of errors.
        self.tried_next, self.met, self.square = {}, {}, {}
        for (h, state), actions in self.nodes.items():
            for action in actions:
                self.q[h, state, action] = self.start[h]

    # What is known ------------------------------------------------------------------------------------------------

    def w(self, h, state):
        if (h, state) not in self.nodes:
            return 0.0
        return max(self.q[h, state, action] for action in self.nodes[h, state])

    def choice(self, h, state):
        actions = self.nodes[h, state]
        if self.w(h, state) == -math.inf:
            return min(actions, key=lambda a: self.max_violation.get(self.pair(h, state, a), 0.0))
        if (h, state) in self.tried_next:
            return self.tried_next[h, state]
        return max(actions, key=lambda a: self.q[h, state, a])

    def table(self):
        return {node: self.choice(*node) for node in self.nodes}

    def pair(self, h, state, action):
        """A stored pair: in a stationary model the same one at every step."""
        return (state, action) if self.stationary else (h, state, action)

    def columns(self, h, state):
        """The steps that a transition from `state` at step h teaches."""
        return [c for c in range(self.horizon) if (c, state) in self.nodes] if self.stationary else [h]

    # What is learned ----------------------------------------------------------------------------------------------

    def alike(self, h, state, action):
        """Every entry whose constraints are declared to be those of the pair."""
        depends_on = self.settings.constraint_depends_on
        for step, other in self.nodes:
            for choice in self.nodes[step, other]:
                same = {
                    None: self.pair(step, other, choice) == self.pair(h, state, action),
                    "pair": (other, choice) == (state, action),
                    "action": choice == action,
                    "state": other == state,
                }[depends_on]
                if same:
                    yield step, other, choice

    def forbid(self, h, state, action, violation):
        for entry in list(self.alike(h, state, action)):
            pair = self.pair(*entry)
            self.max_violation[pair] = max(self.max_violation.get(pair, 0.0), violation)
            self.q[entry] = -math.inf
            self.forbidden.add(entry)
            for c in range(self.horizon) if self.stationary else [entry[0]]:
                self.tried_next.pop((c, entry[1]), None)

    # Trials

    def place(self, h, state):
        """A stored state: in a stationary model the same one at every step."""
        return state if self.stationary else (h, state)

    def try_again(self, h, state):
        """After a visit at step h: the next one is a trial if there were j^2 / 4 so far, rounded down."""
        place = self.place(h, state)
        met = self.met[place] = self.met.get(place, 0) + 1
        for c in self.columns(h, state):
            self.tried_next.pop((c, state), None)
            if any(met == j * j // 4 for j in range(met + 2)) and self.w(c, state) > -math.inf:
                self.tried_next[c, state] = max(self.nodes[c, state], key=lambda a, c=c: self.hope(c, state, a))

    def hope(self, h, state, action):
        key = self.pair(h, state, action)
        spread = self.errors.get(key, (0.0, 0.0, 0.0))[2]
        return self.q[h, state, action] + self.doubt * math.sqrt(spread * self.square.get(key, 0.0))

    def step_size(self, key, old, target):
        t = self.n[key] = self.n.get(key, 0) + 1
        if self.proved:
            return (self.horizon + 1.0) / (self.horizon + self.patience + t)
        offset = self.window
        if old == -math.inf or target == -math.inf:
            return (offset + 1.0) / (offset + t)
        delta = target - old
        error, mean = delta if t > 1 else self.start[-1], self.square.get(key, 0.0)
        self.square[key] = mean + (error * error - mean) / t
        b, v, spread = self.errors.get(key, (0.0, 0.0, 0.0))
        g = offset / (offset + t)
        b = (1.0 - g) * b + g * delta
        v = (1.0 - g) * v + g * delta * delta
        alpha = 1.0
        if t > 2:
            noise = v - b * b
            if t > self.settled:
                noise = min(noise / ((1.0 - g) * (1.0 - g)), v)
            alpha = 1.0 - noise / ((1.0 + spread) * v) if v > 0 else 1.0 / t
            alpha = min(1.0, max(alpha, 1.0 / t))
        self.errors[key] = b, v, (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
        return alpha

    def update_pair(self, h, state, action, reward, following):
        columns = self.columns(h, state)
        key = self.pair(h, state, action)
        alpha = self.step_size(key, self.q[h, state, action], reward + self.w(h + 1, following))
        targets = {c: reward + self.w(c + 1, following) for c in columns}
        for c in columns:
            old = self.q[c, state, action]
            if old > -math.inf:
                self.q[c, state, action] = new = old + alpha * (targets[c] - old)
                if new == -math.inf:
                    self.forbidden.add((c, state, action))

    def learn(self, path):
        for h, state, action, r, f, following in reversed(path):
            violation = sum(max(-x, 0.0) for x in f)
            if self.remembers and violation > 0:
                self.forbid(h, state, action, violation)
            reward = r - self.least_reward
            if not self.remembers and f:
                beyond = sum(min(0.0, min(x, 0.0)) for x in f)
                reward = r + (self.penalty / len(f)) * beyond - self.least_reward
            self.update_pair(h, state, action, reward, following)
            if self.settings.trials and not self.proved:
                self.try_again(h, state)

    def run(self, episodes, seed):
        """Run from the start; return the policies pi^1 .. pi^K in full."""
        self.walk = walk = Walk(self.problem, seed)
        trace = []
        for k in range(episodes):
            trace.append(self.table())
            state, path = walk.reset(), []
            for h in range(self.horizon):
                action = trace[-1][h, state]
                following, r, f = walk.step(action)
                path.append((h, state, action, r, f, following))
                state = following
            self.learn(path)
            if self.remembers and self.w(0, path[0][1]) == -math.inf:
                self.remembers, self.proved = False, k + 1
                self.begin()
        return trace


class DiscountedPracticalTwin(PracticalTwin):
    """The same without an end: all steps are step 0, and step 1 is step 0 at a discount."""

    def __init__(self, problem, model, settings, span, *, penalty, discount):
        self.discount = discount
        super().__init__(problem, model, settings, penalty=penalty, start=[span / (1 - discount)] * problem.horizon)
        self.start[-1] = span

    def w(self, h, state):
        return (self.discount if h else 1.0) * super().w(0, state)

    def columns(self, h, state):
        return [0]

    def run(self, episodes, seed):
        self.walk = walk = Walk(self.problem, seed)
        for k in range(episodes):
            state, path = walk.reset(), []
            table = self.table()
            for _ in range(self.horizon):
                action = table[0, state]
                following, r, f = walk.step(action)
                path.append((0, state, action, r, f, following))
                state = following
            self.learn(path)
            if self.remembers and self.w(0, path[0][1]) == -math.inf:
                self.remembers, self.proved = False, k + 1
                self.begin()
