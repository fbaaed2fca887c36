"""A problem read off an environment's table is that environment."""

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers.shielded_environments import holes, lake, latest
from peakrl import compile_model, evaluate, from_gymnasium, solve
from peakrl.errors import ProblemError, SettingsError, TargetError


class Shown(gymnasium.Env):
    """A table and nothing else."""

    def __init__(self, table, first=(1.0, 0.0)):
        self.P = table
        if first is not None:
            self.initial_state_distrib = np.array(first)


COIN = {0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 2.0, True)]}, 1: {0: [(1.0, 1, 7.0, False)]}}


def test_what_ends_an_episode_earns_nothing_more():
    model = compile_model(from_gymnasium(Shown(COIN), horizon=3))
    # 1.5 a step as long as it lasts: with probability 1, 1/2, 1/4; state 1 is never gone on from.
    assert solve(model).value == pytest.approx(1.5 * 1.75)
    assert model.state_labels == [0, 2]


@pytest.mark.parametrize(
    ("name", "options"),
    [("FrozenLake", {}), ("CliffWalking", {}), ("Taxi", {}), ("FrozenLake8x8", {"is_slippery": False})],
)
def test_episodes_of_the_environment_earn_what_the_problem_says(name, options):
    env = gymnasium.make(latest(name), max_episode_steps=30, **options)
    model = compile_model(from_gymnasium(env))
    assert model.horizon == 30
    policy = peakrl.Policy.from_rule(
        model, lambda step, state: (state + step) % 4 if state < len(env.unwrapped.P) else 0
    )
    expected = evaluate(model, policy).value
    totals = []
    for episode in range(400):
        observation, _ = env.reset(seed=episode)
        total, over, step = 0.0, False, 0
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy.action(step, int(observation)))
            total, over, step = total + reward, terminated or truncated, step + 1
        totals.append(total)
    # Five standard errors: the chance of a false alarm is below one in a million.
    assert abs(np.mean(totals) - expected) <= 5 * np.std(totals) / 20 + 1e-9


def test_a_constraint_function_sees_every_entry_and_names_can_be_given():
    problem = from_gymnasium(lake(), constraint=lambda t: (holes(t), 1.0), constraint_names=["hole", "nothing"])
    assert problem.constraint_names == ("hole", "nothing")
    assert from_gymnasium(lake(), constraint=lambda t: (1.0, 2.0)).constraint_names == ("constraint 0", "constraint 1")
    model = compile_model(problem)
    rows = [model.row_of(0, 4, action) for action in range(4)]
    assert [bool(model.keeps[row]) for row in rows] == [True, False, False, False]  # only away from the hole
    assert peakrl.safe_set(problem).feasible


UNREADABLE = [
    (gymnasium.make("CartPole-v1"), {}, SettingsError, "has no transition table env.unwrapped.P"),
    (Shown(COIN), {}, SettingsError, "no time limit: pass horizon="),
    (Shown(COIN, None), {"horizon": 2}, SettingsError, "does not declare its initial states: pass initial="),
    (Shown(COIN), {"horizon": 2, "constraint": 3}, SettingsError, "constraint is 3; it must be a function"),
    (
        Shown(COIN),
        {"horizon": 2, "initial": 9},
        ProblemError,
        "the initial state 9 is not in the environment's table",
    ),
    (
        Shown(COIN),
        {"horizon": 2, "constraint": lambda t: "no"},
        TargetError,
        r"what constraint\(\) returned is 'no'",
    ),
    (Shown({0: 3, 1: 3}), {"horizon": 2, "constraint": holes}, ProblemError, "is not a table of lists"),
]


def test_what_cannot_be_read_is_named():
    for env, options, error, match in UNREADABLE:
        with pytest.raises(error, match=match):
            from_gymnasium(env, **options)


def test_an_entry_that_is_none_is_named():
    with pytest.raises(ProblemError, match=r"P\[0\]\[0\] holds \(1.0, 0\) .*must hold \(probability, next state"):
        compile_model(from_gymnasium(Shown({0: {0: [(1.0, 0)]}}, [1.0]), horizon=2))
    with pytest.raises(ProblemError, match=r"P\[0\]\[0\] leads to 5, a state that is not in the table"):
        compile_model(from_gymnasium(Shown({0: {0: [(1.0, 5, 0.0, False)]}}, [1.0]), horizon=2))


def test_the_first_state_can_be_given():
    both = from_gymnasium(Shown(COIN, None), horizon=2, initial={0: 0.5, 1: 0.5})
    assert sorted(both.initial()) == [(0.5, 0), (0.5, 1)]
    assert list(from_gymnasium(Shown(COIN), horizon=2, initial=1).initial()) == [(1.0, 1)]
