"""Checks of values that users give, one for each kind: `check_KIND(value, what, ...)`.

A check returns the value in its plain form or raises `error` with the message

    WHAT is VALUE; it must be ...

`otherwise` is appended to that sentence, for alternatives.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError, ProblemError, SettingsError

#: Tolerance for sums of probabilities, and that of declared bounds relative to them (rounding).
ROUNDING = 1e-9
#: Largest reward or constraint value, and smallest bound on a constraint: squares of their ratios must be finite.
LARGEST, SMALLEST_BOUND = 1e30, 1e-30
#: Largest weight of a violation.
LARGEST_PENALTY = 1e100
AT_MOST = f", at most {LARGEST:g} in size"
LARGEST_SEED = 2**64 - 1
#: Episodes are 32-bit numbers; one is reserved for "none".
MOST_EPISODES = 2**31 - 2
Error = type[PeakError]


def shown(value: Any) -> str:
    """Return a value for an error message, with its type, truncated."""
    try:
        text = repr(value)
    except Exception:  # repr of a user's object may fail in any way
        text = "something"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def check_count(
    value: Any, what: str, least: int = 1, most: int | None = None, *, otherwise: str = "", error: Error = SettingsError
) -> int:
    """Return a whole number from `least` to `most`."""
    number = whole(value)
    if number is None or number < least or (most is not None and number > most):
        raise error(f"{what} is {value!r}; it must be a whole number {limits(least, most)}{otherwise}")
    return number


def check_horizon(
    value: Any, what: str, most: int, *, endless: bool = True, error: Error = SettingsError
) -> int | None:
    """Return a number of steps; None (also for infinity), if `endless` allows it, for a problem without an end."""
    return None if endless and value in (None, math.inf) else check_count(value, what, 1, most, error=error)


def limits(least: int, most: int | None) -> str:
    """Return the limits of a count as text."""
    if most is None:
        return f"of at least {least}"
    return f"from {least} to " + ("2^64 - 1" if most == LARGEST_SEED else f"{most:,}")


def check_episodes(value: Any, what: str = "episodes", most: int = MOST_EPISODES) -> int:
    """Return a number of episodes."""
    return check_count(value, what, 1, most)


def check_seed(value: Any, what: str = "seed", *, error: Error = SettingsError) -> int:
    """Return a whole number that seeds a generator."""
    return check_count(value, what, 0, LARGEST_SEED, error=error)


def check_number(
    value: Any,
    what: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    otherwise: str = "",
    error: Error = SettingsError,
) -> float:
    """Return a finite number of at least `least`, or above `above`, and of at most `most`."""
    number = real(value)
    outside = (least is not None and number < least) or (most is not None and number > most)
    if not math.isfinite(number) or outside or (above is not None and number <= above):
        limits = f" of at least {least:g}" if least is not None else f" above {above:g}" if above is not None else ""
        limits = f" from {least:g} to {most:g}" if least is not None and most is not None else limits
        raise error(f"{what} is {value!r}; it must be a finite number{limits}{otherwise}")
    return number


def check_fraction(value: Any, what: str, *, otherwise: str = "", error: Error = SettingsError) -> float:
    """Return a number strictly between 0 and 1."""
    number = real(value)
    if not 0.0 < number < 1.0:
        raise error(f"{what} is {value!r}; it must lie between 0 and 1{otherwise}")
    return number


def check_confidence(value: Any) -> float:
    """Return a level of confidence."""
    return check_fraction(value, "confidence", otherwise=", such as 0.95")


def check_choice(value: Any, what: str, choices: Collection[str], *, error: Error = SettingsError) -> str:
    """Return one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise error(f"{what} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    return value


def check_range(value: Any, what: str, *, error: Error = ProblemError) -> tuple[float, float]:
    """Return (lowest, highest)."""
    try:
        lo, hi = (float(end) for end in value)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{what} is {value!r}; it must be a pair (lowest, highest)") from None
    if not (math.isfinite(lo) and math.isfinite(hi) and lo <= hi):
        raise error(f"{what} is {(lo, hi)}; both must be finite and the first no larger than the second")
    if max(-lo, hi) > LARGEST:
        raise error(f"{what} is {(lo, hi)}; neither may be larger than {LARGEST:g} in size: choose a larger unit")
    return lo, hi


def check_hours(value: Any, what: str, *, error: Error = ProblemError) -> tuple[int, int]:
    """Return two whole hours of a day, from 0 to 24."""
    hours = check_numbers(value, what, error=error)
    if len(hours) != 2 or any(hour != int(hour) for hour in hours) or not 0 <= hours[0] < hours[1] <= 24:
        raise error(f"{what} is {value!r}; it must be two hours from 0 to 24, the first before the second")
    return int(hours[0]), int(hours[1])


def check_sequence(value: Any, what: str, count: int | None, kind: str, error: Error) -> tuple[float, ...]:
    """Return a number for each of `count` constraints; `kind` says what it must be."""
    try:
        numbers = tuple(float(number) for number in value)
    except (TypeError, ValueError, OverflowError):
        raise error(f"{what} is {value!r}; it must hold one {kind} for each constraint") from None
    if count is not None and len(numbers) != count:
        raise error(f"{what} has {len(numbers)} numbers for {count} constraints")
    return numbers


def check_bounds(value: Any, what: str, count: int | None = None, *, error: Error = ProblemError) -> tuple[float, ...]:
    """Return positive bounds, one for each of `count` constraints."""
    bounds = check_sequence(value, what, count, "positive number", error)
    for index, bound in enumerate(bounds):
        if not (math.isfinite(bound) and bound > 0):
            raise error(f"{what}: number {index} is {bound}; it must be finite and above 0")
        if not SMALLEST_BOUND <= bound <= LARGEST:
            needed = f"it must lie between {SMALLEST_BOUND:g} and {LARGEST:g}: choose another unit"
            raise error(f"{what}: number {index} is {bound}; {needed}")
    return bounds


def check_no_costs(columns: Iterable[str], where: object, *, error: Error = ProblemError) -> None:
    """Raise if a column of costs would be read as a constraint."""
    for column in columns:
        if column.lower() in ("cost", "costs"):
            raise error(
                f"{where}: column {column!r} would be a constraint, which is satisfied if it is >= 0, and a cost is "
                "not: write limit - cost, under another name"
            )


def bound_above(largest: float) -> float:
    """Return a bound on a constraint whose largest absolute value is known; 1 if it is always 0."""
    return max(largest, SMALLEST_BOUND) if largest else 1.0


def reward_limits(reward_range: tuple[float, float]) -> tuple[float, float]:
    """Return the range in which rewards are accepted: the declared one with a margin for rounding.

    The margin is 2^-30, about 1e-9, of the larger end rounded up to a power of 2: it scales with the unit of the
    rewards, and sums with it stay as exact as without. Whatever is bounded by declared rewards is bounded by these.
    """
    lo, hi = reward_range
    size = max(abs(lo), abs(hi))
    margin = math.ldexp(1.0, math.frexp(size)[1] - 30) if 0.0 < size < math.inf else 0.0
    return lo - margin, hi + margin


def is_usual(value: float) -> bool:
    """Is it finite, and small enough for a reward or a constraint?"""
    return abs(value) <= LARGEST


def check_tolerances(
    value: Any, what: str, count: int | None = None, *, error: Error = ProblemError
) -> tuple[float, ...]:
    """Return how far below 0 each of `count` constraints still counts as satisfied."""
    tolerances = check_sequence(value, what, count, "number of at least 0", error)
    for index, tolerance in enumerate(tolerances):
        if not 0.0 <= tolerance < math.inf:
            raise error(f"{what}: number {index} is {tolerance}; it must be finite and at least 0")
    return tolerances


def check_distribution(probability: NDArray[np.float64], where: str, *, error: Error = ProblemError) -> None:
    """Raise unless the numbers are probabilities that sum to 1."""
    if not np.isfinite(probability).all() or (probability < 0).any():
        bad = probability[~np.isfinite(probability) | (probability < 0)][0]
        raise error(f"probability {bad} {where} is not a number from 0 to 1")
    total = float(probability.sum())
    if abs(total - 1.0) > ROUNDING:
        raise error(f"probabilities {where} sum to {total:.12g}, not to 1")


def check_numbers(
    value: Any,
    what: str,
    *,
    steps: int = 0,
    least: float | None = None,
    most: float | None = None,
    error: Error = ProblemError,
) -> tuple[float, ...]:
    """Return a non-empty sequence of finite numbers of limited size, at least one for each of `steps`."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or hasattr(value, "keys"):
        raise error(f"{what} is {value!r}; it must be a list of numbers")
    limits: dict[str, Any] = {"least": least, "most": most, "error": error}
    numbers = tuple(check_number(one, f"{what}[{index}]", **limits) for index, one in enumerate(value))
    for index, number in enumerate(numbers):
        if abs(number) > LARGEST:
            raise error(f"{what}[{index}] is {number:g}; it must be{AT_MOST.removeprefix(',')}")
    if len(numbers) < max(steps, 1):
        wanted = f"one for each step of the horizon, {steps}" if steps else "at least 1"
        raise error(f"{what} holds {len(numbers)} numbers; it must hold {wanted}")
    return numbers


def check_probabilities(
    value: Any, what: str, count: int | None = None, *, error: Error = ProblemError
) -> tuple[float, ...]:
    """Return probabilities that sum to 1, `count` of them."""
    probabilities = check_numbers(value, what, least=0, error=error)
    if count is not None and len(probabilities) != count:
        raise error(f"{what} holds {len(probabilities)} numbers; it must hold {count}")
    if abs(math.fsum(probabilities) - 1.0) > ROUNDING:
        raise error(f"{what}: its probabilities sum to {math.fsum(probabilities):.12g}, not to 1")
    return probabilities


def check_chain(
    value: Any, what: str, count: int | None = None, *, error: Error = ProblemError
) -> tuple[tuple[float, ...], ...]:
    """Return the matrix of a Markov chain: `count` rows of as many probabilities."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__") or hasattr(value, "keys"):
        raise error(f"{what} is {value!r}; it must be a square matrix of probabilities")
    rows = list(value)
    wanted = len(rows) if count is None else count
    if not rows or len(rows) != wanted:
        raise error(f"{what} holds {len(rows)} rows; it must hold {max(wanted, 1)}, one for each state of the chain")
    return tuple(check_probabilities(row, f"{what}[{index}]", wanted, error=error) for index, row in enumerate(rows))


def check_integers(
    value: Any, what: str, largest: int | None = None, *, otherwise: str = "", error: Error = ProblemError
) -> NDArray[np.int64]:
    """Return an array of whole numbers from 0 to `largest`."""
    try:
        numbers = np.asarray(value)
    except ValueError:
        raise error(f"{what} must be an array of whole numbers, with rows of equal length") from None
    if numbers.size == 0:
        return np.zeros(numbers.shape, np.int64)
    if numbers.dtype.kind not in "iuf":
        raise error(f"{what} must be an array of whole numbers, not of type {numbers.dtype}")
    top = np.iinfo(np.int32).max if largest is None else largest
    with np.errstate(invalid="ignore"):
        bad = ~((numbers >= 0) & (numbers <= top) & (numbers == np.floor(numbers)))
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "of at least 0" if largest is None else f"from 0 to {largest}"
        raise error(f"{what}{list(index)} is {numbers[index]}; it must be a whole number {allowed}{otherwise}")
    return numbers.astype(np.int64)


def check_each(value: Any, what: str, of: str, *, error: Error = ProblemError) -> Iterator[Any]:
    """Return an iterator over a sequence."""
    try:
        return iter(value)
    except TypeError:
        raise error(f"{what} gave {value!r}; it must be a sequence of {of}") from None


def whole(value: Any) -> int | None:
    """Return a whole number as an int, None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def real(value: Any) -> float:
    """Return a number as a float, NaN for anything else."""
    if isinstance(value, bool | np.bool_ | str | bytes | complex) or (isinstance(value, np.ndarray) and value.ndim):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def required_arguments(function: Callable[..., Any]) -> int | None:
    """Return how many positional arguments a function requires; None if it takes any number, or does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return None
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)
