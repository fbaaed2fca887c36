"""The learning curve of a run: value and violation of pi^k and of pi-bar^k, and the returns of episodes.

It is exact on models. On environments only returns are known: the mean of all episodes so far is an unbiased estimate
of the value of pi-bar^k, and the value of pi^k is not known. Sums over the episodes until k are

    violation so far = k * averaged_violation,        regret so far = k * (optimum - averaged_value).

On models so large that exact curves would take minutes, the history holds returns as well (`sampled`), and a curve is
drawn from means over stretches of episodes. The mean of a stretch estimates the mean value of its policies without
bias; its interval is Student's, on the means of the shorter stretches between recorded points,

    mean +- t(n - 1) * s / sqrt(n)        n shorter stretches, s the standard deviation of their means.

If all of these means are equal, for instance without any violation, there is no interval: rare events may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_confidence, check_count, check_number
from peakrl.evaluation.curve import PolicyCurve
from peakrl.learners.episode import Changes
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Longs

#: Sums that differ by less, relative to both, are equal.
ROUNDING = 1e-12
#: Columns of a point: k; value of pi^k, mean so far and return of the episode, each for reward and violation.
POINT_COLUMNS = 7


@dataclass(frozen=True, repr=False)
class History:
    """Arrays of equal length, one entry for each recorded episode k (1-based)."""

    #: k.
    episode: Longs
    #: Expected reward of an episode under pi^k; NaN for environments.
    value: Floats
    #: Expected total violation of an episode under pi^k; NaN for environments.
    violation: Floats
    #: Value of pi-bar^k, the mixture of pi^1 .. pi^k; for environments the mean return so far.
    averaged_value: Floats
    #: Violation of pi-bar^k; for environments the mean violation so far.
    averaged_violation: Floats
    #: Return of episode k.
    episode_reward: Floats
    #: Total violation of episode k.
    episode_violation: Floats

    @classmethod
    def empty(cls) -> History:
        """Return a history without entries."""
        return cls(np.empty(0, np.int64), *(np.empty(0) for _ in range(6)))

    def __len__(self) -> int:
        return len(self.episode)

    def __repr__(self) -> str:
        if not len(self):
            return '<History without points: history="none">'
        until = f", episodes {self.episode[0]:,} to {self.episode[-1]:,}"
        kind = ", returns of episodes, not exact (see stretches())" if self.sampled else ""
        return f"<History of {len(self):,} points{until}{kind}: {', '.join(self.columns())}>"

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return {name: array}, for instance for `pandas.DataFrame`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def sampled(self) -> bool:
        """Does it hold returns of episodes only, as for environments and very large models?"""
        return bool(len(self)) and bool(np.isnan(self.value).all())

    def stretches(self, count: int = 50, confidence: float = 0.95) -> Stretches:
        """Return means over about `count` stretches of episodes, with confidence intervals."""
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
            spread[spread <= ROUNDING * np.abs(sums[ends + 1]) / length] = np.nan  # rare events may be missing
            columns += [whole, spread * stdtrit(np.maximum(sizes - 1, 1), 0.5 + confidence / 2)]
        return Stretches(self.episode[ends], *columns)

    @property
    def cumulative_violation(self) -> Floats:
        """Total violation of the episodes until k: expected on models, observed on environments."""
        total: Floats = self.episode * self.averaged_violation
        return total

    def regret(self, optimum: float) -> Floats:
        """Return the regret of the episodes until k, given the optimal value."""
        lost: Floats = self.episode * (check_number(optimum, "optimum") - self.averaged_value)
        return lost


@dataclass(frozen=True)
class Stretches:
    """Means over stretches of episodes, each until `episode`; margins are half an interval, NaN if unknown."""

    episode: Longs
    #: Mean reward of an episode.
    value: Floats
    #: The interval is value - margin to value + margin.
    value_margin: Floats
    #: Mean violation of an episode.
    violation: Floats
    #: The interval is violation - margin to violation + margin.
    violation_margin: Floats


class Recorder:
    """Records the history, chunk by chunk: exact values if there is a model, otherwise returns of episodes."""

    def __init__(self, every: int, model: TabularModel | None = None, *, randomised: bool = False) -> None:
        self.every, self.exact, self.randomised = every, model is not None, randomised
        self.parts: list[Floats] = []
        #: The latest episode's numbers, for the last point of the history.
        self.last: Floats = np.zeros(POINT_COLUMNS)
        self.sums = np.zeros(2)
        self.curve = None if model is None or model.deterministic or randomised else PolicyCurve(model)

    def add(self, done: int, count: int, experience: Floats, changes: Changes) -> None:
        """Add episodes done+1 .. done+count."""
        returns, values = experience[:, :2], experience[:, 2:] if self.randomised else experience
        if self.curve is not None:
            values = self.curve.advance(done, count, changes)
        if count == 0:
            return
        # Summed one after another, independently of the chunks, so that a resumed run has the same sums.
        running = np.add.accumulate(np.concatenate([self.sums[None], values if self.exact else returns]))[1:]
        self.sums = running[-1].copy()
        at = np.append(np.arange(self.every - 1 - done % self.every, count, self.every), count - 1)
        episode = (done + 1 + at).astype(np.float64)[:, None]
        exact = values[at] if self.exact else np.full((len(at), 2), np.nan)
        points = np.concatenate([episode, exact, running[at] / episode, returns[at]], axis=1)
        self.parts.append(points[:-1])
        self.last = points[-1].copy()

    def rest(self) -> None:
        """Free what can be computed again."""
        if self.curve is not None:
            self.curve.rest()

    def latest(self) -> dict[str, float]:
        """Return value and violation of the latest policy, or reward and violation of the latest episode."""
        reward, violation = self.last[1:3] if self.exact else self.last[5:7]
        return {"value" if self.exact else "reward": float(reward), "violation": float(violation)}

    def history_after(self, episode: int, done: int) -> History:
        """Return the points after an episode, with the latest episode if it is `done`."""
        later: list[Floats] = [self.last[None]] if done > episode and done % self.every else []
        for part in reversed(self.parts):
            later.append(part[np.searchsorted(part[:, 0], episode, side="right") :])
            if len(later[-1]) < len(part):
                break
        table = np.concatenate([np.empty((0, POINT_COLUMNS)), *later[::-1]])
        return History(table[:, 0].astype(np.int64), *(np.ascontiguousarray(column) for column in table.T[1:]))
