"""Rounding is a violation unless a problem says how much of it is none; what is forgiven is forgiven everywhere."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from peakrl import (
    ConstrainedEnv,
    Outcome,
    PeakError,
    Policy,
    Problem,
    TabularModel,
    certify,
    compile_model,
    evaluate,
    learn,
    safe_set,
    simulate,
    solve,
)
from peakrl.errors import SettingsError, TargetError
from peakrl.learners import SafeQ

PRACTICAL = SafeQ()


class Tanks(Problem):
    """Fill a tank of 0.3 in parts of 0.1 and 0.2: 0.3 - (0.1 + 0.2) is -5.6e-17, not 0."""

    horizon, stationary = 2, True
    constraint_names = ("room",)
    constraint_bounds = (1.0,)

    def __init__(self, tolerances=()):
        self.constraint_tolerances = tolerances

    def initial(self):
        return [(1.0, "empty")]

    def actions(self, step, state):
        return ("nothing", "both", "too much")

    def outcomes(self, step, state, action):
        filled = {"nothing": 0.0, "both": 0.1 + 0.2, "too much": 0.4}[action]
        return [Outcome(1.0, "empty", filled, (0.3 - filled,))]


def arrays(tolerances):
    both = [[[1.0, 0.3 - (0.1 + 0.2), -0.1]]]
    return TabularModel.from_arrays(
        np.ones((1, 3, 1)), [[0.0, 0.3, 0.4]], both, 2, constraint_bounds=[1.0], constraint_tolerances=tolerances
    )


@pytest.mark.parametrize("make", [lambda tolerances: compile_model(Tanks(tolerances)), arrays])
def test_a_tolerance_counts_everywhere_and_0_is_exact(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forgiving = make((1e-12,))
    with pytest.warns(
        RuntimeWarning, match=r"rounding: constraint .* is -5\.55e-17.*constraint_tolerances, here 1e-09"
    ):
        exact = make(())
    for model, allowed in ((forgiving, 1), (exact, 0)):
        state, actions = model.state_labels[0], list(model.action_labels)
        best = Policy.from_rule(model, lambda step, state, chosen=actions[allowed]: chosen)
        assert solve(model).value == pytest.approx(2 * 0.3 * allowed)
        assert list(safe_set(model).actions(state)) == actions[: allowed + 1]
        assert evaluate(model, best).violation == 0
        assert simulate(model, best, episodes=50).violation == 0
        learned = learn(model, PRACTICAL, episodes=300, seed=1)
        assert evaluate(model, learned.policy).value == pytest.approx(2 * 0.3 * allowed)
        assert evaluate(model, Policy.from_rule(model, lambda *_, chosen=actions[2]: chosen)).violation > 0


def test_a_violation_that_is_no_rounding_is_not_mentioned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "constraint .* sign right")
        TabularModel.from_arrays(np.ones((1, 1, 1)), [[0.0]], [[[-1e-6]]], 1, constraint_bounds=[1.0])
        TabularModel.from_arrays(np.ones((1, 1, 1)), [[0.0]], [[[-1e-12]], [[-0.5]]], 1, constraint_bounds=[1.0, 1.0])


@pytest.mark.parametrize(
    ("given", "words"),
    [((-1.0,), "number 0 is -1.0"), ((1.0, 2.0), "2 numbers for 1"), ("abc", "must hold"), ((np.nan,), "is nan")],
)
def test_a_tolerance_that_is_none_is_refused(given, words):
    with pytest.raises(PeakError, match=f"constraint_tolerances.*{words}"):
        compile_model(Tanks(given))
    with pytest.raises(PeakError, match=f"constraint_tolerances.*{words}"):
        arrays(given)


class Scales(gymnasium.Env):
    """One state; every step is off by rounding."""

    observation_space = spaces.Discrete(1)
    action_space = spaces.Discrete(1)

    def __init__(self, **declared):
        self.metadata = {"peakrl": {"horizon": 3, "reward_range": (0, 1), **declared}}

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 1.0, False, False, {"constraints": [0.3 - (0.1 + 0.2)]}


def test_an_environment_may_declare_a_tolerance_too():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = learn(Scales(constraint_tolerances=(1e-12,)), PRACTICAL, episodes=10)
    assert run.violations == 0
    with pytest.warns(RuntimeWarning, match="may be rounding") as told:
        assert learn(Scales(constraint_bounds=(1.0,)), PRACTICAL, episodes=10).violations > 0
    assert len([w for w in told if "rounding" in str(w.message)]) == 1
    with pytest.raises(SettingsError, match="constraint_tolerances: number 0 is -1"):
        learn(Scales(constraint_tolerances=(-1,)), PRACTICAL, episodes=10)
    with pytest.raises(TargetError, match="1 numbers for 2 constraint_tolerances"):
        learn(Scales(constraint_tolerances=(1, 1)), PRACTICAL, episodes=10)


def test_a_tolerance_of_an_environment_holds_everywhere():
    """Scales are off by rounding at every step: with that tolerance there is no violation."""
    env = ConstrainedEnv(Scales(), constraint_bounds=(1.0,), constraint_tolerances=(1e-12,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = learn(env, PRACTICAL, episodes=10)
        assert run.violations == 0
        assert simulate(env, run.policy, episodes=3).violation == 0.0
        certificate = certify(env, run.policy, episodes=20)
    assert certificate.violation_probability_high < 1.0
    assert any("down to 1e-12 below 0" in line for line in certificate.rests_on)


def test_what_a_constraint_function_raises_names_the_function():
    def my_margin(transition):
        return {}["height"]

    with pytest.raises(TargetError, match=r"constraint=, .*my_margin, raised KeyError: 'height'"):
        learn(ConstrainedEnv(Scales(), constraint=my_margin), PRACTICAL, episodes=3)
