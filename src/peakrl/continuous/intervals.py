"""Interval arrays: a numpy function of states, run on boxes of states, encloses its own image.

Each operation returns bounds that hold the real result and the float64 result of every pair of numbers in its operands:

    + -                exact sums are not widened, by the error term of Knuth's two-sum; others by 1 ulp
    * / sqrt           1 ulp outward (IEEE 754 rounds correctly); not for factors 0 and powers of two
    exp log sin ...    8 ulp outward (numpy's float64 functions err by at most 4)

A bound that is NaN says that nothing is known; every comparison with it may be true and may be false. What overflows
in float64 is enclosed as a real number. `np.where` with
a condition that is not certain is split into paths (`paths`), one run of the function for each; the union of their
boxes encloses the image.

Coordinates are passed along axes of their own, shapes (n, 1, ..), (1, m, ..): broadcasting then computes an output for
those coordinates only that it reads, and its shape shows which these are.

References
----------
Moore, Kearfott, Cloud. Introduction to Interval Analysis. SIAM, 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from peakrl.errors import ProblemError
from peakrl.types import Bools

T = TypeVar("T")
EPS, TINY = 2.0**-52, 5e-324
#: Relative error of numpy's elementary functions.
ELEMENTARY = 8 * EPS
#: More paths than this are not followed one by one: their hull is taken.
MOST_PATHS = 64
REMEDY = "use np.where, np.minimum, np.maximum or np.clip, or pass image=, a function of boxes"


def refuse(what: str) -> NoReturn:
    """Raise for what interval arithmetic cannot read."""
    raise ProblemError(f"{what} cannot be evaluated on a box of states; {REMEDY}")


def down(x: Any, error: float = EPS) -> Any:
    """Return a number below x by at least one ulp, or by a relative error."""
    return x - (np.abs(x) * error + TINY)


def up(x: Any, error: float = EPS) -> Any:
    """Return a number above x by at least one ulp, or by a relative error."""
    return x + (np.abs(x) * error + TINY)


class Run:
    """One run of a function: which branch is forced at uncertain conditions, and which elements take that path."""

    def __init__(self, forced: dict[int, bool]) -> None:
        self.forced, self.count = forced, 0
        self.uncertain: int | None = None
        self.alive: Any = True
        #: Shape of all conditions together.
        self.shape: tuple[int, ...] = ()


RUN: ContextVar[Run | None] = ContextVar("run", default=None)


class Unreadable(NDArrayOperatorsMixin):
    """What intervals and conditions share: they have no truth value and are no single number."""

    def __bool__(self) -> bool:
        refuse("an `if`, `and`, `or`, `min` or `max` on a state")

    def __float__(self) -> float:
        refuse("float(state)")

    def __int__(self) -> int:
        refuse("int(state)")

    def __index__(self) -> int:
        refuse("an index that is a state")

    def __len__(self) -> int:
        refuse("len(state) or a loop over a state")

    def __iter__(self) -> Iterator[Any]:
        refuse("a loop over a state")

    def __getitem__(self, key: Any) -> Any:
        refuse("an index into a state")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        refuse("np.array(state), or a function of the math module or another package, on a state")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        refuse(f"the attribute {name!r} of a state")


class Truth(Unreadable):
    """A condition on boxes: [element] whether it may be true, and whether it may be false."""

    def __init__(self, true: Any, false: Any) -> None:
        self.true, self.false = true, false

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        operation = LOGIC.get(ufunc.__name__)
        if operation is None or method != "__call__" or kwargs:
            refuse(f"np.{ufunc.__name__} of a condition")
        return operation(*map(truth, args))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(func, args, kwargs)


def truth(value: Any) -> Truth:
    """Return a condition, also of booleans."""
    if isinstance(value, Truth):
        return value
    if isinstance(value, Interval):
        refuse("a state as a condition")
    value = np.asarray(value, bool)
    return Truth(value, ~value)


LOGIC: dict[str, Callable[..., Truth]] = {
    "bitwise_and": lambda a, b: Truth(a.true & b.true, a.false | b.false),
    "bitwise_or": lambda a, b: Truth(a.true | b.true, a.false & b.false),
    "invert": lambda a: Truth(a.false, a.true),
}
LOGIC |= {f"logical_{new}": LOGIC[old] for new, old in (("and", "bitwise_and"), ("or", "bitwise_or"))}
LOGIC["logical_not"] = LOGIC["invert"]


class Interval(Unreadable):
    """[element] all numbers from `low` to `high`."""

    def __init__(self, low: Any, high: Any = None) -> None:
        self.low = np.asarray(low, np.float64)
        self.high = self.low if high is None else np.asarray(high, np.float64)

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        operation = OPERATIONS.get(ufunc.__name__)
        if operation is None or method != "__call__" or kwargs or any(isinstance(each, Truth) for each in args):
            refuse(f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
        if ufunc.__name__ == "power":
            return power(interval(args[0]), args[1])
        return operation(*map(interval, args))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return called(func, args, kwargs)

    def __repr__(self) -> str:
        return f"Interval({self.low}, {self.high})"


def interval(value: Any) -> Interval:
    """Return an interval, also of plain numbers."""
    return value if isinstance(value, Interval) else Interval(value)


def called(func: Any, args: Any, kwargs: Any) -> Any:
    """Return np.where, np.clip or np.zeros_like and its like on intervals."""
    if func is np.where and len(args) == 3 and not kwargs:
        return where(*args)
    if func is np.clip and len(args) == 3 and not kwargs:
        value, low, high = args
        value = value if low is None else np.maximum(value, low)
        return value if high is None else np.minimum(value, high)
    if func in (np.zeros_like, np.ones_like) and not kwargs:
        return Interval(np.full(np.shape(args[0].low), float(func is np.ones_like)))
    refuse(f"np.{func.__name__}")


# Operations ----------------------------------------------------------------------------------------------------------


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the rounded sum and its exact error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def add(a: Interval, b: Interval) -> Interval:
    """Return a + b."""
    low, below = two_sum(a.low, b.low)
    high, above = two_sum(a.high, b.high)
    # The error is NaN after an overflow: then the bound is widened, to NaN.
    return Interval(np.where(below >= 0, low, down(low)), np.where(above <= 0, high, up(high)))


def negative(a: Interval) -> Interval:
    """Return -a."""
    return Interval(-a.high, -a.low)


def constant(a: Interval) -> float | None:
    """Return the number that an interval consists of, if it is a single one."""
    return float(a.low) if a.low is a.high and a.low.ndim == 0 else None


def scaled(a: Interval, by: float, scale: Callable[[Any, float], Any], back: Callable[[Any, float], Any]) -> Interval:
    """Return a times or divided by a number; powers of two are exact unless they underflow."""
    ends = scale(a.low, by), scale(a.high, by)
    low, high = ends if by > 0 else ends[::-1]
    if np.isfinite(by) and np.frexp(abs(by))[0] == 0.5:
        first, last = (a.low, a.high) if by > 0 else (a.high, a.low)
        return Interval(
            np.where(back(low, by) == first, low, down(low)), np.where(back(high, by) == last, high, up(high))
        )
    return Interval(down(low), up(high))


def multiply(a: Interval, b: Interval) -> Interval:
    """Return a b."""
    by = constant(b)
    if by is None:
        a, b, by = b, a, constant(a)
    if by == 0.0 and np.isfinite(a.low).all() and np.isfinite(a.high).all():
        return Interval(np.zeros(a.low.shape))
    if by is not None and by != 0.0:
        return scaled(a, by, np.multiply, np.divide)
    ends = a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high
    return Interval(
        down(np.minimum(np.minimum(*ends[:2]), np.minimum(*ends[2:]))),
        up(np.maximum(np.maximum(*ends[:2]), np.maximum(*ends[2:]))),
    )


def divide(a: Interval, b: Interval) -> Interval:
    """Return a / b; nothing is known if b may be 0."""
    by = constant(b)
    if by:
        return scaled(a, by, np.divide, np.multiply)
    ends = a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high
    zero = ~((b.low > 0) | (b.high < 0))
    low = down(np.minimum(np.minimum(*ends[:2]), np.minimum(*ends[2:])))
    high = up(np.maximum(np.maximum(*ends[:2]), np.maximum(*ends[2:])))
    return Interval(np.where(zero, np.nan, low), np.where(zero, np.nan, high))


def enclosure(low: Any, high: Any) -> Interval:
    """Return the interval of bounds from a user, unknown where they are in the wrong order."""
    return Interval(np.where(np.less_equal(low, high), low, np.nan), high)


def square(a: Interval) -> Interval:
    """Return a a."""
    ends = a.low * a.low, a.high * a.high
    low = np.where((a.low <= 0) & (a.high >= 0), 0.0, down(np.minimum(*ends)))
    return Interval(np.maximum(low, 0.0), up(np.maximum(*ends)))


def power(a: Interval, exponent: Any) -> Interval:
    """Return a ** exponent for a whole number from 0; 8 ulp for each factor, since numpy calls pow."""
    if isinstance(exponent, Unreadable) or np.ndim(exponent) or float(exponent) not in range(65):
        refuse("a power whose exponent is not a whole number from 0 to 64")
    count = int(exponent)
    if count == 0:
        return Interval(np.ones(a.low.shape))
    ends = a.low**count, a.high**count
    low, high = np.minimum(*ends), np.maximum(*ends)
    if count % 2 == 0:
        low = np.where((a.low <= 0) & (a.high >= 0), 0.0, low)
    return a if count == 1 else Interval(down(low, ELEMENTARY), up(high, ELEMENTARY))


def rising(function: Any, low: float = -np.inf, high: float = np.inf, error: float = ELEMENTARY) -> Any:
    """Return the operation of a function that rises, with values from `low` to `high`; nothing is known outside of its
    domain.
    """

    def operation(a: Interval) -> Interval:
        least, most = function(a.low), function(a.high)
        known = 0.0 * least  # NaN where the logarithm is infinite or the root is not real
        return Interval(np.maximum(down(least, error), low) + known, np.minimum(up(most, error), high) + known)

    return operation


def wave(function: Any, peak: float) -> Any:
    """Return sin or cos: it is 1 at `peak` + 2 k pi and -1 half way between."""

    def operation(a: Interval) -> Interval:
        room = 1e-12 * (1 + np.maximum(np.abs(a.low), np.abs(a.high)))
        ends = function(a.low), function(a.high)
        first = np.ceil((a.low - room - peak) / np.pi)
        last = np.floor((a.high + room - peak) / np.pi)
        one, two, even = last >= first, last >= first + 1, np.mod(first, 2) == 0
        low, high = np.minimum(*ends) - 4 * ELEMENTARY, np.maximum(*ends) + 4 * ELEMENTARY
        low = np.where((one & ~even) | two, -1.0, np.maximum(low, -1.0))
        return Interval(low, np.where((one & even) | two, 1.0, np.minimum(high, 1.0)))

    return operation


def absolute(a: Interval) -> Interval:
    """Return |a|."""
    ends = np.abs(a.low), np.abs(a.high)
    return Interval(np.where((a.low <= 0) & (a.high >= 0), 0.0, np.minimum(*ends)), np.maximum(*ends))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": add,
    "subtract": lambda a, b: add(a, negative(b)),
    "multiply": multiply,
    "divide": divide,
    "negative": negative,
    "positive": lambda a: a,
    "absolute": absolute,
    "fabs": absolute,
    "square": square,
    "power": power,
    "sqrt": rising(np.sqrt, low=0.0, error=EPS),
    "minimum": lambda a, b: Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "maximum": lambda a, b: Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "exp": rising(np.exp, low=0.0),
    "log": rising(np.log),
    "log2": rising(np.log2),
    "log1p": rising(np.log1p),
    "tanh": rising(np.tanh, low=-1.0, high=1.0),
    "arctan": rising(np.arctan),
    "sin": wave(np.sin, np.pi / 2),
    "cos": wave(np.cos, 0.0),
    # Negated, so that a comparison with NaN may be true and may be false.
    "less": lambda a, b: Truth(~(a.low >= b.high), ~(a.high < b.low)),
    "less_equal": lambda a, b: Truth(~(a.low > b.high), ~(a.high <= b.low)),
    "greater": lambda a, b: Truth(~(a.high <= b.low), ~(a.low > b.high)),
    "greater_equal": lambda a, b: Truth(~(a.high < b.low), ~(a.low >= b.high)),
}


# Paths ---------------------------------------------------------------------------------------------------------------


def where(condition: Any, yes: Any, no: Any) -> Any:
    """Return one branch if the condition is certain or forced, else the hull of both."""
    if isinstance(yes, Truth) or isinstance(no, Truth):
        refuse("np.where between conditions")
    condition, a, b = truth(condition), interval(yes), interval(no)
    first, both, run = condition.true & ~condition.false, condition.true & condition.false, RUN.get()
    if run is not None:
        number = run.count
        run.count += 1
        run.shape = np.broadcast_shapes(run.shape, np.shape(first))
        if number in run.forced:
            run.alive = run.alive & (first | both if run.forced[number] else ~first)
            first, both = (first | both if run.forced[number] else first), np.zeros_like(both)
        elif run.uncertain is None and bool(np.any(both & run.alive)):
            run.uncertain = number
    low, high = np.where(first, a.low, b.low), np.where(first, a.high, b.high)
    return Interval(np.where(both, np.minimum(a.low, b.low), low), np.where(both, np.maximum(a.high, b.high), high))


def paths(function: Callable[[], T]) -> Iterator[tuple[T, Bools]]:
    """Yield (result, alive) for each path through the uncertain conditions of a function.

    `alive` is [element] which elements may take the path, for the inputs that any condition reads; the results of the
    others mean nothing.
    """
    pending: list[dict[int, bool]] = [{}]
    done = 0
    while pending:
        run = Run(pending.pop())
        with np.errstate(all="ignore"), running(run):
            result = function()
        if not np.any(run.alive):
            continue
        if run.uncertain is not None and done + len(pending) < MOST_PATHS:
            pending += [run.forced | {run.uncertain: True}, run.forced | {run.uncertain: False}]
            continue
        done += 1
        yield result, np.broadcast_to(run.alive, run.shape)


@contextmanager
def running(run: Run) -> Iterator[None]:
    """Make a run the current one."""
    token = RUN.set(run)
    try:
        yield
    finally:
        RUN.reset(token)
