"""PeakReward: the paper's modified reward as a wrapper of environments."""

import gymnasium
import pytest

import peakrl
from peakrl.errors import SettingsError


class Walk(peakrl.Problem):
    """Deterministic: steps of 0 to 3 earn their length; 5 is the limit of their sum, 2 that of one of them."""

    name, horizon, stationary, constraint_names = "walk", 4, True, ("sum", "step")
    reward_range = (0, 3)

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return range(4)

    def outcomes(self, step, state, length):
        return [peakrl.Outcome(1.0, state + length, float(length), (5.0 - state - length, 2.0 - length))]


@pytest.mark.parametrize("chosen", [{"slack": 0.5}, {"slack": 2.0, "penalty": 0.9}, {"slack": 0.0, "penalty": 1.7}])
def test_the_best_policy_earns_the_value_of_the_modified_problem(chosen):
    best = peakrl.theory.solve_modified(Walk(), **chosen)
    env = peakrl.PeakReward(peakrl.to_gymnasium(Walk()), **chosen)
    observation, info = env.reset(seed=0)
    earned = paid = 0.0
    for step in range(4):
        action = best.policy.action(step, env.unwrapped.states[observation])
        observation, reward, _, _, info = env.step(int(action))
        earned, paid = earned + reward, paid + info["task_reward"]
    assert earned == pytest.approx(best.value)
    assert paid >= earned


def test_it_takes_what_has_no_table_and_names_what_the_default_penalty_needs():
    pendulum = gymnasium.make("Pendulum-v1")
    env = peakrl.PeakReward(pendulum, lambda t: (1.0 - abs(float(t.action[0])), 0.0), slack=0.25, penalty=10.0)
    env.reset(seed=1)
    _, reward, _, _, info = env.step([2.0])
    assert reward == pytest.approx(info["task_reward"] - 5.0 * 0.75)
    assert info["cost"].tolist() == [1.0, 0.0]
    with pytest.raises(SettingsError, match="does not declare reward_range"):
        peakrl.PeakReward(pendulum, lambda t: 1.0, slack=0.1)
    with pytest.raises(SettingsError, match="pass penalty="):
        peakrl.PeakReward(pendulum, lambda t: 1.0, slack=0.0)
    with pytest.raises(SettingsError, match="does not declare reward_range"):  # that of the task is not R's
        peakrl.learn(peakrl.PeakReward(peakrl.to_gymnasium(Walk()), slack=0.5), episodes=2)
