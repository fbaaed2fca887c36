"""Episodes in kernels: the change log, and one loop that plays episodes of a model for every learner.

`run_episodes` calls the hooks of the learner, plain functions that are selected by the type of its tables and compiled:

    register(Tables, begin=plan_if_due, learn=learn_path)

    begin(tables, layout, generator, episode, log)      an episode begins; by default nothing happens
    choose(tables, layout, step, slot) -> row           by default `tables.greedy` [slot, column]
    learn(tables, layout, path, length, episode, log)   the episode is over
    pause(tables, layout) -> bool                       must Python be asked before the next episode? By default no

In Python the same hooks serve environments, whose episodes are played step by step.

The next slot of a row with a single outcome is `sampler.link`. Otherwise an outcome is drawn; outcome j of the
distribution has the payoff record row_payoff + stride * j, the same for every j if stride is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from peakrl.jit import LOOP, inlined, loop
from peakrl.sampling import Words, draw_first, draw_outcome
from peakrl.types import Floats, Ints, Layout, Longs, Sampler

Changes = tuple[Ints, Ints, Ints]


class Log(NamedTuple):
    """Changes of the behaviour policy: from `episode` on, `node` takes `row`. A log of size 0 keeps nothing."""

    #: [change]
    episode: Ints
    node: Ints
    row: Ints
    #: Number of changes, and the episode from which the next ones hold.
    head: Longs

    @classmethod
    def of_size(cls, size: int) -> Log:
        """Return an empty log."""
        episode, node, row = (np.empty(size, np.int32) for _ in range(3))
        return cls(episode, node, row, np.zeros(2, np.int64))

    def since(self, episode: int) -> Log:
        """Return the log itself, after setting the episode from which the next changes hold."""
        self.head[1] = episode
        return self

    def with_room(self, room: int) -> Log:
        """Return a log with the same changes and room for more: itself if it is large enough."""
        needed = int(self.head[0]) + room
        if len(self.node) >= needed:
            return self
        larger = Log.of_size(2 * needed)
        larger.head[:] = self.head
        for new, old in zip(larger.changes, self.changes, strict=True):
            new[:] = old
        return larger

    def extend(self, nodes: NDArray[Any], rows: NDArray[Any] | int) -> None:
        """Append many changes."""
        if len(self.node):
            begin, end = self.head[0], self.head[0] + len(nodes)
            self.episode[begin:end], self.node[begin:end], self.row[begin:end] = self.head[1], nodes, rows
            self.head[0] = end

    @property
    def changes(self) -> Changes:
        """The changes, as views: episode, node, row."""
        end = self.head[0]
        return self.episode[:end], self.node[:end], self.row[:end]

    def clear(self) -> None:
        """Remove all changes."""
        self.head[0] = 0


@inlined
def note(log: Log, node: int, row: int) -> None:
    """Append a change, unless the log has size 0."""
    if log.node.shape[0] > 0:
        end = log.head[0]
        log.episode[end] = log.head[1]
        log.node[end] = node
        log.row[end] = row
        log.head[0] = end + 1


@inlined
def note_episode(experience: Floats, counters: Longs, done: int, k: int, earned: float, violated: float) -> None:
    """Record episode done+k+1 in the counts of violations and, unless it is empty, in `experience`."""
    if violated > 0.0:
        counters[0] += 1
        counters[1] = done + k + 1
    if experience.shape[0] > 0:
        experience[k, 0] = earned
        experience[k, 1] = violated


# One loop for every learner ----------------------------------------------------------------------------------


class Simulator(NamedTuple):
    """What the loop draws from: a model, and the payoffs of its outcomes."""

    layout: Layout
    sampler: Sampler
    stride: int
    row_payoff: Ints
    #: [record, column]: as `Path.payoff`.
    payoff: Floats


class Path(NamedTuple):
    """An episode."""

    #: [0]: the first state's slot; of the walk, if the episode goes on where the one before was cut off.
    first: Longs
    #: [step]
    slot: Longs
    row: Longs
    #: The next slot.
    following: Longs
    #: [step, column]: reward, total violation, and what `Algorithm.payoffs` adds.
    payoff: Floats

    @classmethod
    def of_length(cls, steps: int, columns: int) -> Path:
        """Return buffers for an episode."""
        slot, row, following = (np.zeros(steps, np.int64) for _ in range(3))
        return cls(np.zeros(1, np.int64), slot, row, following, np.zeros((steps, columns)))


class Hooks(NamedTuple):
    """The functions of a learner that are compiled into the loop."""

    begin: Callable[..., Any]
    choose: Callable[..., Any]
    learn: Callable[..., Any]
    pause: Callable[..., Any]


def do_nothing(tables: Any, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Begin an episode."""


def choose_greedy(tables: Any, layout: Layout, step: int, slot: int) -> int:
    """Return the greedy row; a table of one column holds for every step."""
    return np.int64(tables.greedy[slot, min(step, tables.greedy.shape[1] - 1)])


def never(tables: Any, layout: Layout) -> bool:
    """Go on."""
    return False


#: The hooks of each type of tables.
HOOKS: dict[type, Hooks] = {}


def register(
    kind: type,
    *,
    learn: Callable[..., Any],
    begin: Callable[..., Any] = do_nothing,
    choose: Callable[..., Any] = choose_greedy,
    pause: Callable[..., Any] = never,
) -> None:
    """Set the hooks of a learner, whose tables are of this type."""
    HOOKS[kind] = Hooks(begin, choose, learn, pause)


def hook(name: str) -> Callable[..., Any]:
    """Return a function that calls the hook of this name of its first argument, the tables, also in compiled code."""

    def call(tables: Any, *arguments: Any) -> Any:
        return getattr(HOOKS[type(tables)], name)(tables, *arguments)

    # Compiled as a function of its own: `inline="always"` would compile it twice, also into the loop.
    @overload(call, jit_options=LOOP, strict=False)
    def compiled(tables: Any, *arguments: Any) -> Any:
        return getattr(HOOKS[tables.instance_class], name)

    return call


begin_hook, choose_hook, learn_hook, pause_hook = map(hook, Hooks._fields)


@loop
def run_episodes(
    simulator: Simulator,
    tables: Any,
    path: Path,
    generator: Words,
    done: int,
    episodes: int,
    #: Upper bound on the changes that an episode logs.
    log_room: int,
    log: Log,
    experience: Floats,
    counters: Longs,
) -> int:
    """Run up to `episodes` episodes from done+1 on, fewer if the log is full or the learner pauses; return how many."""
    layout, payoff = simulator.layout, simulator.payoff
    for k in range(episodes):
        if k > 0 and (0 < log.node.shape[0] < log.head[0] + log_room or pause_hook(tables, layout)):
            return k
        log.head[1] = done + k + 1
        begin_hook(tables, layout, generator, done + k + 1, log)
        slot = path.first[0] = np.int64(draw_first(generator, simulator.sampler))
        earned, violated = 0.0, 0.0
        for step in range(layout.horizon):
            row = choose_hook(tables, layout, step, slot)
            record, following = np.int64(simulator.row_payoff[row]), np.int64(simulator.sampler.link[row])
            if following < 0:
                distribution = ~following
                outcome = draw_outcome(generator, layout, simulator.sampler, distribution)
                record += simulator.stride * (outcome - layout.outcome_start[distribution])
                following = np.int64(layout.outcome_next[outcome])
            path.slot[step], path.row[step], path.following[step] = slot, row, following
            # The two columns of every learner, without the cost of a loop.
            path.payoff[step, 0], path.payoff[step, 1] = payoff[record, 0], payoff[record, 1]
            for column in range(2, payoff.shape[1]):
                path.payoff[step, column] = payoff[record, column]
            earned += payoff[record, 0]
            violated += payoff[record, 1]
            slot = following
        log.head[1] = done + k + 2
        learn_hook(tables, layout, path, layout.horizon, done + k + 1, log)
        note_episode(experience, counters, done, k, earned, violated)
    return episodes


@loop
def begin_played(tables: Any, layout: Layout, generator: Words, episode: int, log: Log) -> None:
    """Begin an episode of an environment."""
    begin_hook(tables, layout, generator, episode, log)


@loop
def learn_played(tables: Any, layout: Layout, path: Path, length: int, episode: int, log: Log) -> None:
    """Learn from an episode of an environment."""
    learn_hook(tables, layout, path, length, episode, log)
