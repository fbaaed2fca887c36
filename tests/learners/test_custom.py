"""Learners of one's own: the documented example, its errors, and everything that comes with the seam."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import peakrl
from peakrl import ConstrainedEnv, Learner, TabularModel, compile_model, evaluate, learn, learn_many, resume, solve
from peakrl.errors import LearnerError, PeakError, ProblemError, SettingsError
from peakrl.learners import SafeQ
from peakrl.learners.custom import OwnAlgorithm
from peakrl.training import load_run

PAGE = Path(__file__).parents[2] / "docs" / "your-own-learner.md"
SOURCE = re.search(r"```python\n(import numpy.*?)```", PAGE.read_text(), re.DOTALL).group(1)
MODEL = peakrl.compile_model(
    peakrl.problems.energy_harvesting(horizon=4, battery=3, max_arrival=3, mean=2, std=1, peak_power=2)
)


def sampler():
    namespace = {"__name__": "page"}
    exec(SOURCE, namespace)
    return namespace["Sampler"]()


def test_the_example_of_the_docs_has_at_most_forty_lines():
    lines = [line for line in SOURCE[SOURCE.index("class") :].splitlines() if line.strip()]
    assert len(lines) <= 40


def test_the_example_of_the_docs_learns_a_model_to_its_optimum_without_violation():
    run = learn(MODEL, sampler(), episodes=300, seed=1)
    result = evaluate(MODEL, run.policy)
    assert (result.violation, result.value) == (0.0, pytest.approx(solve(MODEL).value, rel=0.01))


class Counting(Learner):
    """Takes action number k mod n in episode k: what is followed is known in closed form."""

    def begin(self, task):
        self.task, self.episode, self.told = task, 0, []

    def act(self, step, state, actions):
        return actions[self.episode % len(actions)]

    def observe(self, *told):
        self.told.append(told)

    def end_episode(self):
        self.episode += 1


CHAIN = TabularModel.from_arrays(
    np.array([[[0, 1], [0, 1]], [[1, 0], [1, 0]]], float), np.array([[0.0, 1.0], [2.0, 3.0]]),
    np.array([[[1.0, -1.0], [1.0, 1.0]]]), horizon=3,
)  # fmt: skip


def test_a_learner_is_told_every_step_with_labels_and_none_at_the_end():
    learner = Counting()
    learn(CHAIN, learner, episodes=2)
    first = [(0, 0, 0, 0.0, (1.0,), 1), (1, 1, 0, 2.0, (1.0,), 0), (2, 0, 0, 0.0, (1.0,), None)]
    second = [(0, 0, 1, 1.0, (-1.0,), 1), (1, 1, 1, 3.0, (1.0,), 0), (2, 0, 1, 1.0, (-1.0,), None)]
    assert learner.told == first + second
    assert (learner.task.horizon, learner.task.episodes, learner.task.stationary) == (3, 2, True)


def test_history_and_the_mixture_are_of_what_was_followed():
    run = learn(CHAIN, Counting(), episodes=6, history=1)
    assert run.history.value.tolist() == [2.0, 5.0, 2.0, 5.0, 2.0, 5.0]
    assert run.history.violation.tolist() == [0.0, 2.0, 0.0, 2.0, 0.0, 2.0]
    assert evaluate(CHAIN, run.averaged_policy).value == pytest.approx(3.5)
    assert (run.violations, run.last_violation_episode) == (3, 6)


def test_the_same_seed_gives_the_same_run_and_many_runs_do_not_share_a_learner():
    one, two = (learn(MODEL, sampler(), episodes=40, seed=3) for _ in range(2))
    many = learn_many(MODEL, sampler(), 40, seeds=[3, 4], workers=2)
    for other in (two, many[0]):
        assert np.array_equal(one.policy.rows, other.policy.rows)
        assert np.array_equal(one.history.episode_reward, other.history.episode_reward)


def test_it_learns_on_an_environment_and_ends_are_told():
    learner = Counting()
    env = ConstrainedEnv(
        gymnasium.make("FrozenLake-v1", is_slippery=False),
        horizon=5,
        reward_range=(0, 1),
        constraint=lambda transition: -1.0 if transition.terminated and not transition.reward else 1.0,
    )
    run = learn(env, learner, episodes=3)
    assert run.episodes == 3
    # Left for ever; down into the hole of the lower left corner; right along the upper edge.
    assert [told[0] for told in learner.told] == [0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4]
    assert [told[5] for told in learner.told[5:8]] == [4, 8, None]
    assert [told[4] for told in learner.told[5:8]] == [(1.0,), (1.0,), (-1.0,)]
    assert [told[5] for told in learner.told[8:]] == [1, 2, 3, 3, None]


class Raising(Learner):
    def act(self, step, state, actions):
        if step == 1:
            raise ZeroDivisionError("by nothing")
        return actions[0]


class Straying(Learner):
    def act(self, step, state, actions):
        return "nowhere"


class Idle(Learner):
    pass


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (Raising(), r"episode 1, step 0: Raising\.act raised ZeroDivisionError: by nothing"),
        (Straying(), r"Straying\.act returned 'nowhere' at step 0 in state 0; there are 0, 1"),
        (Idle(), r"Idle has no method act\(self, step, state, actions\)"),
    ],
)
def test_an_error_names_the_learner_and_the_method(learner, said):
    with pytest.raises(LearnerError, match=said):
        learn(CHAIN, learner, episodes=2)


def test_a_class_in_place_of_an_instance_is_refused():
    with pytest.raises(SettingsError, match=r"pass an instance, Counting\("):
        learn(CHAIN, Counting, episodes=2)


def test_a_run_can_be_read_back_and_drawn_but_not_continued(tmp_path):
    path = tmp_path / "run"
    run = learn(MODEL, sampler(), episodes=20)
    run.save(path)
    read = load_run(path)
    assert np.array_equal(read.behavior_policy.rows, run.behavior_policy.rows)
    assert np.array_equal(read.history.value, run.history.value)
    with pytest.raises(SettingsError, match="does not store what it has learned"):
        resume(path, episodes=30)


def test_it_is_swept_by_name_beside_ours_and_stands_in_the_summary(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    plan = tmp_path / "mine.toml"
    plan.write_text(
        'name = "mine"\nepisodes = 30\nseeds = 2\n'
        '[[problems]]\nkind = "scheduling_example"\nnumber = 1\n'
        '[[settings]]\nlearner = "mine.py:Sampler"\n[[settings]]\nlearner = "SafeQ"\n'
    )
    report = peakrl.sweep(plan, workers=1, trust=True)
    assert (report.made, report.failures) == (4, ())
    assert all(np.isfinite(result.values["value"]) for result in report.results())
    for wrong, said in (("mine.py:Nobody", "Nobody"), ("SaveQ", "Do you mean SafeQ")):
        plan.write_text(plan.read_text().replace('"SafeQ"', f'"{wrong}"'))
        with pytest.raises(PeakError, match=said):
            peakrl.sweep(plan, workers=1, trust=True)
        plan.write_text(plan.read_text().replace(f'"{wrong}"', '"SafeQ"'))


def test_settings_of_files_may_name_a_learner_of_ours_by_its_class():
    from peakrl.training.spec_file import learner_settings

    assert learner_settings({"learner": "SafeQ", "trials": False}, "settings", Path()) == SafeQ(trials=False)
    with pytest.raises(ProblemError, match="settings: ConstrainedQ needs slack"):
        learner_settings({"learner": "ConstrainedQ"}, "settings", Path())


class LastAction(Learner):
    def act(self, step, state, actions):
        return actions[-1]


def interrupted(path, learner):
    """Learn on a model, 40 episodes, and stop after 10."""

    class Enough(Exception):
        pass

    def watch(run):
        if path.exists():
            raise Enough

    with pytest.raises(Enough):
        peakrl.learn(MODEL_TO_RESUME, learner, episodes=40, checkpoint=path, watch=watch)


MODEL_TO_RESUME = compile_model(peakrl.problems.scheduling_example(1))


def test_a_learner_without_a_kernel_goes_on_from_where_it_was(tmp_path, monkeypatch, checkpoint_every):
    monkeypatch.setattr(OwnAlgorithm, "not_resumable", None)  # it has nothing to remember
    checkpoint_every(10)
    interrupted(tmp_path / "run", LastAction())
    whole = peakrl.learn(MODEL_TO_RESUME, LastAction(), episodes=40)
    run = peakrl.learn(MODEL_TO_RESUME, LastAction(), episodes=40, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(run.averaged_policy.change_episode, whole.averaged_policy.change_episode)
    np.testing.assert_array_equal(run.history.value, whole.history.value)
    assert run.violations == whole.violations


def test_a_checkpoint_does_not_continue_a_learner_that_stores_nothing(tmp_path, checkpoint_every):
    checkpoint_every(10)
    interrupted(tmp_path / "run", LastAction())
    with pytest.raises(SettingsError, match="does not store what it has learned"):
        peakrl.learn(MODEL_TO_RESUME, LastAction(), episodes=40, checkpoint=tmp_path / "run")
