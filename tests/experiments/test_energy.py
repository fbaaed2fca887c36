"""Figures 2 and 3 at a small size: settings, tasks, numbers, reuse."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import draw_figure, energy, figure_2, run_experiment
from experiments.energy import blocks, load_recordings, transmitter
from experiments.figure_2 import FIGURE_2, published_checks
from experiments.figure_3 import FIGURE_3, comparison, level_checks
from experiments.records import PAPER, Request, read_figure
from peakrl import compile_model, evaluate, learn
from peakrl.errors import ProblemError, StorageError
from peakrl.learners import ConstrainedQ
from peakrl.problems import energy_harvesting
from peakrl.problems.harvesting import convex_bound, draw_arrivals, greedy_rates

TINY_2 = replace(
    FIGURE_2, slacks=(0.1, 0.01), sequences=4, episodes=400, every=100, block=3,
    random_episodes=60, random_every=20, random_runs=2,
)  # fmt: skip
TINY_3 = replace(
    FIGURE_3, means=(8, 12), sequences=3, episodes=200, block=2, random_episodes=40, random_runs=1,
    random_sequences=5, many=50,
)  # fmt: skip


def frozen_config(arrivals: np.ndarray, **changes: object) -> dict[str, object]:
    config = {
        "problem": transmitter(peak_power=8).as_dict(),
        "learner": ConstrainedQ.published(0.1).as_dict(),
        "episodes": 300,
        "every": 100,
        "arrivals": arrivals.tolist(),
    }
    return {**config, **changes}


def test_the_full_size_is_the_paper_s() -> None:
    assert (FIGURE_2.sequences, FIGURE_2.slacks, FIGURE_2.episodes) == (1000, (0.1, 0.01, 0.001), 20_000)
    assert FIGURE_2.problem.build() == energy_harvesting(peak_power=8, log_base=2)
    assert (FIGURE_3.sequences, FIGURE_3.means, FIGURE_3.episodes) == (100, (8, 9, 10, 11, 12), 50_000)
    assert FIGURE_3.problem.build() == energy_harvesting(peak_power=15, log_base=2)
    assert FIGURE_3.slack == 0.01


def test_the_averaged_curve_is_the_mean_value_of_every_policy_that_learning_went_through() -> None:
    arrivals = draw_arrivals(2, seed=3)
    learners = [ConstrainedQ.published(slack).as_dict() for slack in (0.01, 0.1)]
    found = energy.learn_sequences(frozen_config(arrivals, learners=learners))
    model = compile_model(energy_harvesting(arrivals=arrivals[1]))
    run = learn(model, ConstrainedQ.published(0.1), episodes=300)
    policies = [evaluate(model, run.averaged_policy.policy(episode)) for episode in range(1, 201)]
    assert found["episode"].tolist() == [100, 200, 300]
    assert found["rate"][1, 1, 1] == pytest.approx(np.mean([policy.value for policy in policies]))
    assert found["violation"][1, 1, 1] == pytest.approx(np.mean([policy.violation for policy in policies]))


def test_the_learner_s_number_in_figure_3_is_the_mean_over_the_second_half() -> None:
    arrivals = draw_arrivals(2, seed=4)
    found = energy.compare_sequences(frozen_config(arrivals))
    for index, sequence in enumerate(arrivals):
        model = compile_model(energy_harvesting(arrivals=sequence))
        run = learn(model, ConstrainedQ.published(0.1), episodes=300, history=1)
        assert found["learner"][index] == pytest.approx(run.history.value[150:].mean())
        assert found["learner violation"][index] == pytest.approx(run.history.violation[150:].mean())
        assert found["last violation"][index] == run.last_violation_episode
    assert found["convex bound"] == pytest.approx(convex_bound(arrivals))


def test_a_second_half_without_violations_counts_exactly_zero() -> None:
    quiet = np.zeros((1, 20), np.int64)
    found = energy.compare_sequences(frozen_config(quiet))
    assert found["learner violation"].tolist() == [0.0]
    assert found["last violation"].tolist() == [0]


def test_the_mean_of_the_second_half_follows_from_two_averages() -> None:
    values = np.random.default_rng(1).normal(size=10)
    averages = np.cumsum(values) / np.arange(1, 11)
    assert energy.late_mean(np.arange(1, 11), averages) == pytest.approx(values[5:].mean())


def test_exact_yardsticks_with_random_arrivals_are_the_known_ones_in_nats() -> None:
    config = {"problem": transmitter(peak_power=15, mean=8).as_dict(), "sequences": 4, "seed": 0}
    found = energy.random_yardsticks(config)
    assert found["causal optimum"] * math.log(2) == pytest.approx(44.155, abs=5e-4)
    assert found["greedy"] * math.log(2) == pytest.approx(42.421, abs=5e-4)
    assert len(found["convex bound"]) == len(found["balanced"]) == 4


def test_figure_2_has_every_curve_and_is_drawn_from_its_files_alone(tmp_path: Path) -> None:
    record = figure_2.convergence(Request(tmp_path, workers=1), TINY_2)
    record.write(tmp_path)
    frozen, random = record.curves("frozen", "sum rate"), record.curves("random", "violation")
    assert {name for name in frozen if not name.startswith(PAPER)} == {"slack 0.1", "slack 0.01", "integer optimum"}
    assert [row.x for row in frozen["slack 0.1"]] == [100, 200, 300, 400]
    assert {row.samples for row in frozen["slack 0.1"]} == {4}
    assert set(random) == {"Algorithm 1 as printed", "stepwise start, no bonus", "SafeQ"}
    for path in (tmp_path / "records").rglob("*.run"):
        path.unlink()
    png, pdf = draw_figure("figure-2", tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_figure_3_has_every_curve_and_judges_what_does_not_hang_on_luck(tmp_path: Path) -> None:
    record = comparison(Request(tmp_path, workers=1, quick=True), TINY_3)
    record.write(tmp_path)
    frozen, random = record.curves("frozen", "sum rate"), record.curves("random", "sum rate")
    assert {"greedy", "balanced", "learner", "integer optimum", "convex bound", PAPER + "learner"} <= set(frozen)
    assert {"causal optimum", "balanced (non-causal)", "SafeQ"} <= set(random)
    assert [row.x for row in random["SafeQ"]] == [8, 12]
    judged = [check for check in record.checks if check.within is not None]
    assert {check.against for check in judged if check.tolerance == 5e-4} == {"exact value"}
    assert all(check.within for check in judged if check.against == "exact value")
    levels = [check for check in record.checks if check.what == "mean 8, greedy, bits"]
    assert [check.within for check in levels] == [None]
    assert all(path.stat().st_size > 10_000 for path in draw_figure("figure-3", tmp_path))


def test_running_again_computes_nothing_and_more_sequences_compute_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    whole = energy.learn_sequences
    monkeypatch.setattr(
        energy, "learn_sequences", lambda config: calls.append(len(config["arrivals"])) or whole(config)
    )
    request = Request(tmp_path, workers=1)
    first = figure_2.frozen_curves(request, TINY_2)
    assert calls == [3, 1]
    calls.clear()
    assert figure_2.frozen_curves(request, TINY_2) == first
    assert calls == []
    figure_2.frozen_curves(request, replace(TINY_2, sequences=6))
    assert calls == [3]


def test_recorded_arrivals_take_the_place_of_drawn_ones(tmp_path: Path) -> None:
    arrivals = draw_arrivals(3, mean=6, seed=9)
    record = comparison(Request(tmp_path, workers=1, arrivals=arrivals), TINY_3)
    record.write(tmp_path)
    assert record.variants == ["frozen"]
    assert record.settings["arrivals"] == "recorded"
    (greedy,) = record.curves("frozen", "sum rate")["greedy"]
    assert greedy.x == pytest.approx(arrivals.mean())
    assert greedy.mean == pytest.approx(greedy_rates(arrivals, peak_power=15).mean())
    assert all(check.against != "paper's curve" for check in record.checks)
    draw_figure("figure-3", tmp_path)


def test_a_quick_run_goes_by_the_name_of_its_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_2, "FIGURE_2_QUICK", TINY_2)
    run_experiment("figure-2", Request(tmp_path, workers=1, quick=True))
    record = read_figure(tmp_path, "figure-2")
    assert record.settings["quick"] is True
    assert record.settings["sequences"] == 4


def test_published_numbers_are_compared_at_the_episodes_that_were_read_off() -> None:
    episode = np.array([5_000, 10_000, 20_000])
    rate = np.array([[57.9, 60.2, 61.0]])
    violation = np.array([[12.7, 6.3, 3.1]])
    checks = published_checks(0.1, episode, rate, violation, judged=True)
    assert [check.within for check in checks] == [True, True, True, True, False, True]
    assert published_checks(0.1, episode[:1], rate[:, :1], violation[:, :1], judged=False)[0].within is None


def test_figure_3_compares_four_levels_and_six_differences() -> None:
    rates = {"greedy": 60.7, "balanced": 62.3, "learner": 63.75, "convex bound": 63.77}
    checks = level_checks(8, {name: np.array([rate + 1.0]) for name, rate in rates.items()}, judged=True)
    assert len(checks) == 10
    assert [round(check.difference or 0.0, 9) for check in checks] == [1.0] * 4 + [0.0] * 6
    assert all(check.within for check in checks)


def test_blocks_hold_every_sequence_once_in_order() -> None:
    arrivals = np.arange(14).reshape(7, 2)
    assert np.concatenate(blocks(arrivals, 3)).tolist() == arrivals.tolist()
    assert [len(block) for block in blocks(arrivals, 3)] == [3, 3, 1]


# Recorded arrivals -----------------------------------------------------------------------------------------------


def saved(folder: Path, array: object) -> Path:
    np.save(folder / "arrivals.npy", np.asarray(array))
    return folder / "arrivals.npy"


def with_entry(value: float, dtype: type = np.float64) -> np.ndarray:
    array = np.full((3, 20), 5, dtype)
    array[2, 7] = value
    return array


def test_recordings_longer_than_the_horizon_are_cut(tmp_path: Path) -> None:
    array = np.arange(48).reshape(2, 24) % 21
    assert load_recordings(saved(tmp_path, array)).tolist() == array[:, :20].tolist()


BAD_RECORDINGS = [
    (with_entry(2.5), r"arrivals\[2, 7\] is 2.5"),
    (with_entry(-1), r"arrivals\[2, 7\] is -1"),
    (with_entry(21), r"arrivals\[2, 7\] is 21"),
    (with_entry(np.nan), r"arrivals\[2, 7\] is nan"),
    (np.full((3, 19), 5), "arrivals hold 19 steps"),
    (np.full(20, 5), r"shape \(20,\); it must be sequences x slots"),
    (np.zeros((0, 20), np.int64), r"shape \(0, 20\)"),
    (np.full((3, 20), True), "not of type bool"),
]


def test_bad_recordings_are_refused_with_the_file_and_the_position(tmp_path: Path) -> None:
    for array, message in BAD_RECORDINGS:
        with pytest.raises(ProblemError, match=message) as caught:
            load_recordings(saved(tmp_path, array))
        assert "arrivals.npy" in str(caught.value)


def test_files_that_are_no_array_are_refused(tmp_path: Path) -> None:
    text, pickled, several = tmp_path / "text.npy", tmp_path / "pickled.npy", tmp_path / "several.npz"
    text.write_text("5 6 7")
    np.save(pickled, np.array([{"a": 1}]), allow_pickle=True)
    np.savez(several, a=np.zeros(2), b=np.zeros(2))
    damaged = tmp_path / "damaged.npy"
    np.save(damaged, np.zeros((2, 2)))
    damaged.write_bytes(damaged.read_bytes().replace(b"(2, 2)", b"((2, 2"))  # its header is parsed as Python
    for path, message in (
        (text, "no array"),
        (damaged, "no array"),
        (pickled, "no array"),
        (several, "several arrays"),
        (tmp_path / "none.npy", "cannot read"),
    ):
        with pytest.raises(StorageError, match=message):
            load_recordings(path)
