"""Slow, obvious twins of every kernel, written from the formulas on the readable `Problem`, never on our arrays."""

from __future__ import annotations

import itertools
import math

# --- Random draws ------------------------------------------------------------------------------------------------


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


class ModelWalk:
    """A model as a plain environment: draws first states and outcomes by the model's alias tables, speaks in labels."""

    def __init__(self, model, seed):
        self.model, self.generator = model, Xoshiro(seed)

    def _draw(self, accept, alias, start, size):
        if size == 1:
            return start
        scaled = self.generator.uniform() * size
        column = int(scaled)
        return start + column if scaled - column < accept[start + column] else int(alias[start + column])

    def reset(self):
        sampler = self.model.sampler
        choice = self._draw(sampler.first_accept, sampler.first_alias, 0, len(sampler.first_slot))
        self.step_number, self.slot = 0, int(sampler.first_slot[choice])
        return self.model.state_of_slot(self.slot)

    def actions(self):
        return [self.model.action_of_row(row) for row in self.model.rows_of_slot(self.slot)]

    def step(self, action):
        model, layout, payoffs = self.model, self.model.layout, self.model.payoffs
        row = model.row_of(self.step_number, model.state_of_slot(self.slot), action)
        d = layout.row_distribution[row]
        start, end = layout.outcome_start[d], layout.outcome_start[d + 1]
        outcome = self._draw(model.sampler.accept, model.sampler.alias, start, end - start)
        record = payoffs.row_payoff[row] + payoffs.stride * (outcome - start)
        self.slot = int(layout.outcome_next[outcome])
        self.step_number += 1
        return (
            model.state_of_slot(self.slot),
            float(payoffs.reward[record]),
            [float(f) for f in payoffs.constraints[record]],
        )


# --- Algorithm 1 ---------------------------------------------------------------------------------------------------


def algorithm_one(model, settings, episodes, seed, *, penalty, bound, log_term, start, cap):
    """Algorithm 1 from its formulas, with dictionaries; returns Q and the policies pi^1..pi^K met on the way.

    Keys are (step, state label); the constants are those that the formulas name, given by the test.
    """
    walk = ModelWalk(model, seed)
    horizon, count = model.horizon, max(model.num_constraints, 1)
    states, actions = model.max_states, model.max_actions
    lo = model.reward_range[0]
    q, n, mu, sigma, beta, w = {}, {}, {}, {}, {}, {}
    trace = []
    for _ in range(episodes):
        state = walk.reset()
        chosen = {}
        for h in range(horizon):
            table = q.setdefault((h, state), dict.fromkeys(walk.actions(), start[h]))
            action = max(table, key=lambda a: table[a])  # ties: the first, which is the lowest row
            chosen[h, state] = action
            following, r, f = walk.step(action)
            modified = r
            modified += (penalty / count) * sum(min(0.0, min(x, 0.0) + settings.slack) for x in f) if f else 0.0
            reward = modified - lo
            next_w = 0.0 if h == horizon - 1 else w.get((h + 1, following), start[h + 1])
            key = (h, state, action)
            t = n[key] = n.get(key, 0) + 1
            alpha = (horizon + 1.0) / (horizon + t)
            target = reward + next_w
            wide = settings.c2 * bound * math.sqrt(horizon**3 * log_term)
            if settings.bonus == "hoeffding":
                target += wide * math.sqrt(1.0 / t)
            if settings.bonus == "bernstein":
                mu[key] = mu.get(key, 0.0) + next_w
                sigma[key] = sigma.get(key, 0.0) + next_w * next_w
                variance = sigma[key] / t - (mu[key] / t) * (mu[key] / t)
                linear = bound * math.sqrt(horizon**7 * states * actions) * log_term
                sharp = settings.c1 * (math.sqrt(horizon * log_term / t * (variance + bound**2 * horizon)) + linear / t)
                new = min(sharp, wide * math.sqrt(1.0 / t))
                target += (new - (1.0 - alpha) * beta.get(key, 0.0)) / (2.0 * alpha)
                beta[key] = new
            table[action] = (1.0 - alpha) * table[action] + alpha * target
            w[h, state] = min(cap[h], max(table.values()))
            state = following
        trace.append(chosen)
    return q, trace


# --- Planning --------------------------------------------------------------------------------------------------------


def plain_reward(outcome):
    return outcome.reward


def total_violation(outcome):
    return sum(max(-f, 0.0) for f in outcome.constraints)


def modified_reward(outcome, slack, penalty):
    """R = r + (penalty / I) * sum_i min(0, f_i^- + slack) of one outcome."""
    count = max(len(outcome.constraints), 1)
    return outcome.reward + penalty / count * sum(min(0.0, min(f, 0.0) + slack) for f in outcome.constraints)


def decision_points(problem):
    """Every (step, state) that some policy can meet before the horizon, in order of the step."""
    layer, points = {state for p, state in problem.initial() if p > 0}, []
    for step in range(problem.horizon):
        points += [(step, state) for state in layer]
        layer = {
            outcome.next_state
            for state in layer
            for action in problem.actions(step, state)
            for outcome in problem.outcomes(step, state, action)
            if outcome.probability > 0
        }
    return points


def expected_sum(problem, chances, quantity):
    """E[sum over steps of quantity(outcome)] where chances(step, state) = {action: probability}: forwards."""
    here, total = {}, 0.0
    for p, state in problem.initial():
        here[state] = here.get(state, 0.0) + p
    for step in range(problem.horizon):
        there = {}
        for state, reached in here.items():
            if reached == 0:
                continue
            for action, chance in chances(step, state).items():
                for outcome in problem.outcomes(step, state, action):
                    weight = reached * chance * outcome.probability
                    total += weight * quantity(outcome)
                    there[outcome.next_state] = there.get(outcome.next_state, 0.0) + weight
        here = there
    return total


def every_table(problem):
    """Every deterministic policy, as a dictionary (step, state) -> action."""
    points = decision_points(problem)
    for actions in itertools.product(*(list(problem.actions(*point)) for point in points)):
        yield dict(zip(points, actions, strict=True))


def follow(table):
    """The policy of a dictionary, as `expected_sum` asks for it."""
    return lambda step, state: {table[step, state]: 1.0}


def best_of_all_tables(problem):
    """(violation, value): the least violation of any deterministic policy and the most reward at it."""
    scores = [
        (expected_sum(problem, follow(table), total_violation), expected_sum(problem, follow(table), plain_reward))
        for table in every_table(problem)
    ]
    least = min(violation for violation, _ in scores)
    return least, max(value for violation, value in scores if violation <= least + 1e-12)


def least_violation_then_reward(problem):
    """The same numbers by recursion, for problems with too many policies to try."""
    known = {}

    def best(step, state):
        if step == problem.horizon:
            return 0.0, 0.0
        if (step, state) not in known:
            scores = []
            for action in problem.actions(step, state):
                cost = value = 0.0
                for outcome in problem.outcomes(step, state, action):
                    if outcome.probability > 0:
                        cost_after, value_after = best(step + 1, outcome.next_state)
                        cost += outcome.probability * (total_violation(outcome) + cost_after)
                        value += outcome.probability * (outcome.reward + value_after)
                scores.append((cost, value))
            least = min(cost for cost, _ in scores)
            known[step, state] = least, max(value for cost, value in scores if cost <= least * (1 + 1e-12))
        return known[step, state]

    pairs = [(p, *best(0, state)) for p, state in problem.initial() if p > 0]
    return sum(p * cost for p, cost, _ in pairs), sum(p * value for p, _, value in pairs)


def occupancy_programme(problem, slack):
    """The approximated problem as printed, one variable for each (step, state, action), handed to cvxpy.

    Returns its optimal value, or None where there is no policy that keeps E|f_i^-| <= slack at every step.
    """
    import cvxpy

    points = decision_points(problem)
    keys = [(step, state, action) for step, state in points for action in problem.actions(step, state)]
    x = dict(zip(keys, cvxpy.Variable(len(keys), nonneg=True), strict=True))
    inflow = dict.fromkeys(points, 0.0)
    for p, state in problem.initial():
        if p > 0:
            inflow[0, state] += p
    value, used = 0.0, {}
    for (step, state, action), share in x.items():
        for outcome in problem.outcomes(step, state, action):
            if outcome.probability > 0:
                value += share * (outcome.probability * outcome.reward)
                if step < problem.horizon - 1:
                    inflow[step + 1, outcome.next_state] += share * outcome.probability
                for i, f in enumerate(outcome.constraints):
                    if f < 0:
                        used[step, i] = used.get((step, i), 0.0) + share * (outcome.probability * -f)
    flow = [
        sum(x[step, state, action] for action in problem.actions(step, state)) == arriving
        for (step, state), arriving in inflow.items()
    ]
    programme = cvxpy.Problem(cvxpy.Maximize(value), flow + [total <= slack for total in used.values()])
    # An interior-point solver, so that not even the method is ours; HiGHS would also clash with pyjobshop's copy.
    programme.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return None if programme.status == "infeasible" else float(programme.value)


# --- Energy harvesting -----------------------------------------------------------------------------------------------


def harvest_total(sequence, power_at, battery, base=2):
    """Walk one sequence: power_at(step, level, arrival) says what to send."""
    level, total = 0, 0.0
    for step, arrival in enumerate(sequence):
        power = power_at(step, level, arrival)
        assert 0 <= power <= level + arrival
        total += math.log(1 + power) / math.log(base)
        level = min(battery, level + arrival - power)
    return total


def harvest_optimum(sequence, battery, peak, base=2, unit=1.0):
    """The most that powers 0, unit, 2 unit, ... <= peak earn on a sequence, by recursion on the units left."""
    memo = {}

    def best(step, level):
        if step == len(sequence):
            return 0.0
        if (step, level) not in memo:
            available = level + round(sequence[step] / unit)
            memo[step, level] = max(
                math.log(1 + send * unit) / math.log(base)
                + best(step + 1, min(round(battery / unit), available - send))
                for send in range(min(math.floor(peak / unit + 1e-9), available) + 1)
            )
        return memo[step, level]

    return best(0, 0)


def harvest_value(law, horizon, battery, peak, choose, base=math.e):
    """Expected total with independent arrivals of a law; choose(options) picks among (total, power) pairs."""
    value = [0.0] * (battery + 1)
    for _ in range(horizon):
        earlier = []
        for level in range(battery + 1):
            total = 0.0
            for arrival, probability in enumerate(law):
                have = level + arrival
                options = [
                    (math.log(1 + power) / math.log(base) + value[min(battery, have - power)], power)
                    for power in range(min(peak, have) + 1)
                ]
                total += probability * choose(options)[0]
            earlier.append(total)
        value = earlier
    return value[0]


def harvest_expectation(problem, rule):
    """Expected total reward and violation of rule(step, state) -> power."""

    def chances(step, state):
        return {rule(step, state): 1.0}

    return expected_sum(problem, chances, plain_reward), expected_sum(problem, chances, total_violation)


# Scheduling -------------------------------------------------------------------------------------------------------


def order_costs(jobs, orders):
    """Violation and the three objectives of every order, straight from the definitions: orders is [order, place]."""
    import numpy as np

    fields = ("processing", "due", "deadline", "weight")
    take, due, deadline, weight = (np.array([getattr(job, field) for job in jobs])[orders] for field in fields)
    end = np.cumsum(take, axis=1)
    late = np.maximum(0, end - due)
    return {
        "violation": np.maximum(0, end - deadline).sum(axis=1),
        "max_tardiness": late.max(axis=1),
        "total_tardiness": late.sum(axis=1),
        "weighted_late_work": (weight * np.minimum(take, late)).sum(axis=1),
    }


def best_over_all_orders(jobs, objective):
    """(least violation, least objective at that violation) by trying every order."""
    import itertools

    import numpy as np

    costs = order_costs(jobs, np.array(list(itertools.permutations(range(len(jobs))))))
    violation = costs["violation"].min()
    return int(violation), float(costs[objective][costs["violation"] == violation].min())


def expected_costs_of_order(jobs, order):
    """Expected violation and objectives of a fixed order of jobs with random times, by every combination of times."""
    import itertools
    from dataclasses import replace
    from math import prod

    import numpy as np

    totals = {}
    for pairs in itertools.product(*(job.pairs for job in jobs)):
        drawn = [replace(job, processing=time) for job, (_, time) in zip(jobs, pairs, strict=True)]
        chance = prod(probability for probability, _ in pairs)
        for what, value in order_costs(drawn, np.array([order])).items():
            totals[what] = totals.get(what, 0.0) + chance * float(value[0])
    return totals


def number_lists(lists):
    """Number lists by first occurrence, equal ones alike: the number of each, and the first list of each number."""
    numbers, firsts = {}, []
    for place, members in enumerate(lists):
        if tuple(members) not in numbers:
            numbers[tuple(members)] = len(firsts)
            firsts.append(place)
    return [numbers[tuple(members)] for members in lists], firsts


# --- Evaluation ------------------------------------------------------------------------------------------------------


def trajectories(problem, chances, step=0, state=None):
    """Every (probability, outcomes) that an episode can turn out as, where chances(step, state) = {action: chance}."""
    if state is None:
        for p, first in problem.initial():
            if p > 0:
                yield from ((p * q, outcomes) for q, outcomes in trajectories(problem, chances, 0, first))
        return
    if step == problem.horizon:
        yield 1.0, []
        return
    for action, chance in chances(step, state).items():
        for outcome in problem.outcomes(step, state, action):
            if chance * outcome.probability > 0:
                for q, rest in trajectories(problem, chances, step + 1, outcome.next_state):
                    yield chance * outcome.probability * q, [outcome, *rest]


def evaluate_by_trajectories(problem, chances):
    """What an evaluation reports, by adding up every trajectory (states must not be None)."""
    steps, count = range(problem.horizon), range(len(problem.constraint_names))
    paths = list(trajectories(problem, chances))
    return {
        "value": sum(p * sum(o.reward for o in outcomes) for p, outcomes in paths),
        "violation": sum(p * sum(total_violation(o) for o in outcomes) for p, outcomes in paths),
        "violation_probability": sum(p for p, outcomes in paths if any(total_violation(o) > 0 for o in outcomes)),
        "step_rewards": [sum(p * outcomes[h].reward for p, outcomes in paths) for h in steps],
        "step_violations": [
            [sum(p * max(-outcomes[h].constraints[i], 0.0) for p, outcomes in paths) for i in count] for h in steps
        ],
        "worst_margin": [min(o.constraints[i] for _, outcomes in paths for o in outcomes) for i in count],
    }


def mean_of_evaluations(results):
    """The evaluation of a policy that is drawn once an episode, uniformly, from those that were evaluated."""

    def mean(values):
        if isinstance(values[0], list):
            return [mean(list(members)) for members in zip(*values, strict=True)]
        return sum(values) / len(values)

    merged = {name: mean([result[name] for result in results]) for name in results[0] if name != "worst_margin"}
    merged["worst_margin"] = [min(margins) for margins in zip(*(r["worst_margin"] for r in results), strict=True)]
    return merged


def simulate_by_walking(model, episodes, seed, begin, choose):
    """(rewards, violations) of episodes in which begin(generator) is called first and choose(...) gives each action.

    `choose(begun, generator, step, state)` sees what begin returned.
    """
    walk = ModelWalk(model, seed)
    rewards, violations = [], []
    for _ in range(episodes):
        begun = begin(walk.generator)
        state, reward, violation = walk.reset(), 0.0, 0.0
        for step in range(model.horizon):
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


def change_fault(rows_of, changes):
    """What is wrong with a list of (episode, node, row), by its first bad entry; rows_of[node] are the node's rows."""
    before = 1
    for episode, node, row in changes:
        if episode < before:
            return "unordered"
        if node not in rows_of:
            return "no node"
        if row not in rows_of[node]:
            return "no row"
        before = episode
    return "no fault"


# --- The practical learner -------------------------------------------------------------------------------------------


class PracticalTwin:
    """The practical learner from its formulas, with dictionaries; keys are (step, state label, action label).

    The constants are those that the formulas name, given by the test: penalty, start [step], window (c of the adaptive
    step size), patience (m after the proof), caution (c of replay) and, of second looks, looks (in a doubling), doubt
    (their c) and noise_weight.
    """

    def __init__(self, model, settings, *, penalty, start, window, patience, caution, looks, doubt, noise_weight):
        self.model, self.settings, self.penalty = model, settings, penalty
        self.start, self.window, self.patience = list(start), window, patience
        self.horizon = model.horizon
        self.share = model.stationary and settings.share_steps is not False
        self.remembers, self.proved = settings.constraint_memory, None
        self.nodes = {}
        for step in range(self.horizon):
            for slot in range(*(int(x) for x in model.step_slots[step])):
                if len(model.rows_of_slot(slot)):
                    actions = [model.action_of_row(row) for row in model.rows_of_slot(slot)]
                    self.nodes[step, model.state_of_slot(slot)] = actions
        self.q, self.harm, self.forbidden = {}, {}, set()
        self.caution, self.transitions = caution, {}
        self.looks, self.doubt, self.noise_weight = looks, doubt, noise_weight
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
        return (state, action) if self.model.stationary else (h, state, action)

    def law(self, h, state, action):
        if not self.settings.share_outcomes:
            return self.pair(h, state, action)
        return int(self.model.row_distribution[self.model.row_of(h, state, action)])

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
        return state if self.model.stationary else (h, state)

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
            reward = r - self.model.reward_range[0]
            if not self.remembers and f:
                beyond = sum(min(0.0, min(x, 0.0) + self.settings.slack) for x in f)
                reward = r + (self.penalty / len(f)) * beyond - self.model.reward_range[0]
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
        walk, trace = ModelWalk(self.model, seed), []
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


def safe_entries(problem):
    """Every (step, state, action) from which all constraints can still be met for certain, backwards by definition."""
    alive = {(problem.horizon, None)}
    safe = set()
    states = {state for _, state in decision_points(problem)}
    for step in reversed(range(problem.horizon)):
        for state in states:
            try:
                actions = list(problem.actions(step, state))
            except KeyError:
                continue
            for action in actions:
                outcomes = [o for o in problem.outcomes(step, state, action) if o.probability > 0]
                if all(
                    total_violation(o) == 0 and (step + 1 == problem.horizon or (step + 1, o.next_state) in alive)
                    for o in outcomes
                ):
                    safe.add((step, state, action))
                    alive.add((step, state))
    return safe


def optimistic_plan(model, seen, reward, forbidden, span, bonus):
    """Return [step][slot]: greedy rows on counted transitions; seen[row] lists (next slot, count) in order."""
    following, plan = [0.0] * model.num_slots, []
    for left in range(1, model.horizon + 1):
        values, chosen = [], []
        for slot in range(model.num_slots):
            rows = range(model.row_start[slot], model.row_start[slot + 1])
            q = {}
            for row in rows:
                n = sum(count for _, count in seen[row])
                q[row] = span * left
                if n:
                    mean = sum(count * following[place] for place, count in seen[row]) / n
                    square = sum(count * following[place] * following[place] for place, count in seen[row]) / n
                    deviation = math.sqrt(max(square - mean * mean, 0.0) / n)
                    q[row] = min(span * left, reward[row] + mean + bonus * deviation)
            allowed = [row for row in rows if not forbidden[row]]
            chosen.append(max(allowed, key=q.__getitem__))
            values.append(q[chosen[-1]])
        following = values
        plan.insert(0, chosen)
    return plan
