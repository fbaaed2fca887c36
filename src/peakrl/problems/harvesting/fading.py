"""Energy harvesting over a fading channel, whose gain changes and is known before sending.

State (b, e, g): the battery level, the energy that has just arrived, and the index of the current gain.
Action: a power P in 0 .. b + e, a whole number.

    reward        r = log_base(1 + gains[g] P)            rate of a channel of that gain with noise of power 1
    constraint    f = peak - P >= 0                       in power units
    next battery  b' = min(B, b + e - P)                  what does not fit is lost
    next arrival  e' as in `peakrl.problems.harvesting.arrivals`
    next gain     g' with probability fading[g][g'], independent of the arrivals

With one gain of 1 it is `energy_harvesting`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from peakrl.checks import check_chain, check_numbers, check_probabilities
from peakrl.errors import ProblemError
from peakrl.problem import Outcome, Problem
from peakrl.problems.harvesting.arrivals import Arrivals, pairs_of
from peakrl.problems.harvesting.energy import energy_harvesting
from peakrl.specs.registry import problem
from peakrl.specs.spec import remember

#: Default gains (bad, usual, good) and their transition matrix.
GAINS = (0.25, 1.0, 3.0)
FADING = ((0.6, 0.4, 0.0), (0.2, 0.6, 0.2), (0.0, 0.4, 0.6))
FIRST = (0.0, 1.0, 0.0)


class ChannelState(NamedTuple):
    """What the transmitter observes."""

    battery: int
    arrival: int
    gain: int


@dataclass(frozen=True)
class FadingChannel(Problem):
    """The problem of one transmitter; `fading_channel` builds it from plain arguments."""

    arrivals: Arrivals
    gains: tuple[float, ...] = GAINS
    fading: tuple[tuple[float, ...], ...] = FADING
    first: tuple[float, ...] = FIRST
    horizon: int | None = 20
    battery: int = 8
    peak_power: float = 5.0
    log_base: float = 2.0
    name: str = "fading channel"
    constraint_names: Sequence[str] = field(default=("peak power",), init=False)
    stationary: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stationary", self.arrivals.stationary)

    @cached_property
    def rates(self) -> list[list[float]]:
        """[gain][power]: the reward."""
        powers = range(self.battery + self.arrivals.largest + 1)
        return [[math.log1p(gain * power) / math.log(self.log_base) for power in powers] for gain in self.gains]

    def initial(self) -> list[tuple[float, ChannelState]]:
        """Return an empty battery with each possible first arrival and gain."""
        gains = pairs_of(self.first)
        return [(p * q, ChannelState(0, arrival, gain)) for p, arrival in self.arrivals.first() for q, gain in gains]

    def actions(self, step: int, state: Any) -> range:
        """Return every whole power that the battery and the arrival allow."""
        return range(state[0] + state[1] + 1)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Return the remaining battery level with each possible next arrival and gain."""
        battery, arrival, gain = state
        left = min(self.battery, battery + arrival - action)
        payoff = self.rates[gain][action], (self.peak_power - action,)
        gains = pairs_of(self.fading[gain])
        return [
            Outcome(p * q, ChannelState(left, following, after), *payoff)
            for p, following in self.arrivals.following(step, arrival)
            for q, after in gains
        ]


@problem("fading_channel", template=True, parts=("battery", "arrival", "gain"))
def fading_channel(
    *,
    peak_power: float = 5,
    gains: Sequence[float] = GAINS,
    fading: Sequence[Sequence[float]] = FADING,
    first: Sequence[float] = FIRST,
    horizon: int | None = 20,
    battery: int = 8,
    max_arrival: int = 6,
    mean: float = 3,
    std: float = 2,
    arrivals: Any = "random",
    log_base: float = 2,
    seed: int = 0,
) -> FadingChannel:
    """Return the problem of a transmitter with a battery, a peak power and a channel whose gain changes.

    Parameters
    ----------
    peak_power
        The constraint: no step may send with more.
    gains
        Of the channel: a bad, a usual and a good one.
    fading
        Transition matrix of the gains.
    first
        Distribution of the first gain.
    horizon, battery, max_arrival, mean, std, arrivals, log_base, seed
        As in `energy_harvesting`.

    Returns
    -------
    FadingChannel

    Examples
    --------
    >>> import peakrl
    >>> peakrl.compile_model(peakrl.problems.fading_channel()).num_states
    189
    """
    given = dict(locals())
    plain = energy_harvesting(
        horizon=horizon, battery=battery, peak_power=peak_power, max_arrival=max_arrival, mean=mean, std=std,
        arrivals=arrivals, log_base=log_base, seed=seed,
    )  # fmt: skip
    levels = check_numbers(gains, "gains", least=0)
    missing = [name for name, default in (("fading", FADING), ("first", FIRST)) if given[name] is default]
    if missing and len(levels) != len(GAINS):
        raise ProblemError(
            f"gains holds {len(levels)} number{'s' * (len(levels) != 1)}, and {' and '.join(missing)} not given, whose "
            f"default is for {len(GAINS)}: give fading and first for as many gains"
        )
    made = FadingChannel(
        plain.arrivals,
        levels,
        check_chain(fading, "fading", len(levels)),
        check_probabilities(first, "first", len(levels)),
        plain.horizon,
        plain.battery,
        plain.peak_power,
        plain.log_base,
    )
    given["arrivals"] = (plain.spec or {}).get("arrivals", arrivals)
    return remember(made, "fading_channel", given)
