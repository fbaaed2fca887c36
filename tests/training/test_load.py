"""`peakrl.load` reads every file that peakrl writes."""

import gymnasium
import numpy as np
import pytest

import peakrl
from peakrl.errors import SettingsError, StorageError
from peakrl.policy import AveragedPolicy
from peakrl.problems import scheduling_example
from peakrl.records import write_record

PROBLEM = scheduling_example(1)
MODEL = peakrl.compile_model(PROBLEM)
LAKE = {"horizon": 20, "reward_range": (0, 1), "constraint": lambda step: 1.0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept"


def test_a_model_is_read_as_it_was_saved(path):
    MODEL.save(path)
    assert peakrl.load(path).digest == MODEL.digest


@pytest.mark.parametrize("target", [PROBLEM, MODEL])
def test_a_policy_is_read_with_its_problem_or_model(path, target):
    best = peakrl.solve(MODEL).policy
    best.save(path)
    assert np.array_equal(peakrl.load(path, target).rows, best.rows)
    with pytest.raises(StorageError, match="pass the problem or its model as the second argument"):
        peakrl.load(path)


def test_an_averaged_policy_is_read_as_one(path):
    peakrl.learn(MODEL, episodes=20).averaged_policy.save(path)
    assert isinstance(peakrl.load(path, MODEL), AveragedPolicy)


def test_a_run_on_a_model_is_read_with_and_without_it(path):
    run = peakrl.learn(MODEL, episodes=20)
    run.save(path)
    for read in (peakrl.load(path), peakrl.load(path, PROBLEM)):
        assert isinstance(read, peakrl.LearningRun)
        assert np.array_equal(read.q, run.q)


def test_a_run_on_an_environment_is_read_with_and_without_it(path):
    env = peakrl.ConstrainedEnv(gymnasium.make("FrozenLake-v1"), **LAKE)
    run = peakrl.learn(env, "SafeQ", episodes=20)
    run.save(path)
    for read in (peakrl.load(path), peakrl.load(path, env)):
        assert np.array_equal(read.q, run.q)
    run.policy.save(path)
    assert peakrl.load(path, env).action(0, 0) == peakrl.load(path).action(0, 0) == run.policy.action(0, 0)


def test_a_safe_set_is_read_with_its_model_or_with_the_one_that_it_holds(path):
    safe = peakrl.safe_set(MODEL)
    safe.save(path)
    assert peakrl.load(path, MODEL).counts == safe.counts
    safe.save(path, with_model=True)
    assert peakrl.load(path).counts == safe.counts


def test_a_certificate_is_read_as_it_was_saved(path):
    certificate = peakrl.certify(MODEL, peakrl.solve(MODEL).policy)
    certificate.save(path)
    assert peakrl.load(path).as_dict() == certificate.as_dict()


def test_assumptions_are_for_runs_only(path):
    MODEL.save(path)
    with pytest.raises(SettingsError, match=r"assumptions belong to a run; .*kept is not one"):
        peakrl.load(path, assumptions=peakrl.Assumptions(rewards=True))


def test_a_file_of_another_kind_is_named(path):
    write_record(path, "run result", {}, {})
    with pytest.raises(
        StorageError, match="kept holds a 'run result'; load reads models, policies, runs, safe sets and"
    ):
        peakrl.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PNG", "kept is not a peakrl file"),
        (b"", "kept is not a peakrl file"),
        (None, "kept"),
    ],
)
def test_a_file_that_is_not_of_peakrl_is_refused(path, content, message):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StorageError, match=message):
        peakrl.load(path)


def test_a_damaged_file_is_refused(path):
    MODEL.save(path)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StorageError, match="kept is damaged: its digest does not match"):
        peakrl.load(path)
