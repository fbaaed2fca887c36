"""Learning from what an environment shows, in tables that grow: the common part, and Algorithm 1.

The rules are those of `kernels.learning`; the practical learner is in `learning.episodes`. An episode that is over
before the horizon earns nothing from then on; with rewards counted from the lower end lo of their range that is a value
of

    W_h(end) = (H - h) (0 - lo),     h the first step that is left out,

so that ending early is neither a bargain nor a loss that the rewards do not hold.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SettingsError, TargetError
from peakrl.kernels.arrays import Floats
from peakrl.kernels.learning import GREEDY, NODE_COLUMNS, RUNNER, Bernstein, Tables, W
from peakrl.kernels.transitions import learn_transition
from peakrl.learning.algorithm_one import make_bonuses, make_rates
from peakrl.learning.growing import Atlas, Growing
from peakrl.learning.practical import Witness
from peakrl.learning.settings import LearnerSettings, Sizes, resolve
from peakrl.policy.export import UNKNOWN, VIOLATED
from peakrl.targets.adapters import Rules, Seen, Step

#: The columns of `kernels.learning.Tables.node`, for use outside of kernels.
COLUMNS, VALUE, SECOND, CHOSEN = int(NODE_COLUMNS), int(W), int(RUNNER), int(GREEDY)


class Changes:
    """The list of changes of the greedy rows: from `episode` on, at `step`, `slot` takes `row`."""

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.columns = tuple(array("i") for _ in range(4))

    def note(self, episode: int, step: int, slot: int, row: int) -> None:
        """Add one."""
        if self.keep:
            for column, value in zip(self.columns, (episode, step, slot, row), strict=True):
                column.append(value)

    def table(self) -> NDArray[np.int32]:
        """[change, 4]"""
        return np.stack([np.array(column, np.int32) for column in self.columns], axis=1)

    def load(self, table: NDArray[np.int32]) -> None:
        """Take over a stored table."""
        for column, values in zip(self.columns, table.T.astype(np.int32), strict=True):
            column.extend(values.tolist())


def check_settings(rules: Rules, settings: LearnerSettings) -> None:
    """Raise where the settings ask for what nobody has told of the environment."""
    if settings.bonus != "none" and rules.states is None:
        raise SettingsError(
            f"bonus is {settings.bonus!r}, which needs the number of states, and the observation space is too large to "
            "tell it: pass states="
        )
    if settings.bonus != "none" and rules.constraints.bounds is None:
        raise SettingsError(
            f"bonus is {settings.bonus!r}, which needs a bound on every constraint's absolute value: pass "
            "constraint_bounds="
        )
    if settings.share_outcomes:
        raise SettingsError(
            "share_outcomes is True: which pairs lead to the same law is known of a model, not of an environment"
        )
    if settings.replay:
        raise SettingsError("replay is True: transitions are remembered for a model only, not for an environment")


def sizes_of(rules: Rules, constraints: int) -> Sizes:
    """Return what the formulas need to know of an environment; bounds that nobody gave count as 1."""
    bounds = rules.constraints.bounds if rules.constraints.bounds is not None else (1.0,) * constraints
    return Sizes(rules.horizon, constraints, rules.states or 1, len(rules.actions), rules.reward_range, bounds)


def payoffs(step: Step, slack: float, penalty: float) -> tuple[float, float]:
    """Return r + (penalty / I) sum_i min(0, f_i^- + slack), as `TabularModel.modified_rewards`, and the violation."""
    values = step.constraints
    if len(values) == 1:  # the same numbers without arrays
        beyond, violation = min(min(values[0], 0.0) + slack, 0.0), max(-values[0], 0.0)
    else:
        row = np.array([values])
        beyond = float(np.minimum(np.minimum(row, 0.0) + slack, 0.0).sum(axis=1)[0])
        violation = float(np.maximum(-row, 0.0).sum(axis=1)[0])
    return step.reward + penalty / max(len(values), 1) * beyond, violation


class Engine:
    """What both learners share: the atlas, the constants and the value of having come to an end."""

    def __init__(
        self, rules: Rules, settings: LearnerSettings, episodes: int, constraints: int, atlas: Atlas, keep: bool
    ) -> None:
        self.rules, self.settings, self.atlas = rules, settings, atlas
        self.sizes = sizes_of(rules, constraints)
        self.constants = resolve(settings, self.sizes, episodes)
        self.changes = Changes(keep)
        self.lowest = rules.reward_range[0]
        #: [row]: the largest violation seen.
        self.harm = Growing(0.0, np.float64)

    def end_value(self, step: int) -> float:
        """Return what the steps from `step` on are worth when nothing more happens."""
        lo, hi = self.rules.reward_range
        if self.settings.most_reward is not None:
            hi = min(hi, self.settings.most_reward)
        left = self.rules.horizon - step
        if left and not lo <= 0.0 <= hi:
            raise TargetError(
                f"the episode is over with {left} steps to go, which earn 0, but rewards lie in {(lo, hi)}: widen "
                "reward_range so that it holds 0, or keep episodes as long as the horizon"
            )
        return left * (0.0 - lo)

    def place(self, step: int, seen: Seen, episode: int) -> int:
        """Return the slot of a state, stored if it is new."""
        slot = self.atlas.find(step, seen)
        if slot < 0:
            slot = self.atlas.add(step, seen)
            self.harm.grow(self.atlas.rows)
            self._fill(step, slot, episode)
        return slot

    def _fill(self, step: int, slot: int, episode: int) -> None:
        raise NotImplementedError


class OneTransition(Engine):
    """Algorithm 1, which learns from every transition at once."""

    def __init__(self, rules: Rules, settings: LearnerSettings, episodes: int, constraints: int, keep: bool) -> None:
        super().__init__(rules, settings, episodes, constraints, Atlas(rules, by_step=True), keep)
        self.rates = make_rates(rules.horizon, episodes, self.constants.cap)
        self.hoeffding, bernstein = make_bonuses(settings, self.constants, self.sizes, 0)
        self._bernstein_constants = bernstein
        self.q, self.visits = Growing(0.0, np.float64), Growing(0, np.int32)
        self.node = Growing(0.0, np.float64)
        self.bonus = [Growing(0.0, np.float64) for _ in range(0 if bernstein is None else 3)]
        self._gather()

    def _gather(self) -> None:
        """Put the arrays, which may have moved, before the kernel."""
        self.tables = Tables(self.q.room, self.visits.room, self.node.room, self.node.room.view(np.uint64))
        self.bernstein: Bernstein | None = None
        if self._bernstein_constants is not None:
            mu, sigma, beta = (part.room for part in self.bonus)
            self.bernstein = self._bernstein_constants._replace(mu=mu, sigma=sigma, beta=beta)
        self.layout = self.atlas.layout(0)

    def _fill(self, step: int, slot: int, episode: int) -> None:
        first, last = self.atlas.rows_of(slot)
        cell, start = slot * COLUMNS, self.constants.start[step]
        for part in (self.q, self.visits, *self.bonus):
            part.grow(last)
        self.node.grow(cell + COLUMNS)
        self._gather()
        self.q.room[first:last] = start
        self.node.room[cell + VALUE] = start
        self.node.room[cell + SECOND] = start if last > first + 1 else -np.inf
        self.tables.choice[cell + CHOSEN] = first

    def row(self, step: int, slot: int) -> int:
        """Return the greedy row."""
        return int(self.tables.choice[slot * COLUMNS + CHOSEN])

    def observe(self, lane: int, step: int, slot: int, row: int, seen: Step, episode: int) -> tuple[int, float]:
        """Learn from a transition; return the next slot (-1 at the end) and the violation."""
        following, value = -1, 0.0
        if step + 1 < self.rules.horizon:
            if seen.over:
                value = self.end_value(step + 1)
            else:
                assert seen.following is not None  # an episode that is not over shows its state
                following = self.place(step + 1, seen.following, episode)
                value = float(self.node.room[following * COLUMNS + VALUE])
        modified, violation = payoffs(seen, self.settings.slack, self.constants.penalty)
        if violation > self.harm.room[row]:
            self.harm.room[row] = violation
        changed = learn_transition(
            self.layout, self.tables, self.rates, self.hoeffding, self.bernstein,
            step, slot, row, modified - self.lowest, value,
        )  # fmt: skip
        if changed:
            self.changes.note(episode + 1, step, slot, self.row(step, slot))
        return following, violation

    def finish(self, lane: int, episode: int) -> None:
        """Nothing is left to learn when an episode ends."""

    def greedy(self) -> NDArray[np.int64]:
        """[slot, 1]: the greedy rows."""
        return self.tables.choice[CHOSEN::COLUMNS][: self.atlas.slots].astype(np.int64)[:, None]

    def values(self) -> Floats:
        """[row, 1]: Q."""
        return self.q.used[:, None]

    def known(self) -> NDArray[np.int8]:
        """[row, 1]: what was seen to violate."""
        return np.where(self.harm.used > 0, VIOLATED, UNKNOWN).astype(np.int8)[:, None]

    def feasible(self) -> bool | None:
        """Algorithm 1 proves nothing about feasibility."""
        return None

    def proof(self) -> list[Witness]:
        """Nor has it a proof."""
        return []

    def parts(self) -> dict[str, Growing]:
        """Every table that grows, by name."""
        names = ("mu", "sigma", "beta")
        own = {"q": self.q, "visits": self.visits, "node": self.node, "harm": self.harm}
        return own | dict(zip(names, self.bonus, strict=False))

    def load(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `parts` held, once the atlas is back."""
        for name, part in self.parts().items():
            part.load(arrays[name])
        self._gather()
