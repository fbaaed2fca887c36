"""Sunlight as the source of arrivals: read from station files, fitted on some months, judged on others."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from helpers.station_files import station_text
from peakrl import PeakError, compile_model, solve
from peakrl.problems.harvesting import (
    energy_harvesting,
    fit_arrivals,
    greedy_rates,
    integer_bound,
    judge_days,
    read_station,
    solar_transmitter,
    station_days,
)
from peakrl.problems.harvesting.sunlight import station_file
from peakrl.specs import ProblemSpec

GREENSBORO = "723170TYA.CSV"


def needs_pvlib():
    """Its files are needed and none of its code."""
    if importlib.util.find_spec("pvlib") is None:
        pytest.skip("pvlib is not installed")


def test_a_station_file_of_pvlib_is_read_as_numpy_reads_its_columns():
    needs_pvlib()
    table = np.loadtxt(station_file(GREENSBORO), delimiter=",", skiprows=2, usecols=(0, 4), dtype=str)
    station = read_station(GREENSBORO)
    assert station.name == "GREENSBORO PIEDMONT TRIAD INT"
    np.testing.assert_array_equal(station.radiation.ravel(), table[:, 1].astype(float))
    np.testing.assert_array_equal(np.repeat(station.months, 24), [int(date[:2]) for date in table[:, 0]])


def test_what_is_fitted_on_some_months_earns_nearly_the_most_on_others():
    needs_pvlib()
    problem = solar_transmitter(station=GREENSBORO, months=[1, 3, 5, 7, 9, 11])
    days = station_days(GREENSBORO, months=[2, 4, 6, 8, 10, 12])
    found = judge_days(problem, solve(problem).policy, days)
    assert len(found.rates) == 181
    assert not found.violations.any()
    most = integer_bound(days, battery=20, peak_power=4)
    assert (found.rates <= most + 1e-9).all()
    assert greedy_rates(days, battery=20, peak_power=4).mean() < 0.99 * most.mean() < found.rates.mean()


def test_fitted_laws_are_counts_and_what_was_never_seen_stays_possible():
    days = [[0, 1], [0, 1], [0, 0], [2, 1]]
    fitted = fit_arrivals(days, max_arrival=2, smoothing=1)
    first, last = ([(count + 1 / 3) / 5 for count in counts] for counts in ((3, 0, 1), (1, 3, 0)))
    np.testing.assert_allclose(fitted.initial, first)
    followed = {0: (1, 2, 0), 1: (0, 0, 0), 2: (0, 1, 0)}
    for arrival, counts in followed.items():
        expected = [(count + law) / (sum(counts) + 1) for count, law in zip(counts, last, strict=True)]
        np.testing.assert_allclose(fitted.matrices[0][arrival], expected)


def test_a_recorded_day_is_judged_as_the_problem_that_replays_it_is_valued(tmp_path):
    hours = [[0] * 10 + [120, 480, 310, 90] + [0] * 10, [0] * 10 + [0, 90, 200, 310] + [0] * 10]
    (tmp_path / "sun.csv").write_text(station_text(hours))
    problem = solar_transmitter(station=tmp_path / "sun.csv", hours=[10, 14], max_arrival=5, battery=4, peak_power=2)
    policy = solve(problem).policy
    days = station_days(tmp_path / "sun.csv", hours=[10, 14], max_arrival=5)
    assert days.tolist() == [[1, 5, 3, 1], [0, 1, 2, 3]]
    for day, rate in zip(days, judge_days(problem, policy, days).rates, strict=True):
        replayed = energy_harvesting(horizon=4, battery=4, peak_power=2, max_arrival=5, arrivals=day)
        level, total = 0, 0.0
        for step, arrival in enumerate(day.tolist()):
            power = policy.action(step, (level, arrival))
            (outcome,) = replayed.outcomes(step, (level, arrival), power)
            total, level = total + outcome.reward, outcome.next_state[0]
        assert rate == pytest.approx(total, abs=1e-12)


def test_its_description_is_built_again_from_a_file_beside_it(tmp_path):
    (tmp_path / "sun.csv").write_text(station_text([[0] * 11 + [100, 200] + [0] * 11]))
    told = {"kind": "solar_transmitter", "station": "sun.csv", "hours": [11, 13], "max_arrival": 2}
    spec = ProblemSpec.from_dict(told)
    assert not spec.self_contained
    assert spec.source_digest(tmp_path) is not None
    assert compile_model(spec.build(tmp_path)).horizon == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,a\nb,c\nd,e\n", "row 2 of a TMY3 file names its columns"),
        (station_text([[0] * 23]), "01/01/1999 has 23 hours, not 24"),
        (station_text([[0] * 24]).replace(",05:00,", ",07:00,"), "row 7: hour 7 of 01/01/1999 follows hour 4"),
        (station_text([[0] * 23 + ["much"]]), "row 26: it must hold a date, a time and a number"),
        (station_text([[-1] * 24]), "row 3: .* is not an hour of a year"),
    ],
)
def test_a_file_that_is_no_station_is_refused_with_its_row(text, message, tmp_path):
    (tmp_path / "sun.csv").write_text(text)
    with pytest.raises(PeakError, match=message):
        read_station(tmp_path / "sun.csv")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"station": "nowhere.csv"}, "station 'nowhere.csv' is neither a file nor one of pvlib's"),
        ({"months": [13]}, "months is 13"),
        ({"months": [2]}, r"months is \[2\]; .* has no day of them"),
        ({"hours": [14, 11]}, "hours is .* the first before the second"),
        ({"unit": 0}, "unit is 0"),
    ],
)
def test_a_slip_is_named(parameters, message, tmp_path):
    (tmp_path / "sun.csv").write_text(station_text([[0] * 24]))
    with pytest.raises(PeakError, match=message):
        solar_transmitter(**{"station": tmp_path / "sun.csv", **parameters})
