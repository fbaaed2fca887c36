"""A problem as data: what it says is what is built, swept, stored and shown; what is wrong in it is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peakrl import Outcome, PeakError, Problem, compile_model, learn, solve, sweep
from peakrl.cli.solve import wanted_with_discount
from peakrl.learners import SafeQ
from peakrl.problems import Job, energy_harvesting, machine_scheduling, scheduling_example
from peakrl.problems.harvesting import MarkovArrivals
from peakrl.problems.scheduling import uniform
from peakrl.specs import ProblemSpec
from peakrl.specs.registry import kinds
from peakrl.training import load_run
from peakrl.training.spec_file import read_problem_file


class Told(Problem):
    """A problem that says what it is."""

    horizon = 1
    spec = {"kind": "told", "numbers": [1, 2]}  # noqa: RUF012  # read only

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return [0]

    def outcomes(self, step, state, action):
        return [Outcome(1.0, 0, 1.0)]


def test_a_model_and_the_file_of_its_run_keep_what_the_problem_says_it_is(tmp_path):
    model = compile_model(Told())
    assert model.spec == Told.spec
    learn(model, episodes=3).save(tmp_path / "a.run")
    assert load_run(tmp_path / "a.run").model.spec == Told.spec


def test_what_a_problem_says_it_is_does_not_change_its_digest():
    silent = compile_model(type("Silent", (Told,), {"spec": None})())
    assert silent.spec is None
    assert silent.digest == compile_model(Told()).digest


MATRIX, FIRST = [[0.5, 0.5], [0.1, 0.9]], [1.0, 0.0]


def test_a_built_in_problem_tells_the_data_that_it_can_be_built_from_again():
    for problem in [
        energy_harvesting(),
        energy_harvesting(horizon=np.int64(3), peak_power=np.float64(2.5), arrivals="frozen", seed=4),
        energy_harvesting(horizon=3, arrivals=np.array([3, 1, 2])),
        energy_harvesting(horizon=3, arrivals=(MATRIX, FIRST)),
        energy_harvesting(horizon=3, arrivals=MarkovArrivals(np.array(MATRIX), 1)),
        energy_harvesting(horizon=3, arrivals={"matrix": MATRIX, "first": FIRST}),
        scheduling_example(2, objective="total_tardiness"),
        machine_scheduling([Job(3, 4, 9), Job(uniform(2, 4), 5, 8, 2, "b"), Job({1: 0.25, 2: 0.75}, 1, 9)]),
    ]:
        told = json.loads(json.dumps(problem.spec))
        assert ProblemSpec.from_dict(told).build() == problem
        assert compile_model(problem).spec == told


def test_a_changed_copy_of_a_problem_does_not_tell_the_old_data():
    assert replace(energy_harvesting(), peak_power=3.0).spec is None


def test_what_is_left_at_its_default_goes_without_saying():
    assert energy_harvesting(mean=10, peak_power=3).spec == {"kind": "energy_harvesting", "peak_power": 3}


# What trains can be solved, swept, stepped and stored --------------------------------------------------------------

OWN = """
from peakrl import Outcome, Problem
from peakrl.problems import energy_harvesting

class Mine(Problem):
    horizon, stationary = 2, True
    def __init__(self, pay, seed):
        self.pay = pay + seed
    def initial(self):
        return [(1.0, "s")]
    def actions(self, step, state):
        return ["a", "b"]
    def outcomes(self, step, state, action):
        return [Outcome(1.0, "s", self.pay if action == "a" else 0.0)]

def make(pay, seed=0):
    return Mine(pay, seed)
"""
UMB = Path(__file__).parents[1] / "formats" / "mdp.umb"
TABLE = "state,action,next_state,probability,reward,luck\ns,a,s,0.5,1,1\ns,a,t,0.5,2,0\nt,a,s,1,0,3\n"
TOLD = {
    "csv": {"kind": "tables", "file": "t.csv", "horizon": 3, "initial": {"s": 0.5, "t": 0.5}},
    "python": {"kind": "python", "function": "mine.py:make", "pay": 5},
    "python, arguments": {"kind": "python", "function": "mine:make", "arguments": {"pay": 5}},
    "markov": {"kind": "energy_harvesting", "horizon": 3, "arrivals": {"matrix": MATRIX, "first": FIRST}},
    "jobs": {"kind": "machine_scheduling", "jobs": "jobs.csv"},
    "umb": {"kind": "umb", "file": "t.umb", "never": "g", "horizon": 3},
    "example": {"kind": "scheduling_example", "number": 3, "objective": "total_tardiness"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "t.umb").write_bytes(UMB.read_bytes())
    (tmp_path / "jobs.csv").write_text("processing,due,deadline\n3,4,9\n2-4,5,8\n")
    for name, told in TOLD.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"problem": told}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", TOLD)
def test_one_description_is_trained_solved_and_stepped_as_the_same_problem(name, folder):
    path = folder / f"{name}.json"
    model = read_problem_file(path, trust=True).model()
    assert compile_model(wanted_with_discount([str(path)], None, trust=True)[0]).digest == model.digest
    for told in (path, TOLD[name], ProblemSpec.from_dict(TOLD[name])):
        env = gymnasium.make("peakrl/Problem-v0", problem=told, trust=True, disable_env_checker=True)
        assert env.unwrapped.model.digest == model.digest
    learn(model, SafeQ(), episodes=3).save(folder / "a.run")
    kept = load_run(folder / "a.run").model
    assert ProblemSpec.from_dict(kept.spec).compile(folder).digest == model.digest


def test_one_description_is_swept_as_the_same_problem(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder / "sweep.json").write_text(
        json.dumps(
            {
                "seeds": 1, "episodes": 20, "points": 0, "settings": [{"learner": "SafeQ"}],
                "problems": [{"name": name, **told} for name, told in TOLD.items()],
            }
        )
    )  # fmt: skip
    report = sweep(folder / "sweep.json", workers=1, trust=True)
    assert not report.failures
    optima = {name: solve(read_problem_file(folder / f"{name}.json", trust=True).model()).value for name in TOLD}
    names = [choice.name for choice in report.plan.problems]
    assert {name: found.values["optimum"] for name, found in zip(names, report.results(), strict=True)} == optima


@pytest.mark.parametrize("file", ["t.csv", "mine.py"])
def test_a_file_that_is_edited_while_a_sweep_runs_is_noticed(file, folder):
    from peakrl.sweeps.grid import read_plan
    from peakrl.sweeps.learning import prepared
    from peakrl.sweeps.store import canonical

    name = {"t.csv": "csv", "mine.py": "python"}[file]
    entry = {"seeds": 1, "episodes": 1, "settings": [{"learner": "SafeQ"}], "problems": [TOLD[name]]}
    (choice,) = read_plan(entry).problems
    config = canonical(choice.config, "problem")
    assert prepared(config, str(folder))[1].horizon > 0
    prepared.cache_clear()
    (folder / file).write_text((folder / file).read_text() + "\n")
    with pytest.raises(PeakError, match="has changed since the sweep was started"):
        prepared(config, str(folder))


def test_a_function_of_the_users_own_can_be_swept_over_its_arguments(folder):
    from peakrl.sweeps.grid import read_plan
    from peakrl.sweeps.learning import prepared
    from peakrl.sweeps.store import canonical

    own = {"name": "own", "kind": "python", "function": "mine.py:make", "grid": {"pay": [1, 2]}}
    plan = read_plan({"seeds": 2, "episodes": 1, "settings": [{"learner": "SafeQ"}], "problems": [own]})
    assert [choice.name for choice in plan.problems] == ["own pay=1", "own pay=2"]
    configs = [canonical(choice.config, "problem") for choice in plan.problems]
    assert [prepared(config, ".")[2].value for config in configs] == [2.0, 4.0]


# What is wrong ------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.integers(-3, 30)
    | st.floats()
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
#: Small parameters of each kind; a kind that has a name on the command line is good as it stands there.
GOOD = {
    **{kind.name: dict(next(iter(kind.command_names.values()))) for kind in kinds().values() if kind.command_names},
    "energy_harvesting": {"horizon": 3, "battery": 2, "max_arrival": 2},
    "machine_scheduling": {"jobs": [{"processing": 1, "due": 1, "deadline": 2}]},
    "tables": {"file": "t.csv", "horizon": 2},
    "python": {"function": "mine.py:make", "pay": 1},
    "umb": {"file": "t.umb", "horizon": 2},
}


def test_every_kind_is_fuzzed():
    assert GOOD.keys() == kinds().keys()


def refusal(kind, parameters, folder="."):
    """Why a problem is refused; every possible name where it is not."""
    try:
        ProblemSpec(kind, parameters).build(folder)
    except PeakError as error:
        return str(error)
    return f"jobs.1 {list(kinds()[kind].parameters)}"


@pytest.mark.parametrize("kind", GOOD)
@settings(max_examples=60)
@given(data=st.data())
def test_a_bad_value_of_any_parameter_is_refused_with_the_parameters_name(kind, data, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "fuzzed"
    folder.mkdir(exist_ok=True)
    (folder / "t.csv").write_text(TABLE)
    (folder / "mine.py").write_text(OWN)
    (folder / "t.umb").write_bytes(UMB.read_bytes())
    names = [*kinds()[kind].parameters] if kind != "python" else ["function", "arguments"]
    name, value = data.draw(st.sampled_from(names)), data.draw(VALUES)
    message = refusal(kind, {**GOOD[kind], name: value}, folder)
    # What lies within a parameter may be named in its place: the file that it names, an argument that it passes on.
    within = (
        [word for key in value for word in (repr(key), key or repr(key))]
        if isinstance(value, dict)
        else [str(folder / str(value))]
    )
    assert any(word in message for word in (name, *within))


JOB_VALUES = st.fixed_dictionaries(
    {"processing": VALUES | st.just(1), "due": VALUES | st.just(1), "deadline": VALUES | st.just(2)},
    optional={"weight": VALUES, "name": VALUES, "colour": VALUES},
)


@settings(max_examples=60)
@given(job=JOB_VALUES)
@example(job={"processing": [[0.5, 1], [0.5]], "due": 1, "deadline": 2})
def test_a_bad_value_of_a_job_is_refused_with_the_jobs_place(job):
    good = {"processing": 1, "due": 1, "deadline": 2, "name": "good"}
    message = refusal("machine_scheduling", {"jobs": [good, job]})
    assert message.startswith(("jobs.1", "jobs[1]", "jobs number 1 and 2"))


@given(values=VALUES | st.dictionaries(st.sampled_from(["kind", "horizon", "jobs", "pay"]), VALUES))
def test_any_data_is_a_problem_or_refused_with_our_own_error(values):
    try:
        spec = ProblemSpec.from_dict(values)
    except PeakError:
        return
    assert ProblemSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec


SLIPS = [
    ({"kind": "energy_harvesting", "arrivals": float("nan")}, "arrivals is nan; it must be finite"),
    ({"kind": "energy_harvesting", "arrivals": [1, object()]}, r"arrivals\[1\] is <object .*must be plain"),
    ({"kind": "python", "function": "mine.py:make", "arguments": {"pay": 1}, "pay": 2}, "pay is given twice"),
    ({"kind": "python", "function": "mine.py:make", "payy": 2}, "payy is not a key here; do you mean pay"),
    ({"kind": "python", "function": "mine.py:make"}, "pay is missing"),
]


def test_a_slip_is_named_with_what_would_be_right(folder):
    for values, message in SLIPS:
        with pytest.raises(PeakError, match=message):
            ProblemSpec.from_dict(values).build(folder)


def test_only_problems_of_a_users_function_run_code():
    assert {kind.name for kind in kinds().values() if kind.runs_code} == {"python"}
