"""Environments that misbehave: every one is an error that names the episode and the step, and loses nothing."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from peakrl import Assumptions, ConstrainedEnv, PeakError, learn, simulate
from peakrl.errors import SettingsError, TargetError
from peakrl.learners import ConstrainedQ, PosteriorSampling, SafeQ

PRACTICAL = SafeQ()
DECLARED = {"horizon": 4, "reward_range": (0, 1)}


class Scripted(gymnasium.Env):
    """Two states in turn; `spoil(episode, step, result)` may put anything in place of what `step` returns."""

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space: spaces.Space = spaces.Discrete(2)
    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, spoil=None, spoil_reset=None):
        self.spoil, self.spoil_reset, self.episode = spoil, spoil_reset, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.count = 0
        result = (0, {})
        return self.spoil_reset(self.episode, result) if self.spoil_reset else result

    def step(self, action):
        self.count += 1
        result = (self.count % 2, 0.5, False, False, {"constraints": np.array([1.0, 0.0])})
        return self.spoil(self.episode, self.count - 1, result) if self.spoil else result


def at(episode, step, change):
    """Spoil the result of one step."""
    return lambda e, s, result: change(result) if (e, s) == (episode, step) else result


def replaced(index, value):
    return lambda result: (*result[:index], value, *result[index + 1 :])


def run(env, settings=PRACTICAL, *, episodes=20, history="auto", assumptions=None, **declared):
    env = ConstrainedEnv(env, **(DECLARED | declared))
    return learn(env, settings, episodes=episodes, history=history, assumptions=assumptions)


MISDEEDS = {
    "reward is NaN": (replaced(1, float("nan")), "reward is nan"),
    "reward out of range": (replaced(1, 1.5), r"reward is 1.5; reward_range is \(0.0, 1.0\)"),
    "reward is a word": (replaced(1, "much"), "reward is 'much'"),
    "no constraint": (replaced(4, {}), r'info\["constraints"\] is missing'),
    "too few constraints": (replaced(4, {"constraints": [1.0]}), "1 numbers for 2 constraints"),
    "constraint is NaN": (replaced(4, {"constraints": [1.0, np.nan]}), "finite"),
    "constraints are truth values": (replaced(4, {"constraints": [True, False]}), "must be a number"),
    "constraints are a table": (replaced(4, {"constraints": [[1.0, 1.0]]}), "flat sequence"),
    "info is a list": (replaced(4, []), "info"),
    "observation outside its space": (replaced(0, 2), r"not in Discrete\(2\)"),
    "observation is a float": (replaced(0, 0.5), "made of whole numbers"),
    "mask leaves nothing": (lambda r: (*r[:4], r[4] | {"action_mask": np.zeros(2, np.int8)}), "leaves no action"),
    "mask of another length": (
        lambda r: (*r[:4], r[4] | {"action_mask": np.ones(3, np.int8)}),
        "each of the 2 actions",
    ),
    "mask of other numbers": (lambda r: (*r[:4], r[4] | {"action_mask": np.array([0, 2])}), "a 0 or a 1"),
    "mask that changes": (
        lambda r: (*r[:4], r[4] | {"action_mask": np.array([0, 1])}),
        "must depend only on the state",
    ),
    "flag is no truth value": (replaced(2, 1), "terminated is 1"),
    "four values": (lambda result: result[:4], "must return"),
    "nothing at all": (lambda result: None, "must return"),
}


def test_a_misdeed_is_named_with_its_episode_and_step_and_the_run_is_kept():
    for change, message in MISDEEDS.values():
        for settings in (PRACTICAL, ConstrainedQ.published(0.5)):
            with pytest.raises(TargetError, match=f"episode 7, step 2: .*{message}") as caught:
                run(Scripted(at(7, 2, change)), settings)
            assert caught.value.run.episodes == 6
            assert caught.value.run.policy.action(0, 0) in (0, 1)
            assert len(caught.value.run.history) == 6


def fail(result):
    raise OSError("the simulator's licence server is gone")


def test_what_an_environment_raises_comes_out_with_its_cause_and_the_run_so_far():
    with pytest.raises(TargetError, match=r"episode 5, step 1: the environment raised OSError: .*licence") as caught:
        run(Scripted(at(5, 1, fail)))
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.run.episodes == caught.value.run.averaged_policy.episodes == 4


def test_an_error_in_the_first_episode_leaves_no_run():
    with pytest.raises(TargetError, match="episode 1, step 0") as caught:
        run(Scripted(at(1, 0, fail)))
    assert caught.value.run is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: 0, "reset"),
        (lambda result: (5, {}), "not in"),
        (lambda result: (0, None), "info"),
        (lambda result: (0, {"action_mask": np.zeros(2, np.int8)}), "leaves no action"),
        (fail, "licence"),
    ],
)
def test_misdeeds_of_reset_are_named_too(change, message):
    env = Scripted(spoil_reset=lambda episode, result: change(result) if episode == 3 else result)
    with pytest.raises(TargetError, match=f"episode 3, step 0: .*{message}"):
        run(env)


def test_no_constraint_at_all_is_an_error_unless_none_is_declared():
    quiet = lambda e, s, result: (*result[:4], {})  # noqa: E731
    with pytest.raises(TargetError, match="episode 1, step 0: no constraint"):
        run(Scripted(quiet))
    assert run(Scripted(quiet), constraint_bounds=()).violations == 0


def test_declaring_no_constraints_does_not_silence_those_that_are_reported():
    for reported in ({"cost": 1.0}, {"constraints": np.array([-1.0, 2.0])}):
        strict = lambda e, s, result, info=reported: (*result[:4], info)  # noqa: E731
        with pytest.raises(TargetError, match=r"step 0: the environment reports info.*constraint_bounds=\(\) declares"):
            run(Scripted(strict), constraint_bounds=())
        assert run(Scripted(strict), constraint=lambda transition: ()).violations == 0


def test_a_users_constraint_that_fails_or_gives_truth_values_is_an_error():
    with pytest.raises(TargetError, match=r"episode 1, step 0: .*ZeroDivisionError"):
        run(Scripted(), constraint=lambda transition: 1 / 0)
    with pytest.raises(TargetError, match="False equals 0"):
        run(Scripted(), constraint=lambda transition: transition.reward > 1)
    with pytest.raises(TargetError, match=r"constraint 'room' is -3, beyond its bound of 2: declare in constraint_b"):
        run(Scripted(), constraint=lambda transition: -3.0, constraint_bounds=[2.0], constraint_names=["room"])


def test_a_constraint_function_sees_the_whole_transition():
    seen = []
    run(Scripted(), constraint=lambda transition: seen.append(transition) or 1.0, episodes=1)
    first = seen[0]
    assert (first.step, first.observation, first.next_observation, first.reward) == (0, 0, 1, 0.5)
    assert [transition.step for transition in seen] == [0, 1, 2, 3]


@pytest.mark.parametrize("cost", [1.0, [0.0, 2.0], np.array([1, 0])])
def test_costs_above_0_are_violations_also_as_the_third_of_six_values(cost):
    five = run(Scripted(lambda e, s, result: (*result[:4], {"cost": cost})))
    six = run(Scripted(lambda e, s, result: (*result[:2], cost, *result[2:4], {})))
    assert five.violations == six.violations == 20 if five.feasible is None else five.feasible is six.feasible is False


BAD_ARGUMENTS = [
    ({"horizon": None}, "horizon"),
    ({"reward_range": None}, "reward_range"),
    ({"reward_range": (1, 0)}, "reward_range"),
    ({"constraint_bounds": [0.0]}, "constraint_bounds"),
    ({"constraint": 3}, "constraint"),
    ({"constraint_names": [3]}, "constraint_names"),
    ({"constraint_names": "ab"}, "constraint_names"),
    ({"constraint_names": ["a"], "constraint_bounds": [1, 1]}, "constraint_names"),
    ({"history": "all"}, "history"),
    ({"episodes": 0}, "episodes"),
    ({"settings": ConstrainedQ.paper(0.1)}, "constraint_bounds"),
    ({"settings": PosteriorSampling(), "assumptions": Assumptions(shared_transitions=True)}, "shared_transitions"),
    ({"assumptions": "stationary"}, "assumptions"),
]


def test_bad_arguments_are_refused_by_name():
    for changes, culprit in BAD_ARGUMENTS:
        with pytest.raises(SettingsError, match=culprit):
            run(Scripted(), **changes)


def test_spaces_without_a_table_are_refused():
    env = Scripted()
    env.observation_space = spaces.Dict({"angle": spaces.Box(0, 1)})
    with pytest.raises(SettingsError, match="Box"):
        run(env)
    env = Scripted()
    env.action_space = spaces.Box(0, 1)
    with pytest.raises(SettingsError, match="Discrete or MultiDiscrete"):
        run(env)
    with pytest.raises(SettingsError, match="env is 'CartPole-v1'"):
        run("CartPole-v1")
    with pytest.raises(SettingsError, match="target is str"):
        learn("CartPole-v1", episodes=1)


def test_everything_that_an_environment_does_not_declare_is_named_at_once():
    for declare in (lambda env: learn(env, episodes=1), ConstrainedEnv):
        with pytest.raises(SettingsError, match=r"Scripted does not declare horizon.*reward_range.*constraint"):
            declare(Scripted())
    with pytest.raises(SettingsError, match=r"does not declare reward_range[^;]*\. Pass"):
        ConstrainedEnv(Scripted(), horizon=4, constraint=lambda transition: 1.0)


def test_a_bonus_needs_a_number_of_states_where_the_space_is_too_large_to_tell():
    class Wordy(Scripted):
        observation_space = spaces.Text(60)

        def reset(self, **arguments):
            return "here", super().reset(**arguments)[1]

        def step(self, action):
            return "there", *super().step(action)[1:]

    with pytest.raises(SettingsError, match="states="):
        run(Wordy(), ConstrainedQ.paper(0.1), constraint_bounds=[1, 1])
    assert (
        run(Wordy(), ConstrainedQ.paper(0.1), constraint_bounds=[1, 1], assumptions=Assumptions(states=2)).episodes
        == 20
    )


def test_an_end_that_the_reward_range_cannot_express_is_an_error():
    early = at(4, 1, replaced(2, True))
    assert run(Scripted(early)).episodes == 20
    with pytest.raises(TargetError, match=r"episode 4, step 1: .*2 steps to go, which earn 0"):
        run(Scripted(early), reward_range=(0.5, 1))


def test_a_time_limit_within_the_horizon_cannot_be_shared_among_steps():
    cut = at(4, 1, replaced(3, True))
    assert run(Scripted(cut)).episodes == 20
    with pytest.raises(TargetError, match=r"episode 4, step 1: .*cut off after 2 steps of 4"):
        run(Scripted(cut), assumptions=Assumptions(stationary=True))


def test_in_a_vectorised_environment_the_lane_is_found():
    def make(spoil=None):
        return lambda: Scripted(spoil)

    envs = SyncVectorEnv([make(), make(at(3, 1, replaced(1, 7.0)))])
    with pytest.raises(TargetError, match=r"episode \d+, step 1: the reward is 7") as caught:
        run(envs)
    assert caught.value.run.episodes >= 4
    envs = SyncVectorEnv([make(), make(at(3, 1, fail))])
    with pytest.raises(TargetError, match="licence"):
        run(envs)


def test_a_vectorised_environment_that_does_not_tell_how_it_resets_is_refused():
    envs = SyncVectorEnv([Scripted, Scripted])
    del envs.metadata["autoreset_mode"]
    with pytest.raises(SettingsError, match="autoreset_mode"):
        run(envs)


def test_simulation_names_episode_and_step_as_well():
    policy = run(Scripted()).policy
    with pytest.raises(TargetError, match=r"episode 3, step 1: .*licence"):
        simulate(ConstrainedEnv(Scripted(at(3, 1, fail)), **DECLARED), policy, episodes=5)
    with pytest.raises(PeakError, match="was not visited"):
        simulate(ConstrainedEnv(Scripted(at(2, 1, replaced(0, 1))), **DECLARED), policy, episodes=5, unknown="raise")
    with pytest.raises(PeakError, match="cannot be simulated"):
        simulate("env", policy, episodes=5)


# --- Anything at all -------------------------------------------------------------------------------------------------

ODDITIES = [
    None, "", "x", b"x", 0, -1, 2, 10**30, 0.5, float("nan"), float("inf"), 1j, True, (), (0,), [], [1, [2]], {},
    {"constraints": None}, {"constraints": "high"}, {"constraints": []}, {"constraints": [[0]]}, {"cost": None},
    {"cost": {}}, {"action_mask": None}, {"action_mask": "01"}, {"action_mask": [[1, 1]]}, {"cost": 2}, {"a": 1},
    np.nan, np.array(0), np.array([1.5]), np.array([None]), np.ma.masked, object(), set(), lambda: 0, type, Ellipsis,
]  # fmt: skip


@pytest.mark.parametrize("settings", [PRACTICAL, ConstrainedQ.published(0.5)], ids=["practical", "one"])
def test_whatever_an_environment_returns_only_our_errors_come_out(settings):
    generator = np.random.default_rng(0)

    def odd(result):
        kind = generator.integers(4)
        odd = ODDITIES[generator.integers(len(ODDITIES))]
        if kind == 0:
            return odd
        if kind == 1:
            return (*result, odd)
        index = int(generator.integers(len(result)))
        return (*result[:index], odd, *result[index + 1 :])

    refused = 0
    for _ in range(400):
        when = int(generator.integers(1, 4)), int(generator.integers(4))
        env = Scripted(at(*when, odd)) if generator.random() < 0.8 else Scripted(spoil_reset=lambda e, r: odd(r))
        try:
            run(env, settings, episodes=4)
        except PeakError:
            refused += 1
    assert refused > 200


def test_an_action_space_that_fits_no_table_is_refused_at_once():
    env = Scripted()
    for space in (gymnasium.spaces.Discrete(10**9), gymnasium.spaces.MultiDiscrete([10**5, 10**5])):
        env.action_space = space
        with pytest.raises(SettingsError, match=r"has 10*,?[0,]* actions; at most 1,000,000 fit a table"):
            run(env)
