"""Environments from a problem file: trained, continued, judged, certified and drawn as problems are."""

from __future__ import annotations

import json
import shlex

import pytest

from helpers.commands import caller
from peakrl.errors import PeakError
from peakrl.training.spec_file import read_problem_file

OWN = """
import gymnasium

class Corridor(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(5), gymnasium.spaces.Discrete(2)

    def __init__(self, risk=0.0):
        self.risk = risk

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action):
        self.cell = min(4, self.cell + 1) if action else max(0, self.cell - 1)
        cost = float(self.cell == 3 and self.np_random.random() < self.risk)
        return self.cell, float(self.cell == 4), False, False, {"cost": cost}

if "Corridor-v0" not in gymnasium.registry:
    gymnasium.register("Corridor-v0", entry_point=Corridor)
"""
CORRIDOR = """
[problem]
kind = "gymnasium"
id = "{id}"
arguments = {{ risk = {risk} }}
horizon = 6
reward_range = [0, 1]
constraint_bounds = [1]
[run]
episodes = 40
"""


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    for name, told, risk in (
        ("class", "own.py:Corridor", 0.5),
        ("safe", "own.py:Corridor", 0),
        ("name", "own:Corridor-v0", 0.5),
    ):
        (tmp_path / f"{name}.toml").write_text(CORRIDOR.format(id=told, risk=risk))
    return caller(monkeypatch, capsys, tmp_path)


def test_what_init_writes_for_gymnasium_trains_to_the_optimum_that_its_table_shows(call, tmp_path):
    assert call("init", "lake", "--kind", "gymnasium")[0] == 0
    code, out, _ = call("train", "lake.toml", "--trust", "--out", "lake.run", "--json")
    told = json.loads(out)
    # Nothing is random on this lake, so that one safe way across, worth 1, is the optimum.
    assert (code, told["policy"]["value"], told["optimum"]["value"], told["feasible"]) == (0, 1.0, 1.0, True)
    assert told["environment"] is True
    assert told["history"] == "sampled"
    assert told["certificate"]["holds"] is True
    assert any("not visited" in line for line in told["certificate"]["rests_on"])
    code, out, _ = call("train", "lake.toml", "--trust", "--out", "lake.run")
    assert "was already complete" in out
    assert "history: sampled: " in out
    assert "exact on the environment's table" in out
    for hint in out.split("next: ")[1].split(", "):
        program, *words = shlex.split(hint.strip().strip("`"))
        assert (program, call(*words)[0]) == ("peakrl", 0)
    assert "value: 1.0" in call("solve", "lake.toml", "--trust")[1]
    code, out, _ = call("certify", "lake.toml", "--policy", "lake.run", "--trust", "--out", "lake.certificate")
    assert code == 0
    assert "no constraint is ever violated" in out
    assert call("verify", "lake.certificate")[0] == 0
    code, out, _ = call(
        "evaluate", "lake.run", "--problem", "lake.toml", "--trust", "--simulate", "5", "--check", "--json"
    )
    told = json.loads(out)
    assert (code, told["value"], told["simulation"]["value"]) == (0, 1.0, 1.0)
    assert call("report", "lake.run", "--problem", "lake.toml", "--trust")[0] == 0
    page = (tmp_path / "lake.html").read_text()
    # The way across is the optimum (above), and the table shows that it is never left.
    assert "The last policy never violates a constraint (exact on the environment&#39;s table)." in page
    assert "1 per episode: optimal among safe policies." in page
    assert call("report", "lake.run")[0] == 0
    page = (tmp_path / "lake.html").read_text()
    assert ("Nothing is proved about this policy" in page, "On the table" in page) == (True, False)


def test_a_run_on_an_environment_that_was_cut_short_goes_on_to_the_same_end(call, tmp_path):
    whole = json.loads(call("train", "class.toml", "--trust", "--json")[1])
    assert call("train", "class.toml", "--trust", "--episodes", "15", "--out", "part.run")[0] == 0
    code, _, error = call("train", "--resume", "part.run", "--episodes", "40")
    assert (code, "name its problem file too" in error) == (2, True)
    code, out, _ = call("train", "class.toml", "--resume", "part.run", "--episodes", "40", "--trust", "--json")
    told = json.loads(out)
    same = ("experience", "violating_episodes", "last_violation_episode", "states", "pairs", "feasible")
    assert {name: told[name] for name in same} == {name: whole[name] for name in same}


def test_of_an_environment_without_a_table_nothing_is_called_exact_or_safe(call):
    code, out, _ = call("train", "safe.toml", "--trust", "--out", "safe.run")
    assert code == 0
    assert "nothing is proved about the last policy" in out
    assert "optimum" not in out.replace("gap to optimum", "")
    code, out, error = call("solve", "safe.toml", "--trust")
    assert (code, "has no transition table" in error) == (2, True)
    code, out, _ = call(
        "evaluate", "safe.run", "--problem", "safe.toml", "--trust", "--check", "--simulate", "4", "--json"
    )
    # It goes right all the way, and earns 1 a step from the fourth step on; but that it is safe is only seen.
    assert (code, json.loads(out)["value"], json.loads(out)["simulation"]["value"]) == (1, None, 3.0)
    code, out, _ = call("certify", "safe.toml", "--policy", "safe.run", "--trust", "--episodes", "50", "--json")
    told = json.loads(out)
    assert (told["kind"], told["episodes"]) == ("sampled", 50)
    assert 0 < told["violation_probability_high"] < 0.2


@pytest.mark.parametrize("name", ["class", "name"])
def test_code_that_an_environment_names_is_not_run_untrusted(name, call, tmp_path):
    (tmp_path / "own.py").write_text("raise AssertionError('this ran')")
    code, _, error = call("train", f"{name}.toml")
    assert code == 2
    assert "problem.id = 'own" in error


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ('env_id = "evil:Thing-v0"', r"problem\.arguments\.env_id = 'evil:Thing-v0'"),
        (
            'problem = { kind = "python", function = "own.py:make" }',
            r"problem\.arguments\.problem\.function = 'own\.py:make'",
        ),
        ("trust = true", "arguments.trust: a file cannot grant trust"),
    ],
)
def test_code_in_the_arguments_of_an_environment_counts_as_code(arguments, culprit, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(f'[problem]\nkind = "gymnasium"\nid = "peakrl/Problem-v0"\narguments = {{ {arguments} }}\n')
    with pytest.raises(PeakError, match=culprit):
        read_problem_file(file)


WRONG = [
    ("", r"problem\.id is missing"),
    ('id = "FrozenLake-v1"\nhorizn = 3', r"horizn is not a key here; do you mean horizon"),
    ('id = "NoSuchLake-v7"', "gymnasium cannot make 'NoSuchLake-v7'"),
    ('id = "FrozenLake-v1"\nhorizon = 0', "horizon"),
    ('id = "os:system"', "is a part of Python"),
    ('id = "own.py:nothing"', "has no function 'nothing'"),
    ('id = "own.py:OWN"', "has no function 'OWN'"),
    ('id = "own.py:number"', r"returned 7; it must return a Gymnasium environment"),
]


def test_what_is_wrong_with_an_environment_in_a_file_is_named(tmp_path):
    for told, culprit in WRONG:
        (tmp_path / "own.py").write_text("OWN = 3\ndef number():\n    return 7\n")
        file = tmp_path / "a.toml"
        file.write_text(f'[problem]\nkind = "gymnasium"\n{told}\n')
        with pytest.raises(PeakError, match=culprit):
            read_problem_file(file, trust=True).target()


def test_an_environment_that_tells_of_costs_is_not_judged_by_a_table_that_has_none(tmp_path):
    (tmp_path / "own.py").write_text(
        "import gymnasium\n"
        "class Costly(gymnasium.Wrapper):\n"
        "    def step(self, action):\n"
        "        *rest, info = self.env.step(action)\n"
        "        return *rest, {**info, 'cost': 1.0}\n"
        "def make():\n"
        "    return Costly(gymnasium.make('FrozenLake-v1'))\n"
    )
    (tmp_path / "a.toml").write_text('[problem]\nkind = "gymnasium"\nid = "own.py:make"\nreward_range = [0, 1]\n')
    assert read_problem_file(tmp_path / "a.toml", trust=True).target().table is None
