"""Sweeps whose runs are learned on environments of Gymnasium's."""

from __future__ import annotations

import gymnasium
import pytest

import peakrl
from peakrl import LearnerSettings, sweep
from peakrl.errors import SweepError, TrustError
from peakrl.sweeps.plan import read_plan
from peakrl.sweeps.summary import read_records

HOLES = "def holes(seen):\n    return -1.0 if seen.next_observation in {5, 7, 11, 12} else 1.0\n"
SWEEP = """
seeds = 2
episodes = 60
folder = "out"

[[problems]]
name = "lake"
kind = "gymnasium"
id = "FrozenLake-v1"
arguments = { is_slippery = false }
constraint = "lake.py:holes"
horizon = 8

[[settings]]
learner = "posterior"

[[settings]]
learner = "practical"
"""


@pytest.fixture
def described(tmp_path):
    (tmp_path / "lake.py").write_text(HOLES)
    (tmp_path / "lakes.toml").write_text(SWEEP)
    return tmp_path / "lakes.toml"


def test_a_sweep_on_an_environment_learns_what_learn_does_and_is_summed_up_and_drawn(described):
    assert sweep(described, workers=1, trust=True).made == 4
    records = read_records(described.parent / "out")
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    given = {"horizon": 8, "constraint": lambda seen: -1.0 if seen.next_observation in {5, 7, 11, 12} else 1.0}
    for record in records:
        assert (record["problem"], record["optimum"], record["least_violation"]) == ("lake", 1.0, 0.0)
        settings = getattr(LearnerSettings, record["settings"])()
        run = peakrl.learn(
            env, settings, episodes=60, seed=record["seed"], reward_range=(0, 1), constraint_bounds=(1.0,), **given
        )
        # Nothing is random here, so that two episodes tell what the policy is worth.
        played = peakrl.simulate(env, run.policy, episodes=2, unknown=lambda step, state, actions: actions[0], **given)
        assert (record["value"], record["violation"]) == (played.value, played.violation)
        assert record["violations"] == run.violations
    page = described.parent / "page.html"
    peakrl.write_report(described.parent / "out", page)
    assert "lake" in page.read_text()
    assert sweep(described, workers=1, trust=True).made == 0
    (described.parent / "lake.py").write_text(HOLES.replace("5, ", ""))
    assert len(read_plan(described, trust=True).tasks) == 4
    assert sweep(described, workers=1, trust=True).made == 4


def test_code_that_tells_of_constraints_is_not_run_untrusted(described):
    with pytest.raises(TrustError, match=r"constraint = 'lake\.py:holes'"):
        read_plan(described)
    assert len(read_plan(described, run_code=False).unknown) == 4


@pytest.mark.parametrize(
    ("problem", "culprit"),
    [
        ({}, r"problems\[0\].id is missing"),
        ({"id": 3}, r"problems\[0\].id is 3; it must be a text"),
        ({"id": "FrozenLake-v1", "horizn": 3}, "horizn is not a key here; do you mean horizon"),
        ({"id": "NoSuchLake-v7"}, "gymnasium cannot make 'NoSuchLake-v7'"),
        ({"id": "CartPole-v1"}, "shows no table"),
        ({"id": "FrozenLake-v1", "arguments": 3}, r"arguments is 3; it must be a table"),
    ],
)
def test_what_is_wrong_with_an_environment_is_said_before_anything_runs(problem, culprit):
    with pytest.raises(SweepError, match=culprit):
        read_plan({"seeds": 1, "episodes": 1, "problems": [{"kind": "gymnasium", **problem}], "settings": [{}]})
