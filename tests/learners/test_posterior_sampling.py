"""Posterior sampling against its slow twin, and its promises: it does not get stuck, and forgets no violation."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest

from experiments.robustness import FAMILIES, instance
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from naive.posterior_sampling import Posterior
from peakrl import Assumptions, Outcome, Policy, Problem, TabularModel, compile_model, evaluate, learn, resume, solve
from peakrl.errors import PeakError, SettingsError
from peakrl.learners import PosteriorSampling
from peakrl.learners.posterior_sampling import PosteriorLearner, draw_distribution
from peakrl.policy.export import UNKNOWN
from peakrl.problems import scheduling_example
from peakrl.training.trainer import Trainer

SETTINGS = {"optimism": 0.04, "replan_growth": 0.005}
CASES = {
    "as it comes": (SETTINGS, {}),
    "more optimism, fewer plans": ({"optimism": 0.3, "replan_growth": 0.1}, {}),
    "shared outcomes": (SETTINGS, {"shared_transitions": True}),
    "constraints by action": (SETTINGS, {"constraint_depends_on": "pair"}),
}


def twin_of(problem, model, settings, declared, seed):
    """The slow learner with the same numbers; distributions and groups as the model stores them."""
    distribution_of = group_of = None
    if "shared_transitions" in declared:

        def distribution_of(layer, state, action):
            return int(model.layout.row_distribution[model.row_of(layer, state, action)])

    if "constraint_depends_on" in declared:

        def group_of(layer, state, action):
            return state, action

    return Posterior(
        problem, model, seed, PosteriorLearner.stream, **settings, distribution_of=distribution_of, group_of=group_of
    )


def check_twin(seed, case, episodes=150):
    settings, declared = CASES[case]
    problem = random_problem(seed)
    model = compile_model(problem)
    try:
        assumptions = Assumptions(**declared)
        run = learn(model, PosteriorSampling(**settings), episodes=episodes, seed=seed, assumptions=assumptions)
    except SettingsError:  # constraints that differ by step or outcome: the declaration would be false
        assert "constraint_depends_on" in declared
        return
    twin = twin_of(problem, model, settings, declared, seed)
    for _ in range(episodes):
        twin.episode()
    learner = run._learned
    assert run.violations == twin.violating
    assert learner.tables.plans[0] == twin.plans
    assert learner.proved_in == (twin.proved or None)
    followed, value = learner.greedy(), learner.tables.value
    for (step, state), action in twin.choice.items():
        slot, column = model.slot_of(step, state), step if model.stationary else 0
        assert model.action_of_row(int(followed[slot, column])) == action
        assert value[slot, column] == twin.value[step, state]
    policy = dict(zip(range(model.num_nodes), learner.decided().tolist(), strict=True))
    for (step, state), action in twin.decided().items():
        node = step * model.layout.node_stride + model.slot_of(step, state)
        assert model.action_of_row(policy[node]) == action


@pytest.mark.parametrize("case", CASES)
def test_it_is_its_slow_twin_bit_for_bit(case):
    for seed in (0, 1, 2, 3, 1245):  # 1245: a state that is met only after the last step
        check_twin(seed, case)


def test_q_is_the_mean_of_what_was_seen_and_no_draw():
    """One step and sure rewards: whatever was tried is known for good."""
    model = TabularModel.from_arrays(np.ones((1, 3, 1)), [[0.2, 0.5, 0.9]], [[[1.0, 1.0, -1.0]]], 1)
    run = learn(model, PosteriorSampling(optimism=1.0), episodes=30)
    assert run.q.tolist() == pytest.approx([0.2, 0.5, -np.inf])


def test_it_is_its_slow_twin_without_the_compiler():
    program = "import sys; sys.path[:0] = 'tests', 'tests/learners'; import test_posterior_sampling as t\n"
    program += "for seed in (3, 4): t.check_twin(seed, 'as it comes', 40)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)


def three_states():
    transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2))
    transitions[0, 0] = [0, 0.6, 0.4]
    transitions[0, 1, 2] = transitions[1, :, 1] = transitions[2, :, 2] = 1
    rewards[0, 1], rewards[1] = 0.5, 1
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, 3, 2)), horizon=2)


def sure_or_coin(chance, prize):
    transitions, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2))
    transitions[0, 0] = [0, chance, 1 - chance]
    transitions[0, 1, 2] = transitions[1, :, 1] = transitions[2, :, 2] = 1
    rewards[0, 1], rewards[1] = 1, prize
    return TabularModel.from_arrays(transitions, rewards, np.ones((1, 3, 2)), horizon=2)


@pytest.mark.parametrize("model", [three_states(), sure_or_coin(0.5, 4.0)], ids=["three states", "coin"])
def test_what_others_give_up_after_early_bad_luck_is_found_in_twenty_of_twenty_runs(model):
    best = solve(model).value
    for seed in range(20):
        run = learn(model, PosteriorSampling(), episodes=10_000, seed=seed, history="none", average=False)
        assert evaluate(model, run.policy).value == pytest.approx(best)


class Lottery(Problem):
    """One step: 1 for certain, or a prize with a small probability, worth 2 on average."""

    horizon = 1

    def __init__(self, chance):
        self.chance = chance

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return "sure", "lottery"

    def outcomes(self, step, state, action):
        if action == "sure":
            return [Outcome(1.0, 0, 1.0)]
        return [Outcome(self.chance, 0, 2.0 / self.chance), Outcome(1.0 - self.chance, 0, 0.0)]


@pytest.mark.parametrize("chance", [0.3, 0.1, 0.05])
def test_a_rare_payoff_is_found_in_forty_of_forty_runs(chance):
    model = compile_model(Lottery(chance))
    for seed in range(40):
        run = learn(model, PosteriorSampling(), episodes=10_000, seed=seed, history="none", average=False)
        assert evaluate(model, run.policy).value == pytest.approx(2.0)


@pytest.mark.parametrize("share", [0.3, 3.0])
def test_the_pseudo_outcome_exceeds_x_with_the_probability_that_is_claimed(share):
    tables = learn(compile_model(Lottery(0.5)), PosteriorSampling(), episodes=9)._learned.tables
    visits, draws = int(tables.visits[1]), []
    for _ in range(4_000):
        draw_distribution(tables, 1, share)
        draws.append(tables.optimism[1])
    for x in (0.0, 0.05, 0.1, 0.3):
        claimed = min(1.0, share * (1 - x) ** (2 * visits))
        assert np.mean(np.array(draws) > x) == pytest.approx(claimed, abs=0.035)


# Promises ----------------------------------------------------------------------------------------------------------

FAMILY_INSTANCE, EPISODES = 77, 300


@pytest.fixture(scope="module", params=list(FAMILIES))
def family_run(request):
    """A short run on an instance of each family, and how it stood half way."""
    model = instance(request.param, FAMILY_INSTANCE)
    active = Trainer(model, PosteriorSampling(), planned=EPISODES, seed=5, every=0, average=False)
    active.advance(EPISODES // 2)
    half = active.learned().known().copy()
    active.advance(EPISODES - EPISODES // 2)
    return model, active.result(), half


def viable_entries(model):
    """[entry]: may this pair be taken without a violation ever being certain to be possible? Straight from `solve`."""
    cost, layout = solve(model).node_violations, model.layout
    viable = np.zeros(model.num_entries, bool)
    for step in range(model.horizon):
        for slot in range(*layout.step_slots[step]):
            for row in model.rows_of_slot(slot):
                distribution = layout.row_distribution[row]
                after = layout.outcome_next[layout.outcome_start[distribution] : layout.outcome_start[distribution + 1]]
                safe = not (model.row_margin[row] < 0).any() and not cost[(step + 1) * layout.node_stride + after].any()
                viable[step * layout.entry_stride + row] = safe
    return viable


def test_forbidden_pairs_fail_stay_forbidden_and_are_avoided(family_run):
    model, run, half = family_run
    known = run._learned.known() != UNKNOWN
    assert not (known & viable_entries(model)).any()
    assert (known >= (half != UNKNOWN)).all()
    if run.feasible is False:
        assert not solve(model).feasible
        return
    assert run.violations <= known.sum()
    for step in range(model.horizon):
        for slot in range(*model.layout.step_slots[step]):
            entries = [step * model.layout.entry_stride + row for row in model.rows_of_slot(slot)]
            row = int(run.policy.rows[step * model.layout.node_stride + slot])
            assert not known[step * model.layout.entry_stride + row] or known[entries].all()


def test_a_proof_names_every_way_out_of_the_first_state():
    model = instance("infeasible", FAMILY_INSTANCE)
    run = learn(model, PosteriorSampling(), episodes=2_000, seed=1)
    assert run.feasible is False
    first = {line.action for line in run.infeasibility_proof if line.step == 0}
    assert first == {model.action_of_row(row) for row in model.rows_of_slot(int(model.first_slot[0]))}
    # Every dead state that a line names is itself accounted for, one step later.
    accounted = {(line.step, line.state) for line in run.infeasibility_proof}
    assert all(
        (line.step + 1, line.dead_state) in accounted for line in run.infeasibility_proof if line.violation is None
    )
    least = solve(model).violation
    assert evaluate(model, run.policy).violation == pytest.approx(least, rel=0.05)


# Files and environments ----------------------------------------------------------------------------------------------


def test_a_run_that_is_saved_and_resumed_is_the_run_that_was_not(tmp_path):
    model = instance("grids", FAMILY_INSTANCE)
    whole = learn(model, PosteriorSampling(), episodes=400, seed=2)
    learn(model, PosteriorSampling(), episodes=150, seed=2).save(tmp_path / "half")
    resumed = resume(tmp_path / "half", episodes=400)
    assert (whole.policy.rows == resumed.policy.rows).all()
    assert (whole.behavior_policy.rows == resumed.behavior_policy.rows).all()
    for name, array in whole._learned.arrays().items():
        assert (array == resumed._learned.arrays()[name]).all(), name
    assert (whole.history.value == resumed.history.value).all()


def test_on_an_environment_it_learns_what_it_learns_on_the_model():
    model = instance("sparse", FAMILY_INSTANCE)
    run = learn(ModelEnvironment(model, seed=3), PosteriorSampling(), episodes=400, seed=3)
    found = evaluate_table(model, run)
    assert found == pytest.approx(solve(model).value, rel=0.02)


def evaluate_table(model, run):
    """The exact value on the model of a policy that was learned on an environment of it."""
    rows = np.array(learn(model, episodes=1).policy.rows)
    for step in range(model.horizon):
        for slot in range(*model.layout.step_slots[step]):
            with contextlib.suppress(PeakError):  # never met: any action will do
                action = run.policy.action(step, model.state_of_slot(slot))
                rows[step * model.layout.node_stride + slot] = model.row_of(step, model.state_of_slot(slot), action)
    return evaluate(model, Policy(model, rows)).value


@pytest.mark.parametrize("values", [{"optimism": 0.0}, {"replan_growth": 2.0}, {"pseudo": 0.1}])
def test_settings_that_cannot_be_are_refused_by_name(values):
    with pytest.raises(SettingsError, match=next(iter(values))[:5]):
        PosteriorSampling(**values)


def test_a_state_with_an_action_not_tried_is_no_dead_end_of_a_proof():
    # After 20,000 episodes of Example 3 some states behind the proof hold actions that were never tried.
    run = learn(scheduling_example(3), episodes=20_000, seed=0, history="none")
    assert run.feasible is False
    accounted = {(line.step, line.state) for line in run.infeasibility_proof}
    assert all(
        (line.step + 1, line.dead_state) in accounted for line in run.infeasibility_proof if line.violation is None
    )
