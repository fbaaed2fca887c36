"""A run as somebody sees it who watches it learn: `learn(..., watch=...)` calls between two pieces of work.

Watching changes nothing: a `Moment` reads what the learner has, and `Moment.run` copies it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.learning.history import History, Recorder

if TYPE_CHECKING:
    from peakrl.learning.environment import EnvironmentLearner
    from peakrl.learning.run import Learner, LearningRun
    from peakrl.learning.settings import LearnerSettings


@dataclass(frozen=True)
class Moment:
    """Where a run stands; good until the watcher returns."""

    learner: Learner | EnvironmentLearner
    #: Episodes that the run is to have at its end.
    goal: int

    @property
    def model(self) -> Any:
        """What is learned on: the model, or the states of an environment that were met so far."""
        return self.learner.model

    @property
    def settings(self) -> LearnerSettings:
        """The learner's."""
        return self.learner.settings

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.learner.seed

    @property
    def episodes(self) -> int:
        """Done so far."""
        return self.learner.done

    @property
    def violations(self) -> int:
        """Episodes so far that violated a constraint."""
        return int(self.learner.counters[0])

    def history_after(self, episode: int, *, latest: bool = False) -> History:
        """Return what was recorded after an episode; with `latest` also the latest episode, recorded or not."""
        recorder = self.learner.recorder
        if recorder is None or not self.episodes:
            return History.empty()
        if isinstance(recorder, Recorder):
            return recorder.history_after(episode, self.episodes if latest else 0)
        history = recorder.history()
        later = (history.episode > episode) & (latest | (history.episode % recorder.every == 0))
        return History(*(column[later] for column in history.columns().values()))

    def run(self) -> LearningRun:
        """Return the run so far; on a model it stays as it is while the learner goes on."""
        from peakrl.learning.run import Learner

        learner = self.learner
        if not isinstance(learner, Learner):
            return learner.result()
        twin: Any = copy.copy(learner)
        twin.engine = copy.copy(learner.engine)
        twin.engine.tables = type(twin.engine.tables)(*map(np.copy, twin.engine.tables))
        twin.changes, twin.rows = list(learner.changes), learner.rows.copy()
        run: LearningRun = twin.result()
        return replace(run, _learner=None)


#: Called at the beginning and after each piece of work, about twice a second; what it raises ends the run.
Watch = Callable[[Moment], None]


def together(watchers: list[Watch]) -> Watch | None:
    """Return one watcher for many; None for none."""

    def watch(moment: Moment) -> None:
        for each in watchers:
            each(moment)

    return watch if watchers else None
