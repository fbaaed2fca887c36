"""Every check returns a plain value that keeps its limits, or names the culprit and says what would be right."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peakrl.checks import (
    check_bounds,
    check_choice,
    check_confidence,
    check_count,
    check_distribution,
    check_each,
    check_fraction,
    check_number,
    check_range,
    check_seed,
)
from peakrl.errors import PeakError, ProblemError, SettingsError

ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.complex_numbers(),
    st.lists(st.integers(), max_size=2),
    st.builds(np.array, st.lists(st.integers(0, 9), max_size=2)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.int8, st.integers(-100, 100)),
)


@given(ANYTHING, st.integers(-5, 5), st.one_of(st.none(), st.integers(5, 50)))
def test_a_count_is_a_plain_int_within_its_limits_or_refused(value, least, most):
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if is_whole and int(value) >= least and (most is None or int(value) <= most):
        found = check_count(value, "jobs", least, most)
        assert type(found) is int
        assert found == value
    else:
        with pytest.raises(SettingsError, match=r"^jobs is [\s\S]*; it must be a whole number (of at least|from) -?\d"):
            check_count(value, "jobs", least, most)


@given(ANYTHING)
def test_a_number_is_a_finite_float_or_refused(value):
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if is_number and abs(float(value)) < math.inf and float(value) > 0:
        assert check_number(value, "slack", above=0) == float(value)
        assert check_number(value, "slack", least=0) == float(value)
    else:
        with pytest.raises(ProblemError, match=r"^slack is [\s\S]*; it must be a finite number above 0$"):
            check_number(value, "slack", above=0, error=ProblemError)


def test_every_kind_of_number_counts_as_one():
    for value in [Fraction(1, 2), Decimal("0.5"), np.array(0.5), np.float32(0.5), 0.5]:
        assert check_number(value, "x") == 0.5
        assert check_fraction(value, "x") == 0.5


WRONG = {
    "seed too large": (lambda: check_seed(2**64), "seed is 18446744073709551616; it must be a whole number from 0 to"),
    "no seed": (lambda: check_seed(None, "seeds[2]"), "seeds[2] is None; it must be a whole number from 0 to 2^64 - 1"),
    "larger than any float": (lambda: check_number(10**400, "x"), "; it must be a finite number"),
    "level": (lambda: check_confidence(1), "confidence is 1; it must lie between 0 and 1, such as 0.95"),
    "word": (lambda: check_choice("b", "engine", ("a", "c")), "engine is 'b'; it must be one of 'a', 'c'"),
    "no word": (lambda: check_choice(["a"], "engine", ("a",)), "engine is ['a']; it must be one of 'a'"),
    "no pair": (lambda: check_range((0, 1, 2), "range"), "range is (0, 1, 2); it must be a pair (lowest, highest)"),
    "reversed": (lambda: check_range((1, 0), "range"), "range is (1.0, 0.0); both must be finite"),
    "endless": (lambda: check_range((0, math.inf), "range"), "both must be finite"),
    "too few": (lambda: check_bounds([1], "bounds", 2), "bounds has 1 numbers for 2 constraints"),
    "no bounds": (lambda: check_bounds(3, "bounds"), "bounds is 3; it must hold one positive number"),
    "bound of 0": (lambda: check_bounds([1, 0], "bounds"), "bounds: number 1 is 0.0; it must be finite and above 0"),
    "negative": (lambda: check_distribution(np.array([2, -1.0]), "of x"), "probability -1.0 of x is not a number"),
    "nan": (lambda: check_distribution(np.array([math.nan]), "of x"), "probability nan of x is not a number"),
    "sum": (lambda: check_distribution(np.array([0.5, 0.6]), "of x"), "probabilities of x sum to 1.1, not to 1"),
    "no sequence": (lambda: check_each(3, "it()", "actions"), "it() gave 3; it must be a sequence of actions"),
}


def test_what_is_wrong_is_named_with_what_would_be_right():
    for call, words in WRONG.values():
        with pytest.raises(PeakError) as caught:
            call()
        assert words in str(caught.value)
