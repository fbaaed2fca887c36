"""Monitors: requirements on the past, as deterministic automata that read state, action and next state.

A monitor has a memory m. It starts at `start`, becomes step(m, state, action, next_state) at each step, and the step
violates if the new m is bad. The memory is part of the state (`memory`); the constraint is -1 if m is bad, else 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from peakrl.checks import check_count
from peakrl.errors import ProblemError
from peakrl.types import Floats, Longs
from peakrl.wrappers.memory import MOST_MEMORIES, Automaton, Transitions, with_memory

#: A function of (state, action, next_state), or {"state": ..., "action": ..., "next_state": ...} with a value or a list
#: of values for some of these.
Event = Callable[[Any, Any, Any], Any] | Mapping[str, Any]
PARTS = ("state", "action", "next_state")


@dataclass(frozen=True)
class Monitor(Automaton):
    """A deterministic automaton whose bad states violate; see `with_monitor`.

    Examples
    --------
    >>> import peakrl
    >>> calm = peakrl.Monitor.never_twice_within(3, {"action": "alarm"})
    >>> calm.advance(calm.first, "idle", "alarm", "idle")
    (2, 0.0)
    >>> calm.advance(2, "idle", "alarm", "idle")[1]
    -1.0
    """

    #: The first memory, any hashable value.
    start: Hashable
    #: Returns the next memory: step(memory, state, action, next_state).
    step: Callable[[Any, Any, Any, Any], Hashable]
    #: The bad memories: a collection, or a function of the memory.
    bad: Collection[Hashable] | Callable[[Any], Any]
    #: Name of its constraint.
    name: str = "monitor"
    #: For environments: all memories, as a range of whole numbers.
    states: range | None = None

    def __post_init__(self) -> None:
        if not callable(self.step):
            raise ProblemError(f"step of monitor {self.name!r} is {self.step!r}; it must be a function")
        if not callable(self.bad) and (isinstance(self.bad, str) or not isinstance(self.bad, Collection)):
            raise ProblemError(f"bad of monitor {self.name!r} is {self.bad!r}; it must be a collection or a function")

    @classmethod
    def never_followed_by(cls, first: Event, second: Event, within: int, name: str = "monitor") -> Monitor:
        """Return: after `first`, `second` does not happen in the same window of `within` consecutive steps."""
        begins, ends = event_of(first), event_of(second)
        steps = check_count(within, "within", 2, MOST_MEMORIES // 2, error=ProblemError)

        def step(memory: int, *transition: Any) -> int:
            left = memory if memory >= 0 else ~memory  # steps for which `second` is forbidden
            after = steps - 1 if begins(*transition) else max(left - 1, 0)
            return ~after if left > 0 and ends(*transition) else after

        return cls(0, step, lambda memory: memory < 0, name, range(-steps, steps))

    @classmethod
    def never_twice_within(cls, steps: int, event: Event, name: str = "monitor") -> Monitor:
        """Return: any `steps` consecutive steps contain the event at most once (2: never twice in a row)."""
        return cls.never_followed_by(event, event, steps, name)

    @classmethod
    def before(cls, first: Event, second: Event, times: int = 1, name: str = "monitor") -> Monitor:
        """Return: `first` happens at an earlier step than `second` does for the `times`-th time."""
        done, counts = event_of(first), event_of(second)
        most = check_count(times, "times", 1, MOST_MEMORIES // 2, error=ProblemError)

        def step(memory: int, *transition: Any) -> int:
            if memory < 0:  # `first` has happened
                return -1
            after = min(memory, most - 1) + bool(counts(*transition))
            return -1 if after < most and done(*transition) else after

        return cls(0, step, {most}, name, range(-1, most + 1))

    @classmethod
    def at_most(cls, times: int, event: Event, name: str = "monitor") -> Monitor:
        """Return: the event happens at most `times` times in an episode."""
        happens, most = event_of(event), check_count(times, "times", 0, MOST_MEMORIES // 2, error=ProblemError)

        def step(memory: int, *transition: Any) -> int:
            return min(memory, most) + bool(happens(*transition))

        return cls(0, step, {most + 1}, name, range(most + 2))

    def advance(self, memory: Any, state: Any, action: Any, following: Any) -> tuple[Hashable, float]:
        """Return the next memory, and -1 if it is bad, else 0."""
        after = self.step(memory, state, action, following)
        bad = self.bad(after) if callable(self.bad) else after in self.bad
        return after, -1.0 if bad else 0.0

    def reader(self, transitions: Transitions) -> NumberedMemories:
        """Return the monitor on the transitions of a model."""
        return NumberedMemories(self, transitions)


class NumberedMemories:
    """A reader that numbers memories as they occur and queries the automaton once for each (memory, transition)."""

    def __init__(self, automaton: Automaton, transitions: Transitions) -> None:
        self.automaton, self.transitions = automaton, transitions
        self.memories: list[Hashable] = []
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[tuple[int, int], tuple[int, float]] = {}
        self._labels: dict[int, tuple[Hashable, Hashable, Hashable]] = {}

    def number(self, memory: Hashable) -> int:
        """Return the number of a memory, a new one if it has none."""
        try:
            known = self._numbers.setdefault(memory, len(self.memories))
        except TypeError:
            raise ProblemError(
                f"monitor {self.automaton.name!r}: its state {memory!r} is not hashable; use numbers, words and tuples"
            ) from None
        if known == len(self.memories):
            if known >= self.automaton.capacity:
                raise ProblemError(
                    f"monitor {self.automaton.name!r} has more than {known:,} states, such as {memory!r}: a monitor "
                    "must forget what it does not need"
                )
            self.memories.append(memory)
        return known

    def advance(self, memory: Longs, transition: Longs) -> tuple[Longs, Floats]:
        """Return the next memories and the values of the constraint."""
        count = len(self.transitions.row)
        codes, index = np.unique(memory * count + transition, return_inverse=True)
        found = [self._step(*divmod(code, count)) for code in codes.tolist()]
        numbers, values = (np.array(column) for column in zip(*found, strict=True))
        return numbers[index].astype(np.int64), values[index].astype(np.float64)

    def _step(self, memory: int, transition: int) -> tuple[int, float]:
        key = memory, transition
        if key not in self._known:
            if transition not in self._labels:
                self._labels[transition] = self.transitions.labels(transition)
            following, value = self.automaton.advance(self.memories[memory], *self._labels[transition])
            self._known[key] = self.number(following), value
        return self._known[key]


def event_of(given: Any) -> Callable[[Any, Any, Any], Any]:
    """Return an event as a function of (state, action, next_state)."""
    if callable(given):
        return lambda *transition: given(*transition)
    if not isinstance(given, Mapping) or not given or not set(given) <= set(PARTS):
        raise ProblemError(f"an event is {given!r}; it must be a function, or a table of {', '.join(PARTS)}")
    wanted = {
        name: values if isinstance(values, list | set | frozenset) else [values] for name, values in given.items()
    }

    def happens(*transition: Any) -> bool:
        found = dict(zip(PARTS, transition, strict=True))
        return all(found[name] in values for name, values in wanted.items())

    return happens


def with_monitor(target: Any, *monitors: Monitor) -> Any:
    """Return a problem, model or environment in which no monitor may reach a bad state.

    Parameters
    ----------
    target
        A `Problem`, `ArrayProblem`, `TabularModel` or Gymnasium environment.
    monitors
        The monitors. The memory of each becomes part of the state, (state, memory, ...).

    Returns
    -------
    Problem, TabularModel or gymnasium.Wrapper
        Like the target, with one more constraint for each monitor.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> rest = peakrl.Monitor.never_twice_within(2, lambda state, action, next_state: action > 4, name="rest")
    >>> peakrl.solve(peakrl.with_monitor(problem, rest)).feasible
    True
    """
    for each in monitors:
        if not isinstance(each, Monitor):
            raise ProblemError(f"{each!r} is not a Monitor, such as Monitor.at_most(3, event)")
    return with_memory(target, monitors) if monitors else target
