"""Numbers and names at the edge of what a computer holds: they are computed with, or refused with our own error."""

from __future__ import annotations

import json

import numpy as np
import pytest

from helpers.commands import caller
from helpers.model_environment import ModelEnvironment
from peakrl import (
    Outcome,
    PeakError,
    Problem,
    TabularModel,
    certify,
    compile_model,
    evaluate,
    learn,
    learn_many,
    safe_set,
    simulate,
    solve,
    sweep,
    verify,
    write_report,
)
from peakrl.learners import ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.policy import load_policy
from peakrl.records import Record
from peakrl.sweeps.store import NAMES, Store
from peakrl.sweeps.summary import read_records
from peakrl.theory import audit_slack, solve_relaxed
from peakrl.training import load_run
from peakrl.training.spec_file import read_problem_file

#: Violations far below rounding are told of, as they should be.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
MOVES = np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.0, 1.0]]])
LEARNERS = {
    "practical": SafeQ(),
    "posterior": PosteriorSampling(),
    "paper": ConstrainedQ.paper(0.5),
    "deterministic": ConstrainedQ.deterministic(0.3),
}


def extreme(reward, constraint, **declared):
    rewards = np.array([[reward, 0.0], [reward, -reward]])
    return TabularModel.from_arrays(MOVES, rewards, np.array([[[constraint, 1.0], [1.0, constraint]]]), 3, **declared)


def number(problem_reward, constraint, **declared):
    """The same sizes in a problem."""

    class Extreme(Problem):
        name, horizon, constraint_names = "extreme", 2, ("c",)
        stationary = True

        def initial(self):
            return [(1.0, 0)]

        def actions(self, step, state):
            return (0,)

        def outcomes(self, step, state, action):
            yield Outcome(1.0, 0, problem_reward, (constraint,))

    for name, value in declared.items():
        setattr(Extreme, name, value)
    return compile_model(Extreme())


@pytest.mark.parametrize("make", [extreme, number])
@pytest.mark.parametrize("size", [1e31, np.nan])
def test_rewards_and_constraints_beyond_all_reason_are_refused(make, size):
    """Their squares and the penalties made of them are no numbers any more."""
    for model in (lambda: make(size, 1.0), lambda: make(1.0, size)):
        with pytest.raises(PeakError, match="finite number, at most 1e"):
            model()


@pytest.mark.parametrize("make", [extreme, number])
def test_declared_bounds_beyond_all_reason_are_refused(make):
    for bound in (5e-324, 1e-31, 1e31, 1e308):
        with pytest.raises(PeakError, match=r"constraint_bounds.*choose another unit"):
            make(1.0, 0.0, constraint_bounds=(bound,))
    with pytest.raises(PeakError, match=r"reward_range.*choose a larger unit"):
        make(1.0, 0.0, reward_range=(-1e308, 1e308))


@pytest.mark.parametrize(
    ("reward", "constraint"), [(1e30, 5e-324), (-1e30, -1e30), (5e-324, -5e-324), (0.0, -1e-300), (1e30, -1e30)]
)
def test_what_is_not_refused_is_solved_learned_and_certified_with_finite_numbers(reward, constraint):
    model = extreme(reward, constraint)
    best = solve(model)
    assert np.isfinite([best.value, best.violation]).all()
    figures = evaluate(model, best.policy)
    assert np.isfinite([figures.value, figures.violation]).all()
    certify(model, best.policy)
    certify(model, best.policy, episodes=50, epsilon=1.0, seed=1)
    simulate(model, best.policy, episodes=5)
    safe_set(model)
    solve_relaxed(model, slack=0.1)
    audit_slack(model, 0.5)


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_not_refused_is_learned_and_read_back(name, tmp_path):
    for reward, constraint in ((1e30, -1e30), (-1e30, 5e-324), (5e-324, -5e-324)):
        model = extreme(reward, constraint)
        run = learn(model, LEARNERS[name], episodes=20)
        run.save(tmp_path / "run")
        assert np.array_equal(load_run(tmp_path / "run").policy.rows, run.policy.rows)
        assert np.isfinite(evaluate(model, run.averaged_policy).value)
        learn(ModelEnvironment(model, 1), LEARNERS[name], episodes=10)


@pytest.mark.parametrize("make", [SafeQ, ConstrainedQ.paper])
def test_a_penalty_beyond_all_reason_is_refused(make):
    with pytest.raises(PeakError, match="penalty"):
        learn(extreme(1.0, -1.0), make(slack=5e-324), episodes=2)
    with pytest.raises(PeakError, match="penalty"):
        make(slack=0.5, penalty=1e308)


@pytest.mark.parametrize("count", [2**63, 2**64, 10**30, 1e18, -1])
def test_a_number_of_episodes_that_no_computer_can_keep_is_refused(count):
    model = extreme(1.0, 1.0)
    policy = solve(model).policy
    described = {"problems": [{"kind": "scheduling_example", "number": 1}], "settings": [{"learner": "SafeQ"}]}
    for attempt in (
        lambda: learn(model, episodes=count),
        lambda: learn_many(model, LEARNERS["practical"], episodes=count, seeds=[0]),
        lambda: simulate(model, policy, episodes=count),
        lambda: certify(model, policy, episodes=count),
        lambda: sweep({"seeds": 1, "episodes": count, **described}, dry_run=True),
    ):
        with pytest.raises(PeakError, match="must be a whole number"):
            attempt()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float16, np.int64])
def test_tables_of_small_numbers_are_computed_with_in_full(dtype):
    """200 + 200 is 400, and 100 - 200 is -100, whatever type a table came in."""
    rewards = np.array([[100], [50]]).astype(dtype)
    model = TabularModel.from_arrays(np.eye(2)[:, None].astype(dtype), rewards, -np.ones((1, 2, 1)), 4)
    assert solve(model).value == 400.0
    assert learn(model, episodes=3).model.reward_range == (50.0, 100.0)


LONG = "n" * 256


def test_names_of_256_characters_are_kept_or_refused(tmp_path, monkeypatch, capsys):
    command = caller(monkeypatch, capsys, tmp_path)
    model = extreme(1.0, 1.0)
    policy, kept = solve(model).policy, safe_set(model)
    learn(model, episodes=3).save(tmp_path / "run")
    for attempt in (
        lambda: policy.save(LONG),
        lambda: policy.to_csv(LONG),
        lambda: kept.save(LONG),
        lambda: certify(model, policy).save(LONG),
        lambda: write_report("run", LONG),
        lambda: write_report(LONG, "page.html"),
        lambda: write_report("a\0b", "page.html"),
        lambda: load_run(LONG),
        lambda: load_policy(LONG, model),
        lambda: verify(LONG),
        lambda: sweep(LONG),
        lambda: Store.open(LONG),
        lambda: Store.create("a\0b"),
    ):
        with pytest.raises(PeakError):
            attempt()
    for words in (("init", LONG), ("report", LONG), ("summarize", LONG), ("report", "run", "--out", LONG)):
        assert command(*words)[0] == 2, words


def test_long_labels_stand_on_the_page(tmp_path):
    class Long(Problem):
        name, horizon, constraint_names, stationary = LONG, 2, (LONG,), True

        def initial(self):
            return [(1.0, LONG)]

        def actions(self, step, state):
            return (LONG,)

        def outcomes(self, step, state, action):
            yield Outcome(1.0, LONG, 1.0, (1.0,))

    learn(Long(), episodes=3).save(tmp_path / "run")
    assert LONG in write_report(tmp_path / "run", tmp_path / "page.html").read_text()


#: Orders to a browser, to a terminal (a new title, writing from right to left), to C and to jinja.
HOSTILE = "</script><script>alert(1)</script>$\\frac{$\x1b]0;owned\x07\u202e*/{{7*7}}"


@pytest.mark.filterwarnings("ignore:Glyph")  # what no font has is drawn as a box
def test_names_give_no_orders_to_browsers_terminals_or_figures(tmp_path, monkeypatch, capsys):
    class Hostile(Problem):
        name, horizon, constraint_names, stationary = HOSTILE, 2, (HOSTILE,), True

        def initial(self):
            return [(1.0, HOSTILE)]

        def actions(self, step, state):
            return (HOSTILE,)

        def outcomes(self, step, state, action):
            yield Outcome(1.0, HOSTILE, 1.0, (-1.0,))

    model, command = compile_model(Hostile()), caller(monkeypatch, capsys, tmp_path)
    learn(model, episodes=3).save(tmp_path / "run")
    certify(model, solve(model).policy).save(tmp_path / "certificate")
    assert command("report", "run", "--out", "page.html")[0] == 0
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    asked = (
        ("evaluate", "run"), ("evaluate", "run", "--json"), ("verify", "certificate"),
        ("verify", "certificate", "--json"), ("train", "--resume", "run", "--episodes", "5"),
    )  # fmt: skip
    told = ["".join(command(*words)[1:]) for words in asked]
    assert all("owned" in text and not {"\x1b", "\x07", "\u202e"} & set(text) for text in told)
    assert json.loads(told[1])["problem"] == HOSTILE
    code = solve(model).policy.to_c(tmp_path / "policy.h")
    assert code.count("*/") == code.count("/*")


@pytest.mark.parametrize("where", ["name", "label"])
def test_half_a_sign_is_not_written_and_not_read(where, tmp_path):
    """A lone surrogate is a str to Python, and nothing that a page or a UTF-8 file could hold."""
    half = "\ud83d"

    class Half(Problem):
        name, horizon, stationary = half if where == "name" else "whole \U0001f600", 2, True

        def initial(self):
            return [(1.0, half if where == "label" else "\U0001f600")]

        def actions(self, step, state):
            return (0,)

        def outcomes(self, step, state, action):
            yield Outcome(1.0, state, 1.0)

    with pytest.raises(PeakError, match=r"not plain JSON|lone surrogate"):
        compile_model(Half()).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    (tmp_path / "problem.json").write_text(json.dumps({"problem": {"kind": "tables", "name": half}}))
    with pytest.raises(PeakError, match="surrogates not allowed"):
        read_problem_file(tmp_path / "problem.json")


def test_what_is_no_file_of_ours_is_not_overwritten(tmp_path, monkeypatch, capsys):
    """A problem file says where its run is kept: it must not cost its reader another file."""
    command = caller(monkeypatch, capsys, tmp_path)
    (tmp_path / "diary.txt").write_text("dear diary")
    (tmp_path / "mine.toml").write_text(
        '[problem]\nkind = "scheduling_example"\nnumber = 1\n[run]\nepisodes = 5\ncheckpoint = "diary.txt"\n'
    )
    for options in ((), ("--overwrite",)):
        code, _, told = command("train", "mine.toml", *options)
        assert (code, (tmp_path / "diary.txt").read_text()) == (2, "dear diary"), told
    assert command("train", "mine.toml", "--out", "run")[0] == 0
    assert command("train", "mine.toml", "--out", "run", "--overwrite")[0] == 0


# Results of a sweep that a stranger wrote -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    described = {
        "folder": str(folder), "seeds": 2, "episodes": 10, "points": 5,
        "problems": [{"kind": "scheduling_example", "number": 1}], "settings": [{"learner": "SafeQ"}],
    }  # fmt: skip
    assert sweep(described, workers=1).made == 2
    return folder


def test_forged_names_of_a_sweep_are_an_error_of_ours(swept):
    (path,) = swept.glob("names/*")
    for names in ({}, {"name": "x", "problems": {"a": 1}, "settings": {}}):
        NAMES.write(path, Record(names, {}))
        with pytest.raises(PeakError, match="is damaged"):
            read_records(swept)
