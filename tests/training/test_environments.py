"""The learner on environments: against the compiled path, against exact optima, vectorised, and cut in two."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from helpers.certified_problems import near_tie
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import (
    Assumptions,
    ConstrainedEnv,
    Outcome,
    Policy,
    Problem,
    compile_model,
    evaluate,
    learn,
    learners,
    simulate,
    solve,
)
from peakrl.errors import PolicyError, ProblemError
from peakrl.gym.constrained_env import adapt
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.problems import energy_harvesting
from peakrl.training.run_file import restore, snapshot
from peakrl.training.trainer import Trainer

SETTINGS = {
    "as printed": ConstrainedQ.paper(0.25),
    "hoeffding": ConstrainedQ.paper(0.1, bonus="hoeffding", c2=0.05),
    "published": ConstrainedQ.published(0.25),
    "theorem 2": ConstrainedQ.deterministic(0.3, bonus="none"),
    "practical": SafeQ(),
}


def differences(problem, settings, seed, episodes=40, assumptions=None):
    """Learn a problem as a model and as an environment on the same draws; return what differs in the tables."""
    model = compile_model(problem)
    if getattr(settings, "bonus", "none") != "none" and model.max_actions < len(model.action_labels):
        return []  # the environment's A is that of its action space
    compiled = learn(model, settings, episodes=episodes, seed=seed, assumptions=assumptions)
    run = learn(ModelEnvironment(model, seed), settings, episodes=episodes, assumptions=assumptions)
    actions, met, found = sorted(model.action_labels), run.model, []
    for step in range(model.horizon):
        for slot in range(*met.step_slots[step]):
            state = model.state_labels[met.state_of_slot(slot)]
            node = step * model.node_stride + (model.slot_of(step, state) if reached(model, step, state) else 0)
            if not reached(model, step, state) or not model.reachable[node]:
                continue  # a column of a shared table that no episode can come by
            for row in met.rows_of_slot(slot):
                other = model.row_of(step, state, actions[met.action_of_row(row)])
                here = run.q[step * met.entry_stride + row]
                there = compiled.q[step * model.entry_stride + other]
                if here != there:
                    found.append((step, state, here, there))
    summary = [
        (r.violations, r.last_violation_episode, r.feasible, len(r.infeasibility_proof)) for r in (compiled, run)
    ]
    return found if summary[0] == summary[1] else [*found, summary]


def reached(model, step, state):
    try:
        model.slot_of(step, state)
    except PolicyError:
        return False
    return True


@pytest.mark.parametrize("name", SETTINGS)
def test_the_tables_equal_those_of_the_compiled_path_bit_for_bit(name):
    for seed in range(12):
        assert differences(random_problem(seed), SETTINGS[name], seed + 5) == []


def test_the_tables_are_equal_with_many_constraints_too():
    problem = random_problem(7, constraints=12, states=4, actions=3, horizon=3)
    assert differences(problem, SETTINGS["published"], 7) == differences(problem, SETTINGS["practical"], 8) == []


@pytest.mark.parametrize("arrivals", ["frozen", "random"])
@pytest.mark.parametrize("depends_on", ["action", "pair"])
def test_the_tables_are_equal_where_one_violation_stands_for_others(arrivals, depends_on):
    problem = energy_harvesting(horizon=5, battery=6, max_arrival=5, mean=3, std=2, peak_power=3, arrivals=arrivals)
    assumptions = Assumptions(constraint_depends_on=depends_on)
    assert differences(problem, SafeQ(), 3, episodes=60, assumptions=assumptions) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_tables_stay_equal_on_many_random_problems(name):
    for seed in range(100, 400):
        assert differences(random_problem(seed), SETTINGS[name], seed, episodes=150) == []


# --- Gymnasium's own environments ----------------------------------------------------------------------------------


class TablesOf(Problem):
    """A toy-text environment's `P` tables as a problem; an episode that ended stays where it is and earns nothing."""

    stationary = True
    constraint_names = ("stay clear",)
    constraint_bounds = (1.0,)

    def __init__(self, env, horizon, reward_range, forbidden):
        self.env, self.horizon, self.reward_range, self.forbidden = env.unwrapped, horizon, reward_range, forbidden

    def initial(self):
        return [(p, s) for s, p in enumerate(self.env.initial_state_distrib) if p > 0]

    def actions(self, step, state):
        return range(self.env.action_space.n) if state != "over" else [0]

    def outcomes(self, step, state, action):
        if state == "over":
            return [Outcome(1.0, "over", 0.0, (1.0,))]
        return [
            Outcome(
                p, "over" if done else following, reward, (-1.0 if self.forbidden(state, following, reward) else 1.0,)
            )
            for p, following, reward, done in self.env.P[state][action]
        ]


def on_tables(model, policy):
    """A policy of an environment on the model of the same environment; where it has never been it may do anything."""

    def rule(step, state):
        try:
            return policy.action(step, state)
        except PolicyError:
            return next(iter(model.action_of_row(row) for row in model.rows_of_slot(model.slot_of(step, state))))

    return Policy.from_rule(model, rule)


def holes(env):
    return {place for place, kind in enumerate(env.unwrapped.desc.ravel()) if kind == b"H"}


def test_frozen_lake_is_learned_to_its_exact_optimum():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    wet = holes(env)
    model = compile_model(TablesOf(env, 8, (0.0, 1.0), lambda state, following, reward: following in wet))
    run = learn(
        ConstrainedEnv(
            env,
            horizon=8,
            reward_range=(0, 1),
            constraint=lambda transition: -1.0 if transition.next_observation in wet else 1.0,
        ),
        SafeQ(),
        episodes=1500,
    )
    result = evaluate(model, on_tables(model, run.policy))
    assert (result.value, result.violation) == (solve(model).value, 0.0) == (1.0, 0.0)
    assert run.last_violation_episode < run.episodes


def test_the_slippery_lake_is_proved_infeasible_where_it_is():
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    problem = TablesOf(env, 6, (0.0, 1.0), lambda state, following, reward: following == 0)
    assert not solve(compile_model(problem)).feasible  # on ice one may stay where one is
    run = learn(
        ConstrainedEnv(
            env,
            horizon=6,
            reward_range=(0, 1),
            constraint=lambda transition: -1.0 if transition.next_observation == 0 else 1.0,
        ),
        SafeQ(),
        episodes=300,
        assumptions=Assumptions(states=16),
    )
    assert run.feasible is False
    assert {witness.action for witness in run.infeasibility_proof if witness.state == 0} == {0, 1, 2, 3}


class Binned(gymnasium.Env):
    """Two states that look alike: from one every action fails, from the other none; the first draw decides."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.good = int(self.np_random.integers(2))
        return 0, {}

    def step(self, action):
        return 0, 1.0, False, False, {"constraints": 1.0 if action == self.good else -1.0}


@pytest.mark.parametrize("learner", [SafeQ(), PosteriorSampling(), Certified(0.5)])
def test_infeasibility_is_proved_only_where_observations_are_declared_to_be_states(learner):
    env = ConstrainedEnv(Binned(), horizon=2, reward_range=(0, 1), constraint_bounds=(1.0,))
    run = learn(env, learner, episodes=200)
    assert run.feasible is None
    assert "proved infeasible" not in repr(run)
    assert run.infeasibility_proof == []
    assert run.proof_episode is None
    declared = learn(env, learner, episodes=200, assumptions=Assumptions(states=1))
    assert declared.feasible is False
    assert declared.infeasibility_proof
    if isinstance(learner, Certified):
        assert (run.stop_reason, declared.stop_reason) == ("no action left", "infeasible")
        assert "if observations are states, which is not declared" in run.certificate.reason
        assert "a violation is certain" in declared.certificate.reason


def test_cliff_walking_is_learned_to_its_exact_optimum():
    env = gymnasium.make("CliffWalking-v1")
    model = compile_model(TablesOf(env, 15, (-100.0, 0.0), lambda state, following, reward: reward == -100))
    run = learn(
        ConstrainedEnv(
            env,
            horizon=15,
            reward_range=(-100, 0),
            constraint=lambda transition: -1.0 if transition.reward == -100 else 1.0,
        ),
        SafeQ(),
        assumptions=Assumptions(stationary=True),
        episodes=2500,
    )
    result = evaluate(model, on_tables(model, run.policy))
    assert (result.value, result.violation) == (solve(model).value, 0.0) == (-13.0, 0.0)


def wrong_place(reward):
    return reward == -10  # picked up or dropped where it is not allowed


@pytest.mark.slow
def test_taxi_is_learned_to_its_exact_optimum():
    env = gymnasium.make(next(name for name in gymnasium.registry if name.startswith("Taxi-")))
    model = compile_model(TablesOf(env, 18, (-10.0, 20.0), lambda state, following, reward: wrong_place(reward)))
    run = learn(
        ConstrainedEnv(
            env,
            horizon=18,
            reward_range=(-10, 20),
            constraint=lambda transition: -1.0 if wrong_place(transition.reward) else 1.0,
        ),
        SafeQ(),
        assumptions=Assumptions(stationary=True, max_reward=20.0),
        episodes=30_000,
        history="none",
        average=False,
    )
    result = evaluate(model, on_tables(model, run.policy))
    assert result.violation == 0
    assert result.value == pytest.approx(solve(model).value, abs=1e-9)


# --- Our own problems ------------------------------------------------------------------------------------------------


def test_what_is_learned_on_our_environment_is_worth_in_simulation_what_the_model_says():
    env = gymnasium.make("peakrl/EnergyHarvesting-v0", horizon=4, battery=4, max_arrival=4, mean=2, std=1, peak_power=3)
    model = compile_model(energy_harvesting(horizon=4, battery=4, max_arrival=4, mean=2, std=1, peak_power=3))
    run = learn(env, SafeQ(), episodes=1500, seed=1)
    exact = evaluate(model, Policy.from_rule(model, run.policy.action))
    simulated = simulate(env, run.policy, episodes=600, seed=2)
    assert simulated.value_interval.low <= exact.value <= simulated.value_interval.high
    # Not 0: a state that was never met may violate, in a few episodes of six hundred here.
    chance = simulated.violation_frequency_interval
    assert chance.low <= exact.violation_probability <= chance.high < 0.02
    best = simulate(env, solve(model).policy, episodes=600, seed=2)
    assert best.value >= simulated.value - 0.05


def test_the_averaged_policy_is_simulated_as_the_mixture_that_it_is():
    env = gymnasium.make("peakrl/EnergyHarvesting-v0", horizon=3, battery=3, max_arrival=3, mean=2, std=1, peak_power=2)
    run = learn(env, ConstrainedQ.published(0.5), episodes=400, seed=1, history=1)
    simulated = simulate(env, run.averaged_policy, episodes=1500, seed=5)
    # Every policy was followed once while learning: the mean of what was earned estimates the same number.
    spread = run.history.episode_reward.std() / 20 + simulated.value_std / np.sqrt(1500)
    assert abs(simulated.value - run.history.episode_reward.mean()) < 4 * spread
    assert simulated.violation_frequency == pytest.approx(run.violations / 400, abs=0.1)


def test_history_holds_what_was_experienced_and_nothing_exact():
    run = learn(gymnasium.make("peakrl/MachineScheduling-v0"), SafeQ(), episodes=60, history=7)
    assert run.history.episode.tolist() == [7, 14, 21, 28, 35, 42, 49, 56, 60]
    assert np.isnan(run.history.value).all()
    every = learn(gymnasium.make("peakrl/MachineScheduling-v0"), SafeQ(), episodes=60, history=1)
    means = np.cumsum(every.history.episode_reward) / np.arange(1, 61)
    assert run.history.averaged_value == pytest.approx(means[run.history.episode - 1], rel=1e-12)
    seen = np.cumsum(every.history.episode_violation)
    assert run.history.cumulative_violation == pytest.approx(seen[run.history.episode - 1], rel=1e-12)
    assert run.history.regret(0.0)[-1] == pytest.approx(-every.history.episode_reward.sum(), rel=1e-12)
    assert (run.history.episode_reward <= 0).all()
    with pytest.raises(ProblemError, match="environment, not a model"):
        evaluate(run.model, run.policy)


def test_scheduling_is_learned_to_the_optimum_from_its_environment():
    run = learn(gymnasium.make("peakrl/MachineScheduling-v0"), SafeQ(), episodes=600)
    assert run.history.episode_reward[-1] == -1  # the notes: largest tardiness 1
    assert run.history.episode_violation[-1] == 0


# --- Vectorised ------------------------------------------------------------------------------------------------------


def lake():
    return gymnasium.make("FrozenLake-v1", is_slippery=False)


LAKE = {"horizon": 8, "reward_range": (0, 1)}


def lake_constraint(transition):
    return -1.0 if transition.next_observation in {5, 7, 11, 12} else 1.0


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("settings", [SafeQ(), ConstrainedQ.published(0.5)], ids=["practical", "one"])
def test_environments_stepped_together_learn_one_table(mode, settings):
    envs = SyncVectorEnv([lake] * 3, autoreset_mode=mode)
    run = learn(ConstrainedEnv(envs, constraint=lake_constraint, **LAKE), settings, episodes=1500)
    assert run.episodes == 1500
    assert len(run.history) == 1500
    assert simulate(
        ConstrainedEnv(lake(), constraint=lake_constraint, **LAKE), run.policy, episodes=2
    ).rewards.tolist() == [1, 1]
    assert simulate(ConstrainedEnv(envs, constraint=lake_constraint, **LAKE), run.policy, episodes=5).violation == 0


@pytest.mark.parametrize(
    "assumptions", [Assumptions(), Assumptions(stationary=True, max_reward=1.0)], ids=["none", "some"]
)
@pytest.mark.parametrize(
    "settings",
    [
        SafeQ(),
        PosteriorSampling(),
        ConstrainedQ.published(0.1),
        Certified(0.5),
        learners.UCBVI(),
        learners.TripleQ(total=1.0),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_a_vector_of_one_learns_what_the_environment_alone_does(settings, assumptions):
    """A single environment plays whole episodes and learns of new states at their end, a vector goes step by step.

    Where something is declared that a step may contradict, every step is looked at; else most are through at once.
    """
    vector = SyncVectorEnv([lake], autoreset_mode=AutoresetMode.DISABLED)
    alone, together = (
        learn(
            ConstrainedEnv(env, constraint=lake_constraint, constraint_bounds=(1.0,), **LAKE),
            settings,
            episodes=130,
            assumptions=assumptions,
        )
        for env in (lake(), vector)
    )
    assert np.array_equal(alone.q, together.q, equal_nan=True)  # UCBVI has no value for what it never tried
    assert alone.violations == together.violations
    assert np.array_equal(alone.history.episode_reward, together.history.episode_reward)
    for name in ("change_episode", "change_node", "change_row"):
        assert np.array_equal(getattr(alone.averaged_policy, name), getattr(together.averaged_policy, name))


class Chain(gymnasium.Env):
    """Three cells in a row; stepping right from the last one ends the episode."""

    observation_space, action_space = spaces.Discrete(3), spaces.Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return 0, {"action_mask": np.array([0, 1], np.int8)}

    def step(self, action):
        self.cell += 1 if action else -1
        over = self.cell == 3
        info = {"cost": float(action == 0), "action_mask": np.array([self.cell > 0, 1], np.int8)}
        return min(self.cell, 2), float(over), over, False, info


def test_masks_and_costs_are_the_same_in_an_environment_alone():
    vector = SyncVectorEnv([Chain], autoreset_mode=AutoresetMode.DISABLED)
    alone, together = (
        learn(ConstrainedEnv(env, horizon=5, reward_range=(0, 1)), episodes=40) for env in (Chain(), vector)
    )
    assert np.array_equal(alone.q, together.q)
    assert alone.violations == together.violations
    assert np.array_equal(alone.history.episode_reward, together.history.episode_reward)


def without_shared_memory(makers):
    return AsyncVectorEnv(makers, shared_memory=False)


@pytest.mark.parametrize("vectorise", [SyncVectorEnv, AsyncVectorEnv, without_shared_memory])
def test_masks_and_costs_come_through_vectorised_environments(vectorise):
    envs = vectorise([Chain] * 2)
    try:
        run = learn(ConstrainedEnv(envs, horizon=5, reward_range=(0, 1)), SafeQ(), episodes=40)
    finally:
        envs.close()
    assert [run.policy.action(step, step) for step in range(3)] == [1, 1, 1]
    assert run.history.episode_reward[-1] == 1
    assert [view.action for view in run.policy.explain(0, 0)] == [1]
    # The first step is always to the right: a lost reset or a reset too many would show as another state.
    assert [run.model.state_of_slot(slot) for slot in range(*run.model.step_slots[1])] == [1]


# --- Spaces, ends and files ------------------------------------------------------------------------------------------


class Shown(gymnasium.Env):
    """One step decides: the second action is the better one. Observations are whatever the test wants to see."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, space, actions=None):
        self.observation_space, self.action_space = space, actions or spaces.Discrete(2)
        self.sample = space.sample()

    def reset(self, *, seed=None, options=None):
        return self.sample, {}

    def step(self, action):
        reward = float(np.sum(action))
        return self.sample, reward, False, False, {"constraints": [1.0]}


def test_states_of_every_discrete_space_are_told_apart():
    for space in [
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiDiscrete([[3, 4], [2, 2]]),
        spaces.MultiBinary([2, 3]),
        spaces.Text(5),
        spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]),
        spaces.Dict({"where": spaces.Discrete(5), "who": spaces.Dict({"name": spaces.Text(3)})}),
    ]:
        env = Shown(space)
        run = learn(ConstrainedEnv(env, horizon=2, reward_range=(0, 1)), SafeQ(), episodes=30)
        assert [run.policy.action(step, env.sample) for step in (0, 1)] == [1, 1]
        assert run.model.num_slots == 2  # the same state at two steps
        with pytest.raises(PolicyError, match="was not visited"):
            run.policy.action(0, ("elsewhere",))


def test_actions_may_have_several_parts():
    env = Shown(spaces.Discrete(1), spaces.MultiDiscrete([2, 3]))
    run = learn(ConstrainedEnv(env, horizon=2, reward_range=(0, 3)), SafeQ(), episodes=60)
    assert run.policy.action(1, 0) == (1, 2)


class Toll(gymnasium.Env):
    """Every step costs 1; action 1 ends the episode at once."""

    observation_space, action_space = spaces.Discrete(1), spaces.Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, -1.0, action == 1, False, {"constraints": 1.0}


@pytest.mark.parametrize(
    "name", [name for name, settings in SETTINGS.items() if getattr(settings, "bonus", "none") == "none"]
)
def test_after_an_early_end_nothing_is_earned_and_nothing_is_lost(name):
    run = learn(
        ConstrainedEnv(Toll(), horizon=4, reward_range=(-1, 0), constraint_bounds=[1.0]), SETTINGS[name], episodes=400
    )
    assert run.policy.action(0, 0) == 1
    # From -1 for the step and 0 for the three that are left out, each counted from -1.
    assert run.policy.explain(0, 0)[1].value == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("depends_on", [None, "pair"])
@pytest.mark.parametrize("settings", [SETTINGS["as printed"], SETTINGS["practical"]])
def test_a_run_cut_in_two_and_taken_over_equals_the_whole(settings, depends_on):
    def make():
        lanes = adapt(gymnasium.make("peakrl/MachineScheduling-v0", example=3))
        assumptions = Assumptions(constraint_depends_on=depends_on)
        return Trainer(lanes, settings, planned=90, seed=4, every=10, assumptions=assumptions)

    whole, first, second = make(), make(), make()
    whole.advance(90)
    first.advance(37)
    restore(second, copy.deepcopy(snapshot(first)), first.space.labels[first.space.ends :])
    second.advance(53)
    one, two = whole.result(), second.result()
    assert np.array_equal(one.q, two.q)
    assert np.array_equal(one.policy.rows, two.policy.rows)
    assert np.array_equal(one.averaged_policy.change_row, two.averaged_policy.change_row)
    assert np.array_equal(one.history.episode_reward, two.history.episode_reward)
    assert (one.violations, one.feasible, one.model.digest) == (two.violations, two.feasible, two.model.digest)


class EverNew(gymnasium.Env):
    """A thousand states in no order; the first action always costs something, the second earns."""

    observation_space, action_space = gymnasium.spaces.Discrete(1000), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.integers(1000)), {}

    def step(self, action):
        return int(self.np_random.integers(1000)), float(action == 1), False, False, {"cost": float(action == 0)}


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("settings", [PosteriorSampling(), SafeQ()], ids=["post", "prac"])
def test_an_action_declared_the_same_everywhere_is_not_tried_after_it_failed_once(settings, stationary):
    known = Assumptions(constraint_depends_on="action", stationary=stationary)
    run = learn(ConstrainedEnv(EverNew(), horizon=5, reward_range=(0.0, 1.0)), settings, episodes=40, assumptions=known)
    assert (run.violations, run.last_violation_episode) == (1, 1)
    # What is on record for the last episode is what it did: never the first action, wherever it came to.
    rows = run.averaged_policy.policy(40).rows
    assert not (run.model.row_action[rows[rows >= 0]] == 0).any()


class NeverShown(gymnasium.Env):
    """Shows states that were never shown before, and keeps what was done in the latest episode; action 0 violates."""

    observation_space, action_space = spaces.Discrete(1000), spaces.Discrete(2)

    def __init__(self):
        declared = {"horizon": 2, "reward_range": (0.0, 1.0), "constraint_bounds": (1.0,)}
        self.metadata, self.shown = {"render_modes": [], "peakrl": declared}, 0

    def reset(self, *, seed=None, options=None):
        self.taken = []
        self.shown += 1
        return self.shown, {}

    def step(self, action):
        self.taken.append((len(self.taken), self.shown, int(action)))
        self.shown += 1
        return self.shown, 0.5, False, False, {"constraints": np.array([-1.0 if action == 0 else 1.0])}


@pytest.mark.parametrize("settings", [PosteriorSampling(), SafeQ()])
@pytest.mark.parametrize(
    "told", [{"constraint_depends_on": "action"}, {"constraints": lambda step, state, action: action - 0.5}]
)
def test_the_followed_policy_is_what_the_last_episode_did_in_states_it_was_the_first_to_meet(settings, told):
    env = NeverShown()
    run = learn(env, settings, episodes=4, assumptions=Assumptions(**told), history="none")
    assert [run.behavior_policy.action(step, state) for step, state, _ in env.taken] == [1, 1]
    assert [action for *_, action in env.taken] == [1, 1]


@pytest.mark.parametrize("kind", [np.int8, np.uint32, np.int64, np.uint64])
def test_a_seed_of_a_numpy_type_is_the_number_that_it_is(kind):
    runs = [
        learn(ModelEnvironment(near_tie(), 0), episodes=4, seed=seed, assumptions=Assumptions(states=3))
        for seed in (kind(101), 101)
    ]
    assert runs[0].seed == runs[1].seed
    assert np.array_equal(runs[0].history.episode_reward, runs[1].history.episode_reward)
