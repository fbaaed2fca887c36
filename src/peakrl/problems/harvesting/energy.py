"""Energy harvesting: a transmitter with a battery that must never send above its peak power.

State (b, e): the battery level and the energy that has just arrived. Action: a power P in 0 .. b + e, a whole number.

    reward        r = log_base(1 + P)                     rate of a channel with noise of power 1
    constraint    f = peak - P >= 0                       in power units
    next battery  b' = min(B, b + e - P)                  what does not fit is lost
    next arrival  e'                                      see `peakrl.problems.harvesting.arrivals`

The first battery level is 0. After the last step of a frozen sequence the arrival is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from peakrl.array_problem import ArrayProblem
from peakrl.checks import LARGEST_SEED, check_number
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS
from peakrl.problem import Outcome
from peakrl.problems.harvesting.arrivals import (
    LARGEST_ENERGY,
    Arrivals,
    FrozenArrivals,
    IndependentArrivals,
    MarkovArrivals,
    recorded_sequences,
    whole_number,
)
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember


@dataclass(frozen=True)
class EnergyHarvesting(ArrayProblem):
    """The problem of one transmitter; `energy_harvesting` builds it from plain arguments."""

    arrivals: Arrivals
    #: Steps of an episode; None: without an end.
    horizon: int | None = 20
    battery: int = 20
    peak_power: float = 8.0
    #: Upper bound on arrivals; with the battery it bounds the power.
    max_arrival: int = 20
    log_base: float = 2.0
    name: str = "energy harvesting"
    constraint_names: Sequence[str] = field(default=("peak power",), init=False)
    reward_range: tuple[float, float] = field(init=False, repr=False)
    constraint_bounds: Sequence[float] = field(init=False, repr=False)
    stationary: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = {
            "horizon": checked_horizon(self.horizon),
            "battery": whole_number(self.battery, "battery", 0, LARGEST_ENERGY),
            "peak_power": checked_peak(self.peak_power),
            "max_arrival": whole_number(self.max_arrival, "max_arrival", 0, LARGEST_ENERGY),
            "log_base": checked_base(self.log_base),
            "stationary": self.arrivals.stationary,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if isinstance(self.arrivals, FrozenArrivals):
            if self.horizon is None:
                raise ProblemError("horizon is None; the arrivals of a sequence end")
            kept = recorded_sequences(self.arrivals.sequence, horizon=self.horizon, max_arrival=self.max_arrival)
            object.__setattr__(self, "arrivals", FrozenArrivals(tuple(kept.tolist())))
        elif self.arrivals.largest > self.max_arrival:
            raise ProblemError(f"arrivals go up to {self.arrivals.largest}; max_arrival is {self.max_arrival}")
        top = self.max_power
        bound = max(self.peak_power, abs(self.peak_power - top))
        object.__setattr__(self, "reward_range", (0.0, rate(top, self.log_base)))
        # A bound must be above 0, also if neither power nor peak can be.
        object.__setattr__(self, "constraint_bounds", (bound or 1.0,))
        largest, steps = self.arrivals.largest, math.inf if self.horizon is None else self.horizon
        fullest = int(min(self.battery, steps * largest)) if largest else 0
        object.__setattr__(self, "state_ranges", {"battery": (0, fullest), "arrival": (0, largest)})
        object.__setattr__(self, "all_actions", range(fullest + largest + 1))

    @property
    def max_power(self) -> int:
        """The largest power of any state."""
        # Of a sequence not the largest arrival but max_arrival: problems that differ only in the sequence then have the
        # same ranges.
        markov = isinstance(self.arrivals, MarkovArrivals)
        return self.battery + (self.arrivals.largest if markov else self.max_arrival)

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """[power]: the reward of each power."""
        return tuple(rate(power, self.log_base) for power in range(self.max_power + 1))

    def initial(self) -> Iterable[tuple[float, tuple[int, int]]]:
        """Return an empty battery with each possible first arrival."""
        return [(probability, (0, arrival)) for probability, arrival in self.arrivals.first()]

    def actions(self, step: int, state: Any) -> range:
        """Return every whole power that the battery and the arrival allow."""
        battery, arrival = state
        return range(battery + arrival + 1)

    def available(self, step: int, state: Any, action: Any) -> Any:
        """Return whether battery and arrival allow a power."""
        return state[0] + state[1] >= action

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the remaining battery level with each possible next arrival."""
        battery, arrival = state
        left = np.minimum(self.battery, battery + arrival - action)
        payoff = self.rates[action], (self.peak_power - action,)
        return [Outcome(p, (left, following), *payoff) for p, following in self.arrivals.following(step, arrival)]


@problem(
    "energy_harvesting",
    template=True,
    episodes=50_000,
    parts=("battery", "arrival"),
)
def energy_harvesting(
    *,
    peak_power: float = 8,
    horizon: int | None = 20,
    battery: int = 20,
    max_arrival: int = 20,
    mean: float = 10,
    std: float = 5,
    arrivals: str | ArrayLike | MarkovArrivals | tuple[ArrayLike, ArrayLike] | Mapping[str, Any] = "random",
    log_base: float = 2,
    seed: int = 0,
) -> EnergyHarvesting:
    """Return the problem of a transmitter with a battery and a peak power.

    Parameters
    ----------
    peak_power
        The constraint: no step may send with more.
    horizon
        Steps of an episode; None: without an end, for random or Markov arrivals.
    battery
        Capacity in units of energy.
    max_arrival
        Largest energy that may arrive in a step.
    mean, std
        Of the arrivals: a normal distribution, truncated to [0, max_arrival] and rounded.
    arrivals
        "random": drawn independently at every step. "frozen": one sequence, drawn from `seed`, in every episode. A
        list of numbers: a recorded sequence of at least `horizon` whole numbers. A table with matrix and first, in
        Python also `(matrix, first)` or `MarkovArrivals(matrix, first)`: arrivals 0 .. n-1 with their transition matrix
        and the distribution of the first one.
    log_base
        2 for rewards in bits, 2.718281828459045 for nats.
    seed
        Of the frozen sequence.

    Returns
    -------
    EnergyHarvesting

    Examples
    --------
    >>> import peakrl
    >>> peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=8)).num_states
    441
    """
    given = dict(locals())
    steps = checked_horizon(horizon)
    whole_number(seed, "seed", 0, LARGEST_SEED)
    # Created, and so checked, also if recorded arrivals do not use it.
    random = IndependentArrivals.truncated_normal(mean=mean, std=std, max_arrival=max_arrival)
    process: Arrivals
    markov = markov_arrivals(arrivals)
    if markov is not None:
        process = markov
        given["arrivals"] = {"matrix": markov.matrix, "first": markov.initial}
    elif not isinstance(arrivals, str):
        process = FrozenArrivals(arrivals)  # type: ignore[arg-type]  # anything else is refused
    elif arrivals == "random":
        process = random
    elif arrivals == "frozen":
        process = FrozenArrivals(tuple(random.draw(1, steps or 1, seed)[0].tolist()))
    else:
        raise ProblemError(
            f'arrivals is {arrivals!r}; it must be "random", "frozen", a sequence of whole numbers, or (matrix, first)'
        )
    made = EnergyHarvesting(process, horizon, battery, peak_power, max_arrival, log_base)
    return remember(made, "energy_harvesting", given)


def markov_arrivals(given: Any) -> MarkovArrivals | None:
    """Return Markov arrivals of any of their forms; None for anything else."""
    if isinstance(given, MarkovArrivals):
        return given
    if isinstance(given, Mapping):
        if set(given) != {"matrix", "first"}:
            raise ProblemError("arrivals needs both matrix and first, and nothing else")
        given = given["matrix"], given["first"]
    elif not (isinstance(given, tuple) and len(given) == 2 and is_matrix(given[0])):
        return None
    try:
        return MarkovArrivals(*given)
    except ProblemError as error:
        raise ProblemError(f"arrivals: {error}") from None


def is_matrix(given: Any) -> bool:
    """Is it a sequence of rows?"""
    return hasattr(given, "__len__") and len(given) > 0 and hasattr(given[0], "__len__")


def rate(power: int, base: float) -> float:
    """Return log_base(1 + power); exact if the result is a whole number of bits."""
    return math.log2(1 + power) if base == 2 else math.log(1 + power) / math.log(base)


def checked_horizon(given: Any) -> int | None:
    """Return the number of steps, or None without an end, or raise."""
    return None if given in (None, math.inf) else whole_number(given, "horizon", 1, MOST_STEPS)


def checked_base(given: Any) -> float:
    """Return the base of the logarithm, or raise."""
    return check_number(given, "log_base", above=1, otherwise=" (2 gives bits, math.e gives nats)", error=ProblemError)


def checked_peak(given: Any) -> float:
    """Return the peak power, or raise."""
    why = ", since sending nothing is always possible"
    return check_number(given, "peak_power", least=0, otherwise=why, error=ProblemError)
