"""The built-in problems with continuous states, against Gymnasium and closed forms."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from peakrl import problems, safe_set


def test_cartpole_moves_like_gymnasiums_to_the_last_bit():
    env, problem, rng = gymnasium.make("CartPole-v1").unwrapped, problems.cartpole(), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(2_000):
        state, action = rng.uniform(problem.low, problem.high), int(rng.integers(2))
        env.state, env.steps_beyond_terminated = np.array(state), None
        env.step(action)
        assert list(env.state) == problem.move(list(state), action)


def test_the_heater_of_the_room_must_be_on_and_off_where_arithmetic_says():
    safe = safe_set(problems.room_temperature(), cells=600)
    # The heater must be on below 18 / 0.9 (else 0.9 T < 18), and off above (24 - 3.5) / 0.9.
    assert safe.actions([19.99]) == [1]
    assert safe.actions([20.01]) == [0, 1]
    assert safe.actions([22.79]) == [0]


def test_the_module_can_be_the_first_import_of_a_process():
    code = "from peakrl.problems.continuous_systems import cartpole; cartpole()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def pole():
    """The safe set of CartPole on 3.2 million cells."""
    return safe_set(problems.cartpole(), cells=(48, 40, 42, 40))


@pytest.mark.slow
def test_a_third_of_cartpole_is_safe_and_all_of_its_starts(pole):
    assert pole.share > 0.31
    assert pole.feasible


@pytest.mark.slow
def test_random_sequences_of_the_safe_set_balance_gymnasiums_pole_in_100_episodes(pole):
    env, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    for episode in range(100):
        env.reset(seed=episode)
        over = False
        for step in range(500):
            if step % 5 == 0:
                sequence = pole.choices[rng.choice(np.flatnonzero(pole.mask(env.unwrapped.state)))]
            assert not over
            _, _, over, _, _ = env.step(sequence[step % 5])
        assert not over
