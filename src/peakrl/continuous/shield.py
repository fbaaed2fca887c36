"""The shield of a continuous problem: safe actions for every state of the grid's safe cells.

At the begin of a block the state is looked up; inside of it the sequences that were safe there and agree with what was
done since are still safe, whatever the disturbance was.

That the environment follows the problem is checked: each step must lead into the enclosure of the problem's next
states. Steps are checked together, the first one at once, then 2, 4, ... up to BATCH, since interval arithmetic on many
points costs little more than on one; at once when a state is not safe; and at `close`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from peakrl.checks import shown
from peakrl.continuous.intervals import Interval
from peakrl.continuous.safe_set import GridSafeSet
from peakrl.errors import TargetError
from peakrl.safety.shield import Guard, Lane, Offer, Options, guard_of, position_of, with_step
from peakrl.types import Bools, Floats

#: The most steps that are checked together.
BATCH = 4096
#: Differences below this share of a range are explained as rounding.
SMALL = 1e-4


class Place(NamedTuple):
    """A position in an episode."""

    #: The state.
    x: list[float]
    #: [choice]: is it safe, and does it agree with the actions of this block?
    sequences: Bools
    #: Actions taken in this block.
    taken: int


class GridGuard(Guard):
    """The safe set of a continuous problem; positions are places."""

    def __init__(self, safe: GridSafeSet, space: Any, options: Options) -> None:
        problem = self.problem = safe.problem
        self.safe, self.block, self.name = safe, problem.block, problem.name
        self.horizon = math.inf if safe.horizon is None else safe.horizon * problem.block
        known = list(problem.actions)
        super().__init__(space, known, options if options.names is not None else options._replace(names=known))
        self._own_states = options.state_of is None
        self.state_of = None if options.state_of is None else with_step(options.state_of)
        #: [action of the environment, taken, choice]: does the sequence continue with this action?
        self.continues = np.equal(problem.sequences.T, self.columns[:, None, None])
        self._offers = lru_cache(1 << 16)(lambda taken, sequences: self.offers(self._mask(taken, sequences).tobytes()))

    def owner(self, environment: Any) -> Any:
        """Return an environment of this problem, None for others."""
        return environment if self._own_states and getattr(environment, "problem", None) is self.problem else None

    def state(self, observation: Any, step: int) -> list[float]:
        """Return the state of an observation."""
        given = observation if self.state_of is None else self.state_of(observation, step)
        try:
            x = given.tolist() if isinstance(given, np.ndarray) else [float(value) for value in given]
            known = len(x) == self.problem.dimensions and isinstance(x[0], float)
        except (TypeError, ValueError):
            known = False
        if not known:
            raise TargetError(
                f"the state of {shown(observation)} is {shown(given)}; it must hold a number for each of "
                f"{', '.join(self.problem.names)}: pass state_of=, a function from an observation to a state"
            )
        return x

    def arrive(self, lane: Lane, observation: Any) -> Place:
        """Return the place in which an action is to be taken."""
        x, before = self.state(observation, lane.step), lane.before
        if before is not None:
            self._note(lane, x)
            place, index = before
            if place.taken + 1 < self.block:
                return Place(x, place.sequences & self.continues[index, place.taken], place.taken + 1)
        place = Place(x, self.safe.mask(x, lane.step // self.block), 0)
        if not self.offer(place).nearest:
            self.close(lane)  # what follows from a contradiction is explained by it
            why = self.safe.reason(x, self.safe.choices[0], lane.step // self.block)
            raise TargetError(f"no action is safe at step {lane.step} in the state {self.problem.named(x)}: {why}")
        return place

    def end(self, lane: Lane, observation: Any) -> None:
        """Note the last step of an episode."""
        if lane.before is not None:
            self._note(lane, self.state(observation, lane.step))

    def mask(self, position: Place) -> Bools:
        """Return [action of the environment]: True if a safe sequence continues with it."""
        return self._mask(position.taken, position.sequences.tobytes())

    def offer(self, position: Place) -> Offer:
        """Return what is safe."""
        found: Offer = self._offers(position.taken, position.sequences.tobytes())
        return found

    def _mask(self, taken: int, sequences: bytes) -> Bools:
        return np.asarray((self.continues[:, taken] & np.frombuffer(sequences, np.bool_)).any(axis=1))

    def why(self, step: int, position: Place, index: int) -> str:
        """Return why an action is not safe."""
        if self.columns[index] < 0:
            return f"{self.name!r} does not have it"
        if position.taken:
            return (
                f"no safe sequence of {self.block} actions continues the {position.taken} taken of this block with it"
            )
        choice = int(self.continues[index, 0].argmax())
        return str(self.safe.reason(position.x, self.safe.choices[choice], step // self.block))

    def followed(self, step: int, position: Place, seen: Any) -> int:
        """Return the index of the action of the fallback."""
        follow = getattr(self.fallback, "action", self.fallback)
        return position_of(follow(step, np.array(position.x)), self.labels, step)

    # Dynamics ----------------------------------------------------------------------------------------------------

    def _note(self, lane: Lane, x: list[float]) -> None:
        """Remember a step, and check what has come together."""
        if lane.before is None or lane.follows_model:
            return
        place, index = lane.before
        lane.unchecked.append((index, *place.x, *x))
        if len(lane.unchecked) >= lane.batch:
            lane.batch = min(2 * lane.batch, BATCH)
            self.close(lane)

    def close(self, lane: Lane) -> None:
        """Check the remembered steps; raise for the first that the problem excludes."""
        steps, lane.unchecked = lane.unchecked, []
        if not steps:
            return
        numbers = np.array(steps)
        for index in np.unique(numbers[:, 0]):
            x, following = np.split(numbers[numbers[:, 0] == index, 1:], 2, axis=1)
            self._check(x, int(index), following)

    def _check(self, x: Floats, index: int, following: Floats) -> None:
        """Raise unless each step by an action leads into the enclosure of the next states."""
        problem, error = self.problem, self.safe.grid.error
        x, following = self._reduced(x), self._reduced(following)
        low, high = problem.widened(x.T, x.T, error)
        choice, found = int(self.continues[index, 0].argmax()), []
        for part in range(len(problem.weights)):
            for path in problem.paths(low, high, choice, [part], error):
                off = np.array([self._off(path.image[j], j, y) for j, y in enumerate(following.T)])
                found.append(np.where(path.alive, off, np.inf))
        #: [path, coordinate, step]: how far outside of the image of a path.
        beyond = np.array(found)
        least = beyond.max(axis=1).min(axis=0)
        if (least <= 0).all():
            return
        row = int((least > 0).argmax())
        j = int(beyond[beyond[:, :, row].max(axis=1).argmin(), :, row].argmax())
        hint = ""
        if least[row] <= SMALL * (problem.high[j] - problem.low[j]):
            hint = (
                " If the environment computes the same with other rounding, declare slack= or measured=; if its "
                "observations are rounded (float32), pass state_of="
            )
        raise TargetError(
            f"the step from {problem.named(x[row])} by action {shown(self.labels[index])} to "
            f"{problem.named(following[row])} contradicts the dynamics of {self.name!r}: {problem.names[j]!r} is "
            f"{least[row]:.3g} beyond what they allow. The safe set is valid only if they are true.{hint}"
        )

    def _reduced(self, points: Floats) -> Floats:
        """Return points with wrapped coordinates inside of their range."""
        problem, wraps = self.problem, np.array([rule == "wrap" for rule in self.problem.outside])
        turned = problem.low + np.mod(points - problem.low, problem.high - problem.low)
        reduced: Floats = np.where(wraps & ((points < problem.low) | (points > problem.high)), turned, points)
        return reduced

    def _off(self, image: Interval, j: int, y: Floats) -> Floats:
        """Return [step]: how far y lies outside of an image of coordinate j, at most 0 if it does not."""
        error, period = self.safe.grid.error[j], self.problem.high[j] - self.problem.low[j]
        if self.problem.outside[j] == "wrap":  # the image is widened; both ends of the range are one point
            off = np.min([np.maximum(image.low - end, end - image.high) for end in (y - period, y, y + period)], axis=0)
        else:
            off = np.maximum(image.low - error - y, y - image.high - error)
        found: Floats = np.where(np.isnan(off), np.inf, off)
        return found


@guard_of.register
def _grid_guard(safe_set: GridSafeSet, space: Any, options: Options) -> Guard:
    return GridGuard(safe_set, space, options)
