"""Problem files: what they describe is what the library builds, and what is wrong in them is named by its key."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakrl import PeakError, compile_model, learn, solve
from peakrl.cli.init import template_files, templates
from peakrl.errors import ProblemError, StorageError
from peakrl.learners import ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.problems import Job, energy_harvesting, machine_scheduling, scheduling_example
from peakrl.problems.scheduling import uniform
from peakrl.specs.registry import command_names
from peakrl.training.spec_file import read_problem_file

ENERGY = '[problem]\nkind = "energy_harvesting"\n'


def written(folder, text, name="problem.toml"):
    path = folder / name
    path.write_text(text)
    return path


def read(folder, text, name="problem.toml"):
    return read_problem_file(written(folder, text, name), trust=True)


# What is described ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            ENERGY + "peak_power = 3\nhorizon = 4\nbattery = 3\nmax_arrival = 2\nmean = 1\nstd = 1\nlog_base = 3",
            energy_harvesting(peak_power=3, horizon=4, battery=3, max_arrival=2, mean=1, std=1, log_base=3),
        ),
        (
            ENERGY + 'arrivals = "frozen"\nseed = 5\nhorizon = 3',
            energy_harvesting(arrivals="frozen", seed=5, horizon=3),
        ),
        (ENERGY + "arrivals = [3, 0, 2]\nhorizon = 3", energy_harvesting(arrivals=[3, 0, 2], horizon=3)),
        (
            ENERGY + "arrivals = {matrix = [[0.5, 0.5], [0.1, 0.9]], first = [1.0, 0.0]}\nhorizon = 3",
            energy_harvesting(arrivals=([[0.5, 0.5], [0.1, 0.9]], [1.0, 0.0]), horizon=3),
        ),
        (
            '[problem]\nkind = "scheduling_example"\nnumber = 3\nobjective = "total_tardiness"',
            scheduling_example(3, objective="total_tardiness"),
        ),
        (
            '[problem]\nkind = "machine_scheduling"\n'
            'jobs = [{processing = 3, due = 4, deadline = 9}, {processing = "2-4", due = 5, deadline = 8, weight = 2,'
            ' name = "b"}, {processing = [[0.25, 1], [0.75, 2]], due = 1, deadline = 9}]',
            machine_scheduling([Job(3, 4, 9), Job(uniform(2, 4), 5, 8, 2, "b"), Job([(0.25, 1), (0.75, 2)], 1, 9)]),
        ),
    ],
)
def test_a_built_in_problem_is_what_its_function_builds(text, problem, tmp_path):
    described, built = read(tmp_path, text).model(), compile_model(problem)
    assert described.digest == built.digest
    assert list(described.state_labels) == list(built.state_labels)


def test_a_built_in_problem_needs_no_file():
    built = {name: read_problem_file(name).build() for name in command_names()}
    examples = {f"scheduling-{number}": scheduling_example(number) for number in (1, 2, 3)}
    known = {"energy-harvesting": energy_harvesting(), **examples}
    assert {name: built[name] for name in known} == known
    assert all(compile_model(problem).horizon > 0 for problem in built.values())


def test_jobs_may_come_from_a_csv_file_beside_the_problem(tmp_path):
    (tmp_path / "jobs.csv").write_text("processing,due,deadline\n3,4,9\n2-4,5,8\n")
    found = read(tmp_path, '[problem]\nkind = "machine_scheduling"\njobs = "jobs.csv"').model()
    assert found.digest == compile_model(machine_scheduling([Job(3, 4, 9), Job(uniform(2, 4), 5, 8)])).digest


def test_outcomes_listed_in_a_csv_file_are_solved_by_hand(tmp_path):
    """A coin game of two steps: `safe` earns 1, `risky` earns 3 and breaks the constraint half of the time."""
    (tmp_path / "t.csv").write_text(
        "state,action,next_state,probability,reward,luck\n"
        "go,safe,go,1,1,0\n"
        "go,risky,go,0.5,3,1\n"
        "go,risky,stop,0.5,3,-1\n"
        "stop,wait,stop,1,0,0\n"
    )
    model = read(tmp_path, '[problem]\nkind = "tables"\nfile = "t.csv"\nhorizon = 2').model()
    best = solve(model)
    assert (best.value, best.violation, best.feasible) == (2.0, 0.0, True)
    assert model.constraint_names == ("luck",)
    assert set(model.state_labels) == {"go", "stop"}


@pytest.mark.parametrize("column", ["cost", "Cost", "costs"])
def test_a_column_of_costs_is_not_taken_for_a_constraint(column, tmp_path):
    (tmp_path / "t.csv").write_text(f"state,action,next_state,reward,{column}\n0,0,0,1,10\n")
    with pytest.raises(ProblemError, match=f"column '{column}' would be a constraint.*limit - cost"):
        read(tmp_path, '[problem]\nkind = "tables"\nfile = "t.csv"\nhorizon = 2').model()


def test_a_csv_file_may_depend_on_the_step_and_number_its_states(tmp_path):
    (tmp_path / "t.csv").write_text("step,state,action,next_state,reward\n0,0,0,1,5\n0,0,1,2,0\n1,1,0,0,0\n1,2,0,0,7\n")
    model = read(
        tmp_path, '[problem]\nkind = "tables"\nfile = "t.csv"\nhorizon = 2\nreward_range = [0.0, 10.0]'
    ).model()
    assert solve(model).value == 7.0
    assert model.state_labels[0] == 0
    assert model.reward_range == (0.0, 10.0)


MINE = """
from dataclasses import dataclass
from peakrl import Outcome, Problem

@dataclass(frozen=True)
class Mine(Problem):
    horizon: int
    reward_range = (0.0, 1.0)
    stationary = True
    def initial(self):
        return [(1.0, "s")]
    def actions(self, step, state):
        return ["a"]
    def outcomes(self, step, state, action):
        return [Outcome(1.0, "s", 1.0)]

def make(steps=2):
    return Mine(steps)

def broken():
    return {}["absent"]

def nothing():
    return 3

class Bad(Mine):
    def outcomes(self, step, state, action):
        return 1 / 0

def late():
    return Bad(1)
"""


def test_a_function_of_the_users_own_is_called_with_its_arguments(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    text = '[problem]\nkind = "python"\nfunction = "{}:make"\narguments = {{ steps = 5 }}'
    for module in ("mine.py", "mine"):
        assert solve(read(tmp_path, text.format(module)).model()).value == 5.0


def test_a_json_file_says_the_same_as_a_toml_file(tmp_path):
    settings = '[settings]\nlearner = "ConstrainedQ"\npreset = "published"\nslack = 0.1\n'
    text = f"{ENERGY}horizon = 3\n{settings}[run]\nepisodes = 7\nseed = 3\n"
    toml = read(tmp_path, text)
    other = read(tmp_path, json.dumps(tomllib.loads(text)), "problem.json")
    assert (other.spec, other.settings, other.run) == (toml.spec, toml.settings, toml.run)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", PosteriorSampling()),
        ("optimism = 0.1", PosteriorSampling(optimism=0.1)),
        ('learner = "SafeQ"\ntrials = false', SafeQ(trials=False)),
        (
            'learner = "ConstrainedQ"\npreset = "paper"\nslack = 0.2\nbonus = "hoeffding"',
            ConstrainedQ.paper(0.2, bonus="hoeffding"),
        ),
        ('learner = "ConstrainedQ"\npreset = "published"\nslack = 0.2', ConstrainedQ.published(0.2)),
        ('learner = "ConstrainedQ"\npreset = "deterministic"\nphi = 0.3', ConstrainedQ.deterministic(0.3)),
    ],
)
def test_settings_are_those_of_the_named_learner(text, settings, tmp_path):
    assert read(tmp_path, f"{ENERGY}[settings]\n{text}").settings == settings


def test_paths_are_relative_to_the_file(tmp_path):
    found = read(tmp_path, ENERGY + '[run]\ncheckpoint = "here.run"')
    assert found.checkpoint == tmp_path / "here.run"


@pytest.mark.parametrize("kind", templates())
def test_every_template_trains_as_it_stands(kind, tmp_path):
    for suffix, text in template_files(kind, "mine").items():
        (tmp_path / f"mine{suffix}").write_text(text)
    found = read_problem_file(tmp_path / "mine.toml", trust=True)
    model = found.model()
    assert solve(model).feasible
    run = learn(model, found.settings, episodes=50, seed=found.run.seed, history=found.run.history)
    assert run.episodes == 50


# What is wrong ------------------------------------------------------------

JOB = '[problem]\nkind = "machine_scheduling"\njobs = [{%s}]'
TABLE = '[problem]\nkind = "tables"\nhorizon = 2\nfile = "t.csv"\n'


WRONG = [
    ("", "problem is missing"),
    ("[problem]\nhorizon = 3", "problem.kind is missing; it must be one of "),
    ('[problem]\nkind = "energy"', "problem.kind is 'energy'"),
    (ENERGY + "peak_pwoer = 3", "problem.peak_pwoer is not a key here; do you mean peak_power?"),
    (ENERGY + "horizon = 2.5", "problem.horizon is 2.5"),
    (ENERGY + "peak_power = -1", "peak_power is -1"),
    (ENERGY + "arrivals = {matrix = [[1.0]]}", "problem.arrivals needs both matrix and first"),
    (ENERGY + "[setings]\n", "setings is not a key here; do you mean settings?"),
    (
        ENERGY + "[settings]\nlearner = 'best'",
        "settings: learner is 'best'; it must be one of PosteriorSampling, SafeQ",
    ),
    (
        ENERGY + "[settings]\nlearner = 'ConstrainedQ'\npreset = 'paper'",
        "settings: ConstrainedQ.paper needs slack",
    ),
    (ENERGY + "[settings]\noptimsm = 1", "optimsm is not a setting of PosteriorSampling; do you mean optimism?"),
    (ENERGY + "[settings]\nlearner = 'SafeQ'\npreset = 'paper'", "preset is 'paper'; SafeQ has none"),
    (
        ENERGY + "[settings]\nlearner = 'OptPrimalDual'\npreset = 'opdop'\nepisodes = 9\nslater = 1\nslack = 1",
        "slack is not a setting of OptPrimalDual",
    ),
    (ENERGY + "[settings]\nlearner = 'ConstrainedQ'\npreset = 'published'\nslack = -1", "slack is -1"),
    (ENERGY + "[run]\nepisodes = 0", "run.episodes is 0"),
    (ENERGY + "[run]\nhistory = 'all'", "run.history is 'all'"),
    (JOB % "due = 3, deadline = 4", "problem.jobs.0.processing is missing"),
    (JOB % "processing = 1, due = 3, deadline = 4, colour = 3", "problem.jobs.0.colour is not a key here"),
    (JOB % 'processing = "soon", due = 3, deadline = 4', "problem.jobs.0: processing is 'soon'"),
    ('[problem]\nkind = "machine_scheduling"\njobs = []', "at least one job"),
    ('[problem]\nkind = "machine_scheduling"\njobs = "no.csv"', "no.csv"),
    ('[problem]\nkind = "scheduling_example"\nnumber = 4', "problem.number is 4"),
    ('[problem]\nkind = "tables"\nhorizon = 2\nfile = "t.xls"', "problem.file is 't.xls'"),
    (TABLE + "initial = [0.5]", "problem.initial names"),
    (TABLE + 'constraint_names = ["x"]', "problem.constraint_names is ['x']"),
    ('[problem]\nkind = "python"\nfunction = "mine.py"', 'must be "file.py:function"'),
    ('[problem]\nkind = "python"\nfunction = "absent.py:make"', "there is no file"),
    ('[problem]\nkind = "python"\nfunction = "absent_module:make"', "absent_module"),
    ('[problem]\nkind = "python"\nfunction = "mine.py:mak"', "has no function 'mak'; do you mean make?"),
    ('[problem]\nkind = "python"\nfunction = "mine.py:broken"', "KeyError: 'absent' (mine.py, line 21)"),
    ('[problem]\nkind = "python"\nfunction = "mine.py:nothing"', "returned 3"),
    ('[problem]\nkind = "python"\nfunction = "mine.py:late"', "ZeroDivisionError"),
    ('[problem]\nkind = "python"\nfunction = "mine.py:make"\narguments = {pace = 2}', "pace"),
    ("[problem\n", "is not valid TOML"),
]


def test_what_is_wrong_is_named_by_its_key(tmp_path):
    for text, culprit in WRONG:
        (tmp_path / "mine.py").write_text(MINE)
        (tmp_path / "t.csv").write_text("state,action,next_state,reward\ns,a,s,1\n")
        with pytest.raises(PeakError) as caught:
            read(tmp_path, text).model()
        assert culprit in str(caught.value)
        assert "problem.toml" in str(caught.value) or ".csv" in str(caught.value)


WRONG_CELLS = [
    ("", "it needs a header"),
    ("state,action,next_state\ns,a,s\n", "column 'reward' is missing"),
    ("state,action,next_state,reward,reward\ns,a,s,1,1\n", "row 1: column 'reward' occurs twice"),
    ("state,action,next_state,reward\ns,a,s\n", "row 2: 3 cells for 4 columns"),
    ("state,action,next_state,reward\ns,a,s,much\n", "row 2, column 'reward': the cell is 'much'"),
    ("state,action,next_state,reward\ns,a,s,nan\n", "row 2, column 'reward'"),
    ("state,action,next_state,reward,probability\ns,a,s,1,0.4\n", "probabilities sum to 0.4"),
    ("step,state,action,next_state,reward\n7,s,a,s,1\n", "row 2, column 'step': the cell is '7'"),
    ("state,action,next_state,reward\ns,a,t,1\n", "no row has the state 't'"),
    ("state,action,next_state,reward,prob\ns,a,s,1,0.5\ns,a,s,2,0.5\n", "row 3: a second outcome .*: prob\\)"),
]


def test_what_is_wrong_in_a_csv_file_is_named_by_row_and_column(tmp_path):
    for text, culprit in WRONG_CELLS:
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(PeakError) as caught:
            read(tmp_path, TABLE).model()
        assert re.search(culprit, str(caught.value))


def test_a_first_state_without_a_row_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("state,action,next_state,reward\ns,a,s,1\n")
    with pytest.raises(ProblemError, match=r"problem\.initial names 'r', which no row has as its state"):
        read(tmp_path, TABLE + 'initial = "r"\n').model()


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(StorageError, match="No such file"):
        read_problem_file(tmp_path / "absent.toml")
    with pytest.raises(ProblemError, match=r"must end in \.toml or \.json"):
        read(tmp_path, ENERGY, "problem.yaml")
    (tmp_path / "problem.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(StorageError, match="byte 0 is not UTF-8"):
        read_problem_file(tmp_path / "problem.toml")
    with pytest.raises(ProblemError, match="nested too deeply"):
        read(tmp_path, "[" * 100_000, "problem.json")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
WORDS = """
kind horizon battery peak_power mean std arrivals log_base seed jobs objective number file initial reward_range
function arguments learner slack phi episodes record checkpoint problem settings run processing due deadline
"""
KEYS = st.sampled_from(WORDS.split())
SECTION = st.dictionaries(KEYS, VALUES, max_size=4)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "problem": SECTION.flatmap(
            lambda section: st.sampled_from(
                ["energy_harvesting", "machine_scheduling", "scheduling_example", "tables", "python"]
            ).map(lambda kind: {"horizon": 2, **section, "kind": kind})
        )
        | VALUES,
        "settings": SECTION | VALUES,
        "run": SECTION | VALUES,
    },
)


@settings(max_examples=120)
@given(values=FILES | VALUES)
def test_any_json_is_understood_or_refused_with_our_own_error(values, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "problem.json"
    path.write_text(json.dumps(values))
    with contextlib.suppress(PeakError):
        found = read_problem_file(path)
        found.build()


@settings(max_examples=100)
@given(data=st.binary(max_size=60), suffix=st.sampled_from([".toml", ".json"]))
def test_any_bytes_are_understood_or_refused_with_our_own_error(data, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / f"problem{suffix}"
    path.write_bytes(data)
    with pytest.raises(PeakError):
        read_problem_file(path)


@settings(max_examples=100)
@given(text=st.text("state,action,next_rewd 01.-\n\"'x", max_size=80), header=st.booleans())
def test_any_csv_text_is_understood_or_refused_with_our_own_error(text, header, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "t.csv").write_text("state,action,next_state,reward,luck\n" * header + text)
    with contextlib.suppress(PeakError):
        read(folder, TABLE).model()
