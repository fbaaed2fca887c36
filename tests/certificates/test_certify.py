"""`certify`: exact figures on a model, bounds from fresh episodes elsewhere, and never 0 where it is merely small."""

import math

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers.certified_policies import policies
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import PeakError, TabularModel
from peakrl.certificates.rests_on import TABLES
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.policy import StochasticPolicy

PROBLEM = random_problem(3, states=3, actions=2, horizon=3, constraints=2, safe_action=True)
MODEL = peakrl.compile_model(PROBLEM)


def lottery(chance, horizon=1):
    """One state; action 0 is safe and earns 0, action 1 earns 1 and breaks the constraint with a small chance."""

    class Lottery(peakrl.Problem):
        name, stationary, constraint_names = "lottery", True, ("limit",)
        reward_range, constraint_bounds = (0.0, 1.0), (2.0,)

        def initial(self):
            return [(1.0, 0)]

        def actions(self, step, state):
            return (0, 1)

        def outcomes(self, step, state, action):
            if action == 0:
                return [(1.0, 0, 0.0, (1.0,))]
            return [(chance, 0, 1.0, (-2.0,)), (1 - chance, 0, 1.0, (1.0,))]

    problem = Lottery()
    problem.horizon = horizon
    return peakrl.compile_model(problem)


def always(model, action):
    return peakrl.Policy.from_rule(model, lambda step, state: action)


# --- Tables of environments ------------------------------------------------------------------------------------------


def test_in_unknown_states_the_certificate_on_a_table_speaks_of_the_policy_that_simulate_follows():
    """Four first states, of which one episode visits one; actions earn 0, 1 and 5, and end it."""
    ends = np.zeros((5, 3, 5))
    ends[:, :, 4] = 1
    table = TabularModel.from_arrays(
        ends, [[0, 1, 5]] * 4 + [[0] * 3], np.ones((1, 5, 3)), 1, initial=[0.25] * 4 + [0], reward_range=(0, 5)
    )
    env = ModelEnvironment(table, 1)
    run = peakrl.learn(env, peakrl.learners.SafeQ(), episodes=1)
    (known,) = {state for state in range(4) if knows(run.policy, state)}
    value = 0.25 * [0, 1, 5][run.policy.action(0, known)] + 0.75 * 2
    certificate = peakrl.certify(table, run.policy)
    assert certificate.value_low == pytest.approx(value)
    assert TABLES["filled"][0] in certificate.rests_on
    assert peakrl.simulate(env, run.policy, episodes=4_000).value == pytest.approx(value, abs=0.2)
    whole = peakrl.learn(env, peakrl.learners.SafeQ(), episodes=60)
    assert whole.policy.fallback is None
    assert TABLES["filled"][0] not in peakrl.certify(table, whole.policy).rests_on


def knows(policy, state):
    try:
        policy.action(0, state)
    except PeakError:
        return False
    return True


# --- Exact -----------------------------------------------------------------------------------------------------------


@seeds(20)
def test_on_a_model_a_certificate_tells_what_evaluate_and_solve_tell(seed):
    problem = random_problem(seed)
    best = peakrl.solve(problem)
    for policy in policies(problem, seed):
        certificate, found = peakrl.certify(problem, policy), peakrl.evaluate(problem, policy)
        assert certificate.kind == "exact"
        assert certificate.value_low == certificate.value_high == found.value
        assert certificate.violation_high == found.violation
        assert certificate.violation_probability_high == found.violation_probability
        assert certificate.optimum_high == (best.value if best.feasible else None)
        assert certificate.failure_probability == certificate.episodes == 0
        assert certificate.holds == (found.violation == 0)
        for epsilon in (0.0, 0.7, 5.0):
            asked = peakrl.certify(problem, policy, epsilon=epsilon)
            within = best.value - found.value <= epsilon + 1e-9 and found.violation <= epsilon
            assert asked.holds == (best.feasible and within)
            assert (asked.reason is None) == asked.holds


def test_the_optimum_itself_is_within_0_of_the_optimum():
    certificate = peakrl.certify(MODEL, peakrl.solve(MODEL).policy, epsilon=0)
    assert certificate.holds
    assert certificate.gap == 0.0


def test_where_no_policy_is_safe_none_is_certified_and_the_reason_is_the_planners():
    third = peakrl.compile_model(peakrl.problems.scheduling_example(3))
    best = peakrl.solve(third)
    for epsilon in (None, 1000.0):
        certificate = peakrl.certify(third, best.policy, epsilon=epsilon)
        assert not certificate.holds
        assert certificate.reason == f"no policy is safe: {best.reason}"
        assert certificate.gap is None


@pytest.mark.parametrize("horizon", [1, 3])
def test_a_violation_that_is_too_unlikely_for_a_number_is_not_told_as_none(horizon, tmp_path):
    for chance in [1e-3, 1e-200, 1e-323]:
        model = lottery(chance, horizon)
        certificate = peakrl.certify(model, always(model, 1), epsilon=0.1)
        certificate.save(tmp_path / "kept")
        assert certificate.holds
        assert peakrl.verify(tmp_path / "kept").holds
        certificate = peakrl.certify(model, always(model, 1))
        assert not certificate.holds
        assert certificate.violation_high > 0
        assert certificate.violation_probability_high > 0
        assert "none, in any outcome" not in str(certificate)
        certificate.save(tmp_path / "kept")
        assert not peakrl.verify(tmp_path / "kept").holds
        assert "none, in any outcome" in str(peakrl.certify(model, always(model, 0)))


def test_a_function_is_certified_like_its_table_and_told_what_is_on_offer():
    offered = {}

    def cautious(step, state, actions):
        offered[step, state] = actions
        return actions[0]

    table = peakrl.Policy.from_rule(MODEL, lambda step, state: PROBLEM.actions(step, state)[0])
    certificate, exact = peakrl.certify(PROBLEM, cautious), peakrl.evaluate(MODEL, table)
    assert (certificate.value_low, certificate.violation_high) == (exact.value, exact.violation)
    assert all(list(actions) == list(PROBLEM.actions(*point)) for point, actions in offered.items())
    assert any("called twice" in line for line in certificate.rests_on)


def test_a_function_that_draws_at_random_has_no_exact_figures():
    rng = np.random.default_rng(0)
    with pytest.raises(PolicyError, match="pass episodes= to sample it"):
        peakrl.certify(lottery(0.5, horizon=9), lambda step, state, actions: int(rng.integers(2)))


# --- Sampled ---------------------------------------------------------------------------------------------------------


@seeds(5)
def test_bounds_from_episodes_enclose_the_exact_figures(seed):
    problem = random_problem(seed)
    for policy in policies(problem, seed):
        exact = peakrl.evaluate(problem, policy)
        certificate = peakrl.certify(problem, policy, episodes=400, failure_probability=1e-6, seed=seed)
        assert certificate.kind == "sampled"
        assert certificate.episodes == 400
        # Wrong once in a million by construction, and the seeds are fixed.
        assert certificate.value_low <= exact.value <= certificate.value_high
        assert exact.violation <= certificate.violation_high
        assert exact.violation_probability <= certificate.violation_probability_high


@pytest.mark.parametrize("failure", [0.5, 0.2])
@pytest.mark.parametrize("chance", [0.02, 0.5])
def test_each_part_of_a_certificate_is_wrong_at_most_as_often_as_its_share(failure, chance):
    model, runs = lottery(chance, horizon=2), 400
    policy = StochasticPolicy(model, np.array([0.9, 0.1] * 2))
    exact = peakrl.evaluate(model, policy)
    wrong = np.zeros(4)
    for seed in range(runs):
        found = peakrl.certify(model, policy, episodes=40, failure_probability=failure, seed=seed)
        wrong += (
            found.value_low > exact.value,
            found.value_high < exact.value,
            found.violation_high < exact.violation,
            found.violation_probability_high < exact.violation_probability,
        )
    share = failure / 4
    assert (wrong / runs <= share + 3 * math.sqrt(share / runs)).all(), wrong


def test_episodes_are_those_of_no_other_stream_and_fresh_unless_a_seed_is_given():
    policy = StochasticPolicy(MODEL, chances(MODEL))
    returns = [
        peakrl.certify(MODEL, policy, episodes=50, seed=seed).evidence.arrays["returns"] for seed in (5, 5, None, None)
    ]
    assert (returns[0] == returns[1]).all()
    assert (returns[2] != returns[3]).any()
    assert (returns[0] != peakrl.simulate(MODEL, policy, episodes=50, seed=5).rewards).any()


def chances(model):
    """Equal chances for all actions on offer."""
    counts = np.repeat(np.diff(model.layout.row_start), np.diff(model.layout.row_start))
    return np.tile(1.0 / counts, model.num_entries // model.num_rows)


def test_with_an_epsilon_no_more_episodes_are_drawn_than_it_takes():
    model = lottery(0.5)
    certificate = peakrl.certify(model, always(model, 0), epsilon=0.1, episodes=100_000, seed=0)
    assert certificate.holds
    assert certificate.episodes < 1000
    refused = peakrl.certify(model, always(model, 1), epsilon=0.1, episodes=500, seed=0)
    assert not refused.holds
    assert refused.episodes == 500


def environment(model, seed=0, declared=True):
    return ModelEnvironment(model, seed, declared)


def test_any_function_is_certified_on_an_environment():
    model = lottery(0.1, horizon=4)
    policy = always(model, 1)
    exact = peakrl.evaluate(model, policy)
    found = peakrl.certify(
        environment(model), lambda step, state, actions: actions[-1], episodes=400, failure_probability=1e-6
    )
    assert found.value_low <= exact.value <= found.value_high
    assert exact.violation <= found.violation_high
    assert exact.violation_probability <= found.violation_probability_high
    assert found.optimum_high == pytest.approx(4.0)
    assert not found.holds
    assert "observed to violate" in found.reason


def test_what_is_unseen_is_not_safe_but_bounded():
    model = lottery(0.1, horizon=4)
    found = peakrl.certify(environment(model), lambda step, state, actions: actions[0], episodes=1000)
    assert found.holds
    assert 0 < found.violation_probability_high < 0.006
    assert 0 < found.violation_high < 0.05
    assert found.claim == "the bounds below, and no violation among the episodes"


def test_lanes_side_by_side_give_bounds_too():
    problem = peakrl.problems.energy_harvesting(horizon=3, battery=3, max_arrival=2, mean=1, std=1, peak_power=2)
    lanes = gymnasium.vector.SyncVectorEnv([lambda: peakrl.to_gymnasium(problem)] * 3)
    policy, one = peakrl.solve(problem).policy, peakrl.to_gymnasium(problem).unwrapped
    found = peakrl.certify(
        lanes, lambda step, state, actions: one.actions.index(policy.action(step, one.states[state])),
        episodes=300, failure_probability=1e-6,
    )  # fmt: skip
    assert found.value_low <= peakrl.evaluate(problem, policy).value <= found.value_high
    assert found.episodes == 300


def test_without_a_bound_on_constraints_the_probability_is_bounded_and_the_amount_is_not():
    model = lottery(0.1)
    env = peakrl.ConstrainedEnv(environment(model, declared=False), horizon=1, reward_range=(0, 1))
    found = peakrl.certify(env, lambda step, state, actions: actions[0], episodes=100, epsilon=2.0)
    assert found.violation_high is None
    assert found.violation_probability_high < 0.1
    assert "pass constraint_bounds=" in found.reason


def test_without_constraints_there_is_nothing_to_violate():
    model = TabularModel.from_arrays(np.ones((1, 1, 1)), [[0.5]], np.empty((0, 1, 1)), horizon=3)
    for episodes in (None, 50):
        found = peakrl.certify(model, always(model, 0), episodes=episodes)
        assert found.holds
        assert found.violation_high == found.violation_probability_high == 0.0


# --- What cannot be --------------------------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_is_named():
    for arguments, words in [
        ({"epsilon": -1}, "epsilon is -1; it must be a finite number of at least 0"),
        ({"epsilon": "small"}, "epsilon is 'small'; it must be a finite number"),
        ({"failure_probability": 0}, "failure_probability is 0; it must lie between 0 and 1"),
        ({"failure_probability": 1.0}, "failure_probability is 1.0; it must lie between 0 and 1"),
        ({"episodes": 0}, "episodes is 0; it must be a whole number from 1 to "),
        ({"seed": -1}, "seed is -1"),
    ]:
        with pytest.raises(SettingsError, match=words):
            peakrl.certify(MODEL, peakrl.solve(MODEL).policy, **arguments)


def test_what_is_no_policy_or_no_target_is_named():
    with pytest.raises(PolicyError, match="is not a policy"):
        peakrl.certify(MODEL, 5)
    with pytest.raises(PolicyError, match="is not a policy"):
        peakrl.certify(MODEL, 5, episodes=10)
    with pytest.raises(PolicyError, match="the policy belongs to"):
        peakrl.certify(MODEL, peakrl.solve(random_problem(4)).policy, episodes=10)
    with pytest.raises(TargetError, match="cannot be certified on"):
        peakrl.certify("nothing", lambda step, state, actions: 0)
    with pytest.raises(PolicyError, match=r"neither a policy, such as run\.policy, nor a function"):
        peakrl.certify(environment(MODEL), 5)


def test_an_action_that_is_not_on_offer_is_named_and_so_is_where_a_policy_raised():
    for target in (MODEL, environment(MODEL)):
        with pytest.raises(PeakError, match=r"not on offer|not available|does not offer"):
            peakrl.certify(target, lambda step, state, actions: "fly", episodes=5)
        with pytest.raises(ZeroDivisionError) as caught:
            peakrl.certify(target, lambda step, state, actions: 1 / 0, episodes=5)
        assert "the policy raised this" in caught.value.__notes__[0]


def dry(transition):
    return -1.0 if transition.next_observation in {5, 7, 11, 12} else 1.0


def test_a_policy_learned_on_an_environment_is_certified_on_its_model_by_label():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    env = peakrl.ConstrainedEnv(lake, constraint=dry, horizon=8, reward_range=(0, 1))
    policy = peakrl.learn(env, episodes=500).policy
    model = peakrl.compile_model(peakrl.from_gymnasium(lake, horizon=8, constraint=dry))
    found = peakrl.certify(model, policy)
    assert (found.holds, found.value_low, found.gap, found.kind) == (True, 1.0, 0.0, "exact")


def test_a_policy_of_other_states_is_refused_by_name():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    env = peakrl.ConstrainedEnv(lake, constraint=dry, horizon=8, reward_range=(0, 1))
    policy = peakrl.learn(env, episodes=5).policy
    with pytest.raises(peakrl.PeakError, match=r"no first state of 'energy harvesting' was visited"):
        peakrl.certify(peakrl.problems.energy_harvesting(peak_power=3), policy)


# --- Policies of something else ---------------------------------------------------------------------------------------


class Stock(peakrl.Problem):
    """A stock of 2, 0 or 1, in this order; the right action, which differs from state to state, earns 1."""

    name, horizon, reward_range, stationary = "stock", 3, (0.0, 1.0), True
    constraint_names, constraint_bounds = ("limit",), (1.0,)

    def initial(self):
        return [(1.0, 2)]

    def actions(self, step, state):
        return [0, 1]

    def outcomes(self, step, state, action):
        right = action == (1, 0, 1)[state - 2]
        return [(1.0, (state + 1) % 3 if right else state, float(right), (1.0 if right else -0.1,))]


def test_a_policy_that_numbers_the_states_of_a_problem_is_not_taken_for_one_of_its_labels():
    problem = Stock()
    run = peakrl.learn(peakrl.to_gymnasium(problem), episodes=300, seed=1)
    assert list(peakrl.compile_model(problem).state_labels) == [2, 0, 1]
    with pytest.raises(PolicyError, match="'peakrl/Problem-v0', which numbers the states"):
        peakrl.certify(problem, run.policy)


def test_a_policy_without_an_end_is_not_certified_for_some_steps():
    """Otherwise its gain would be the value, and its long-run violation that of an episode."""
    model = peakrl.compile_model(Stock())
    policy = peakrl.solve(model, discount=0.5).policy
    with pytest.raises(PolicyError, match="has no end, but an episode of 'stock' has 3 steps"):
        peakrl.certify(model, policy)
    assert peakrl.certify(model, peakrl.Policy.from_rule(model, policy.action)).value_low == 3


def test_an_averaged_policy_of_an_environment_has_no_table():
    """The table of its mean decisions would mix its policies at each step, and has another value."""
    run = peakrl.learn(ModelEnvironment(MODEL, 1), episodes=20)
    with pytest.raises(PolicyError, match="follows one of its policies for a whole episode"):
        peakrl.certify(MODEL, run.averaged_policy)


def test_a_discount_is_not_ignored_on_an_environment():
    with pytest.raises(SettingsError, match="discount= and reach= are for models: the episodes of an environment"):
        peakrl.certify(ModelEnvironment(MODEL, 1), lambda step, state, actions: actions[0], discount=0.9)
