"""Sweeps whose runs are learned on environments of Gymnasium's."""

from __future__ import annotations

import gymnasium
import pytest

import peakrl
from helpers.commands import caller
from peakrl import ConstrainedEnv, sweep
from peakrl.errors import PeakError, TrustError
from peakrl.sweeps.grid import read_plan
from peakrl.sweeps.summary import read_curves, read_records

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
learner = "PosteriorSampling"

[[settings]]
learner = "SafeQ"
"""


@pytest.fixture
def described(tmp_path):
    (tmp_path / "lake.py").write_text(HOLES)
    (tmp_path / "lakes.toml").write_text(SWEEP)
    return tmp_path / "lakes.toml"


def lake(horizon):
    return ConstrainedEnv(
        gymnasium.make("FrozenLake-v1", is_slippery=False),
        horizon=horizon,
        reward_range=(0, 1),
        constraint=lambda seen: -1.0 if seen.next_observation in {5, 7, 11, 12} else 1.0,
        constraint_bounds=(1.0,),
    )


def test_a_sweep_on_an_environment_learns_what_learn_does_and_is_summed_up_and_drawn(described):
    assert sweep(described, workers=1, trust=True).made == 4
    records = read_records(described.parent / "out")
    env = lake(horizon=8)
    for record in records:
        assert (record["problem"], record["optimum"], record["least_violation"]) == ("lake", 1.0, 0.0)
        run = peakrl.learn(env, record["settings"], episodes=60, seed=record["seed"])
        played = peakrl.simulate(env, run.policy, episodes=1_000)  # random where the policy knows nothing
        exact = (record["value"], record["violation"])
        assert exact == pytest.approx((played.value, played.violation), abs=0.06)
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


def test_an_environment_is_swept_with_a_discount_and_judged_by_discounted_sums(described):
    described.write_text(SWEEP.replace("horizon = 8", "discount = 0.95").replace("episodes = 60", "episodes = 300"))
    assert sweep(described, workers=1, trust=True).made == 4
    moves = gymnasium.make("FrozenLake-v1", is_slippery=False).unwrapped.P
    env = lake(horizon=100)
    for record in read_records(described.parent / "out"):
        run = peakrl.learn(env, record["settings"], episodes=300, seed=record["seed"], discount=0.95)
        state, earned = 0, 0.0
        for step in range(100):
            _, state, reward, over = moves[state][run.policy.action(0, state)][0]
            earned += reward * 0.95**step
            if over:
                break
        assert record["value"] == pytest.approx(earned)
        assert record["optimum"] == pytest.approx(0.95**5)  # the goal is six steps away


def test_a_mapping_sweeps_an_environment_with_a_discount(tmp_path):
    lake = {"kind": "gymnasium", "id": "FrozenLake-v1", "arguments": {"is_slippery": False}, "discount": 0.95}
    given = {"seeds": 1, "episodes": 300, "problems": [lake], "settings": [{}], "folder": str(tmp_path / "out")}
    assert sweep(given, workers=1).made == 1
    (record,) = read_records(tmp_path / "out")
    assert record["optimum"] == pytest.approx(0.95**5)
    assert 0.0 <= record["value"] <= record["optimum"] + 1e-9


WRONG = [
    ({"id": "CartPole-v1", "reward_range": [0, 1], "discount": 0.9}, "without a transition table"),
    ({}, r"problems\[0\].id is missing"),
    ({"id": 3}, r"problems\[0\].id is 3; it must be a text"),
    ({"id": "FrozenLake-v1", "horizn": 3}, "horizn is not a key here; do you mean horizon"),
    ({"id": "NoSuchLake-v7"}, "gymnasium cannot make 'NoSuchLake-v7'"),
    ({"id": "Blackjack-v1"}, "does not declare horizon.*reward_range"),
    ({"id": "Blackjack-v1", "horizon": 9}, "does not declare reward_range"),
    ({"id": "FrozenLake-v1", "arguments": 3}, r"arguments is 3; it must be a table"),
    ({"id": "FrozenLake-v1", "arguments": {"map_name": "none"}}, "cannot make 'FrozenLake-v1': it raised KeyError"),
    ({"id": "os:Lake-v0"}, "os is a part of Python"),
]


def test_what_is_wrong_with_an_environment_is_said_before_anything_runs():
    for problem, culprit in WRONG:
        with pytest.raises(PeakError, match=culprit):
            read_plan({"seeds": 1, "episodes": 1, "problems": [{"kind": "gymnasium", **problem}], "settings": [{}]})


UNSHOWN = """
seeds = 3
episodes = 50
points = 10
folder = "out"

[[problems]]
name = "corridor"
kind = "gymnasium"
id = "own.py:Corridor"
horizon = 6
reward_range = [0, 1]
grid = { arguments = [{ risk = 0.0 }, { risk = 1.0 }] }

[[settings]]
learner = "PosteriorSampling"
"""


def test_an_environment_that_shows_no_table_is_swept_and_nothing_of_it_is_called_exact(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text("import sys\nfrom helpers.report_pages import Corridor\n")
    (tmp_path / "own.toml").write_text(UNSHOWN)
    assert sweep(tmp_path / "own.toml", workers=1, trust=True).made == 6
    records = read_records(tmp_path / "out")
    for record in records:
        risk = float("1.0" in record["problem"])
        # Right all the way earns 1 from the fourth step on; where that surely violates, going back and forth does not.
        assert (record["value"], record["violation"]) == (3.0 * (1 - risk), 0.0)
        assert record["sampled"] == 100
        assert record["value_low"] <= record["value"] <= record["value_high"]
        assert 0 < record["violation_probability_high"] < 0.05
        assert record["optimum"] is record["gap"] is record["solved"] is record["episodes_to_reach"] is None
    points = read_curves(tmp_path / "out")
    assert len(points) == 60
    assert {"value_margin", "violation_margin"} <= set(points[0])
    code, out, _ = caller(monkeypatch, capsys, tmp_path)("summarize", "out", "--csv", "runs.csv")
    assert code == 0
    assert "has no transition table" in out
    assert "unknown" in out
    page = peakrl.write_report(tmp_path / "out", tmp_path / "page.html").read_text()
    assert "no optimum known" in page
    assert "this does not prove that the others never do" in page


MAZE = """
from pathlib import Path

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

Path(__file__).with_suffix(".ran").touch()
gymnasium.register("Maze-v0", entry_point="maze:Maze", max_episode_steps=6)


class Maze(FrozenLakeEnv):
    pass
"""


@pytest.mark.parametrize(
    ("problem", "culprit"),
    [
        ('id = "maze:Maze-v0"', r"problems\[0\]\.id = 'maze:Maze-v0'"),
        ('id = "Blackjack-v1"\narguments = { a = [{ b = "maze:make" }] }', r"arguments\.a\[0\]\.b = 'maze:make'"),
        # Gymnasium would make these with any code, taking what it is given for the caller's own.
        ('id = "peakrl/Problem-v0"\narguments = { problem = "EVIL", trust = true }', "a file cannot grant trust"),
        ('id = "peakrl/Problem-v0"\narguments = { problem = "EVIL" }', r"evil.toml runs code \(problem.function"),
        (
            'id = "peakrl/Thermostat-v0"\narguments = { kind = "python", function = "maze.py:make" }',
            "arguments.function",
        ),
    ],
)
def test_an_environment_that_names_code_runs_none_unless_it_is_trusted(problem, culprit, tmp_path):
    (tmp_path / "maze.py").write_text(MAZE)
    evil, file = tmp_path / "evil.toml", tmp_path / "sweep.toml"
    evil.write_text('[problem]\nkind = "python"\nfunction = "maze.py:make"\n')
    told = problem.replace("EVIL", str(evil))
    file.write_text(f'seeds = 1\nepisodes = 5\n[[problems]]\nkind = "gymnasium"\n{told}\n[[settings]]\n')
    with pytest.raises(PeakError, match=culprit):
        sweep(file)
    with pytest.raises(PeakError, match=culprit):
        sweep(file, dry_run=True)
    assert not (tmp_path / "maze.ran").exists()


def test_an_environment_of_the_files_own_folder_is_made_where_it_is_trusted(tmp_path):
    (tmp_path / "maze.py").write_text(MAZE)
    file = tmp_path / "sweep.toml"
    file.write_text(
        'seeds = 1\nepisodes = 5\n[[problems]]\nkind = "gymnasium"\nid = "maze:Maze-v0"\n'
        "arguments = { is_slippery = false }\n[[settings]]\n"
    )
    (task,) = read_plan(file, trust=True).tasks
    expected = peakrl.compile_model(
        peakrl.from_gymnasium(gymnasium.make("FrozenLake-v1", is_slippery=False), horizon=6)
    )
    assert task.config["problem"]["model"] == expected.digest
    assert (tmp_path / "maze.ran").exists()
