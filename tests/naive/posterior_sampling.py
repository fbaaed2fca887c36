"""Slow, obvious twin of posterior sampling: dictionaries and recursion over labels, written from the formulas."""

from __future__ import annotations

import math

from naive.draws import Walk, Xoshiro

LEAST_COST, TIE, UNKNOWN_COST, MOST_KINDS = 1e-290, 1 + 1e-12, 1e200, 64


class Gammas(Xoshiro):
    """Gamma numbers by Marsaglia and Tsang, on normal numbers by the polar method."""

    def normal(self):
        while True:
            x, y = 2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0
            square = x * x + y * y
            if 0.0 < square < 1.0:
                return x * math.sqrt(-2.0 * math.log(square) / square)

    def gamma(self, shape):
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            root = 1.0 + c * x
            if root > 0.0:
                v = root * root * root
                u = max(self.uniform(), 2.0**-54)
                if math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
                    return d * v


class Outcome:
    """One kind of outcome of a distribution."""

    def __init__(self, following, reward, violation):
        self.following, self.reward, self.violation = following, reward, violation
        self.count, self.weight = 0, 0.0


class Pair:
    """What was seen of a distribution (and, with distributions of their own, of a pair)."""

    def __init__(self):
        self.visits = self.drawn = 0
        self.optimism, self.outcomes = 1.0, []


class Posterior:
    """The learner on a model; states by (step, label), where nothing depends on the step by (0, label)."""

    def __init__(
        self, problem, model, seed, stream, *, optimism, replan_growth, most=None, distribution_of=None, group_of=None
    ):
        self.model, self.horizon = model, model.horizon
        self.walk, self.random = Walk(problem, seed), Gammas(seed ^ stream)
        self.least_share, self.growth = optimism, replan_growth
        lo, hi = model.reward_range
        hi = hi if most is None else min(hi, most)
        self.most = [hi * (self.horizon - h) for h in range(self.horizon + 1)]
        self.least = [lo * (self.horizon - h) for h in range(self.horizon + 1)]
        layers = [0] if model.stationary else range(self.horizon)
        #: {(layer, state): its actions}, in the order of the model.
        self.offers = {}
        for h in layers:
            for slot in range(*model.layout.step_slots[h]):
                rows = model.rows_of_slot(slot)
                if rows:
                    self.offers[h, model.state_of_slot(slot)] = [model.action_of_row(row) for row in rows]
        pairs = [(*place, action) for place, actions in self.offers.items() for action in actions]
        self.shared = distribution_of is not None
        self.distribution_of = {pair: distribution_of(*pair) if self.shared else pair for pair in pairs}
        self.group_of = {pair: group_of(*pair) if group_of else pair for pair in pairs}
        self.distributions = {}
        numbered = sorted(set(self.distribution_of.values())) if self.shared else pairs
        for distribution in numbered:
            self.distributions[distribution] = Pair()
        self.tried, self.reward, self.cost, self.max_violation = {}, {}, {}, {}
        self.value, self.dead, self.choice = {}, {}, {}
        for h in range(self.horizon):
            for place, actions in self.offers.items():
                if model.stationary or place[0] == h:
                    self.value[h, place[1]], self.choice[h, place[1]] = self.most[h], actions[0]
        self.proved = self.plans = self.next_plan = self.episodes = 0
        self.violating = 0

    def place(self, h, state):
        return (0 if self.model.stationary else h, state)

    def share(self, first):
        """Share of draws with an optimistic pseudo-outcome."""
        gain = (self.most[0] - self.value[0, first]) / (self.most[0] - self.least[0])
        return max(self.least_share, 6 * gain / len(self.distributions))

    def draw(self, distribution, share):
        pair = self.distributions[distribution]
        pair.drawn = pair.visits
        if pair.visits == 0:
            pair.optimism = 1.0
            return
        u = self.random.uniform() / share
        pair.optimism = 1.0 - u ** (0.5 / pair.visits) if u < 1 else 0.0
        for outcome in pair.outcomes:
            outcome.weight = self.random.gamma(outcome.count)
        total = 0.0
        for outcome in pair.outcomes:
            total += outcome.weight
        for outcome in pair.outcomes:
            outcome.weight *= (1.0 - pair.optimism) / total

    def judge(self, h, state, action, value, dead, drawn):
        """Q and C of a pair at a step."""
        key = (*self.place(h, state), action)
        pair, max_violation = self.distributions[self.distribution_of[key]], self.max_violation.get(key, 0.0)
        if pair.visits == 0:
            if drawn:
                return self.most[h], max_violation
            return -math.inf, UNKNOWN_COST if self.proved else max_violation
        q, c, fails = 0.0, 0.0, max_violation > 0
        for outcome in pair.outcomes:
            weight = outcome.weight if drawn else outcome.count / pair.visits
            after = (h + 1, outcome.following)  # worth 0 after the last step, and if it offers no action
            q += weight * (outcome.reward + value.get(after, 0.0))
            cost = outcome.violation + dead.get(after, 0.0)
            if cost > 0:
                c += weight * cost
                fails = True
        highest = self.most[h] - self.most[h + 1]
        if self.shared:
            tried = key in self.tried
            q += self.reward[key] if tried else highest if drawn else self.least[h] - self.least[h + 1]
            c += self.cost[key] if tried else max_violation
            highest = 0.0
        if drawn:
            q = min(q + pair.optimism * (highest + self.most[h + 1]), self.most[h])
        return q, max(c, LEAST_COST) if fails else c

    def back_up(self, h, state, value, dead, choice, drawn):
        least, best, chosen = math.inf, -math.inf, None
        for action in self.offers[self.place(h, state)]:
            q, c = self.judge(h, state, action, value, dead, drawn)
            if c < least / TIE or (c <= least * TIE and q > best):
                least, best, chosen = min(c, least), q, action
        value[h, state], dead[h, state], choice[h, state] = best, least, chosen

    def plan(self, value, dead, choice, drawn):
        for h in reversed(range(self.horizon)):
            for layer, state in self.offers:
                if self.model.stationary or layer == h:
                    self.back_up(h, state, value, dead, choice, drawn)

    def remember(self, key, following, reward, violation):
        pair = self.distributions[self.distribution_of[key]]
        pair.visits += 1
        n = self.tried[key] = self.tried.get(key, 0) + 1
        if self.shared:
            self.reward[key] = self.reward.get(key, 0.0) + (reward - self.reward.get(key, 0.0)) / n
            self.cost[key] = self.cost.get(key, 0.0) + (violation - self.cost.get(key, 0.0)) / n
            reward = violation = 0.0
        alike = [o for o in pair.outcomes if (o.following, o.reward, o.violation) == (following, reward, violation)]
        if not alike and len(pair.outcomes) >= MOST_KINDS:
            alike = [o for o in pair.outcomes if o.following == following and (o.violation > 0) == (violation > 0)][-1:]
        if not alike:
            alike = [Outcome(following, reward, violation)]
            pair.outcomes += alike
        outcome = alike[0]
        outcome.count += 1
        outcome.reward += (reward - outcome.reward) / outcome.count
        outcome.violation += (violation - outcome.violation) / outcome.count

    def drop(self, key, violation):
        for other, group in self.group_of.items():
            if group == self.group_of[key]:
                fresh = self.max_violation.get(other, 0.0) == 0.0
                self.max_violation[other] = max(self.max_violation.get(other, 0.0), violation)
                for h in reversed(range(self.horizon)) if self.model.stationary else [other[0]]:
                    if fresh:
                        self.back_up(h, other[1], self.value, self.dead, self.choice, True)

    def episode(self):
        state, path = self.walk.reset(), []
        for h in range(self.horizon):
            action = self.choice[h, state]
            following, reward, constraints = self.walk.step(action)
            violation = sum(max(-f, 0.0) for f in constraints)
            path.append((h, state, (*self.place(h, state), action), following, reward, violation))
            state = following
        self.violating += any(step[-1] > 0 for step in path)
        share = self.share(path[0][1])
        self.episodes += 1
        for _, _, key, following, reward, violation in path:
            self.remember(key, following, reward, violation)
        for _, _, key, _, _, violation in path:
            if violation > self.max_violation.get(key, 0.0):
                self.drop(key, violation)
        for h, state, key, *_ in reversed(path):
            distribution = self.distributions[self.distribution_of[key]]
            if 4 * distribution.visits >= 5 * distribution.drawn:
                self.draw(self.distribution_of[key], share)
            self.back_up(h, state, self.value, self.dead, self.choice, True)
        if not self.proved and self.dead[0, path[0][1]] > 0:
            self.proved = self.episodes
        if self.episodes >= self.next_plan:
            for distribution in self.distributions:
                self.draw(distribution, share)
            self.plan(self.value, self.dead, self.choice, True)
            self.plans += 1
            self.next_plan = self.episodes + max(1, int(self.growth * self.episodes))

    def decided(self):
        """{(step, state): action} of the plan on plain means."""
        value, dead, choice = {}, {}, {}
        self.plan(value, dead, choice, False)
        return choice
