"""`ContinuousProblem`: dynamics in numpy, constraints, and a box of states.

    x' = step(x, a, w),   w in a union of boxes,   g_i(x, a) >= 0,   a one of finitely many actions

x' then passes the rule of each side of the box: `clip` and `wrap` are operations of numpy like those of `step`, so that
simulation and interval arithmetic run the same code. A violation is a constraint below 0, an action that is not
available, or a coordinate that leaves the box through a side with the rule `violation`.

A choice is a sequence of `block` actions, taken one after the other without a look at the state in between. Images,
constraints and rules are those of every step of the sequence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import check_choice, check_count, check_number, check_probabilities, check_range
from peakrl.continuous.intervals import Interval, down, enclosure, interval, paths, truth, up
from peakrl.errors import ProblemError
from peakrl.problem import NO_TRUTH_VALUES
from peakrl.types import Bools, Floats, Longs

RULES = ("violation", "exit", "clip", "wrap")
#: More sequences of actions than this are refused.
MOST_CHOICES = 1 << 14
Vector = Sequence[Any]
Box = Mapping[str, tuple[float, float]]


class Path(NamedTuple):
    """What one path through the conditions of a problem leads to, for a box of states and a choice."""

    #: [coordinate]: bounds of the next state; each has the shape of what it reads.
    image: list[Interval]
    #: [coordinate]: may it leave the box through a side with the rule `violation`?
    leaves: list[Bools]
    #: Constraints and availability, one at a time: are they satisfied on all of the box, and maybe somewhere?
    holds: list[Bools]
    may: list[Bools]
    #: [position]: bounds of the reward of each action; empty without rewards.
    rewards: list[Interval]
    #: May an element take this path?
    alive: Bools


class ContinuousProblem:
    """A decision problem whose states are vectors of real numbers, with finitely many actions.

    Parameters
    ----------
    step
        `step(x, a, w)` gets the state, an action and the disturbance, and returns the next state; x, w and the result
        are sequences of arrays, one for each coordinate. It may use arithmetic, comparisons, `np.where`, `np.minimum`,
        `np.maximum`, `np.clip`, `np.abs`, `np.square`, `np.sqrt`, `np.exp`, `np.log`, `np.sin`, `np.cos`, `np.tanh`
        and `np.arctan`; an `if` may depend on the action only.
    box
        The lowest and highest value of each coordinate of the state, by name.
    actions
        The actions, any values.
    disturbance
        The range of each part of the disturbance, by name; or a list of such boxes, one of which occurs.
    weights
        The probability of each of these boxes; default: equal. Only values and simulations depend on it.
    constraints
        `constraints(x, a)` returns a sequence of arrays that are >= 0 if satisfied.
    outside
        What happens if a coordinate leaves its range: "violation"; "exit", the episode ends and nothing is violated;
        "clip", it stays at the end of the range; "wrap", it continues at the other end (the dynamics have this
        period, and a step turns by less than one). One rule for all coordinates, or one for each by name.
    available
        `available(x, a)` returns whether an action is available; default: always.
    reward
        `reward(x, a)` returns the reward.
    start
        The first state: a point, a box `{name: (low, high)}` of equally likely points, or a function of a generator.
    constraint_names
        Names of the constraints.
    image
        Use this in place of `step` on boxes: `image(low, high, a, w_low, w_high)` returns the lowest and the highest
        next state of a box. It is not checked.
    slack
        Share of the range of each coordinate that is added to all images, for other implementations of `step` that
        round differently.
    block
        Number of actions that are chosen between two looks at the state.
    name
        Name of the problem.

    Examples
    --------
    >>> import peakrl
    >>> def step(x, a, w):
    ...     (temperature,), (outside,) = x, w
    ...     return [temperature + 0.1 * (outside - temperature) + 2.5 * a]
    >>> room = peakrl.ContinuousProblem(
    ...     step, box={"temperature": (18, 24)}, actions=[0, 1], disturbance={"outside": (0, 10)}
    ... )
    >>> peakrl.safe_set(room, cells=600).contains([19.3])
    True
    """

    def __init__(
        self,
        step: Callable[[Vector, Any, Vector], Vector],
        *,
        box: Box,
        actions: Sequence[Hashable],
        disturbance: Box | Sequence[Box] | None = None,
        weights: Sequence[float] | None = None,
        constraints: Callable[[Vector, Any], Sequence[Any]] | None = None,
        outside: str | Mapping[str, str] = "violation",
        available: Callable[[Vector, Any], Any] | None = None,
        reward: Callable[[Vector, Any], Any] | None = None,
        start: Any = None,
        constraint_names: Sequence[str] | None = None,
        image: Callable[..., tuple[Vector, Vector]] | None = None,
        slack: float = 0.0,
        block: int = 1,
        name: str | None = None,
    ) -> None:
        self.step, self.constraints, self.available, self.reward, self.image = (
            step,
            constraints,
            available,
            reward,
            image,
        )
        self.name = getattr(step, "__name__", "problem") if name is None else name
        #: Names of the coordinates, and their lowest and highest values.
        self.names, self.low, self.high = box_of(box, "box")
        if not (self.low < self.high).all():
            raise ProblemError(f"box of {self.name!r}: every range must have a width")
        self.actions = tuple(actions)
        if not self.actions:
            raise ProblemError(f"{self.name!r} has no actions")
        boxes: Any = [disturbance or {}] if disturbance is None or isinstance(disturbance, Mapping) else disturbance
        parts = [box_of(part, "disturbance") for part in boxes]
        if not parts or any(part[0] != parts[0][0] for part in parts):
            raise ProblemError("disturbance: every box must have the same names, in the same order")
        #: [part, variable]: the boxes of the disturbance, and [part] their probabilities.
        self.noise_low, self.noise_high = np.array([part[1] for part in parts]), np.array([part[2] for part in parts])
        equal = [1.0 / len(parts)] * len(parts)
        self.weights = np.array(equal if weights is None else check_probabilities(weights, "weights", len(parts)))
        rules = dict.fromkeys(self.names, outside) if isinstance(outside, str) else {**outside}
        if set(rules) - set(self.names):
            raise ProblemError(f"outside names {sorted(set(rules) - set(self.names))}; the box has {self.names}")
        named = [rules.get(each, "violation") for each in self.names]
        #: [coordinate]: its rule.
        self.outside = tuple(check_choice(rule, "outside", RULES, error=ProblemError) for rule in named)
        self.slack = check_number(slack, "slack", least=0.0, error=ProblemError)
        self.block = check_count(block, "block", error=ProblemError)
        if len(self.actions) ** self.block > MOST_CHOICES:
            raise ProblemError(
                f"block={block} makes more than {MOST_CHOICES:,} sequences of {len(self.actions)} actions"
            )
        #: [choice, position]: the indices of the actions of each sequence.
        self.sequences: Longs = np.array(list(itertools.product(range(len(self.actions)), repeat=self.block)), np.int64)
        self.start = self._checked_start(start)
        with np.errstate(all="ignore"):
            count = len(self.constrained([Interval(value) for value in self.low], self.actions[0]))
        names = [f"constraint {index}" for index in range(count)] if constraint_names is None else constraint_names
        self.constraint_names = tuple(names)
        if len(self.constraint_names) != count:
            raise ProblemError(f"constraint_names has {len(names)} names for {count} constraints")

    def __repr__(self) -> str:
        return f"<ContinuousProblem {self.name!r}: {', '.join(self.names)}; {len(self.actions)} actions>"

    @property
    def dimensions(self) -> int:
        """Number of coordinates of a state."""
        return len(self.names)

    @property
    def choices(self) -> list[Any]:
        """The actions; the sequences of actions, as tuples, if `block` is not 1."""
        if self.block == 1:
            return list(self.actions)
        return [tuple(self.actions[index] for index in sequence) for sequence in self.sequences]

    def _checked_start(self, start: Any) -> Any:
        """Return a function of a generator, or the lowest and the highest first state; None if not given."""
        if start is None or callable(start):
            return start
        if isinstance(start, Mapping):
            names, low, high = box_of(start, "start")
            if names != self.names:
                raise ProblemError(f"start has the ranges {names}; the box has {self.names}")
        else:
            low = high = self.point(start, "start")
        if not (self.low <= low).all() or not (high <= self.high).all():
            raise ProblemError(f"start is {start!r}, which is not inside of the box")
        return low, high

    def point(self, x: Any, what: str = "the state") -> Floats:
        """Return one state as an array."""
        try:
            found = np.asarray(x, np.float64)
        except (TypeError, ValueError):
            found = np.empty(0)
        if found.shape != (self.dimensions,):
            raise ProblemError(f"{what} is {x!r}; it must hold a number for each of {', '.join(self.names)}")
        return found

    def constrained(self, x: Vector, action: Any) -> Sequence[Any]:
        """Return the values of the constraints; also of intervals."""
        found = [] if self.constraints is None else self.constraints(x, action)
        if not isinstance(found, list | tuple):
            raise ProblemError(f"constraints of {self.name!r} returned {found!r}; it must return a list of arrays")
        if any(isinstance(value, bool | np.bool_) for value in found):
            raise ProblemError(f"{NO_TRUTH_VALUES}; constraints of {self.name!r} returned {found!r}")
        return found

    def named(self, point: Any) -> str:
        """Return a state as text."""
        return ", ".join(f"{name} {value:.6g}" for name, value in zip(self.names, point, strict=True))

    # Simulation ----------------------------------------------------------------------------------------------

    def draw_start(self, generator: np.random.Generator) -> Floats:
        """Return a first state."""
        if self.start is None:
            raise ProblemError(f"{self.name!r} has no first state: pass start=")
        if callable(self.start):
            return self.point(self.start(generator), "what start() returned")
        return np.asarray(generator.uniform(*self.start))

    def draw_disturbance(self, generator: np.random.Generator) -> Floats:
        """Return a disturbance: a box by its weight, and a point of it, all equally likely."""
        part = generator.choice(len(self.weights), p=self.weights) if len(self.weights) > 1 else 0
        return np.asarray(generator.uniform(self.noise_low[part], self.noise_high[part]))

    def move(self, x: Vector, action: Any, disturbance: Vector = ()) -> list[Any]:
        """Return the next state by `step` and the rules `clip` and `wrap`; x holds numbers or arrays."""
        following = self._stepped(self.step(x, action, disturbance))
        for j, rule in enumerate(self.outside):
            if rule == "wrap" and not np.all(self._turns_once(j, following[j], following[j])):
                raise ProblemError(f"{self.names[j]} turned by more than a period in one step")
        return [self._ruled(j, value) for j, value in enumerate(following)]

    def margins(self, x: Vector, action: Any, following: Vector) -> list[Any]:
        """Return what must be >= 0, as `margin_names` names it: constraints, availability, distance from the sides."""
        found = list(self.constrained(x, action))
        if self.available is not None:
            found.append(np.where(self.available(x, action), 1.0, -1.0))
        sides = [j for j, rule in enumerate(self.outside) if rule == "violation"]
        inside = [np.minimum(following[j] - self.low[j], self.high[j] - following[j]) for j in sides]
        return [*found, *([np.min(inside, axis=0)] if inside else [])]

    @property
    def margin_names(self) -> tuple[str, ...]:
        """The names of `margins`."""
        offered = ["available"] if self.available is not None else []
        return (*self.constraint_names, *offered, *(["inside of the box"] if "violation" in self.outside else []))

    def _stepped(self, following: Any) -> list[Any]:
        try:
            values = list(following)
        except TypeError:
            values = [following]
        if len(values) != self.dimensions:
            raise ProblemError(f"step of {self.name!r} returned {len(values)} values; a state has {self.dimensions}")
        return values

    def _turns_once(self, j: int, low: Any, high: Any) -> Any:
        period = self.high[j] - self.low[j]
        return (low >= self.low[j] - period) & (high <= self.high[j] + period)

    def _ruled(self, j: int, value: Any) -> Any:
        """Return a coordinate after its rule; also of intervals."""
        low, high = self.low[j], self.high[j]
        if self.outside[j] == "wrap":
            value = np.where(value > high, value - (high - low), np.where(value < low, value + (high - low), value))
        return np.clip(value, low, high) if self.outside[j] in ("clip", "wrap") else value

    # Boxes ----------------------------------------------------------------------------------------------------

    def paths(self, low: Vector, high: Vector, choice: int, parts: Sequence[int], error: Floats) -> Iterator[Path]:
        """Yield what a box of states leads to by a choice; the union of all paths holds every next state.

        `parts` are the boxes of the disturbance at each position; `error` [coordinate] widens the images of wrapped
        coordinates.
        """
        start = [Interval(*ends) for ends in zip(low, high, strict=True)]
        for path, alive in paths(lambda: self._follow(start, choice, parts, error)):
            yield path._replace(alive=alive)

    def _follow(self, x: list[Interval], choice: int, parts: Sequence[int], error: Floats) -> Path:
        leaves: list[Any] = [np.zeros((), np.bool_)] * self.dimensions
        holds: list[Any] = []
        may: list[Any] = []
        rewards = []
        for position, part in enumerate(parts):
            action = self.actions[self.sequences[choice, position]]
            if position:  # an episode that may have ended continues at the end of the range, which only adds to it
                exits = (rule == "exit" for rule in self.outside)
                ends = zip(x, exits, self.low, self.high, strict=True)
                x = [interval(np.clip(value, low, high)) if leaves else value for value, leaves, low, high in ends]
            values = [interval(value) for value in self.constrained(x, action)]
            holds += [value.low >= 0 for value in values]
            may += [~(value.high < 0) for value in values]
            if self.available is not None:
                offered = truth(self.available(x, action))
                holds.append(~offered.false)
                may.append(offered.true)
            if self.reward is not None:
                rewards.append(interval(self.reward(x, action)))
            x = self._images(x, action, part)
            for j, rule in enumerate(self.outside):
                period = self.high[j] - self.low[j]
                widened = self.slack * period + (error[j] if rule == "wrap" else 0.0)
                value = x[j] + Interval(-widened, widened) if widened else x[j]
                if rule == "wrap":
                    leaves[j] = leaves[j] | ~self._turns_once(j, value.low, value.high)
                x[j] = self._ruled(j, value)
                if rule == "violation":
                    leaves[j] = leaves[j] | ~((x[j].low >= self.low[j]) & (x[j].high <= self.high[j]))
        return Path(x, leaves, holds, may, rewards, np.ones((), np.bool_))

    def _images(self, x: list[Interval], action: Any, part: int) -> list[Interval]:
        low, high = self.noise_low[part], self.noise_high[part]
        if self.image is None:
            disturbance = [Interval(*ends) for ends in zip(low, high, strict=True)]
            return [interval(value) for value in self._stepped(self.step(x, action, disturbance))]
        lows = np.broadcast_arrays(*(value.low for value in x))
        highs = np.broadcast_arrays(*(value.high for value in x))
        ends = (self._stepped(each) for each in self.image(lows, highs, action, low, high))
        return [enclosure(*each) for each in zip(*ends, strict=True)]

    def widened(self, low: Any, high: Any, error: Floats) -> tuple[list[Any], list[Any]]:
        """Return where the state may be if the one that is looked up, with these errors, lies in a box."""
        lows, highs = list(low), list(high)
        for j in np.flatnonzero(error):
            lows[j], highs[j] = down(low[j] - error[j]), up(high[j] + error[j])
            if self.outside[j] != "wrap":
                lows[j], highs[j] = np.maximum(lows[j], self.low[j]), np.minimum(highs[j], self.high[j])
        return lows, highs


def box_of(box: Any, what: str) -> tuple[tuple[str, ...], Floats, Floats]:
    """Return the names of a box and its lowest and highest values."""
    if not isinstance(box, Mapping):
        raise ProblemError(f"{what} is {box!r}; it must be a mapping {{name: (lowest, highest)}}")
    ends = np.array([check_range(value, f"{what}[{name!r}]") for name, value in box.items()]).reshape(-1, 2)
    return tuple(map(str, box)), ends[:, 0].copy(), ends[:, 1].copy()
