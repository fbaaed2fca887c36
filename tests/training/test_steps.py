"""`learn(target, steps=..., discount=...)`: environments that go on, those that end, models, files and errors."""

from __future__ import annotations

from collections import Counter

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from helpers.random_problems import random_problem
from peakrl import Assumptions, ConstrainedEnv, Learner, TabularModel, certify, evaluate, learn, load, resume, solve
from peakrl.errors import PeakError, SettingsError, StorageError
from peakrl.learners import UCBVI, PosteriorSampling, SafeQ

LEARNERS = PosteriorSampling(), SafeQ(), UCBVI()
by_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
#: Steps of an episode without an end at this discount, and if it goes on in the next one.
DISCOUNT, LENGTH, BLOCK = 0.8, 21, 100


def table(seed, states=6):
    """[state, action, next state]: probabilities."""
    chances = np.random.default_rng(seed).exponential(size=(states, 3, states))
    return chances / chances.sum(axis=2, keepdims=True)


class Plant(gymnasium.Env):
    """Draws from a table of probabilities, starts in state 0, and notes all that happens; some steps end it."""

    def __init__(self, chances, *, rewards=None, violating=(), ends=0.0):
        self.chances, self.violating, self.ends = chances, violating, ends
        self.rewards = np.random.default_rng(1).random(chances.shape[:2]) if rewards is None else rewards
        self.observation_space = gymnasium.spaces.Discrete(len(chances))
        self.action_space = gymnasium.spaces.Discrete(chances.shape[1])
        self.resets, self.over, self.taken = 0, 0, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.state = self.resets + 1, 0
        return 0, {}

    def step(self, action):
        before, self.state = (
            self.state,
            int(self.np_random.choice(len(self.chances), p=self.chances[self.state, action])),
        )
        over = bool(self.np_random.random() < self.ends)
        self.over += over
        self.taken.append((before, int(action), None if over else self.state))
        constraint = -1.0 if before in self.violating else 1.0
        return self.state, float(self.rewards[before, action]), over, False, {"constraints": (constraint,)}


def declared(env, horizon=np.inf):
    return ConstrainedEnv(env, horizon=horizon, reward_range=(0, 1))


def counted(run):
    """How often a learner that counts has seen each transition, by label."""
    outcomes, space = run._learned.outcomes(), run._trainer.space
    found = Counter()
    for row in range(space.rows):
        state, action = space.state_of_slot(int(space.slot_of_row[row])), space.action_of_row(row)
        own = outcomes.distribution_of_row[row]
        for index in range(outcomes.start[own], outcomes.start[own + 1]):
            following = int(outcomes.following[index])
            after = None if following < space.ends else space.state_of_slot(following)
            found[state, action, after] += int(outcomes.count[index])
    return found


@by_learner
def test_an_environment_without_an_end_is_reset_once_and_takes_just_these_steps(learner):
    plant = Plant(table(0))
    run = learn(declared(plant), learner, steps=1000, discount=DISCOUNT)
    assert (plant.resets, len(plant.taken), run.steps, run.episodes) == (1, 1000, 1000, 10)
    assert all(after == before for (*_, after), (before, *_) in zip(plant.taken, plant.taken[1:], strict=False))
    if learner != SafeQ():
        assert counted(run) == Counter(plant.taken)
        assert run._learned.outcomes().begun[run._trainer.space.ends] == run.episodes  # of the walk's first state


@pytest.mark.parametrize("limit", [None, 30])
@pytest.mark.parametrize("learner", [PosteriorSampling(), UCBVI()], ids=["PosteriorSampling", "UCBVI"])
def test_an_environment_is_reset_where_it_ends_by_itself_and_nowhere_else(learner, limit):
    plant = Plant(table(1), ends=0.01)
    env = plant if limit is None else gymnasium.wrappers.TimeLimit(plant, limit)
    run = learn(declared(env), learner, steps=3000, discount=DISCOUNT)
    assert (len(plant.taken), run.steps) == (3000, 3000)
    assert counted(run) == Counter(plant.taken)
    if limit is None:
        assert plant.resets in (plant.over, plant.over + 1)
    else:
        assert plant.resets > plant.over + 50


def test_a_declared_horizon_still_resets():
    plant = Plant(table(1))
    run = learn(declared(plant, 10), SafeQ(), steps=205, discount=DISCOUNT)
    assert (plant.resets, run.episodes, run.steps) == (21, 21, 205)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("ends", [0.0, 0.02])
def test_the_lanes_of_a_vectorised_environment_go_on_too(mode, ends):
    plants = [Plant(table(2), ends=ends) for _ in range(3)]
    envs = SyncVectorEnv([lambda plant=plant: plant for plant in plants], autoreset_mode=mode)
    run = learn(declared(envs), UCBVI(), steps=2000, discount=DISCOUNT)
    assert 2000 <= run.steps <= 2000 + 3 * BLOCK
    seen, taken = counted(run), Counter(step for plant in plants for step in plant.taken)
    assert seen.total() == run.steps
    assert not seen - taken  # episodes in progress at the end are not learned from
    assert (taken - seen).total() <= 3 * BLOCK
    for plant in plants:
        assert plant.resets in ((1,) if not ends else (plant.over, plant.over + 1))


@pytest.mark.parametrize("mode", AutoresetMode)
def test_the_first_steps_of_lanes_are_learned_as_they_were_taken(mode):
    plants = [Plant(table(seed), ends=0.9) for seed in range(5)]  # many end after one step
    envs = SyncVectorEnv([lambda plant=plant: plant for plant in plants], autoreset_mode=mode)
    run = learn(declared(envs), PosteriorSampling(), steps=5, discount=DISCOUNT)
    assert not counted(run) - Counter(step for plant in plants for step in plant.taken)


def test_an_own_learner_sees_the_first_step_as_it_was_taken():
    class Last(Learner):
        seen = ()

        def act(self, step, state, actions):
            return actions[-1]

        def observe(self, step, state, action, reward, constraints, next_state):
            self.seen += ((state, action),)

    plant, learner = Plant(table(0)), Last()
    learn(declared(plant, 5), learner, episodes=3)
    assert list(learner.seen) == [(state, action) for state, action, _ in plant.taken]


def trap(first_dead):
    """Three states: 0 stays or falls, 1 is on the way, 2 violates for ever. If `first_dead`, 0 has no way to stay."""
    chances = np.zeros((3, 2, 3))
    chances[0, 0, 1] = chances[0, 1, 1 if first_dead else 0] = chances[1, :, 2] = chances[2, :, 2] = 1.0
    return Plant(chances, rewards=np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]), violating=(2,))


@pytest.mark.parametrize("learner", LEARNERS[:2], ids=["PosteriorSampling", "SafeQ"])
@pytest.mark.parametrize("first_dead", [False, True])
def test_a_walk_that_has_fallen_proves_nothing_about_its_first_state(learner, first_dead):
    plant, known = trap(first_dead), Assumptions(states=3)
    env = declared(gymnasium.wrappers.TimeLimit(plant, 100))
    run = learn(env, learner, steps=3000, discount=DISCOUNT, assumptions=known)
    assert plant.taken[BLOCK // 2][0] == 2  # the first episodes went on in a state that violates for ever
    assert run.violations > 0
    assert run.feasible is (False if first_dead else None)
    assert {line.state for line in run.infeasibility_proof} == ({0, 1, 2} if first_dead else set())


@by_learner
def test_a_violation_is_learned_from_at_once_whatever_the_discount(learner):
    chances = np.ones((1, 3, 1))
    plant = Plant(chances, rewards=np.array([[1.0, 0.5, 0.8]]))
    step = plant.step

    def pays_for_violating(action):
        *seen, _ = step(action)
        return *seen, {"constraints": (-1.0 if action != 1 else 1.0,)}

    plant.step = pays_for_violating
    run = learn(declared(plant), learner, steps=5000, discount=0.9999)
    assert [action for *_, action, _ in plant.taken].count(1) >= 4980
    assert run.violations == 5000 - [action for *_, action, _ in plant.taken].count(1)
    assert run.policy.action(0, 0) == 1


@by_learner
def test_what_was_learned_on_a_walk_is_optimal_within_two_per_cent(learner):
    chances, rewards = table(3), np.random.default_rng(1).random((6, 3))
    run = learn(declared(Plant(chances)), learner, steps=40_000, discount=DISCOUNT, history="none")
    model = TabularModel.from_arrays(chances, rewards, [np.ones((6, 3))], None)
    rows = [3 * state + run.policy.action(0, state) for state in range(6)]
    value = np.linalg.solve(np.eye(6) - DISCOUNT * chances.reshape(18, 6)[rows], rewards.ravel()[rows])
    assert value[0] >= 0.98 * solve(model, discount=DISCOUNT).value


def test_with_a_declared_support_a_walk_is_safe_for_ever():
    chances = table(4)
    chances[:3, 0], chances[0, 1], chances[3:] = [1, 0, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0], [0, 0, 0, 0, 0, 1]
    plant = Plant(chances, violating=(5,))
    constraints = np.where(np.arange(6) == 5, -1.0, 1.0)[:, None] * np.ones((6, 3))
    support = TabularModel.from_arrays(chances, np.zeros((6, 3)), [constraints], None)
    run = learn(declared(plant), steps=2000, discount=DISCOUNT, assumptions=Assumptions(support=support))
    assert (run.violations, plant.resets) == (0, 1)
    assert {before for before, *_ in plant.taken} == {0, 1, 2}


@by_learner
def test_on_a_model_the_last_episode_is_completed(learner):
    model = TabularModel.from_arrays(table(5), np.random.default_rng(1).random((6, 3)), [], None)
    run = learn(model, learner, steps=1000, discount=DISCOUNT, seed=3)
    whole = learn(model, learner, episodes=48, discount=DISCOUNT, seed=3)
    assert (run.episodes, run.steps, whole.steps) == (48, 48 * LENGTH, 48 * LENGTH)
    assert np.array_equal(run.q, whole.q)
    assert np.array_equal(run.history.episode_reward, whole.history.episode_reward)
    limited = learn(random_problem(1, stationary=True, horizon=6), learner, steps=100, discount=DISCOUNT)
    assert limited.episodes == 17


def test_the_history_has_about_a_thousand_points():
    model = TabularModel.from_arrays(table(5), np.ones((6, 3)), [], None)
    assert 1000 <= len(learn(model, steps=100_000, discount=DISCOUNT).history) <= 1300
    assert len(learn(declared(Plant(table(5))), SafeQ(), steps=3 * BLOCK, discount=DISCOUNT).history) == 3


def test_progress_and_watching_count_steps():
    told = []
    learn(
        declared(Plant(table(5))), SafeQ(), steps=100_000, discount=DISCOUNT,
        watch=lambda moment: told.append((moment.steps, moment.goal)),
    )  # fmt: skip
    assert told[0] == (0, 100_000)
    assert told[-1] == (100_000, 100_000)
    assert sorted(told) == told


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_run_in_steps_is_resumed_in_steps(tmp_path):
    model = TabularModel.from_arrays(table(6), np.random.default_rng(1).random((6, 3)), [], None)
    path, whole = tmp_path / "run", learn(model, SafeQ(), steps=4000, discount=DISCOUNT, history=7)
    learn(model, SafeQ(), steps=1000, discount=DISCOUNT, history=7).save(path)
    continued = resume(path, steps=4000)
    assert (continued.steps, continued.episodes) == (whole.steps, whole.episodes)
    assert np.array_equal(continued.q, whole.q)
    assert np.array_equal(continued.history.averaged_value, whole.history.averaged_value)
    assert (load(path).steps, load(path).episodes) == (whole.steps, whole.episodes)
    for wrong, message in (
        ({"episodes": 500}, "planned in steps: pass steps, not episodes"),
        ({"steps": 100}, "steps is 100, but .* has 4,011 already"),
        ({"steps": 0}, "steps is 0"),
    ):
        with pytest.raises(SettingsError, match=message):
            resume(path, **wrong)
    learn(model, SafeQ(), episodes=10, discount=DISCOUNT).save(path)
    with pytest.raises(SettingsError, match="planned in episodes: pass episodes, not steps"):
        resume(path, steps=10_000)


def test_a_resumed_walk_goes_on_with_what_it_knows_after_a_reset(tmp_path):
    path, plant = tmp_path / "run", Plant(table(7))
    learn(declared(plant), UCBVI(), steps=500, discount=DISCOUNT, checkpoint=path)
    known = counted(learn(declared(plant), UCBVI(), steps=500, discount=DISCOUNT, checkpoint=path))
    assert known.total() == len(plant.taken) == 500  # complete already
    with pytest.raises(StorageError, match="a different number of episodes or steps"):
        learn(declared(plant), UCBVI(), steps=600, discount=DISCOUNT, checkpoint=path)
    with pytest.raises(StorageError, match="a different number of episodes or steps"):
        learn(declared(plant), UCBVI(), episodes=500, discount=DISCOUNT, checkpoint=path)
    run = resume(path, env=declared(plant), steps=900)
    assert (plant.resets, run.steps, len(plant.taken)) == (2, 900, 900)
    assert counted(run) == Counter(plant.taken)


def test_what_does_not_fit_is_refused():
    plant, model = declared(Plant(table(8))), TabularModel.from_arrays(table(8), np.ones((6, 3)), [], None)
    for target in (plant, model):
        with pytest.raises(SettingsError, match="episodes and steps are both given"):
            learn(target, episodes=10, steps=10, discount=DISCOUNT)
        with pytest.raises(SettingsError, match="steps is for runs with a discount"):
            learn(target, steps=10)
        with pytest.raises(SettingsError, match=r"steps is 1\.5"):
            learn(target, steps=1.5, discount=DISCOUNT)
        with pytest.raises(PeakError, match="MaskedQ"):
            learn(target, "MaskedQ", steps=10, discount=DISCOUNT)


def test_the_value_of_a_run_on_a_walk_is_that_of_its_policy():
    chances, rewards = table(9), np.random.default_rng(1).random((6, 3))
    model = TabularModel.from_arrays(chances, rewards, [np.ones((6, 3))], None)
    run = learn(declared(Plant(chances)), steps=5000, discount=DISCOUNT)
    rows = np.array([3 * state + run.policy.action(0, state) for state in range(6)])
    value = np.linalg.solve(np.eye(6) - DISCOUNT * chances.reshape(18, 6)[rows], rewards.ravel()[rows])[0]
    certificate = certify(model, run.policy, discount=DISCOUNT)
    assert certificate.value_low <= value * (1 + 1e-12)
    assert certificate.value_high >= value * (1 - 1e-12)
    assert evaluate(model, solve(model, discount=DISCOUNT).policy, discount=DISCOUNT).value >= value - 1e-9
