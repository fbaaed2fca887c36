"""A registered kind of problem is known everywhere."""

from __future__ import annotations

import importlib
import sys

import gymnasium
import pytest
from typer.testing import CliRunner

from peakrl import compile_model, solve
from peakrl.cli import app
from peakrl.cli.init import template_files
from peakrl.gym.registration import ENVIRONMENTS, register_environments
from peakrl.specs import registry
from peakrl.sweeps.grid import read_plan
from peakrl.sweeps.learning import prepared
from peakrl.sweeps.store import canonical
from peakrl.training.spec_file import read_problem_file

PROBLEM = """
from peakrl import Outcome, Problem
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

class Toy(Problem):
    stationary = True
    def __init__(self, steps):
        self.horizon = steps
    def initial(self):
        return [(1.0, "s")]
    def actions(self, step, state):
        return ["a"]
    def outcomes(self, step, state, action):
        return [Outcome(1.0, "s", 1.0)]

@problem(
    "toy", commands={"toy-3": {"steps": 3}}, parts=("place",),
    template=True, example={"steps": 4}, episodes=10,
)
def toy(steps=2):
    '''Return the problem of a toy.

    Parameters
    ----------
    steps
        How many there are.
    '''
    return remember(Toy(steps), "toy", {"steps": steps})
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_of_a_test.py").write_text(PROBLEM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_KINDS", dict(registry.kinds()))
    importlib.import_module("toy_of_a_test")
    yield tmp_path
    sys.modules.pop("toy_of_a_test")
    gymnasium.registry.pop("peakrl/Toy-v0", None)


def test_a_new_problem_is_known_to_the_command_line_files_templates_sweeps_and_gymnasium(toy, monkeypatch):
    assert solve(compile_model(read_problem_file("toy-3").build())).value == 3.0
    result = CliRunner().invoke(app, ["solve", "toy-3", "--steps", "5"])
    assert "value: 5.0" in result.stdout
    assert CliRunner().invoke(app, ["init", "mine", "--kind", "toy"]).exit_code == 0
    assert read_problem_file("mine.toml").model().horizon == 4
    written = (toy / "mine.toml").read_text()
    assert written == template_files("toy", "mine")[".toml"]
    assert written.startswith("# The problem of a toy.\n")
    assert "\n# How many there are.\nsteps = 4\n" in written
    entry = {"kind": "toy", "grid": {"steps": [1, 2]}}
    plan = read_plan({"seeds": 1, "episodes": 1, "settings": [{"learner": "SafeQ"}], "problems": [entry]})
    configs = [canonical(choice.config, "problem") for choice in plan.problems]
    assert [prepared(config, ".")[1].horizon for config in configs] == [1, 2]
    monkeypatch.setitem(ENVIRONMENTS, "Toy-v0", "toy")
    register_environments()
    env = gymnasium.make("peakrl/Toy-v0", steps=6, disable_env_checker=True)
    assert env.unwrapped.model.horizon == 6
    assert env.unwrapped.model.spec == {"kind": "toy", "steps": 6}


def test_every_built_in_problem_that_needs_no_file_is_an_environment():
    kinds = {kind: name for name, kind in ENVIRONMENTS.items() if kind is not None}
    assert set(registry.kinds()) - set(kinds) <= {"gymnasium", "python", "tables", "umb"}
    assert set(kinds) <= set(registry.kinds())
    assert all(name == kind.title().replace("_", "") + "-v0" for kind, name in kinds.items())


def test_a_new_problem_names_the_parts_of_its_states(toy):
    assert registry.part_names({"kind": "toy"}) == ("place",)


def test_a_problem_of_an_unknown_kind_has_no_names_for_its_parts():
    assert registry.part_names({"kind": "nonsense"}) == registry.part_names(None) == ()
