"""An optimistic model-based planner in the manner of UCBVI (Azar, Osband and Munos, 2017), as a yardstick.

It counts every transition and plans anew on the empirical model, from the last step back:

    Q_h(s,a) = min( cap_h, r(s,a) + mean W_{h+1}(s') + c sqrt( var W_{h+1}(s') / n(s,a) ) ),   W_h(s) = max_a Q_h(s,a)

with mean and variance over the n(s,a) next states seen, and cap_h = span * (H - h) for a pair not yet tried. Pairs seen
to violate are not chosen again. Between two plans, which lie further and further apart, episodes are run side by side.
For stationary models whose payoffs do not depend on the outcome and where every state keeps a safe action.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats, Ints
from peakrl.kernels.counting import plan_on_counts
from peakrl.model.tabular import TabularModel
from peakrl.policy.tables import Policy

#: Plans follow each other after this many episodes, or this share of the episodes so far.
LEAST_BATCH, BATCH_SHARE = 10, 0.02


class ModelBasedPlanner:
    """Counts, and the greedy rows of the latest plan."""

    def __init__(self, model: TabularModel, *, bonus: float = 0.5, seed: int = 0) -> None:
        if not model.stationary or model.payoffs.stride:
            raise SettingsError(f"{model.name!r}: the planner needs a stationary model with one payoff for each pair")
        self.model, self.bonus = model, bonus
        self.generator = np.random.default_rng(seed)
        layout = model.layout
        self.first_rows = layout.row_start[:-1]
        sizes = np.diff(layout.outcome_start)[layout.row_distribution]
        #: One cell for each (row, outcome).
        self.cell_start = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(self.cell_start[-1]) - np.repeat(self.cell_start[:-1], sizes)
        first = layout.outcome_start[layout.row_distribution]
        self.cell_next = layout.outcome_next[np.repeat(first, sizes) + within]
        self.counts = np.zeros(len(self.cell_next))
        self.visits = np.zeros(model.num_rows)
        # A number in [d, d+1) finds the outcome that it draws from distribution d.
        distribution = np.repeat(np.arange(len(layout.outcome_start) - 1), np.diff(layout.outcome_start))
        total = np.cumsum(layout.outcome_probability)
        before = np.concatenate([[0.0], total])[layout.outcome_start[:-1]]
        self.edges = distribution + np.minimum(total - before[distribution], 1.0)
        self.edges[layout.outcome_start[1:] - 1] = np.arange(1, len(layout.outcome_start))
        lo, hi = model.reward_range
        self.reward, self.span = model.row_reward - lo, hi - lo
        self.forbidden = np.zeros(model.num_rows, np.bool_)
        self.violations, self.last_violation, self.done = 0, 0, 0
        self.rows: NDArray[np.int64] = np.tile(self.first_rows, (model.horizon, 1))

    def plan(self) -> None:
        """Plan on the empirical model: greedy rows [step, slot]."""
        plan_on_counts(
            self.model.layout, self.cell_start, self.cell_next, self.counts, self.visits,
            self.reward, self.forbidden, self.span, self.bonus, self.rows,
        )  # fmt: skip

    def act(self, episodes: int) -> None:
        """Run some episodes of the latest plan side by side, and count what they show."""
        layout = self.model.layout
        slot = self.generator.choice(self.model.first_slot, size=episodes, p=self.model.first_probability)
        violated = np.zeros(episodes, np.bool_)
        for step in range(self.model.horizon):
            row = self.rows[step, slot]
            law = layout.row_distribution[row]
            outcome = np.searchsorted(self.edges, law + self.generator.random(episodes), side="right")
            np.add.at(self.counts, self.cell_start[row] + outcome - layout.outcome_start[law], 1.0)
            np.add.at(self.visits, row, 1.0)
            fails = (self.model.row_margin[row] < 0).any(axis=1)
            self.forbidden[row[fails]] = True
            violated |= fails
            slot = layout.outcome_next[outcome]
        if violated.any():
            self.last_violation = self.done + int(np.flatnonzero(violated)[-1]) + 1
        self.violations += int(violated.sum())
        self.done += episodes

    def advance(self, episodes: int) -> Iterator[int]:
        """Run up to `episodes` in all, planning in between; tell after each plan how far it is."""
        while self.done < episodes:
            self.plan()
            yield self.done
            self.act(min(max(LEAST_BATCH, int(BATCH_SHARE * self.done)), episodes - self.done))
        self.plan()
        yield self.done

    @property
    def policy(self) -> Policy:
        """The greedy policy of the latest plan."""
        rows: Ints = np.concatenate([self.rows.ravel(), np.zeros(self.model.num_slots)]).astype(np.int32)
        return Policy(self.model, rows)


def planner_curve(model: TabularModel, episodes: int, bonus: float, seed: int) -> dict[str, Floats | int]:
    """Run the planner; return value and violation of the policy after each plan, and how often it violated."""
    from peakrl.evaluation import evaluate

    planner = ModelBasedPlanner(model, bonus=bonus, seed=seed)
    episode, value, violation = [], [], []
    for done in planner.advance(episodes):
        result = evaluate(model, planner.policy)
        episode.append(float(done))
        value.append(result.value)
        violation.append(result.violation)
    return {
        "episode": np.array(episode),
        "value": np.array(value),
        "violation": np.array(violation),
        "violations": planner.violations,
        "last_violation": planner.last_violation,
    }
