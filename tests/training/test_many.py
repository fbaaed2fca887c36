"""Many runs at once against the same runs one by one."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from helpers.random_problems import random_problem
from peakrl import ConstrainedEnv, compile_model, learn, learn_many
from peakrl.errors import SettingsError
from peakrl.learners import ConstrainedQ, SafeQ

SETTINGS = {
    "published": ConstrainedQ.published(0.25),
    "as printed": ConstrainedQ.paper(0.25),
    "practical": SafeQ(),
}


def model_number(seed):
    return compile_model(random_problem(seed, states=4, actions=3, horizon=4))


def differences(first, second):
    """What two runs differ in."""
    found = [] if np.array_equal(first.q, second.q) else ["q"]
    if not np.array_equal(first.policy.rows, second.policy.rows):
        found.append("policy")
    found += [
        name
        for name in ("change_episode", "change_node", "change_row")
        if not np.array_equal(getattr(first.averaged_policy, name), getattr(second.averaged_policy, name))
    ]
    there = second.history.columns()
    found += [name for name, column in first.history.columns().items() if not np.array_equal(column, there[name])]
    return found + [
        name
        for name in ("seed", "violations", "last_violation_episode", "feasible")
        if getattr(first, name) != getattr(second, name)
    ]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("workers", [2])
def test_runs_side_by_side_equal_the_same_runs_one_by_one(name, workers):
    model, seeds = model_number(3), range(7)
    together = learn_many(model, SETTINGS[name], 600, seeds, history=50, workers=workers)
    alone = [learn(model, SETTINGS[name], episodes=600, seed=seed, history=50) for seed in seeds]
    assert [differences(a, b) for a, b in zip(together, alone, strict=True)] == [[]] * 7


def test_models_and_seeds_are_paired_in_order():
    models, seeds = [model_number(seed) for seed in (1, 2, 3)], (30, 20, 10)
    together = learn_many(models, SETTINGS["published"], 200, seeds)
    for run, model, seed in zip(together, models, seeds, strict=True):
        assert run.model is model
        assert differences(run, learn(model, SETTINGS["published"], episodes=200, seed=seed)) == []


def test_one_seed_serves_all_models():
    models = [model_number(seed) for seed in (1, 2)]
    assert [(run.model, run.seed) for run in learn_many(models, SETTINGS["published"], 50, 9)] == [
        (models[0], 9),
        (models[1], 9),
    ]


def test_only_what_is_asked_for_is_kept():
    model = model_number(3)
    kept = learn_many(model, SETTINGS["published"], 100, range(3), keep=lambda run: (run.seed, run.violations))
    alone = [learn(model, SETTINGS["published"], episodes=100, seed=seed) for seed in range(3)]
    assert kept == [(run.seed, run.violations) for run in alone]


def test_no_models_give_no_runs():
    assert learn_many([], SETTINGS["published"], 10, 1) == []


def test_an_error_in_one_run_stops_the_others_and_is_raised():
    def refuse(run):
        raise ValueError(f"seed {run.seed}")

    with pytest.raises(ValueError, match="seed"):
        learn_many(model_number(3), SETTINGS["published"], 100, range(50), keep=refuse, workers=2)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ({"models": "model"}, "models: number 0"),
        ({"learner": {"slack": 0.1}}, "settings"),
        ({"episodes": 0}, "episodes"),
        ({"seeds": [1, -1]}, "seed"),
        ({"workers": 0}, "workers"),
        ({"models": [model_number(1)] * 2, "seeds": [1, 2, 3]}, "2 models and 3 seeds"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, culprit):
    good = {"models": model_number(1), "learner": SETTINGS["published"], "episodes": 5, "seeds": 0}
    with pytest.raises(SettingsError, match=culprit):
        learn_many(**(good | arguments))


# --- Environments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTINGS)
def test_a_function_that_makes_an_environment_is_called_once_a_run(name):
    made = []

    def make():
        made.append(
            ConstrainedEnv(
                gymnasium.make("FrozenLake-v1"),
                horizon=8,
                reward_range=(0, 1),
                constraint_bounds=(1.0,),
                constraint=lambda seen: -1.0 if seen.next_observation == 5 else 1.0,
            )
        )
        return made[-1]

    together = learn_many(make, SETTINGS[name], 100, range(3), history=10, workers=2)
    assert len({id(env) for env in made}) == 3
    for seed, run in enumerate(together):
        alone = learn(make(), SETTINGS[name], episodes=100, seed=seed, history=10)
        for column, values in run.history.columns().items():
            assert np.array_equal(values, alone.history.columns()[column], equal_nan=True)
        assert np.array_equal(run.q, alone.q)
    each = learn_many([make(), make()], SETTINGS[name], 20, 7, keep=lambda run: run.violations)
    assert each[0] == each[1]


@pytest.mark.parametrize(
    ("models", "culprit"),
    [
        (lambda: gymnasium.make("FrozenLake-v1"), "does not declare reward_range"),
        (lambda: 3, "models returned 3; a function must return a Gymnasium environment"),
        (gymnasium.make("FrozenLake-v1"), "an environment belongs to one run: pass a function"),
    ],
)
def test_what_is_wrong_with_environments_is_said(models, culprit):
    with pytest.raises(SettingsError, match=culprit):
        learn_many(models, SETTINGS["practical"], 10, range(2))
