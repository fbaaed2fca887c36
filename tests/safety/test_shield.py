"""A shield lets safe actions through and nothing else, and says so."""

import runpy
import sys
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import peakrl
from helpers.random_problems import random_problem
from helpers.shielded_environments import ENVIRONMENTS, TRANSMITTER, Corridor, holes, lake
from peakrl import ConstrainedEnv, Problem, compile_model, from_gymnasium, learn, safe_set, shield, to_gymnasium
from peakrl.errors import PeakError, PolicyError, SettingsError, TargetError
from peakrl.learners import Certified, SafeQ
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.safety.shield import Offer

HARVEST = compile_model(TRANSMITTER)


def violated_steps(make, seed, steps):
    """How many of so many random steps violate, as the environment itself shows it."""
    env, violates = make()
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    violations = 0
    for _ in range(steps):
        action = rng.integers(env.action_space.n)
        observation, reward, terminated, truncated, info = env.step(action)
        violations += violates(observation, reward, info)
        if terminated or truncated:
            env.reset()
    return violations, env


def play(env, action, steps):
    """A hundred short episodes."""
    for seed in range(100):
        env.reset(seed=seed)
        for _ in range(steps):
            env.step(action)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_random_agent_violates_only_without_a_shield(name):
    def bare():
        env, violates = ENVIRONMENTS[name]()
        return env.env, violates

    violations, env = violated_steps(ENVIRONMENTS[name], seed=1, steps=3_000)
    assert violations == 0
    assert env.steps == 3_000
    assert env.replaced > 0
    assert violated_steps(bare, seed=1, steps=1_000)[0] > 0


class Lazy(gymnasium.ActionWrapper):
    """Whatever is asked for, the first action is taken."""

    def action(self, action):
        return 0


@pytest.mark.parametrize("lanes", [None, 2])
def test_a_wrapper_that_changes_actions_is_noticed_around_an_environment_of_our_own_too(lanes):
    def make():
        return Lazy(to_gymnasium(HARVEST))

    env = shield(make() if lanes is None else SyncVectorEnv([make] * lanes), safe_set(HARVEST))

    def spend_most():
        env.reset(seed=1)
        for _ in range(HARVEST.horizon):
            masks = np.atleast_2d(env.action_masks())
            actions = masks.shape[1] - 1 - masks[:, ::-1].argmax(axis=1)
            env.step(int(actions[0]) if lanes is None else actions)

    with pytest.raises(TargetError, match="contradicts the model"):
        spend_most()


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_random_agent_never_violates_in_a_million_steps_of_each_environment(name):
    assert violated_steps(ENVIRONMENTS[name], seed=2, steps=1_000_000)[0] == 0


@pytest.mark.parametrize("problem", [TRANSMITTER, scheduling_example(1), random_problem(11, safe_action=True)])
def test_masks_are_those_of_the_safe_set_at_reset_and_at_every_step(problem):
    env = to_gymnasium(problem, shielded=True)
    safe = safe_set(problem)
    for seed in range(20):
        _, info = env.reset(seed=seed)
        step, over = 0, False
        while not over:
            expected = safe.mask(env.unwrapped.state, step)
            assert env.action_masks().tolist() == expected.tolist()
            assert env.action_masks().dtype == np.bool_
            assert info["action_mask"].tolist() == expected.tolist()
            action = env.action_space.sample(info["action_mask"])
            _, _, terminated, truncated, info = env.step(action)
            assert (info["shield_replaced"], info["shield_action"]) == (False, action)
            step, over = step + 1, terminated or truncated
        assert not info["action_mask"].any()


def test_an_unsafe_power_becomes_the_nearest_safe_one_and_is_counted():
    env = to_gymnasium(TRANSMITTER, shielded=True)
    env.reset(seed=0)
    replaced = 0
    for _ in range(TRANSMITTER.horizon):
        allowed = np.flatnonzero(env.action_masks())
        _, _, _, _, info = env.step(env.action_space.n - 1)
        replaced += 1
        assert env.unwrapped.last[1] == env.unwrapped.actions[allowed.max()]
        assert info["shield_replaced"] is True
        assert info["shield_action"] == allowed.max()
        assert info["shield_replacements"] == replaced
    assert env.replaced == replaced


def test_of_two_safe_actions_equally_near_the_first_is_taken():
    assert Offer.of(np.array([True, False, True])).nearest[1] == 0


class Doors(gymnasium.Env):
    """Three rooms, 7, 8 and 9; action 0 violates everywhere, action 1 in room 7, action 2 never. The first is drawn."""

    observation_space, action_space = gymnasium.spaces.Discrete(3, start=7), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = int(self.np_random.integers(7, 10)) if options is None else options["room"]
        return self.room, {}

    def step(self, action):
        failed = action == 0 or (action == 1 and self.room == 7)
        return self.room, float(action == 1), False, True, {"constraints": -1.0 if failed else 1.0}


def test_a_fallback_that_was_learned_on_the_environment_is_asked_in_its_words():
    """The model has other names: of rooms "r7" .. "r9", of actions "a" .. "c"."""

    class Rooms(Problem):
        name, horizon, constraint_names = "rooms", 1, ("door",)
        reward_range, constraint_bounds = (0.0, 1.0), (1.0,)

        def initial(self):
            return [(1 / 3, f"r{room}") for room in (7, 8, 9)]

        def actions(self, step, state):
            return ("a", "b", "c")

        def outcomes(self, step, state, action):
            failed = action == "a" or (action, state) == ("b", "r7")
            return [(1.0, state, float(action == "b"), (-1.0 if failed else 1.0,))]

    target = ConstrainedEnv(Doors(), horizon=1, reward_range=(0, 1), constraint_bounds=(1.0,))
    run = learn(target, SafeQ(), episodes=200)
    names = {"state_of": lambda room: f"r{room}", "actions": ["a", "b", "c"]}
    env = shield(Doors(), safe_set(Rooms()), fallback=run.policy, **names)
    for room, action in ((7, 2), (8, 1), (9, 1)):
        env.reset(options={"room": room})
        assert env.step(0)[-1]["shield_action"] == action == run.policy.action(0, room)


def test_a_certified_policy_refuses_states_and_actions_that_its_environment_cannot_have():
    target = ConstrainedEnv(Doors(), horizon=1, reward_range=(0, 1), constraint_bounds=(1.0,))
    policy = learn(target, Certified(0.5), episodes=5).policy
    assert policy.action(0, 700) in range(3)
    with pytest.raises(PolicyError, match=r"state 'r7' cannot occur on .*, whose states are like \d"):
        policy.action(0, "r7")
    with pytest.raises(PolicyError, match="has no action 'a'; it has"):
        policy.action(0, 700, ["a", "b"])


def test_a_fallback_policy_decides_instead_and_must_be_safe_itself():
    best = peakrl.solve(HARVEST)
    env = shield(to_gymnasium(HARVEST), best.safe_set, fallback=best.policy)
    env.reset(seed=3)
    for step in range(HARVEST.horizon):
        state = env.unwrapped.state
        env.step(env.action_space.n - 1)
        assert env.unwrapped.last[1] == best.policy.action(step, state)
    reckless = shield(to_gymnasium(HARVEST), best.safe_set, fallback=lambda step, state: sum(state))
    reckless.reset(seed=0)
    while sum(reckless.unwrapped.state) <= TRANSMITTER.peak_power:
        reckless.step(0)
    with pytest.raises(PolicyError, match=r"the fallback's action \d+ .*is not safe either: at step \d .*violates"):
        reckless.step(reckless.action_space.n - 1)


def test_an_unsafe_action_can_be_refused_with_the_reason():
    env = shield(lake(), safe_set(from_gymnasium(lake(), constraint=holes)), on_unsafe="raise")
    env.reset(seed=0)
    while env.action_masks().all():
        env.step(1)
    unsafe = int(np.argmin(env.action_masks()))
    with pytest.raises(PolicyError, match=rf"action {unsafe} .*is not safe: .*violates 'constraint' by"):
        env.step(unsafe)
    env.step(int(np.argmax(env.action_masks())))  # a refusal changes nothing: the agent may ask again


def test_the_observation_or_the_observation_and_the_step_tell_the_state():
    class Rounded(Corridor):
        """Shows its place in a form that is no state."""

        observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float64)

        def show(self):
            return np.array([self.place + 0.25])

    names = ["left", "stay", "right"]
    safe = safe_set(Corridor.problem())
    told = []
    env = shield(Rounded(), safe, actions=names, state_of=lambda seen, step: told.append(step) or int(seen[0]))
    env.reset(seed=0)
    for _ in range(3):
        env.step(1)
    assert told == [0, 1, 2, 3]
    alone = shield(Rounded(), safe, actions=names, state_of=lambda seen: int(seen[0]))
    alone.reset(seed=0)
    assert alone.action_masks().tolist() == env.guard.mask(safe.node_of(0, 2)).tolist()
    with pytest.raises(TargetError, match=r"array of float64; .*pass state_of="):
        shield(Rounded(), safe, actions=names).reset()


# Vectorised ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("own", [True, False], ids=["ours", "a user's"])
def test_lanes_have_their_own_masks_and_no_lane_violates(mode, own):
    if own:
        make, safe, options = (lambda: to_gymnasium(HARVEST)), safe_set(HARVEST), {}
    else:
        make, safe, options = Corridor, safe_set(Corridor.problem()), {"actions": ["left", "stay", "right"]}
    env = shield(SyncVectorEnv([make] * 3, autoreset_mode=mode), safe, **options)
    rng = np.random.default_rng(0)
    _, infos = env.reset(seed=[1, 2, 3])
    for _ in range(300):
        masks = env.action_masks()
        assert infos["action_mask"].tolist() == masks.tolist()
        assert masks.any(axis=1).all()
        asked = rng.integers(env.single_action_space.n, size=3)
        _, _, terminated, truncated, infos = env.step(asked)
        kept = masks[np.arange(3), asked]
        assert (infos["shield_action"] == asked)[kept].all()
        assert infos["shield_replaced"].tolist() == (~kept).tolist()
        ended = infos.get("final_info", infos)
        assert (np.asarray(ended.get("constraints", infos.get("constraints", [[0.0]]))) >= 0).all()
        over = terminated | truncated
        if mode is AutoresetMode.DISABLED and over.any():
            _, infos = env.reset(options={"reset_mask": over})
    assert env.replaced > 0


def test_the_steps_of_a_lane_count_from_its_own_reset():
    env = shield(SyncVectorEnv([Corridor, Corridor]), safe_set(Corridor.problem()), actions=["left", "stay", "right"])
    env.reset(seed=0)
    for _ in range(3 * (Corridor.horizon + 1)):
        env.step(np.array([1, 1]))
    assert env.steps == 2 * 3 * Corridor.horizon


def test_environments_in_other_processes_are_shielded_by_their_observations():
    env = AsyncVectorEnv([lambda: gymnasium.make("FrozenLake-v1")] * 2)
    try:
        guarded = shield(env, safe_set(from_gymnasium(lake(), constraint=holes)))
        guarded.reset(seed=0)
        rng = np.random.default_rng(0)
        for _ in range(200):
            observations, *_ = guarded.step(rng.integers(4, size=2))
            assert not set(observations.tolist()) & {5, 7, 11, 12}
    finally:
        env.close()


def test_a_lane_that_is_over_and_not_reset_is_an_error():
    env = SyncVectorEnv([lambda: to_gymnasium(HARVEST)], autoreset_mode=AutoresetMode.DISABLED)
    guarded = shield(env, safe_set(HARVEST))
    guarded.reset(seed=0)
    for _ in range(HARVEST.horizon):
        guarded.step(np.array([0]))
    with pytest.raises(TargetError, match="lane 0: the episode is over"):
        guarded.step(np.array([0]))


# Bad input: a clear error, never an unsafe action let through --------------------------------------------------


def test_a_safe_set_of_another_model_is_refused():
    three = energy_harvesting(horizon=3, battery=1, max_arrival=1, mean=1, std=1, peak_power=2)
    other = safe_set(energy_harvesting(horizon=3, battery=3, max_arrival=3, mean=2, std=1, peak_power=2))
    with pytest.raises(SettingsError, match=r"the safe set belongs to <.*>, the environment to <"):
        shield(to_gymnasium(HARVEST), other)
    with pytest.raises(SettingsError, match=r"the safe set belongs to <.*>, the environment to <"):
        shield(SyncVectorEnv([lambda: to_gymnasium(HARVEST)]), other)
    with pytest.raises(SettingsError, match=r"has the action 2 .*the environment does not have.*pass actions="):
        shield(gymnasium.make("CartPole-v1"), safe_set(scheduling_example(1)))
    with pytest.raises(SettingsError, match=r"has 4 actions, the safe set of .* only 3.*pass actions="):
        shield(lake(), safe_set(three))
    shield(lake(), safe_set(three), actions=[0, 1, 2, "none"])
    with pytest.raises(SettingsError, match="actions= names 1 actions; the environment has 4"):
        shield(lake(), safe_set(from_gymnasium(lake(), constraint=holes)), actions=["up"])


def test_an_observation_that_is_no_state_is_an_error():
    env = shield(gymnasium.make("FrozenLake8x8-v1"), safe_set(from_gymnasium(lake(), constraint=holes)))
    with pytest.raises(TargetError, match=r"the observation \d+ .*at step \d+ "):
        play(env, 2, 20)


def test_an_outcome_that_the_model_calls_impossible_is_an_error():
    calm = safe_set(from_gymnasium(lake(is_slippery=False), constraint=holes))
    env = shield(lake(), calm)
    with pytest.raises(TargetError, match=r"contradicts the model 'FrozenLake-v1': action \d .*cannot lead to it"):
        play(env, 1, 1)
    with pytest.raises(TargetError, match="the episode is over"):
        env.step(0)  # nothing is let through after that


def test_where_nothing_is_known_to_be_safe_a_declared_emergency_decides():
    calm = safe_set(from_gymnasium(lake(is_slippery=False), constraint=holes))
    env = shield(lake(), calm, emergency=lambda observation: 3)  # up, whatever slips
    seen = set()
    for seed in range(30):
        _, info = env.reset(seed=seed)
        for _ in range(5):
            lost = info["shield_lost"]
            assert not lost or info["action_mask"].tolist() == [0, 0, 0, 1]
            _, _, over, _, info = env.step(1)
            seen.add((lost, info["shield_action"]))
            if over:
                break
    assert {action for lost, action in seen if lost} == {3}
    assert (False, 1) in seen
    with pytest.raises(PolicyError, match=r"action 9 .*is not in Discrete"):
        play(shield(lake(), calm, emergency=lambda observation: 9), 1, 5)


@pytest.mark.parametrize("lanes", [0, 2])
def test_observations_can_contain_the_mask(lanes):
    safe = safe_set(from_gymnasium(lake(), constraint=holes))
    bare = SyncVectorEnv([lake] * lanes) if lanes else lake()
    env = shield(bare, safe, mask_keys=("obs", "mask"))
    seen, _ = env.reset(seed=0)
    for _ in range(5):
        assert env.observation_space.contains(seen)
        assert set(seen) == {"obs", "mask"}
        np.testing.assert_array_equal(seen["mask"], env.action_masks())
        seen = env.step(env.action_space.sample())[0]


def test_a_state_in_which_nothing_is_safe_is_an_error_that_tells_why():
    stuck = safe_set(from_gymnasium(lake(), constraint=lambda t: -1.0 if t.step == 1 else 1.0, stationary=False))
    assert not stuck.feasible
    env = shield(lake(), stuck)
    with pytest.raises(
        TargetError, match=r"no action is safe at step 0 in the observation 0 .*violates 'constraint' by 1"
    ):
        env.reset()
    with pytest.raises(TargetError, match="call reset"):
        env.step(0)
    with pytest.raises(TargetError, match="call reset"):
        env.action_masks()


def test_an_episode_that_goes_on_after_the_horizon_is_an_error():
    safe = safe_set(from_gymnasium(lake(), constraint=holes, horizon=3))
    env = shield(lake(), safe)
    env.reset(seed=0)
    for _ in range(3):
        env.step(0)
    assert not env.action_masks().any()
    with pytest.raises(TargetError, match="covers the 3 steps of 'FrozenLake-v1', and the episode continued"):
        env.step(0)
    limited = shield(TimeLimit(lake(), 3), safe)
    limited.reset(seed=0)
    assert [limited.step(0)[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"safe_set": "mine"}, "'mine' is not a SafeSet"),
        ({"on_unsafe": "ignore"}, "on_unsafe is 'ignore'; it must be one of 'replace', 'raise'"),
        ({"state_of": 3}, "state_of is 3; it must be a function"),
        ({"fallback": 3}, "fallback is 3; it must be a policy or a function"),
        ({"env": "lake"}, "'lake' is not a Gymnasium environment"),
    ],
)
def test_wrong_arguments_are_named(change, match):
    given = {"env": lake(), "safe_set": safe_set(from_gymnasium(lake(), constraint=holes))} | change
    with pytest.raises(SettingsError, match=match):
        shield(given.pop("env"), given.pop("safe_set"), **given)


def test_what_is_no_action_is_an_error():
    for action in [4, -1, 1.5, "up", None, np.array([1, 2])]:
        env = shield(lake(), safe_set(from_gymnasium(lake(), constraint=holes)))
        env.reset(seed=0)
        with pytest.raises(PolicyError, match=r"is not in Discrete\(4\)"):
            env.step(action)


# The calling convention of sb3-contrib ---------------------------------------------------------------------------


def test_masks_are_found_as_sb3_contrib_looks_for_them():
    """Its `get_action_masks` calls `env.action_masks()`, or `env_method("action_masks")` through further wrappers."""
    env = gymnasium.wrappers.RecordEpisodeStatistics(to_gymnasium(HARVEST, shielded=True))
    env.reset(seed=0)
    found = env.get_wrapper_attr("action_masks")()
    stacked = np.stack([found, found])
    assert stacked.shape == (2, env.action_space.n)
    assert stacked.dtype == np.bool_
    assert found[int(np.flatnonzero(found)[0])]


class Guesser:
    """Stands in for MaskablePPO: asks for masks as sb3-contrib does, and guesses among what they leave."""

    def __init__(self, policy, env, *, seed, device, **settings):
        self.env, self.rng = env, np.random.default_rng(seed)
        assert (policy, device) == ("MlpPolicy", "cpu")

    def learn(self, steps):
        observation, _ = self.env.reset(seed=0)
        for _ in range(steps // 40):
            action, _ = self.predict(observation, action_masks=self.env.get_wrapper_attr("action_masks")())
            observation, _, terminated, truncated, _ = self.env.step(action)
            if terminated or truncated:
                observation, _ = self.env.reset()

    def predict(self, observation, *, action_masks, deterministic=False):
        assert isinstance(self.env.observation_space.contains(observation), bool)
        return np.array(self.rng.choice(np.flatnonzero(action_masks))), None


def test_the_example_with_maskable_ppo_runs_with_whatever_agent_keeps_to_its_masks(monkeypatch, capsys):
    stand_in = types.ModuleType("sb3_contrib")
    stand_in.MaskablePPO = Guesser
    monkeypatch.setitem(sys.modules, "sb3_contrib", stand_in)
    runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "maskable_ppo.py"))
    told = capsys.readouterr().out
    assert "500 steps of learning, 0 actions replaced" in told
    assert "violation probability 0.0" in told


def test_every_error_of_a_shield_is_a_peak_error():
    assert issubclass(TargetError, PeakError)
    assert issubclass(PolicyError, PeakError)
