"""The experiment `theory` at a small size, against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments import draw_figure
from experiments.records import Request, read_figure
from experiments.theory import FORK_VIOLATION, QUICK, doors, fork, measure, slope_interval, slopes
from peakrl import solve

SMALL = replace(
    QUICK, phis=(0.1, 0.45), constants=(0.001,), episodes=(100, 400), seeds=2, average_episodes=200, average_seeds=2,
    door_episodes=(64, 256), gaps=(1.0, 4.0), door_seeds=3,
)  # fmt: skip


def test_slopes_are_exponents_and_their_intervals_hold_them():
    lengths = np.array([10.0, 100.0, 1000.0])
    assert slopes(lengths, 3.0 * lengths**0.7) == pytest.approx(0.7)
    noise = np.random.default_rng(0).lognormal(0.0, 0.1, (40, 40, 3))
    held = [slope_interval(lengths, 3.0 * lengths**0.7 * each) for each in noise]
    # 95 % of 40 are 38; fewer than 33 have a chance below 1 in 10,000.
    assert sum(low < 0.7 < high for low, high in held) >= 33
    assert max(high - low for low, high in held) < 0.05


def test_the_small_problems_have_the_optima_that_their_words_say():
    assert solve(fork()).value == 4 * 0.5
    assert solve(doors(0.1)).value == pytest.approx(0.6)


def test_the_penalty_of_theorem_2_deters_on_the_fork_just_when_it_exceeds_the_worth_of_a_violation(tmp_path):
    record = measure(Request(tmp_path, workers=1, quick=True), SMALL)
    fork_rows = record.curves("Theorem 2 on the fork", "violation")
    # A unit is worth 0.5 / 0.05 = 10, or 20 spans of the reward, in which the penalty is measured: T^0.1 is below that
    # up to T = 10^13, T^0.45 above it from T = 778 on; T = 1,600 here.
    assert fork_rows["phi 0.1, c = 0.001"][-1].mean == pytest.approx(400 * 4 * FORK_VIOLATION, rel=0.02)
    assert fork_rows["phi 0.45, c = 0.001"][-1].mean < 400 * 4 * FORK_VIOLATION / 20
    assert record.passed
    averaged = record.curves("Theorem 1 on tiny harvesting", "gap")
    assert set(averaged) == {f"{who} policy, slack {slack:g}" for who in ("last", "averaged") for slack in (0.5, 0.1)}
    record.write(tmp_path)
    assert read_figure(tmp_path, "theory").rows == record.rows
    assert all(path.stat().st_size > 5_000 for path in draw_figure("theory", tmp_path))
