"""Budgets and monitors, compared with brute force over histories."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import peakrl
from peakrl import Budget, Monitor, Outcome, Problem, solve, with_budget, with_monitor
from peakrl.compile import compile_model, explore
from peakrl.errors import PeakError
from peakrl.specs.spec import ProblemSpec
from peakrl.training.spec_file import read_problem_file
from peakrl.wrappers.budgets import Amounts


class Small(Problem):
    """A random problem with whole-number rewards, probabilities in eighths and one peak constraint."""

    constraint_names, stationary = ("own",), True

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.horizon = int(rng.integers(2, 5))
        self.states, self.number = 3, int(rng.integers(2, 4))
        cuts = rng.integers(0, 9, (self.states, self.number))
        targets = rng.integers(0, self.states, (self.states, self.number, 2))
        rewards = rng.integers(0, 9, (self.states, self.number))
        own = np.where(rng.random((self.states, self.number)) < 0.15, -1, 1)
        self.costs = rng.integers(0, 3, (self.states, self.number, self.states))
        self.refills = np.where(rng.random(self.costs.shape) < 0.2, 2, 0)
        self.alarms = rng.random(self.costs.shape) < 0.4
        self.table = cuts, targets, rewards, own

    def initial(self):
        return [(0.5, 0), (0.5, 1)]

    def actions(self, step, state):
        return range(self.number)

    def outcomes(self, step, state, action):
        cuts, targets, rewards, own = self.table
        chance = int(cuts[state, action]) / 8
        paid = float(rewards[state, action]), (float(own[state, action]),)
        ends = [int(each) for each in targets[state, action]]
        if ends[0] == ends[1]:
            return [Outcome(1.0, ends[0], *paid)]
        return [Outcome(p, end, *paid) for p, end in ((chance, ends[0]), (1 - chance, ends[1])) if p > 0]


def best_over_histories(problem, safe, history):
    """Return the largest exact value after a history of (state, action, next state); None if nothing is safe."""
    step, state = len(history) - 1, history[-1][2]
    if step == problem.horizon:
        return Fraction(0)
    found = None
    for action in problem.actions(step, state):
        total = Fraction(0)
        for probability, following, reward, constraints in problem.outcomes(step, state, action):
            after = [*history, (state, action, following)]
            rest = None
            if min(constraints) >= 0 and safe(after[1:]):
                rest = best_over_histories(problem, safe, after)
            if rest is None:
                break
            total += Fraction(probability) * (Fraction(reward) + rest)
        else:
            found = total if found is None else max(found, total)
    return found


def brute(problem, safe):
    """Return the exact optimum over all policies that depend on the whole past; None if infeasible."""
    values = [(Fraction(p), best_over_histories(problem, safe, [(None, None, s)])) for p, s in problem.initial()]
    return None if any(v is None for _, v in values) else sum(p * v for p, v in values)


def within(budget, problem, start):
    """Return whether a whole history never overspends, from its definition."""

    def safe(history):
        left = start
        for step in history:
            left -= int(problem.costs[step])
            if left < 0:
                return False
            if budget.refill is not None:
                left = min(left + int(problem.refills[step]), budget.limit)
        return True

    return safe


def budget_of(problem, seed):
    refill = (lambda *step: int(problem.refills[step])) if seed % 2 else None
    return Budget("fuel", limit=seed % 5 + 1, cost=lambda *step: int(problem.costs[step]), refill=refill)


def patterns(problem):
    """Return monitors, each with its definition on the times of events."""

    def alarm(*step):
        return bool(problem.alarms[step])

    def first(*step):
        return step[1] == 0

    def times(event, history):
        return [t for t, step in enumerate(history) if event(*step)]

    def before(history):
        alarms, firsts = times(alarm, history), times(first, history)
        return len(alarms) < 2 or (bool(firsts) and firsts[0] < alarms[1])

    return [
        (Monitor.never_twice_within(3, alarm), lambda h: all(b - a >= 3 for a, b in pairwise(times(alarm, h)))),
        (Monitor.at_most(1, alarm), lambda h: len(times(alarm, h)) <= 1),
        (Monitor.before(first, alarm, times=2), before),
        (
            Monitor.never_followed_by(first, alarm, 2),
            lambda h: not any(b - a == 1 for a in times(first, h) for b in times(alarm, h)),
        ),
    ]


def check(seed):
    problem = Small(seed)
    budget = budget_of(problem, seed)
    solution = solve(with_budget(problem, budget))
    curve = solution.value_by_budget()
    for start in range(budget.limit + 1):
        truth = brute(problem, within(budget, problem, start))
        assert curve.get(start) == (None if truth is None else float(truth)), (seed, start)
        alone = solve(with_budget(problem, replace(budget, start=start)))
        assert alone.feasible == (truth is not None)
        assert not alone.feasible or alone.value == curve[start]  # bit for bit
        if not alone.feasible:
            check_smallest(problem, budget, start, alone.reason)
    monitor, safe = patterns(problem)[seed % 4]
    truth, found = brute(problem, safe), solve(with_monitor(problem, monitor))
    assert found.feasible == (truth is not None), seed
    assert truth is None or found.value == float(truth), seed
    both = with_monitor(with_budget(problem, budget), monitor)
    fits = within(budget, problem, budget.limit)
    truth, found = brute(problem, lambda h: safe(h) and fits(h)), solve(both)
    assert found.feasible == (truth is not None), seed
    assert truth is None or found.value == float(truth), seed
    searched = solve(explore(both))
    assert searched.feasible == found.feasible
    assert not found.feasible or searched.value == found.value


def check_smallest(problem, budget, start, reason):
    """The reason names the smallest budget that suffices: by brute force it does, and one less does not."""
    if "no other does" in reason:
        assert brute(problem, lambda h: True) is None
        return
    least = int(reason.partition("the smallest that does is ")[2].partition(".")[0].split(";")[0])
    wide = replace(budget, limit=max(budget.limit, least))
    assert brute(problem, within(wide, problem, least)) is not None
    narrow = replace(budget, limit=max(budget.limit, least - 1))
    assert least - 1 == start or brute(problem, within(narrow, problem, least - 1)) is None


@pytest.mark.parametrize("part", range(3))
def test_budgets_and_monitors_equal_brute_force_over_histories(part):
    for seed in range(20 * part, 20 * part + 20):
        check(seed)


@pytest.mark.slow
def test_budgets_and_monitors_equal_brute_force_over_histories_on_many_problems():
    for seed in range(100, 600):
        check(seed)


def test_the_comparison_notices_a_budget_that_nothing_is_taken_from(monkeypatch):
    monkeypatch.setattr(Amounts, "advance", lambda self, memory, transition: (memory, np.zeros(len(memory))))
    with pytest.raises(AssertionError):
        check(0)


def test_a_file_whose_states_have_no_memory_is_refused(tmp_path):
    model = compile_model(with_budget(Small(0), Budget("fuel", limit=3, cost=1)))
    replace(model, state_labels=tuple(range(model.num_states))).save(tmp_path / "model")
    with pytest.raises(PeakError, match="must be tuples of 2 parts"):
        peakrl.load(tmp_path / "model")


def test_an_array_problem_with_two_budgets_equals_the_search_of_its_states():
    class Walk(peakrl.ArrayProblem):
        name, horizon, stationary, all_actions = "walk", 5, True, (0, 1, 2)
        state_ranges = {"place": (0, 3)}  # noqa: RUF012  # as users write it

        def initial(self):
            return [(1.0, (0,))]

        def outcomes(self, step, state, action):
            ahead = np.minimum(state[0] + action, 3)
            return [Outcome(0.5, (ahead,), 1.0 * action), Outcome(0.5, (np.maximum(ahead - 1, 0),), 1.0 * action)]

    budgets = Budget("fuel", limit=4, cost={1: 1, 2: 2}), Budget("jumps", limit=1, cost={2: 1}, refill={0: 1})
    product = with_budget(Walk(), *budgets)
    found = solve(product)
    assert found.value == solve(explore(product)).value
    assert found.value_by_budget("fuel")[4] == found.value
    with pytest.raises(PeakError, match="one of 'fuel', 'jumps'"):
        found.value_by_budget()
    assert peakrl.certify(product, found.policy).holds
    env = peakrl.shield(peakrl.to_gymnasium(product), peakrl.safe_set(product))
    for episode in range(20):
        _, info = env.reset(seed=episode)
        over = False
        while not over:
            *_, ended, truncated, info = env.step(int(np.flatnonzero(info["action_mask"])[-1]))
            assert (np.asarray(info["constraints"]) >= 0).all()
            over = ended or truncated


def test_a_budget_on_random_floats_has_the_curve_of_separate_solves_bit_for_bit():
    rng = np.random.default_rng(3)
    chances, rewards = rng.dirichlet(np.ones(12), (12, 4)), rng.normal(size=(12, 4))
    model = peakrl.TabularModel.from_arrays(chances, rewards, [], horizon=9)
    budget = Budget("spend", limit=4.5, step=0.5, cost={0: 0, 1: 0.5, 2: 1, 3: 1.5})
    curve = solve(with_budget(model, budget)).value_by_budget()
    assert list(curve) == [0.5 * k for k in range(10)]
    for start, value in curve.items():
        assert solve(with_budget(model, replace(budget, limit=start))).value == value
    assert sorted(curve.values()) == list(curve.values())


def test_a_budget_of_peaks_on_the_papers_transmitter_loads_with_its_curve(tmp_path):
    problem = peakrl.problems.energy_harvesting(peak_power=8)
    peaks = Budget("peaks", limit=3, cost=lambda state, action, next_state: action > 4)
    model = compile_model(with_budget(problem, peaks))
    solution = solve(model)
    model.save(tmp_path / "model")
    assert solve(peakrl.load(tmp_path / "model")).value_by_budget() == solution.value_by_budget()
    free = solve(with_budget(problem, replace(peaks, limit=problem.horizon)))
    assert free.value == pytest.approx(solve(problem).value, abs=1e-9)
    assert solution.value < free.value


@pytest.mark.parametrize("cost", [0.3, 9e-7, 1 + 1e-7])
def test_costs_that_are_not_multiples_of_the_step_are_named(cost):
    with pytest.raises(PeakError, match=rf"'fuel' is {cost}, not a multiple of its step of 1"):
        solve(with_budget(Small(0), Budget("fuel", limit=3, cost=lambda *step: cost)))


def test_two_constraints_of_one_name_are_refused():
    with pytest.raises(PeakError, match="named 'own' exists already"):
        with_budget(Small(0), Budget("own", limit=3, cost=1))


def test_an_environment_observes_what_is_left_and_reports_the_constraint():
    gymnasium = pytest.importorskip("gymnasium")
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    env = peakrl.ConstrainedEnv(lake, constraint_bounds=(), horizon=8, reward_range=(0, 1))
    env = with_budget(env, Budget("right", limit=1, cost={2: 1}))
    env = with_monitor(env, Monitor.never_twice_within(2, {"action": 1}, name="down"))
    assert env.reset(seed=0)[0] == (0, 1, 0)
    observation, *_, info = env.step(2)
    assert observation == (1, 0, 0)
    assert info["constraints"].tolist() == [0.0, 0.0]
    observation, *_, info = env.step(2)
    assert observation == (2, 0, 0)
    assert info["constraints"].tolist() == [-1.0, 0.0]
    assert env.observation_space.contains(observation)
    assert peakrl.learn(env, "SafeQ", episodes=5).episodes == 5


FILE = """
[problem]
kind = "energy_harvesting"
peak_power = 8
battery = 6
max_arrival = 6
mean = 3
horizon = 6

[[budget]]
name = "peaks"
limit = 3
cost = {5 = 1, 6 = 1, 7 = 1, 8 = 1}

[[monitor]]
pattern = "never_twice_within"
steps = 2
event = {action = [5, 6, 7, 8]}
name = "rest"
"""


def test_a_file_declares_budgets_and_monitors(tmp_path):
    (tmp_path / "problem.toml").write_text(FILE)
    model = read_problem_file(tmp_path / "problem.toml").model()
    high = {5, 6, 7, 8}
    problem = with_budget(
        peakrl.problems.energy_harvesting(peak_power=8, battery=6, max_arrival=6, mean=3, horizon=6),
        Budget("peaks", limit=3, cost=lambda state, action, following: action in high),
    )
    rest = Monitor.never_twice_within(2, lambda state, action, following: action in high, name="rest")
    assert model.digest == compile_model(with_monitor(problem, rest)).digest
    assert ProblemSpec.from_dict(model.spec).compile().digest == model.digest
    run = peakrl.learn(model, episodes=20)
    peakrl.write_report(run, tmp_path / "page.html")
    assert "Best value by budget: peaks" in (tmp_path / "page.html").read_text()


WRONG = [
    (("limit = 3", "limit = -3"), "limit of budget 'peaks' is -3"),
    (("limit = 3", "limits = 3"), r"budget\[0\]\.limits is not a key here; do you mean limit\?"),
    (("{5 = 1", "{55 = 1"), "budget 'peaks' names the action '55'"),
    (("never_twice", "once"), r"monitor\[0\]\.pattern must be one of at_most"),
    (("[[budget]]", "[budget]"), "budget is .* must be a list of tables"),
    (("cost = {5 = 1", "cost = {5 = 'a'"), r"budget\[0\]\.cost\.5 is 'a'; it must be a number"),
]


def test_what_a_file_declares_wrongly_is_named(tmp_path):
    for change, message in WRONG:
        (tmp_path / "problem.toml").write_text(FILE.replace(*change))
        with pytest.raises(PeakError, match=message):
            read_problem_file(tmp_path / "problem.toml").model()


def kept_for_ever(problem, limit, costs, refills):
    """Can some action be chosen for ever in every first state? [state, left] by removing what fails, one by one."""
    good = {(state, left) for state in range(problem.states) for left in range(limit + 1)}
    own = problem.table[3]

    def safe(state, left, action):
        for outcome in problem.outcomes(0, state, action):
            cost, refill = costs[state, action, outcome.next_state], refills[state, action, outcome.next_state]
            if cost > left or (outcome.next_state, min(left - cost + refill, limit)) not in good:
                return False
        return own[state, action] >= 0

    while bad := {pair for pair in good if not any(safe(*pair, action) for action in problem.actions(0, pair[0]))}:
        good -= bad
    return (0, limit) in good and (1, limit) in good


def test_the_smallest_budget_for_ever_is_found_and_monitors_watch_without_an_end():
    met = set()
    for seed in range(60):
        problem = Small(seed)
        problem.horizon = None
        costs, refills = problem.costs, problem.refills
        budget = Budget(
            "fuel", limit=1, cost=lambda s, a, t, c=costs: c[s, a, t], refill=lambda s, a, t, r=refills: r[s, a, t]
        )
        for limit in (1, 3):
            model = compile_model(with_budget(problem, replace(budget, limit=limit)))
            assert peakrl.safe_set(model).feasible == kept_for_ever(problem, limit, costs, refills)
            reason = model.infeasible_reason or ""
            met.add(reason[:60] and ("no other" if "no other" in reason else "smallest"))
            if "smallest" in reason:
                least = int(reason.rpartition(" ")[2])
                assert kept_for_ever(problem, least, costs, refills)
                assert not kept_for_ever(problem, least - 1, costs, refills)
            elif "no other" in reason:
                assert not kept_for_ever(problem, 40, costs, refills)
        rest = Monitor.never_twice_within(2, lambda state, action, following: action == 0)
        watched = peakrl.safe_set(with_monitor(problem, rest))
        assert watched.feasible <= peakrl.safe_set(problem).feasible
    assert met == {"", "no other", "smallest"}


def test_environments_with_continuous_observations_and_lanes_have_budgets():
    gymnasium = pytest.importorskip("gymnasium")
    pushes = Budget("pushes", limit=3, cost=lambda seen, action, following: action == 1 and following[0] > -9)

    def make():
        return with_budget(gymnasium.make("CartPole-v1"), pushes)

    env = make()
    env.reset(seed=0)
    costs = [env.step(1)[4]["cost"] for _ in range(4)]
    assert costs == [0.0, 0.0, 0.0, 1.0]
    lanes = peakrl.ConstrainedEnv(
        gymnasium.vector.SyncVectorEnv([make, make]), horizon=8, reward_range=(0, 1), constraint_bounds=(3.0,)
    )
    found = peakrl.simulate(lanes, lambda seen: int(seen[1] > 0), episodes=20)  # pushes while something is left
    assert found.violation == 0.0
    assert peakrl.simulate(lanes, lambda seen: 1, episodes=20).violation_frequency == 1.0
