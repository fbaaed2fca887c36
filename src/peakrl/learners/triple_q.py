"""Triple-Q: its settings, and its tables on a space (formulas: `learners.triple_q_kernel`).

With K episodes, iota = log(sqrt(2 S A H) K), span = hi - lo and cap_h = hi (H-h), the settings come to

    F = K^0.6,  chi = eta = K^0.2,  B = scale/4 H span sqrt(iota),  B_j likewise with the range of cost j
    lift = 2 scale H^3 span sqrt(iota)/eta,  limits lowered by `tightening`

The theorem sets bonus and lift to sqrt(128) and the tightening to 8 sqrt(S A H^6 (128 iota)^3)/K^0.2, more than an
episode can cost at any length of a run that one could afford; hence the defaults are 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from peakrl.learners.assumptions.limits import allowed_rows, avoidable
from peakrl.learners.base import Choices, Episode, SamplingAlgorithm, Task, compiled, refuse_no_numbers, used
from peakrl.learners.cmdp_limits import BudgetSettings
from peakrl.learners.constrained_q_kernel import Log
from peakrl.learners.growable import Table
from peakrl.learners.space import checked_rows
from peakrl.learners.triple_q_kernel import Path, Rules, Tables, learn_path, learn_triple_q
from peakrl.sampling import Words
from peakrl.types import Floats, Longs

FRAME_EXPONENT, QUEUE_EXPONENT = 0.6, 0.2


class TripleQ(BudgetSettings):
    """Settings of Triple-Q; with `per_step` it keeps H I tables of costs."""

    by_step = True

    #: Scale of the exploration bonus.
    bonus: float = Field(default=0.0, ge=0)
    #: Scale of what is added to the table of rewards at the end of a frame.
    lift: float = Field(default=0.0, ge=0)
    #: By how much each limit is lowered.
    tightening: float = Field(default=0.0, ge=0)

    def make(self, task: Task) -> TripleQLearner:
        """Return the algorithm for a target."""
        return TripleQLearner(task, self)

    @property
    def bound_to_plan(self) -> str:
        """Frames and step sizes follow from the number of episodes."""
        return "frame"


class TripleQLearner(SamplingAlgorithm):
    """A table of rewards, one of each cost, and their queues."""

    starts_first = True

    def __init__(self, task: Task, settings: TripleQ) -> None:
        super().__init__(task)
        self.budget = settings.budget(task.sizes)
        costs, horizon = len(self.budget.limits), task.sizes.horizon
        self.by_entry = {
            "q": Table(0.0, np.float64), "cost": Table(0.0, np.float64, costs), "visits": Table(0, np.int32)
        }  # fmt: skip
        self.by_slot = {"greedy": Table(0, np.int64, self.columns)}
        #: Z, and the sums of the frame.
        self.queue, self.estimate = np.zeros(costs), np.zeros(costs)
        slot, row = (np.zeros(horizon, np.int64) for _ in range(2))
        self.path = Path(slot, row, np.zeros(horizon), np.zeros((horizon, self.budget.quantities)))
        self.constants = self._constants(settings)
        if task.model is not None:
            self.payoff = np.stack([task.model.payoffs.reward, task.model.record_violation], axis=1)
            self.charges = self.budget.charges(task.model.payoffs.constraints)

    def _constants(self, settings: TripleQ) -> dict[str, Any]:
        sizes, episodes, budget = self.task.sizes, self.task.episodes, self.budget
        iota = math.log(math.sqrt(2 * sizes.states * sizes.actions * sizes.horizon) * episodes)
        eta, unit = episodes**QUEUE_EXPONENT, sizes.horizon * math.sqrt(max(iota, 0.0))
        return {
            "frame": max(1, round(episodes**FRAME_EXPONENT)), "chi": eta, "eta": eta,
            "bonus": settings.bonus / 4 * unit * sizes.span, "cost_bonus": settings.bonus / 4 * unit * budget.ranges,
            "lift": 2 * settings.lift * sizes.horizon**2 * unit * sizes.span / eta,
            "cap": sizes.reward_range[1] * np.arange(sizes.horizon, 0, -1.0),
            "limit": budget.limits - settings.tightening, "quantities": budget.quantities, "by_step": budget.by_step,
        }  # fmt: skip

    def grow(self, first: int, episode: int, log: Log, changes: int) -> int:
        """Make room for the slots from `first` on: as good as can be, at no cost."""
        space = self.space
        before = self.by_entry["q"].size // self.columns
        for table in self.by_entry.values():
            table.grow(space.rows * self.columns)
        self.by_slot["greedy"].grow(space.slots)
        start = space.layout.row_start
        self.by_slot["greedy"].room[first : space.slots] = start[first:-1, None]
        cap, q = self.constants["cap"], self.by_entry["q"].used
        if space.shared:
            q[:] = np.repeat(cap, space.rows)
        else:
            q[before:] = cap[space.slot_step[space.slot_of_row[before:]]]
        rooms = {name: table.room for name, table in (self.by_entry | self.by_slot).items()}
        self.tables = Tables(queue=self.queue, estimate=self.estimate, **rooms)
        # Copies: arrays of a model are read-only, and kernels would be compiled once more for them.
        places: dict[str, Any] = {"row_start": np.array(start), "slot_step": np.array(space.slot_step)}
        places |= {"node_stride": space.layout.node_stride, "entry_stride": space.layout.entry_stride}
        self.rules = Rules(shift=int(space.shared), **places, **self.constants)
        return changes

    def forbid(self, first: int, forbidden: NDArray[np.bool_], harm: Floats) -> None:
        """Set Q of what is declared to fail to minus infinity, wherever something else is left."""
        start = self.space.layout.row_start
        low = int(self.space.slot_of_row[first]) if len(forbidden) else self.space.slots
        best, _ = allowed_rows(start[low:], forbidden, first)
        q = self.by_entry["q"].used.reshape(self.columns, -1)
        q[:, first:].T[avoidable(start[low:], forbidden, first)] = -np.inf
        greedy = self.by_slot["greedy"].used[low:]
        greedy[:] = np.where(best >= 0, best, greedy)

    def choices(self) -> Choices:
        """The greedy rows."""
        return Choices.by_column(self.tables.greedy)

    def learn(self, played: Episode, episode: int, log: Log, changes: int) -> int:
        """Learn from an episode."""
        length, path = played.length, self.path
        path.slot[:length], path.row[:length] = played.slot[:length], played.row[:length]
        path.reward[:length] = played.reward[:length]
        path.charge[:length] = self.budget.charges(played.constraints[:length])
        return learn_path(self.tables, self.rules, path, length, log, episode, changes)

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes of the model, fewer where the log fills up."""
        model = compiled(self.task)
        return learn_triple_q(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff, self.charges,
            self.tables, self.rules, self.path, generator, done, episodes, log, experience, counters,
        )  # fmt: skip

    # What came out -------------------------------------------------------------------------------------------

    def multipliers(self) -> Floats:
        """[cost]: Z/eta."""
        return self.queue / float(self.constants["eta"])

    def greedy(self) -> NDArray[np.int64]:
        """[slot, column]: the greedy rows."""
        return self.by_slot["greedy"].used.copy()

    def values(self) -> Floats:
        """[entry]: Q less what the costs are held to be worth."""
        value = self.by_entry["q"].used - self.by_entry["cost"].used @ self.multipliers()
        return self.space.entries_of(value.reshape(self.columns, -1).T)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name."""
        return used(self.by_entry | self.by_slot) | {"queue": self.queue, "estimate": self.estimate}

    def check(self, done: int) -> None:
        """Raise where a row is none of its state's, or a number cannot be."""
        arrays = self.arrays()
        checked_rows(self.space, arrays["greedy"], self.columns, "engine.greedy")
        refuse_no_numbers(arrays, ("cost", "queue", "estimate"))
        refuse_no_numbers(arrays, ("q",), lost=True)
        for name in ("cost", "visits", "queue", "estimate"):
            if arrays[name].size and arrays[name].min() < 0:
                raise ValueError(f"engine.{name} holds a number below 0")
        if arrays["visits"].size and arrays["visits"].max() > self.constants["frame"]:
            raise ValueError("engine.visits holds more visits than a frame has episodes")
