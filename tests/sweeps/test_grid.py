"""Sweep files: what they expand to, and errors that name the key before anything runs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

import peakrl.sweeps.grid as sweeping
from peakrl import PeakError, Problem, compile_model, sweep
from peakrl.errors import SweepError
from peakrl.learners import ConstrainedQ, SafeQ, learner_from
from peakrl.problems import Job, energy_harvesting, machine_scheduling, scheduling_example
from peakrl.problems.scheduling import uniform
from peakrl.sweeps import learning
from peakrl.sweeps.grid import read_plan
from peakrl.sweeps.learning import learn_run, prepared
from peakrl.sweeps.store import canonical
from peakrl.sweeps.summary import read_records

GOOD = """
name = "peaks"
seeds = 3
episodes = [100, 200]

[[problems]]
name = "harvest"
kind = "energy_harvesting"
horizon = 4
grid = { peak_power = [4, 8], mean = [5, 10, 15] }

[[problems]]
kind = "scheduling_example"
number = 1

[[settings]]
learner = "SafeQ"

[[settings]]
name = "published"
learner = "ConstrainedQ"
preset = "published"
grid = { slack = [0.1, 0.01] }
"""


def written(folder: Path, content: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(textwrap.dedent(content))
    return path


def entry(**extra: Any) -> dict[str, Any]:
    """A sweep of one run, with changes."""
    return {
        "seeds": 1,
        "episodes": 10,
        "problems": [{"kind": "scheduling_example", "number": 1}],
        "settings": [{"learner": "SafeQ"}],
        **extra,
    }


def same(config: dict[str, Any], problem: Problem) -> bool:
    """Does a configuration stand for this problem?"""
    return prepared(canonical(config, "problem"), ".")[1].digest == compile_model(problem).digest


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD))
    assert len(plan.tasks) == len(set(plan.tasks)) == (2 * 3 + 1) * (1 + 2) * 2 * 3
    assert [choice.name for choice in plan.problems][:2] == [
        "harvest peak_power=4 mean=5",
        "harvest peak_power=4 mean=10",
    ]
    assert [choice.name for choice in plan.settings] == ["SafeQ", "published slack=0.1", "published slack=0.01"]
    assert plan.folder == tmp_path / "results" / "peaks"


def test_a_file_and_a_mapping_mean_the_same(tmp_path: Path) -> None:
    import tomllib

    path = written(tmp_path, GOOD)
    assert read_plan(tomllib.loads(GOOD)).tasks == read_plan(path).tasks


def test_problems_and_settings_are_the_ones_described(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD))
    assert same(plan.problems[1].config, energy_harvesting(horizon=4, peak_power=4, mean=10))
    assert same(plan.problems[-1].config, scheduling_example(1))
    assert learner_from(plan.settings[0].config) == SafeQ()
    assert learner_from(plan.settings[2].config) == ConstrainedQ.published(0.01)


@pytest.mark.parametrize(
    ("seeds", "expected"), [(3, [0, 1, 2]), ([5, 2], [5, 2]), (range(2, 4), [2, 3]), ({"first": 8, "count": 2}, [8, 9])]
)
def test_seeds_can_be_given_in_three_ways(seeds: Any, expected: list[int]) -> None:
    assert [task.config["seed"] for task in read_plan(entry(seeds=seeds)).tasks] == expected


def test_jobs_stand_in_the_file_or_in_one_beside_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("processing,due,deadline\n3,5,9\n2-4,6,12\n")
    content = """
    seeds = 1
    episodes = 10
    [[settings]]
    learner = "SafeQ"
    [[problems]]
    name = "beside"
    kind = "machine_scheduling"
    jobs = "jobs.csv"
    [[problems]]
    name = "inside"
    kind = "machine_scheduling"
    jobs = [{ processing = 3, due = 5, deadline = 9 }, { processing = "2-4", due = 6, deadline = 12 }]
    """
    beside, inside = read_plan(written(tmp_path, content)).problems
    assert beside.config["parameters"]["jobs"] == inside.config["parameters"]["jobs"]
    assert same(beside.config, machine_scheduling([Job(3, 5, 9), Job(uniform(2, 4), 6, 12)]))


def test_an_edit_of_a_users_problem_makes_other_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    content = (
        GOOD.split("[[problems]]")[0]
        + """
    [[settings]]
    learner = "SafeQ"
    [[problems]]
    kind = "own_problem_of_a_test:make"
    """
    )
    source = tmp_path / "own_problem_of_a_test.py"
    source.write_text(
        "import peakrl.problems.scheduling.problem as m\ndef make():\n    return m.scheduling_example(1)\n"
    )
    before = read_plan(written(tmp_path, content), trust=True).tasks
    assert read_plan(written(tmp_path, content), trust=True).tasks == before
    source.write_text(source.read_text() + "# edited\n")
    assert not set(read_plan(written(tmp_path, content), trust=True).tasks) & set(before)


IMPORTING = """
from costs import COST
from peakrl import Outcome, Problem

class Walk(Problem):
    horizon = 1
    constraint_names = ("none",)
    def initial(self):
        return [(1.0, 0)]
    def actions(self, step, state):
        return (0,)
    def outcomes(self, step, state, action):
        yield Outcome(1.0, 0, -float(COST), (1.0,))

def make(seed=0):
    return Walk()
"""


def test_an_edit_of_what_a_users_problem_imports_makes_other_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the file itself not one byte changes: the model that comes out does, and it is part of the key."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(IMPORTING)
    (tmp_path / "costs.py").write_text("COST = 1\n")
    described = entry(problems=[{"kind": "python", "function": "mine.py:make"}], points=0)
    before = sweep(described, workers=1)
    assert (before.made, before.found) == (1, 0)
    assert sweep(described, workers=1).found == 1
    (tmp_path / "costs.py").write_text("COST = 27\n")
    learning.prepared.cache_clear()
    with pytest.raises(SweepError, match="has changed since the sweep was started"):
        learn_run(dict(before.plan.tasks[0].config))
    after = sweep(described, workers=1)
    assert (after.made, after.found) == (1, 0)
    assert [result.values["optimum"] for result in after.results()] == [-27.0]
    assert len({record["problem"] for record in read_records(after.folder)}) == 2


BAD = {
    "unknown key": (entry(sedes=3), r"^sedes is not a key here; do you mean seeds\?"),
    "unknown parameter": (
        entry(problems=[{"kind": "energy_harvesting", "peak_pwer": 8}]),
        r"problems\[0\]\.peak_pwer is not a key here; do you mean peak_power\?",
    ),
    "unknown setting": (
        entry(
            settings=[
                {"learner": "SafeQ"},
                {"learner": "ConstrainedQ", "preset": "paper", "slack": 0.1, "bonsu": "none"},
            ]
        ),
        r"settings\[1\]: bonsu is not a setting of ConstrainedQ; do you mean bonus\?",
    ),
    "unknown key of seeds": (entry(seeds={"frist": 1, "count": 2}), r"seeds\.frist is not a key here"),
    "unknown field of a job": (
        entry(problems=[{"kind": "machine_scheduling", "jobs": [{"processing": 1, "due": 1, "deadlin": 2}]}]),
        r"problems\[0\]\.jobs\.0\.deadlin is not a key here; do you mean deadline",
    ),
    "unknown kind": (entry(problems=[{"kind": "energy"}]), r"problems\[0\]\.kind is 'energy'; it must be one of"),
    "unknown learner": (
        entry(settings=[{"learner": "magic"}]),
        r"settings\[0\]: learner is 'magic'; it must be one of PosteriorSampling, ",
    ),
    "unknown module": (entry(problems=[{"kind": "no_such_module:f"}]), r"problems\[0\]\.function 'no_such_module:f'"),
    "missing kind": (entry(problems=[{"name": "x"}]), r"problems\[0\]\.kind is missing"),
    "missing parameter": (entry(problems=[{"kind": "machine_scheduling"}]), r"problems\[0\]\.jobs is missing"),
    "missing slack": (
        entry(settings=[{"learner": "ConstrainedQ", "preset": "published"}]),
        r"settings\[0\]: ConstrainedQ\.published needs slack: ",
    ),
    "missing episodes": ({k: v for k, v in entry().items() if k != "episodes"}, "episodes is missing"),
    "no problems": (entry(problems=[]), "problems is empty"),
    "empty grid": (
        entry(settings=[{"learner": "ConstrainedQ", "preset": "published", "grid": {"slack": []}}]),
        r"settings\[0\]\.grid\.slack is empty: there would be no runs",
    ),
    "no seeds": (entry(seeds=0), "seeds is 0"),
    "twice in the grid": (
        entry(settings=[{"learner": "ConstrainedQ", "preset": "published", "slack": 1, "grid": {"slack": [1]}}]),
        r"settings\[0\]\.slack is given twice",
    ),
    "duplicate names": (
        entry(
            settings=[
                {"learner": "SafeQ"},
                {"name": "SafeQ", "learner": "ConstrainedQ", "preset": "published", "slack": 1},
            ]
        ),
        r"settings\[1\]\.name: 'SafeQ' is already the name of settings\[0\]",
    ),
    "bad number": (entry(episodes="many"), "episodes is 'many'; it must be a whole number"),
    "bad setting": (
        entry(settings=[{"learner": "ConstrainedQ", "preset": "published", "slack": -1}]),
        r"settings\[0\]: slack is -1",
    ),
    "not a table": (entry(problems=["energy_harvesting"]), r"problems\[0\] is 'energy_harvesting'"),
}


def test_a_bad_description_is_refused_by_key_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for description, culprit in BAD.values():
        monkeypatch.setattr(sweeping, "complete", lambda *_, **__: pytest.fail("something ran"))
        with pytest.raises(PeakError, match=culprit):
            sweep(description, folder=tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_key_given_twice_is_shown_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PeakError, match=r"line 3.*: seeds = 4"):
        read_plan(written(tmp_path, "\nseeds = 3\nseeds = 4\n"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeakError, match=r"cannot read .*nothing\.toml"):
        read_plan(tmp_path / "nothing.toml")


LEARNER = """
import peakrl

class Own(peakrl.Learner):
    def __init__(self, source=1):
        self.source = source
    def begin(self, task):
        pass
    def act(self, step, state, actions):
        return actions[0]
    def observe(self, step, state, action, reward, constraints, next_state):
        pass
"""


def test_an_edit_of_a_users_learner_makes_other_runs_and_is_noticed_while_they_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(LEARNER)
    monkeypatch.chdir(tmp_path)
    described = entry(settings=[{"name": "own", "learner": "own.py:Own", "source": 2}], points=0)
    (before,) = read_plan(described).tasks
    assert learn_run(dict(before.config))["optimum"] == -1.0
    (tmp_path / "own.py").write_text(LEARNER + "# edited\n")
    with pytest.raises(SweepError, match=r"own\.py:Own has changed since the sweep was started"):
        learn_run(dict(before.config))
    assert read_plan(described).tasks != (before,)
