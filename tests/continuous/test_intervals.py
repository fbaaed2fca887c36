"""Interval operations hold every result of exact and of extended arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from peakrl.continuous import intervals
from peakrl.continuous.intervals import Interval, paths
from peakrl.errors import PeakError

LONG = np.longdouble
UNARY = ("exp", "tanh", "arctan", "sin", "cos", "sqrt", "log", "log1p", "square", "absolute", "negative")
BINARY = ("add", "subtract", "multiply", "divide", "minimum", "maximum")
EXACT = {"add": Fraction.__add__, "subtract": Fraction.__sub__, "multiply": Fraction.__mul__}


def boxes(rng, count):
    """Random boxes, many with round ends or ends that are equal, and a point in each."""
    scale = 10.0 ** rng.integers(-3, 4, count)
    low, width = rng.normal(size=count) * scale, rng.random(count) * scale
    low, width = np.where(rng.random(count) < 0.3, np.round(low), low), np.where(rng.random(count) < 0.3, 0, width)
    high = low + width
    share = rng.choice([0.0, 0.3, 1.0], count)
    return low, high, np.clip(low + share * (high - low), low, high)


def outside(count, seed):
    """How many results, in float64 and in longdouble, lie outside of their interval."""
    rng, wrong = np.random.default_rng(seed), 0
    for name in (*UNARY, *BINARY):
        ufunc = getattr(np, name)
        sides = [boxes(rng, count) for _ in range(ufunc.nin)]
        if name in ("sqrt", "log", "log1p"):
            sides = [(np.abs(points), np.abs(points) + 1, np.abs(points)) for *_, points in sides]
        with np.errstate(all="ignore"):
            box = ufunc(*(Interval(low, high) for low, high, _ in sides))
            points = [point for *_, point in sides]
            for found in (ufunc(*points), ufunc(*(point.astype(LONG) for point in points))):
                wrong += int(np.sum((found < box.low.astype(LONG)) | (found > box.high.astype(LONG))))
    return wrong


def test_no_result_is_outside_of_its_interval():
    assert outside(6_000, seed=1) == 0


@pytest.mark.slow
def test_no_result_of_ten_million_is_outside_of_its_interval():
    assert sum(outside(100_000, seed) for seed in range(6)) == 0


def test_the_same_test_finds_intervals_that_are_not_rounded_outward(monkeypatch):
    monkeypatch.setattr(intervals, "up", lambda x, error=0: x)
    monkeypatch.setattr(intervals, "down", lambda x, error=0: x)
    assert outside(2_000, seed=1) > 0


@pytest.mark.parametrize("name", EXACT)
def test_bounds_of_points_hold_the_exact_fraction_and_are_equal_if_it_is_a_float(name):
    rng = np.random.default_rng(2)
    a, b = (np.where(rng.random(3_000) < 0.5, rng.integers(-9, 9, 3_000) / 4, rng.normal(size=3_000)) for _ in range(2))
    box = getattr(np, name)(Interval(a, a.copy()), Interval(b, b.copy()))
    for left, right, low, high in zip(a, b, box.low, box.high, strict=True):
        exact = EXACT[name](Fraction(left), Fraction(right))
        assert Fraction(low) <= exact <= Fraction(high)
        if name != "multiply" and exact == Fraction(float(exact)):
            assert low == high


def test_a_power_of_two_is_exact_and_an_underflow_is_not():
    box = 0.5 * Interval([3.0, 5e-324], [5.0, 5e-324])
    assert (box.low[0], box.high[0]) == (1.5, 2.5)
    assert box.low[1] <= 0 < box.high[1]


def test_a_condition_on_an_unknown_number_takes_both_branches():
    unknown = 1.0 / Interval([-1.0], [1.0])
    found = [
        (float(result.low[0]), float(result.high[0])) for result, _ in paths(lambda: np.where(unknown > 0, 1.0, 2.0))
    ]
    assert sorted(found) == [(1.0, 1.0), (2.0, 2.0)]


@pytest.mark.parametrize("function", [np.sqrt, np.log, lambda x: np.sin(np.log(np.abs(x)))])
def test_nothing_is_known_outside_of_the_domain_of_a_root_or_logarithm(function):
    found = [float(result.low[0]) for result, _ in paths(lambda: np.where(function(Interval([-1.0], [1.0])) < 2, 1, 2))]
    assert sorted(found) == [1, 2]  # NaN is not below 2


def test_an_uncertain_where_becomes_one_path_for_each_branch():
    x = Interval([-1.0, 1.0, -2.0], [1.0, 2.0, -1.0])
    found = list(paths(lambda: np.where(x > 0, x + 10.0, x - 10.0)))
    assert {tuple(np.broadcast_to(alive, 3)) for _, alive in found} == {(True, True, False), (True, False, True)}


@pytest.mark.parametrize(
    ("function", "culprit"),
    [
        (lambda x: x if x > 0 else -x, "an `if`"),
        (float, "float"),
        (np.floor, "np.floor"),
        (np.sum, "np.sum"),
        (lambda x: x**0.5, "a power"),
        (lambda x: x[0], "an index into a state"),
        (lambda x: np.add.reduce(x), "np.add.reduce"),
        (lambda x: max(x, 0.0), "max"),
        (lambda x: x.sum(), "'sum'"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name_with_the_remedy(function, culprit):
    with pytest.raises(PeakError, match=culprit) as error:
        function(Interval([0.0], [1.0]))
    assert "np.where" in str(error.value)


def test_the_shape_of_an_output_tells_which_inputs_it_reads_conditions_included():
    x, y, z = (Interval(np.zeros(shape), np.ones(shape)) for shape in ((2, 1, 1), (1, 2, 1), (1, 1, 2)))
    for result, alive in paths(lambda: np.where(z > 0.5, x + 1.0, 2.0)):
        assert (result.low.shape, alive.shape) == ((2, 1, 2), (1, 1, 2))
    assert (y * np.sin(y)).low.shape == (1, 2, 1)
