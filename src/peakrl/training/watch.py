"""A run as somebody sees it who watches it learn: `learn(..., watch=...)` calls between two pieces of work.

Watching changes nothing: a `RunView` reads what the learner has, and `RunView.run` copies it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peakrl.learners.base import ProofHistory
from peakrl.training.history import History

if TYPE_CHECKING:
    from peakrl.learners.base import LearnerSettings
    from peakrl.training.learn import LearningRun
    from peakrl.training.trainer import ActiveRun


@dataclass(frozen=True)
class RunView:
    """Where a run stands; good until the watcher returns."""

    active: ActiveRun
    #: Episodes that the run is to have at its end.
    goal: int

    @property
    def model(self) -> Any:
        """What is learned on: the model, or the states of an environment that were met so far."""
        return self.active.model

    @property
    def settings(self) -> LearnerSettings:
        """The learner's."""
        return self.active.settings

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.active.seed

    @property
    def episodes(self) -> int:
        """Done so far."""
        return self.active.done

    @property
    def violations(self) -> int:
        """Episodes so far that violated a constraint."""
        return int(self.active.counters[0])

    def history_after(self, episode: int, *, latest: bool = False) -> History:
        """Return what was recorded after an episode; with `latest` also the latest episode, recorded or not."""
        recorder = self.active.recorder
        if recorder is None or not self.episodes:
            return History.empty()
        return recorder.history_after(episode, self.episodes if latest else 0)

    def proof_history_after(self, episode: int) -> ProofHistory | None:
        """Return what a certified learner proved after an episode; None of other learners."""
        proved = None if self.active.algorithm is None else self.active.algorithm.proof_history()
        return None if proved is None else proved.after(episode)

    def run(self) -> LearningRun:
        """Return the run so far, which stays as it is while learning goes on."""
        return self.active.result(watched=True)


#: Called at the beginning and after each piece of work, about twice a second; what it raises ends the run.
Watch = Callable[[RunView], None]
