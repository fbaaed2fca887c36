"""The learning curve of a run: value and violation of pi^k and of pi-bar^k, and what episodes earned.

Exact on a model. Of an environment only experience is known: there the mean of all episodes so far stands for pi-bar^k,
whose value it estimates without bias, and pi^k has no value of its own. Summed up over the episodes until k,

    violation so far = k * averaged_violation,        regret so far = k * (optimum - averaged_value).

On models so large that exact curves would take minutes, history holds experience as well, and `sampled` means of many
episodes each stand for the curve. The mean of a stretch of episodes estimates the mean value of its policies without
bias; its interval is Student's, on the means of the shorter stretches between recorded points,

    mean +- t(n - 1) * s / sqrt(n)        n shorter stretches, s the standard deviation of their means.

Where all of them are alike, as where nothing was violated, there is no interval: what was not seen may be rare.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_confidence, check_count, check_number
from peakrl.errors import SettingsError
from peakrl.evaluation.policy_curve import PolicyCurve
from peakrl.learners.episode import Log
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs

#: Sums that differ by less, relative to both, are equal.
ROUNDING = 1e-12
#: Of a point: k, v_k, its mean and the experience, each of the latter three twice (reward, violation).
POINT_COLUMNS = 7
#: Of an environment's point.
EXPERIENCE_COLUMNS = 5
Point = tuple[int, float, float, float, float]


@dataclass(frozen=True, repr=False)
class History:
    """Arrays of equal length, one entry for each recorded episode k (1-based)."""

    #: k.
    episode: Longs
    #: Of pi^k: expected reward of an episode; not a number where the target is an environment.
    value: Floats
    #: Of pi^k: expected total violation of an episode.
    violation: Floats
    #: The same of pi-bar^k, the mixture of pi^1 .. pi^k; on an environment the mean of the episodes so far.
    averaged_value: Floats
    #: The violation of pi-bar^k, or of the episodes so far.
    averaged_violation: Floats
    #: As experienced in episode k.
    episode_reward: Floats
    #: As experienced in episode k.
    episode_violation: Floats

    @classmethod
    def empty(cls) -> History:
        """A history without entries."""
        return cls(np.empty(0, np.int64), *(np.empty(0) for _ in range(6)))

    def __len__(self) -> int:
        return len(self.episode)

    def __repr__(self) -> str:
        if not len(self):
            return '<History of nothing: history="none" was asked for>'
        until = f", episodes {self.episode[0]:,} to {self.episode[-1]:,}"
        kind = ", what episodes earned, nothing exact (see stretches())" if self.sampled else ""
        return f"<History of {len(self):,} points{until}{kind}: {', '.join(self.columns())}>"

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return {name: array}."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def sampled(self) -> bool:
        """Is it made of what episodes earned, with nothing exact: of an environment, or of a very large model?"""
        return bool(len(self)) and bool(np.isnan(self.value).all())

    def stretches(self, count: int = 50, confidence: float = 0.95) -> Stretches:
        """Return means over about `count` stretches of episodes, with intervals: what a curve is drawn from."""
        from scipy.special import stdtrit

        check_confidence(confidence)
        ends = np.unique(np.linspace(0, len(self), check_count(count, "count") + 1).astype(np.int64)[1:] - 1)
        ends = ends[ends >= 0]
        starts = np.concatenate([[-1], ends[:-1]])
        episodes = np.concatenate([[0], self.episode]).astype(np.float64)
        columns: list[Floats] = []
        for averaged in (self.averaged_value, self.averaged_violation):
            sums = np.concatenate([[0.0], self.episode * averaged])
            means = np.diff(sums) / np.diff(episodes)
            parts = [means[start + 1 : end + 1] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            sizes = np.array([len(part) for part in parts])
            spread = np.array([part.std(ddof=1) / np.sqrt(len(part)) if len(part) > 1 else np.nan for part in parts])
            length = episodes[ends + 1] - episodes[starts + 1]
            whole = (sums[ends + 1] - sums[starts + 1]) / length
            spread[spread <= ROUNDING * np.abs(sums[ends + 1]) / length] = np.nan  # what was not seen may be rare
            columns += [whole, spread * stdtrit(np.maximum(sizes - 1, 1), 0.5 + confidence / 2)]
        return Stretches(self.episode[ends], *columns)

    @property
    def cumulative_violation(self) -> Floats:
        """By how much the episodes until k violated, all together: expected on a model, seen on an environment."""
        total: Floats = self.episode * self.averaged_violation
        return total

    def regret(self, optimum: float) -> Floats:
        """Return what the episodes until k earned less than an optimum would have, all together."""
        lost: Floats = self.episode * (check_number(optimum, "optimum") - self.averaged_value)
        return lost

    def to_frame(self) -> Any:
        """Return a pandas table with one row a point; needs pandas."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise SettingsError(
                "a table needs pandas, which is not installed; history.columns() needs nothing"
            ) from None
        return pandas.DataFrame(self.columns() | {"cumulative_violation": self.cumulative_violation})


@dataclass(frozen=True)
class Stretches:
    """Means over stretches of episodes, each until `episode`; margins are half an interval, NaN where none is known."""

    episode: Longs
    #: Mean reward of an episode.
    value: Floats
    #: The interval is value - margin to value + margin.
    value_margin: Floats
    #: Mean violation of an episode.
    violation: Floats
    #: The same of the violation.
    violation_margin: Floats


class Recorder:
    """Turns experience and the change list into history, chunk by chunk."""

    def __init__(self, model: TabularModel, every: int, *, randomised: bool = False) -> None:
        self.model, self.every, self.randomised = model, every, randomised
        self.parts: list[Floats] = []
        #: The latest episode's numbers, for the last point of the history.
        self.last: Floats = np.zeros(POINT_COLUMNS)
        self.sums = np.zeros(2)
        self.curve = None if model.deterministic or randomised else PolicyCurve(model)

    def add(self, done: int, count: int, experience: Floats, log: Log, changes: int) -> None:
        """Take in episodes done+1 .. done+count."""
        exact = experience if self.curve is None else self.curve.advance(done, count, log, changes)
        if self.randomised:
            experience, exact = (np.ascontiguousarray(part) for part in (experience[:, :2], experience[:, 2:]))
        if count == 0:
            return
        # One after another, whatever the chunks, so that a resumed run adds up alike.
        running = np.add.accumulate(np.concatenate([self.sums[None], exact]))[1:]
        self.sums = running[-1].copy()
        first = self.every - 1 - done % self.every
        at = np.append(np.arange(first, count, self.every), count - 1)
        episode = (done + 1 + at).astype(np.float64)[:, None]
        points = np.concatenate([episode, exact[at], running[at] / episode, experience[at]], axis=1)
        self.parts.append(points[:-1])
        self.last = points[-1].copy()

    def rest(self) -> None:
        """Give back what can be made again."""
        if self.curve is not None:
            self.curve.rest()

    def latest(self) -> dict[str, float]:
        """Value and violation of the latest policy."""
        return {"value": float(self.last[1]), "violation": float(self.last[2])}

    def history(self, done: int) -> History:
        """Everything recorded, the latest episode included."""
        return as_history([*self.parts, self.last[None]] if done % self.every else self.parts)

    def history_after(self, episode: int, done: int = 0) -> History:
        """What was recorded after an episode, and the latest episode too where `done` names it."""
        later: list[Floats] = [self.last[None]] if done > episode and done % self.every else []
        for part in reversed(self.parts):
            later.append(part[np.searchsorted(part[:, 0], episode, side="right") :])
            if len(later[-1]) < len(part):
                break
        return as_history(later[::-1])


class Experience:
    """What episodes earned and violated, as history: nothing exact is known of an environment."""

    def __init__(self, every: int) -> None:
        self.every = every
        #: Of the recorded episodes: number, reward, violation, and the sums of both until then.
        self.rows: list[Point] = []
        self.last: Point = (0, np.nan, np.nan, 0.0, 0.0)

    def add(self, done: int, count: int, experience: Floats, log: Log, changes: int) -> None:
        """Take in episodes done+1 .. done+count."""
        for episode, (reward, violation) in enumerate(experience[:, :2].tolist(), done + 1):
            *_, earned, violated = self.last
            self.last = (episode, reward, violation, earned + reward, violated + violation)
            if episode % self.every == 0:
                self.rows.append(self.last)

    def latest(self) -> dict[str, float]:
        """What the latest episode earned and violated."""
        return {"reward": self.last[1], "violation": self.last[2]}

    def history(self, done: int) -> History:
        """Everything recorded, the latest episode included."""
        return self._history(self.table())

    def history_after(self, episode: int, done: int = 0) -> History:
        """What was recorded after an episode, and the latest episode too where `done` names it."""
        table = self.table()
        later = (table[:, 0] > episode) & ((table[:, 0] == done) | (table[:, 0] % self.every == 0))
        return self._history(table[later])

    def _history(self, table: Floats) -> History:
        episode, reward, violation, earned, violated = table.T.copy()
        unknown = np.full(len(table), np.nan)
        means = earned / episode, violated / episode
        return History(episode.astype(np.int64), unknown, unknown.copy(), *means, reward, violation)

    def table(self) -> Floats:
        """[point, column], the latest episode last."""
        rows = self.rows if not self.last[0] or self.last[0] % self.every == 0 else [*self.rows, self.last]
        return np.array(rows, np.float64).reshape(-1, EXPERIENCE_COLUMNS)

    def load(self, table: Floats) -> None:
        """Take over a stored table."""
        rows: list[Point] = [(int(episode), *figures) for episode, *figures in table.tolist()]
        self.rows = [row for row in rows if row[0] % self.every == 0]
        self.last = rows[-1] if rows else self.last


def as_history(parts: list[Floats]) -> History:
    """Join points."""
    table = np.concatenate([np.empty((0, POINT_COLUMNS)), *parts])
    return History(table[:, 0].astype(np.int64), *(np.ascontiguousarray(column) for column in table.T[1:]))
