"""A transmitter over a fading channel, against the problem without fading and the formulas written out again."""

from __future__ import annotations

import math
from functools import cache

import pytest

from peakrl import PeakError, solve
from peakrl.problems import energy_harvesting
from peakrl.problems.harvesting import fading_channel

SMALL = {"horizon": 6, "battery": 3, "max_arrival": 3, "mean": 1.5, "std": 1, "peak_power": 3}


def test_with_one_gain_of_1_it_is_energy_harvesting():
    plain = solve(energy_harvesting(**SMALL)).value
    assert solve(fading_channel(gains=[1], fading=[[1]], first=[1], **SMALL)).value == pytest.approx(plain, abs=1e-12)


def test_the_optimum_is_the_most_that_whole_powers_below_the_peak_earn():
    problem = fading_channel(gains=[0.5, 2], fading=[[0.7, 0.3], [0.4, 0.6]], first=[0.5, 0.5], **SMALL)
    law = {arrival: chance for chance, arrival in problem.arrivals.first()}

    @cache
    def most(step, battery, arrival, gain):
        if step == 6:
            return 0.0
        found = []
        for power in range(min(3, battery + arrival) + 1):
            left = min(3, battery + arrival - power)
            ahead = sum(
                p * q * most(step + 1, left, e, g) for e, p in law.items() for g, q in enumerate(problem.fading[gain])
            )
            found.append(math.log2(1 + problem.gains[gain] * power) + ahead)
        return max(found)

    expected = sum(p * 0.5 * most(0, 0, e, g) for e, p in law.items() for g in (0, 1))
    assert solve(problem).value == pytest.approx(expected, abs=1e-12)


def test_a_matrix_that_does_not_fit_the_gains_is_named():
    with pytest.raises(PeakError, match="fading holds 3 rows; it must hold 2"):
        fading_channel(gains=[1, 2], fading=[[0, 0, 1]] * 3, first=[0.5, 0.5])
    with pytest.raises(PeakError, match="gains holds 1 number, and fading and first not given, whose default is for 3"):
        fading_channel(gains=[0])
    with pytest.raises(PeakError, match="peak_power is -1"):
        fading_channel(peak_power=-1)
