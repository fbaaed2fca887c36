"""`ConstrainedEnv`: what is declared about an environment, and what its `info` contains."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from peakrl import ConstrainedEnv, from_gymnasium, learn, solve, to_gymnasium
from peakrl.gym.constrained_env import ConstrainedVectorEnv
from peakrl.problems import energy_harvesting

HOLES = {5, 7, 11, 12}


def dry(transition):
    return -1.0 if transition.next_observation in HOLES else 1.0


def lake():
    return gymnasium.make("FrozenLake-v1", is_slippery=False)


def constrained(env, **changes):
    return ConstrainedEnv(env, **{"constraint": dry, "horizon": 8, "reward_range": (0, 1), **changes})


def test_every_step_reports_constraints_and_cost():
    env = constrained(lake(), constraint=lambda t: (dry(t), float(t.step) - 1.0))
    env.reset(seed=0)
    infos = [env.step(action)[4] for action in (1, 2)]  # down, then right into the hole
    assert [info["constraints"].tolist() for info in infos] == [[1.0, -1.0], [-1.0, 0.0]]
    assert [info["cost"].tolist() for info in infos] == [[0.0, 1.0], [1.0, 0.0]]
    env = constrained(lake())
    env.reset(seed=0)
    assert [env.step(action)[4]["cost"] for action in (1, 2)] == [0.0, 1.0]


def test_it_is_an_environment_that_declares_everything_also_inside_of_a_wrapper():
    env = constrained(lake(), constraint_bounds=(1.0,), constraint_names=("dry",))
    inner = learn(env, "SafeQ", episodes=200)
    assert inner.model.constraint_names == ("dry",)
    for other in (
        gymnasium.Wrapper(env),
        SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.DISABLED),
        copy.deepcopy(env),
    ):
        run = learn(other, "SafeQ", episodes=200)
        assert np.array_equal(run.q, inner.q)
        assert run.model.constraint_names == ("dry",)


def test_an_argument_that_does_not_exist_is_refused_also_for_vectorised_environments():
    lakes = SyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 2)
    with pytest.raises(TypeError, match="constraint_tolerence"):
        ConstrainedEnv(lakes, horizon=8, reward_range=(0, 1), constraint_tolerence=(0.5,))
    lakes.close()


def test_its_arguments_come_before_what_the_environment_declares():
    problem = energy_harvesting(horizon=5, battery=3, max_arrival=2, mean=1, std=1, peak_power=2)
    env = ConstrainedEnv(to_gymnasium(problem), horizon=3, constraint_names=("peak",))
    run = learn(env, episodes=5)
    assert (run.model.horizon, run.model.constraint_names) == (3, ("peak",))
    assert run.model.reward_range == to_gymnasium(problem).model.reward_range


def test_its_transition_table_has_its_constraints_and_horizon():
    problem = from_gymnasium(constrained(lake(), constraint_names=("dry",)))
    assert (problem.horizon, problem.constraint_names) == (8, ("dry",))
    assert solve(problem).value == 1.0
    assert not solve(from_gymnasium(constrained(lake(), constraint=lambda transition: -1.0))).feasible


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_steps_of_a_vectorised_environment_report_what_those_of_one_do(mode):
    def shown(transition):
        return dry(transition), float(transition.observation), -float(transition.step)

    envs = constrained(SyncVectorEnv([lake] * 2, autoreset_mode=mode), constraint=shown)
    assert isinstance(envs, ConstrainedVectorEnv)
    alone = [constrained(lake(), constraint=shown) for _ in range(2)]
    plans = np.random.default_rng(0).integers(4, size=(2, 60))
    envs.reset(seed=0)
    for env in alone:
        env.reset(seed=0)
    waits = [False, False]
    for actions in plans.T:
        *_, terminations, truncations, infos = envs.step(actions)
        over = terminations | truncations
        for lane, env in enumerate(alone):
            if waits[lane]:
                env.reset()
                waits[lane] = False
                assert not infos.get("_constraints", np.zeros(2))[lane]
                continue
            expected = env.step(actions[lane])[4]
            final = over[lane] and mode is AutoresetMode.SAME_STEP
            found = infos["final_info"] if final else infos
            for key in ("constraints", "cost"):
                assert found[f"_{key}"][lane]
                assert found[key][lane].tolist() == expected[key].tolist()
            if over[lane] and mode is AutoresetMode.NEXT_STEP:
                waits[lane] = True
            elif over[lane]:
                env.reset()
        if mode is AutoresetMode.DISABLED and over.any():
            envs.reset(options={"reset_mask": over})
