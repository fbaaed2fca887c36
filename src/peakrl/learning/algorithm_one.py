"""Algorithm 1 on a model: tables, constants and the call of its kernel (formulas: `kernels.learning`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.kernels.arrays import Floats, Ints, Longs
from peakrl.kernels.learning import (
    GREEDY,
    NODE_COLUMNS,
    PAYOFF_COLUMNS,
    Bernstein,
    Fallen,
    Hoeffding,
    Log,
    Rates,
    Tables,
    fill_tables,
    learn_episodes,
)
from peakrl.kernels.sampling import Words
from peakrl.learning.settings import Constants, LearnerSettings, Sizes, resolve
from peakrl.model.tabular import TabularModel

#: Learning rates beyond this many visits are computed, not looked up.
TABULATED_RATES = 1 << 16


def sizes_of(model: TabularModel) -> Sizes:
    """Return what the formulas need to know of a model."""
    return Sizes(
        model.horizon,
        model.num_constraints,
        model.max_states,
        model.max_actions,
        model.reward_range,
        model.constraint_bounds,
    )


def make_rates(horizon: int, episodes: int, cap: Floats) -> Rates:
    """Return alpha_t = (H+1)/(H+t) as far as a run of this length can need it, up to a limit."""
    t = np.arange(min(episodes, TABULATED_RATES) + 1, dtype=np.float64)
    return Rates(horizon, (horizon + 1.0) / (horizon + t), cap)


def make_bonuses(
    settings: LearnerSettings, constants: Constants, sizes: Sizes, entries: int
) -> tuple[Hoeffding | None, Bernstein | None]:
    """Return the tables of the bonus asked for; None for the others."""
    horizon, bound, log_term = sizes.horizon, constants.bound, constants.log_term
    wide = settings.c2 * bound * math.sqrt(horizon**3 * log_term)
    if settings.bonus == "hoeffding":
        return Hoeffding(wide), None
    if settings.bonus == "bernstein":
        linear = bound * math.sqrt(horizon**7 * sizes.states * sizes.actions) * log_term
        tables = (np.zeros(entries), np.zeros(entries), np.zeros(entries))
        return None, Bernstein(*tables, settings.c1, horizon * log_term, bound**2 * horizon, linear, wide)
    return None, None


def make_tables(entries: int, nodes: int) -> Tables:
    """Return tables of the right size, yet to be filled."""
    node = np.empty(nodes * int(NODE_COLUMNS))
    return Tables(np.empty(entries), np.empty(entries, np.int32), node, node.view(np.uint64))


class AlgorithmOne:
    """The learner of the paper, ready to run episodes."""

    def __init__(self, model: TabularModel, settings: LearnerSettings, episodes: int) -> None:
        sizes = sizes_of(model)
        self.model = model
        self.constants = resolve(settings, sizes, episodes)
        self.rates = make_rates(model.horizon, episodes, self.constants.cap)
        self.hoeffding, self.bernstein = make_bonuses(settings, self.constants, sizes, model.num_entries)
        self.tables = make_tables(model.num_entries, model.num_nodes)
        fill_tables(model.layout, self.tables, self.constants.start)
        self.payoff = payoff_records(model, settings.slack, self.constants.penalty)
        self.fallen = Fallen(np.empty(model.horizon, np.uint64), np.empty(model.horizon, np.uint64))

    def run(
        self, generator: Words, done: int, episodes: int, log: Log, experience: Floats, counters: Longs
    ) -> tuple[int, int]:
        """Run some episodes; return their number and that of the logged changes."""
        model = self.model
        changes = learn_episodes(
            model.layout, model.sampler, model.payoffs.stride, model.payoffs.row_payoff, self.payoff,
            self.tables, self.rates, self.hoeffding, self.bernstein, self.fallen,
            generator, done, episodes, log, experience, counters,
        )  # fmt: skip
        return episodes, changes

    @property
    def log_room(self) -> int:
        """Room in the change list that one episode may need."""
        return self.model.horizon

    def values(self) -> Floats:
        """[entry]: the Q-table of the modified problem."""
        return self.tables.q

    def known(self) -> None:
        """It keeps no record of what fails."""

    def rows(self) -> Ints:
        """[node]: the greedy rows as they stand."""
        return self.tables.choice[GREEDY::NODE_COLUMNS].astype(np.int32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that learning has written, by name, for a checkpoint."""
        tables = self.tables
        arrays: dict[str, NDArray[Any]] = {"q": tables.q, "visits": tables.visits, "node": tables.node}
        if self.bernstein is not None:
            arrays |= {"mu": self.bernstein.mu, "sigma": self.bernstein.sigma, "beta": self.bernstein.beta}
        return arrays

    def feasible(self) -> bool | None:
        """Algorithm 1 proves nothing about feasibility."""
        return None


def payoff_records(model: TabularModel, slack: float, penalty: float) -> Floats:
    """[record * 4 + column]: modified reward from a range that starts at 0, plain reward, total violation, padding."""
    modified = model.modified_rewards(slack, penalty) - model.reward_range[0]
    violation = np.maximum(-model.payoffs.constraints, 0.0).sum(axis=1)
    records = np.zeros((len(modified), int(PAYOFF_COLUMNS)))
    records[:, 0], records[:, 1], records[:, 2] = modified, model.payoffs.reward, violation
    return records.ravel()
