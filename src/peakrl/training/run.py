"""`LearningRun`, the result of `learn`, and `RunView`, a run in progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.certificates.certificate import Certificate
from peakrl.errors import PeakError
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import Algorithm, LearnerSettings, ProofHistory, Results
from peakrl.learners.coverage import Coverage, find_coverage
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.space import StateSpace
from peakrl.tabular import TabularModel
from peakrl.training.history import History
from peakrl.training.run_file import writer
from peakrl.types import Floats, Longs

if TYPE_CHECKING:
    from peakrl.training.trainer import Trainer

FEASIBLE = {True: "feasible", False: "proved infeasible", None: "feasibility not proved"}


@dataclass(frozen=True, eq=False, repr=False)
class LearningRun:
    """Result of `learn`: the learned policy, the history and what the learner knows.

    Examples
    --------
    >>> import peakrl
    >>> run = peakrl.learn(peakrl.problems.energy_harvesting(peak_power=8), episodes=500)
    >>> run.episodes, run.policy.action(0, (0, 9))
    (500, 8)
    """

    #: The model, or the states of an environment that were visited.
    model: StateSpace
    #: Settings of the learner.
    settings: LearnerSettings
    #: What was declared about the target.
    assumptions: Assumptions
    #: K: number of episodes.
    episodes: int
    #: Number of steps.
    steps: int
    #: Seed of the random numbers.
    seed: int
    #: The discount, or None; with one, policies hold for ever.
    discount: float | None
    #: Learning curve; its rewards are not discounted.
    history: History
    #: Number of episodes that violated a constraint.
    violations: int
    #: The last episode that violated a constraint (1-based), or None.
    last_violation_episode: int | None
    #: True or False if the learner proved it. None: unknown; the absence of violations proves nothing.
    feasible: bool | None
    #: The observations that `feasible = False` rests on, starting from a first state.
    infeasibility_proof: list[Witness]
    #: Why the run ended before what was planned, or None.
    stop_reason: str | None
    #: Bounds of a certified learner, review by review; None for other learners.
    proof_history: ProofHistory | None
    #: The learner's best decisions after the last episode, without exploration.
    policy: Policy | StochasticPolicy
    #: pi^K, the policy of the last episode.
    behavior_policy: Policy | StochasticPolicy
    _averaged: AveragedPolicy | None
    _learned: Algorithm | Results
    _trainer: Trainer | None = None

    @property
    def averaged_policy(self) -> AveragedPolicy:
        """pi-bar of Theorem 1: the uniform mixture of pi^1 .. pi^K."""
        if self._averaged is None:
            raise PeakError("this run has no list of policy changes: learn(..., average=True) keeps one")
        return self._averaged

    @cached_property
    def q(self) -> Floats:
        """[entry]: the learner's estimate of each action's value (the Q-table of Q-learners)."""
        return self._learned.values().copy()

    @cached_property
    def certificate(self) -> Certificate | None:
        """What a certified learner proved about `policy`, or its current bounds; None for other learners."""
        return self._learned.certificate()

    @cached_property
    def issued(self) -> list[dict[str, float]]:
        """What a certified learner certified, one entry for each epsilon that it reached, in their order.

        Each entry holds `epsilon`, `episodes`, `gap`, `violation_high` and the other bounds at that time. The list is
        empty for other learners and for a run that is still learning.
        """
        return list(getattr(self._learned, "issued", ()))

    @property
    def proof_episode(self) -> int | None:
        """The episode that completed the proof of infeasibility; None without such a proof."""
        return getattr(self._learned, "proved_in", None) if self.feasible is False else None

    @property
    def stored_numbers(self) -> int | None:
        """Size of the learner's tables; None for a run that is still learning."""
        return None if isinstance(self._learned, Results) else sum(a.size for a in self._learned.arrays().values())

    @cached_property
    def coverage(self) -> Coverage | None:
        """States that `policy` may reach in which its action was never tried, and their probability.

        None for learners that do not count visits, for randomised policies, for discounted runs and for a run that is
        still learning.
        """
        model = self.model if isinstance(self.model, TabularModel) else None
        if isinstance(self._learned, Results) or not isinstance(self.policy, Policy) or self.discount is not None:
            return None
        return find_coverage(self._learned, self.policy.rows, model)

    @cached_property
    def visits(self) -> Longs | None:
        """[row]: how often the learner took each action, at any step; None for learners that do not count."""
        return self._learned.visits()

    @cached_property
    def infeasible_limits(self) -> str | None:
        """Why the limits are infeasible under the counts observed on an environment, or None.

        None also for learners that count nothing. On a model `learn` raises an error for such limits.
        """
        return self._learned.infeasible_limits()

    @property
    def multipliers(self) -> Floats | None:
        """[cost]: Lagrange multipliers of the limited violations; None for learners without such limits."""
        return self._learned.multipliers()

    @property
    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: episode, and the multipliers then; None for learners without such a curve."""
        return self._learned.multiplier_curve()

    @property
    def averaged_multipliers(self) -> Floats | None:
        """[cost]: mean of `multiplier_curve`, the quantity that bounds on primal-dual learners refer to."""
        curve = self.multiplier_curve
        return None if curve is None or not len(curve) else curve[:, 1:].mean(axis=0)

    def memory(self) -> Memory | None:
        """Return the violations that the learner recorded; None for learners that record none."""
        return self._learned.memory()

    def save(self, path: str | Path) -> None:
        """Write the run, its model included, to one file for `peakrl.load` and `peakrl.resume`."""
        if self._trainer is None:
            raise PeakError("this run cannot be saved: it is a view of a run that is still learning")
        writer(self._trainer)(Path(path), self._trainer)

    def __repr__(self) -> str:
        last = f", last in episode {self.last_violation_episode:,}" if self.last_violation_episode else ""
        coverage = "" if self.coverage is None else f"; policy: {self.coverage}"
        limits = "" if self.infeasible_limits is None else f"; {self.infeasible_limits}"
        return (
            f"<LearningRun of {self.model.name!r}: {self.episodes:,} episodes, seed {self.seed}, "
            f"{self.violations:,} violating{last}, {FEASIBLE[self.feasible]}{coverage}{limits}>"
        )


@dataclass(frozen=True)
class RunView:
    """A run in progress, as passed to `learn(..., watch=...)`; valid until that function returns.

    Watching does not change a run: a view reads, and `run()` copies.
    """

    trainer: Trainer
    #: Number of episodes at the end of the run; of steps if `steps` were asked for.
    goal: int

    @property
    def model(self) -> Any:
        """The model, or the states of an environment that were visited so far."""
        return self.trainer.model

    @property
    def settings(self) -> LearnerSettings:
        """Settings of the learner."""
        return self.trainer.settings

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.trainer.seed

    @property
    def episodes(self) -> int:
        """Episodes so far."""
        return self.trainer.done

    @property
    def steps(self) -> int:
        """Steps of these episodes."""
        return self.trainer.steps

    @property
    def violations(self) -> int:
        """Episodes so far that violated a constraint."""
        return int(self.trainer.counters[0])

    def history_after(self, episode: int, *, latest: bool = False) -> History:
        """Return the points recorded after an episode; with `latest` also the latest episode, recorded or not."""
        recorder = self.trainer.recorder
        if recorder is None or not self.episodes:
            return History.empty()
        return recorder.history_after(episode, self.episodes if latest else 0)

    def run(self) -> LearningRun:
        """Return a copy of the run so far."""
        return self.trainer.result(watched=True)


#: Called at the beginning and after each piece of work, about twice a second; an exception ends the run.
Watch = Callable[[RunView], None]
