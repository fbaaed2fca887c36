"""What a certified learner has proved, as it goes on: history, page and progress line agree."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from peakrl import Assumptions, LearningRun, Policy, compile_model, evaluate, learn, resume, solve
from peakrl.learners import Certified, SafeQ
from peakrl.problems import scheduling_example
from peakrl.report.analysis import RunAnalysis
from peakrl.report.charts import proof_chart
from peakrl.training import load_run
from peakrl.training.run import RunView
from peakrl.training.trainer import Trainer

draw_proof = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "examples" / "certified_run.py"))["draw_proof"]
MODEL = problems.near_tie()
SETTINGS = Certified((0.4, 0.2), relative=True)


@pytest.fixture(scope="module")
def run() -> LearningRun:
    return learn(MODEL, SETTINGS, episodes=100_000, seed=1)


def test_what_was_proved_ends_with_the_certificate_and_is_true_throughout(run: LearningRun) -> None:
    proved, best = run.proof_history, solve(MODEL)
    assert proved is not None
    assert run.certificate is not None
    assert proved.episode[-1] == run.episodes
    assert run.certificate.gap == pytest.approx(proved.gap[-1], rel=1e-3)
    assert (np.diff(proved.episode) > 0).all()
    assert (best.value - proved.value <= proved.gap).all()
    assert (proved.true_violation <= proved.violation).all()
    assert proved.value[-1] == pytest.approx(evaluate(MODEL, run.policy).value, rel=1e-12)


def test_the_value_beside_a_bound_is_that_of_the_candidate_of_that_time(run: LearningRun) -> None:
    proved = run.proof_history
    assert proved is not None
    for place in (0, len(proved) // 2):
        active = Trainer(MODEL, SETTINGS, planned=100_000, seed=1, every=0)
        active.advance(int(proved.episode[place]))
        candidate = Policy(MODEL, active.learned().decided())
        assert proved.value[place] == pytest.approx(evaluate(MODEL, candidate).value, rel=1e-12)


def test_states_that_offer_nothing_after_the_last_step_do_no_harm() -> None:
    model = compile_model(scheduling_example(1))
    run = learn(model, Certified(0.0), episodes=60, assumptions=Assumptions(deterministic=True))
    assert run.proof_history is not None
    assert run.proof_history.value[-1] == solve(model).value
    assert {"value", "violation"} <= Trainer(model, SETTINGS, planned=9, seed=1, every=0).fields().keys()


def test_it_is_kept_in_files(run: LearningRun, tmp_path: Path) -> None:
    learn(MODEL, SETTINGS, episodes=600, seed=1).save(tmp_path / "run")
    half, whole = load_run(tmp_path / "run").proof_history, resume(tmp_path / "run", episodes=100_000).proof_history
    assert half is not None
    assert whole is not None
    assert run.proof_history is not None
    assert 0 < len(half) < len(whole)
    for name in ("episode", "gap", "violation", "value"):
        assert np.array_equal(getattr(whole, name), getattr(run.proof_history, name))


def test_the_page_draws_the_certified_gap_beside_the_true_one(run: LearningRun) -> None:
    (chart,) = proof_chart(RunAnalysis.of(run))
    curves = {series.name: series for series in chart.series}
    certified, true = curves["certified gap"], curves["true gap of the candidate"]
    assert "certified after" in chart.title
    assert list(certified.x) == list(true.x)
    for high, low in zip(certified.y, true.y, strict=True):
        assert high is None or (low is not None and low <= high)
    assert run.certificate is not None
    assert curves["epsilon"].y[0] == run.certificate.epsilon
    assert proof_chart(RunAnalysis.of(learn(MODEL, SafeQ(), episodes=5))) == []


def test_a_page_that_is_built_on_the_way_has_the_curve_so_far(run: LearningRun) -> None:
    charts = []

    def watch(moment: RunView) -> None:
        if moment.episodes > 300 and not charts:
            charts.extend(proof_chart(RunAnalysis.of(moment.run())))

    learn(MODEL, SETTINGS, episodes=100_000, seed=1, watch=watch, history="none", average=False)
    assert run.proof_history is not None
    assert charts
    assert list(charts[0].series[0].x) == run.proof_history.episode[: len(charts[0].series[0].x)].tolist()


@pytest.mark.parametrize("on", ["model", "environment"])
def test_the_progress_line_tells_what_is_proved_and_forecasts_the_end(on: str) -> None:
    target = MODEL if on == "model" else ModelEnvironment(MODEL, 1)
    lines = []

    def watch(moment: RunView) -> None:
        lines.append((moment.episodes, moment.trainer.fields()))

    run = learn(target, Certified(problems.share_of_best(MODEL, 0.2)), episodes=20_000, watch=watch, history="none")
    told = [(done, fields) for done, fields in lines if "certified gap" in fields]
    assert told
    assert run.stop_reason == "certified"
    last = told[-1][1]
    assert {"violation at most", "about left"} <= last.keys()
    assert run.certificate is not None
    assert last["certified gap"] == pytest.approx(run.certificate.gap, rel=1e-3)
    assert last["about left"] == 0
    # A forecast from half-way on is rough, but no guess: within a factor of ten of what it took.
    for done, fields in told[:-1]:
        if run.episodes / 2 < done < 0.9 * run.episodes:
            assert 0.1 < (done + fields["about left"]) / run.episodes < 10


def test_the_picture_of_a_proof_shows_what_the_history_holds(run: LearningRun) -> None:
    proved = run.proof_history
    assert proved is not None
    lines = draw_proof(run, solve(MODEL).value).axes[0].get_lines()
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()) for line in lines}
    assert np.array_equal(drawn["certified gap to the best safe policy"], proved.gap)
    assert run.certificate is not None
    assert run.certificate.epsilon is not None
    least, true = run.certificate.epsilon / 1000, solve(MODEL).value - proved.value
    assert true.min() < least  # 0 but for rounding: it has no place on this axis
    assert np.allclose(drawn[f"true gap (bottom: below {least:.1g})"], np.maximum(true, least))
    with pytest.raises(ValueError, match="this run has no certificate"):
        draw_proof(learn(MODEL, SafeQ(), episodes=2), 1.0)
