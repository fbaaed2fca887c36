"""Plans of the certified learner: what to spend on the search and what on the candidate."""

from __future__ import annotations

import math

import numpy as np
import pytest

import peakrl
from helpers.certified_problems import rare_catastrophe
from peakrl.learners.certified.phases import AHEAD, SIZES, TELLING, Forecast
from peakrl.learners.certified.tables import PLAYED
from peakrl.training.trainer import Trainer

SPREAD = Forecast.of(mean=50.0, deviation=3.0, least=0.0, log_share=8.0, safe=0.0)


def off(size: float, deviation: float = 3.0) -> float:
    bet = 8.0 + 0.5 * math.log(math.pi * (size + 0.5))
    return math.sqrt(2 * deviation**2 * bet / size) + 50.0 * bet / (3 * size)


@pytest.mark.parametrize("width", [0.05, 0.3, 1.0, 7.0, 500.0])
def test_the_episodes_needed_are_the_least_that_tell_a_value_to_within_a_width(width: float) -> None:
    least = next(size for size in SIZES if off(size) <= width)
    assert SPREAD.needed(np.array([width])) == pytest.approx(least)


def test_no_number_of_episodes_tells_a_value_exactly() -> None:
    assert (SPREAD.needed(np.array([0.0, -1.0, 1e-12])) == math.inf).all()


def test_what_a_violation_takes_is_needed_too() -> None:
    forecast = Forecast.of(mean=50.0, deviation=3.0, least=0.0, log_share=8.0, safe=12_345.0)
    assert forecast.needed(np.array([1.0])) == 12_345.0
    assert forecast.needed(np.array([0.05])) == SPREAD.needed(np.array([0.05])) > 12_345.0


def test_returns_that_are_all_alike_are_known_at_once_but_for_what_was_not_seen() -> None:
    forecast = Forecast.of(mean=50.0, deviation=0.0, least=0.0, log_share=8.0, safe=0.0)
    assert forecast.needed(np.array([1.0])) == next(size for size in SIZES if 50.0 * 8.0 / size <= 1.0)


def test_a_total_counts_the_remaining_search_and_the_returns_after_it() -> None:
    totals = SPREAD.totals(done=10_000, aim=2.0, high=51.0, best=50.0, value=49.8, seen=100, share=1 / 3)
    for ahead, total in zip(AHEAD, totals, strict=True):
        width = 2.0 - 1.0 / math.sqrt(ahead) - 0.2
        lacking = next(size for size in SIZES if off(size) <= width) - 100 - (ahead - 1) * 10_000 / 3
        assert total == pytest.approx(ahead * 10_000 + max(0.0, lacking))


def least(value: float, seen: int, high: float) -> float:
    return float(SPREAD.totals(done=10_000, aim=0.5, high=high, best=50.0, value=value, seen=seen, share=1 / 3).min())


def test_a_candidate_about_to_be_certified_is_kept_and_one_far_from_it_is_not() -> None:
    # 0.03 are a sixteenth of epsilon: worth the returns of 12,000 episodes only while the search has long to go.
    assert least(49.97, 12_000, high=50.2) < least(50.0, 0, high=50.2)
    assert least(49.97, 12_000, high=54.0) > least(50.0, 0, high=54.0)


def test_a_share_of_an_estimate_of_nothing_is_no_aim_to_plan_for() -> None:
    settings = peakrl.learners.Certified(0.2, relative=True)
    active = Trainer(rare_catastrophe(), settings, planned=200, seed=0, every=0, average=False)
    active.advance(200)
    rounds = active.learned()
    assert rounds.status.frozen
    assert rounds.tables.counts[PLAYED] >= TELLING
    rounds.bounds.estimate = 0.0
    assert rounds.returns_forecast() is None
