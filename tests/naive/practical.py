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

    #: The constants of the formulas: c of the adaptive step size, m after the proof, c of replay; and of second looks
    #: how many there are in a doubling, their c, and the least weight of a new difference in the noise.
    window, patience, caution = 5.0, 20.0, 0.5
    looks, doubt, noise_weight = 4, 4.0, 0.001

    def __init__(self, problem, model, settings, *, penalty, start):
        self.problem, self.settings, self.penalty, self.start = problem, settings, penalty, list(start)
        self.stationary, self.least_reward = model.stationary, model.reward_range[0]
        self.horizon = problem.horizon
        self.share = self.stationary and settings.share_steps is not False
        self.remembers, self.proved = settings.constraint_memory, None
        points = {point: list(problem.actions(*point)) for point in decision_points(problem)}
        if self.stationary:
            # One table for all steps: a state has its place at every step, also where it cannot be met.
            offers = {state: actions for (_, state), actions in points.items()}
            points = {(step, state): actions for step in range(self.horizon) for state, actions in offers.items()}
        self.nodes = points
        self.q, self.harm, self.forbidden, self.transitions = {}, {}, set(), {}
        self.begin()

    def begin(self):
        self.n, self.errors, self.x, self.mean, self.tries = {}, {}, {}, {}, {}
        # Where a look is due, by state; the actions that looks take, by node; the latest reward and next state.
        self.due, self.looked, self.latest, self.noise, self.differences = {}, {}, {}, 0.0, 0
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
            return min(actions, key=lambda a: self.harm.get(self.pair(h, state, a), 0.0))
        if (h, state) in self.looked:
            return self.looked[h, state]
        return max(actions, key=lambda a: self.q[h, state, a])

    def table(self):
        return {node: self.choice(*node) for node in self.nodes}

    def pair(self, h, state, action):
        """A stored pair: in a stationary model the same one at every step."""
        return (state, action) if self.stationary else (h, state, action)

    def law(self, h, state, action):
        if not self.settings.share_outcomes:
            return self.pair(h, state, action)
        # Pairs whose next states have the same probabilities share a law: at one step, or at all where steps share.
        chances = tuple((following, p) for p, following, *_ in self.walk.outcomes(h, state, action))
        return chances if self.stationary else (h, chances)

    def columns(self, h, state):
        """The steps that a transition from `state` at step h teaches."""
        return [c for c in range(self.horizon) if (c, state) in self.nodes] if self.share else [h]

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
            self.harm[pair] = max(self.harm.get(pair, 0.0), violation)
            self.q[entry] = -math.inf
            self.forbidden.add(entry)
            self.looked.pop(entry[:2], None)
            self.due.pop(self.place(*entry[:2]), None)

    # Second looks

    def place(self, h, state):
        """A stored state: in a stationary model the same one at every step."""
        return state if self.stationary else (h, state)

    def key(self, h, state, action):
        """What visits are counted by."""
        if self.settings.share_outcomes:
            return self.law(h, state, action), None if self.share else h
        return *self.pair(h, state, action), None if self.share else h

    def note_noise(self, key, h, reward, following):
        if self.n.get(key, 0) > 0:
            reward_before, before = self.latest[key]
            now, then = self.w(h + 1, following), self.w(h + 1, before)
            if now > -math.inf and then > -math.inf:
                apart = reward + now - (reward_before + then)
                self.differences += 1
                weight = max(1.0 / self.differences, self.noise_weight)
                self.noise += weight * (0.5 * apart * apart - self.noise)
        self.latest[key] = reward, following

    def look(self, h, state, action):
        """After the visit of a pair at step h: has its look been taken, is one due, and what would it take?"""
        place, t = self.place(h, state), self.n[self.key(h, state, action)]
        if self.due.get(place) == h:
            del self.due[place]
        if any(t == j * 2**doublings for j in range(self.looks, 2 * self.looks) for doublings in range(t)):
            self.due[place] = h
        for c in self.columns(h, state):
            self.looked.pop((c, state), None)
            if self.due.get(place) == c and self.w(c, state) > -math.inf:
                self.looked[c, state] = max(self.nodes[c, state], key=lambda a, c=c: self.hope(c, state, a))

    def hope(self, h, state, action):
        key, offset = self.key(h, state, action), self.window if self.settings.adaptive_steps else float(self.horizon)
        spread = self.errors.get(key, (0.0, 0.0, 0.0))[2]
        if not self.settings.adaptive_steps:
            spread = (offset + 1.0) / (offset + self.n[key]) if key in self.n else 0.0
        return self.q[h, state, action] + self.doubt * math.sqrt(spread * self.noise)

    def step_size(self, key, old, target):
        t = self.n[key] = self.n.get(key, 0) + 1
        if self.proved:
            return (self.horizon + 1.0) / (self.horizon + self.patience + t)
        offset = self.window if self.settings.adaptive_steps else float(self.horizon)
        if not self.settings.adaptive_steps or old == -math.inf or target == -math.inf:
            return (offset + 1.0) / (offset + t)
        delta = target - old
        b, v, spread = self.errors.get(key, (0.0, 0.0, 0.0))
        g = offset / (offset + t)
        b = (1.0 - g) * b + g * delta
        v = (1.0 - g) * v + g * delta * delta
        alpha = 1.0
        if t > 2:
            alpha = 1.0 - (v - b * b) / ((1.0 + spread) * v) if v > 0 else 1.0 / t
            alpha = min(1.0, max(alpha, 1.0 / t))
        self.errors[key] = b, v, (1.0 - alpha) * (1.0 - alpha) * spread + alpha * alpha
        return alpha

    def update_pair(self, h, state, action, reward, following):
        columns = self.columns(h, state)
        key = (*self.pair(h, state, action), None if self.share else h)
        alpha = self.step_size(key, self.q[h, state, action], reward + self.w(h + 1, following))
        targets = {c: reward + self.w(c + 1, following) for c in columns}
        for c in columns:
            old = self.q[c, state, action]
            if old > -math.inf:
                self.q[c, state, action] = new = old + alpha * (targets[c] - old)
                if new == -math.inf:
                    self.forbidden.add((c, state, action))

    def update_law(self, h, state, action, reward, following):
        law, pair, most = self.law(h, state, action), self.pair(h, state, action), self.start[-1]
        tries = self.tries[pair] = self.tries.get(pair, 0) + 1
        kept = self.mean.get(pair, most)
        share = (self.horizon + 1.0) / (self.horizon + self.patience + tries) if self.proved else 1.0 / tries
        self.mean[pair] = kept + share * (reward - kept)
        if self.settings.replay and not self.proved:
            counts = self.transitions.setdefault(law, {})
            counts[following] = counts.get(following, 0) + 1
            self.replay(state, self.columns(h, state))
        else:
            self.follow_law(h, law, following)
        self.compose(state, self.columns(h, state))

    def follow_law(self, h, law, following):
        # A law's own column is a step; every step of a shared law is taught, whether or not the state occurs there.
        columns, most = range(self.horizon) if self.share else [h], self.start[-1]
        alpha = self.step_size(
            (law, None if self.share else h), self.x.get((h, law), self.start[h] - most), self.w(h + 1, following)
        )
        for c in columns:
            old = self.x.get((c, law), self.start[c] - most)
            self.x[c, law] = old + alpha * (self.w(c + 1, following) - old) if old > -math.inf else old

    def replay(self, state, columns):
        for c in columns:
            for action in self.nodes[c, state]:
                law, top = self.law(c, state, action), self.start[c] - self.start[-1]
                counts = self.transitions.get(law)
                if not counts or self.x.get((c, law)) == -math.inf:
                    continue
                n, total, square = sum(counts.values()), 0.0, 0.0
                values = [(count, self.w(c + 1, following)) for following, count in counts.items()]
                if any(value == -math.inf for _, value in values):
                    self.x[c, law] = -math.inf
                    continue
                for count, value in values:
                    total += count * value
                    square += count * value * value
                mean = total / n
                deviation = math.sqrt(max(square / n - mean * mean, 0.0) / n)
                self.x[c, law] = min(top, mean + self.caution * deviation)

    def compose(self, state, columns):
        most = self.start[-1]
        for c in columns:
            for action in self.nodes.get((c, state), []):
                if self.q[c, state, action] > -math.inf:
                    earns = self.mean.get(self.pair(c, state, action), most)
                    law = self.law(c, state, action)
                    self.q[c, state, action] = new = earns + self.x.get((c, law), self.start[c] - most)
                    if new == -math.inf:
                        self.forbidden.add((c, state, action))

    def learn(self, path):
        for h, state, action, r, f, following in reversed(path):
            violation = sum(max(-x, 0.0) for x in f)
            if self.remembers and violation > 0:
                self.forbid(h, state, action, violation)
            reward = r - self.least_reward
            if not self.remembers and f:
                beyond = sum(min(0.0, min(x, 0.0) + self.settings.slack) for x in f)
                reward = r + (self.penalty / len(f)) * beyond - self.least_reward
            by_law = self.settings.share_outcomes or self.settings.replay
            update = self.update_law if by_law else self.update_pair
            looks = self.settings.second_looks and not self.settings.replay and not self.proved
            if looks:
                self.note_noise(self.key(h, state, action), h, 0.0 if by_law else reward, following)
            update(h, state, action, reward, following)
            if looks:
                self.look(h, state, action)

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
