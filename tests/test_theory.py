"""The paper's arithmetic, against its formulas worked out another way."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.random_problems import random_problem
from peakrl import compile_model
from peakrl.errors import SettingsError
from peakrl.theory import default_penalty, least_episodes, pac_plan

SIZES = {"states": 441, "actions": 9, "horizon": 20, "constraints": 1}


def lambert_episodes(factor, log_base):
    """K = factor * (log_base + log K) in closed form: K = -factor * W_{-1}(-exp(-log_base) / factor)."""
    from scipy.special import lambertw

    return float(-factor * lambertw(-math.exp(-log_base) / factor, -1).real)


def holds(episodes, factor, log_base, power=1):
    """K >= factor * (log_base + log K)^power in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        right = Decimal(factor) * (Decimal(log_base) + Decimal(episodes).ln()) ** power
        return Decimal(episodes) >= right


def test_the_plan_of_a_small_problem_is_the_papers_formulas_worked_by_hand():
    plan = pac_plan(epsilon=0.6, failure_probability=0.1, states=2, actions=3, horizon=2, constraints=1)
    factor, log_base = 1 * 2**6 * 2 * 3 / 0.6**2, math.log(2 * 3 * 2 / 0.1)
    assert plan.slack == pytest.approx(0.6 / 12)
    assert plan.slater == pytest.approx(0.025)
    assert plan.penalty == pytest.approx(160)
    assert plan.episodes == math.ceil(lambert_episodes(factor, log_base))
    assert plan.log_term == pytest.approx(math.log(2 * 3 * plan.episodes * 2 / 0.1))
    assert plan.steps == 2 * plan.episodes


def test_episodes_agree_with_the_lambert_function_on_the_energy_problem():
    plan = pac_plan(epsilon=2.0, failure_probability=0.05, **SIZES)
    factor, log_base = 20**6 * 441 * 9 / 4, math.log(441 * 9 * 20 / 0.05)
    assert plan.episodes == pytest.approx(lambert_episodes(factor, log_base), rel=1e-12)


@settings(max_examples=150)
@given(
    st.floats(0.05, 50), st.floats(1e-6, 0.999), st.integers(1, 60), st.integers(1, 20), st.integers(1, 5),
    st.integers(1, 4), st.floats(1e-6, 10),
)  # fmt: skip
def test_each_count_is_the_least_from_which_on_its_condition_holds(epsilon, p, states, actions, horizon, count, c):
    plan = pac_plan(
        epsilon=epsilon, failure_probability=p, states=states, actions=actions, horizon=horizon, constraints=count,
        constant=c,
    )  # fmt: skip
    eps = epsilon / 2 if horizon == 1 else epsilon
    log_base = math.log(states * actions * horizon / p)
    factor = c * count**2 * horizon**6 * states * actions / eps**2
    regret = horizon**5 * states**2 * actions**2
    for episodes, by, power in (
        (plan.episodes, factor, 1),
        (plan.strict_episodes, factor / plan.slater**2, 1),
        (plan.regret_episodes, regret, 3),
    ):
        # A few units in the last place of doubles either way are not ours to settle.
        room = 1 + math.ceil(episodes * 1e-13)
        assert all(holds(episodes * n + room - 1, by, log_base, power) for n in (1, 2, 1000))
        assert episodes == 1 or not holds(max(episodes - room, 1), by, log_base, power)


@given(st.floats(1e-3, 100), st.floats(1.001, 10))
def test_a_larger_epsilon_never_asks_for_more_episodes(epsilon, times):
    fine = pac_plan(epsilon=epsilon, failure_probability=0.1, **SIZES)
    coarse = pac_plan(epsilon=epsilon * times, failure_probability=0.1, **SIZES)
    assert coarse.episodes <= fine.episodes
    assert coarse.strict_episodes <= fine.strict_episodes
    assert coarse.slack > fine.slack


@given(st.floats(1e-4, 1e4), st.floats(0.01, 12), st.sampled_from([1, 3]))
def test_small_counts_are_those_that_trying_every_number_finds(factor, log_base, power):
    tried = [k for k in range(1, 3000) if k < factor * (log_base + math.log(k)) ** power]
    if not tried or tried[-1] < 2999:
        assert least_episodes(factor, log_base, power) == (tried[-1] + 1 if tried else 1)


def test_a_horizon_of_one_halves_epsilon():
    sizes = {"states": 3, "actions": 2, "constraints": 2}
    one = pac_plan(epsilon=0.4, failure_probability=0.1, horizon=1, **sizes)
    assert one.slack == pytest.approx(0.2 / 12)
    factor = 2**2 * 3 * 2 / 0.2**2
    assert one.episodes == math.ceil(lambert_episodes(factor, math.log(6 / 0.1)))


def test_twice_the_constant_asks_for_about_twice_the_episodes():
    once = pac_plan(epsilon=1.0, failure_probability=0.1, **SIZES)
    twice = pac_plan(epsilon=1.0, failure_probability=0.1, constant=2.0, **SIZES)
    assert 2.0 < twice.episodes / once.episodes < 2.1
    assert twice.regret_episodes == once.regret_episodes


@pytest.mark.parametrize("bad", [0, math.nan, "1", True])
def test_a_bad_argument_is_refused_by_name(bad):
    for name in ("epsilon", "failure_probability", "states", "actions", "horizon", "constraints", "constant"):
        arguments = {"epsilon": 0.5, "failure_probability": 0.1, **SIZES, name: bad}
        with pytest.raises(SettingsError, match=f"{name} is "):
            pac_plan(**arguments)


def test_counts_must_be_whole_and_probabilities_below_one():
    for name in ("states", "actions", "horizon", "constraints"):
        with pytest.raises(SettingsError, match=f"{name} is 2.5"):
            pac_plan(**{"epsilon": 0.5, "failure_probability": 0.1, **SIZES, name: 2.5})
    with pytest.raises(SettingsError, match=r"failure_probability is 1\.0; it must lie between 0 and 1"):
        pac_plan(epsilon=0.5, failure_probability=1.0, **SIZES)


@pytest.mark.parametrize("change", [{"epsilon": 1e-200}, {"states": 10**400}, {"epsilon": 1e-153}, {"epsilon": 5e-324}])
def test_more_episodes_than_a_number_holds_is_an_error_not_a_crash(change):
    with pytest.raises(SettingsError, match="more episodes than a float can represent"):
        pac_plan(**{"epsilon": 0.5, "failure_probability": 0.1, **SIZES, **change})


def test_numpy_numbers_are_numbers():
    plain = pac_plan(epsilon=0.5, failure_probability=0.1, **SIZES)
    numpy = pac_plan(
        epsilon=np.float64(0.5), failure_probability=np.float64(0.1), **{k: np.int64(v) for k, v in SIZES.items()}
    )
    assert plain == numpy


def test_the_default_penalty_is_the_papers_times_the_reward_range():
    model = compile_model(random_problem(3, horizon=4, constraints=2))
    lo, hi = model.reward_range
    assert default_penalty(model, 0.1) == pytest.approx(2 * 4 * 2 * (hi - lo) / 0.05)
    assert default_penalty(model, 0.1, 0.1) == pytest.approx(2 * 4 * 2 * (hi - lo) / 0.1)


def test_the_default_penalty_counts_no_constraints_and_no_range_as_one():
    from peakrl import TabularModel

    model = TabularModel.from_arrays(np.ones((1, 1, 1)), np.ones((1, 1)), np.zeros((0, 1, 1)), 3)
    assert default_penalty(model, 0.5) == pytest.approx(2 * 3 / 0.25)


SLACKS = [0, math.nan, "a", 10**400, 1e-320]


def test_the_default_penalty_refuses_a_slack_it_cannot_divide_by():
    for slack in SLACKS:
        model = compile_model(random_problem(3))
        with pytest.raises(SettingsError, match="slack"):
            default_penalty(model, slack)


@pytest.mark.parametrize("slater", [0, 0.2, "a"])
def test_the_default_penalty_refuses_a_slater_constant_beyond_the_slack(slater):
    with pytest.raises(SettingsError, match="slater is"):
        default_penalty(compile_model(random_problem(3)), 0.1, slater)
