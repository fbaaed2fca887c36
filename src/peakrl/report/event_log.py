"""The history of a run for TensorBoard: `peakrl train FILE --tensorboard DIR`.

Scalars, each at its recorded episode: `policy/*` and `averaged/*` (exact value, violation, and gap to the optimum if
it is known), `episode/*` (as experienced), `violations`, and `certified/*` (what a certified learner has proved). A
folder holds one run: a session that resumes it writes the history again, and TensorBoard discards the earlier points.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.errors import SettingsError, StorageError
from peakrl.report.analysis import ModelAnalysis
from peakrl.report.blocks import flattened
from peakrl.tabular import TabularModel

if TYPE_CHECKING:
    from peakrl.training.run import RunView

#: Most points of one write; TensorBoard shows about 1,000 in total.
MOST_POINTS = 500
MEASURES = {
    "policy/value": "value",
    "policy/violation": "violation",
    "averaged/value": "averaged_value",
    "averaged/violation": "averaged_violation",
    "episode/reward": "episode_reward",
    "episode/violation": "episode_violation",
}
GAPS = {"policy/gap": "value", "averaged/gap": "averaged_value", "certified/true_gap": "value"}


class EventLog:
    """Writes the history of a run; pass `watch` to `learn`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise SettingsError("--tensorboard needs tensorboardX: pip install '.[tensorboard]'") from error
        try:
            # Unbounded queue: the writer's thread stops emptying it if the disk is full.
            self._writer: Any = SummaryWriter(str(folder), purge_step=1, max_queue=0, flush_secs=5)
        except OSError as error:
            raise StorageError(f"cannot log to {folder}: {error.strerror or error}") from error
        self._folder, self._last, self._optimum, self._failed = folder, -1, math.nan, False

    def watch(self, moment: RunView) -> None:
        """Write new points; a disk error ends the log, not the run."""
        try:
            if self._last < 0:
                self._begin(moment)
            if not self._failed and moment.episodes > self._last:
                latest = moment.episodes == moment.goal
                self._columns(moment.history_after(self._last, latest=latest), MEASURES, ("policy/gap", "averaged/gap"))
                proved = {"certified/gap": "gap", "certified/violation": "violation"}
                self._columns(moment.proof_history_after(self._last), proved, ("certified/true_gap",))
                self._writer.add_scalar("violations", moment.violations, moment.episodes)
                self._last = moment.episodes
                self._writer.flush()
        except OSError as error:
            self._failed = True
            print(
                f"peakrl: cannot log to {self._folder} ({error}); learning continues without the log", file=sys.stderr
            )

    def _begin(self, moment: RunView) -> None:
        self._last = 0
        named = {"problem": moment.model.name, "seed": moment.seed, "episodes": moment.goal}
        named |= {name: value for name, value in flattened(moment.settings.as_dict()) if value is not None}
        rows = "\n".join(f"| {name} | {value} |" for name, value in named.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")
        if moment.trainer.recorder is not None and isinstance(moment.model, TabularModel):
            best = ModelAnalysis(moment.model).optimum
            self._optimum = math.nan if best is None else best.value

    def _columns(self, history: Any, measures: dict[str, str], gaps: tuple[str, ...]) -> None:
        """Write the columns of a history, and the gaps of its values to the optimum."""
        count = 0 if history is None else len(history.episode)
        for index in np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(np.int64)).tolist():
            numbers = {tag: getattr(history, name)[index] for tag, name in measures.items()}
            numbers |= {tag: self._optimum - getattr(history, GAPS[tag])[index] for tag in gaps}
            for tag, number in numbers.items():
                if math.isfinite(number):
                    self._writer.add_scalar(tag, float(number), int(history.episode[index]))

    def close(self) -> None:
        """Close the log."""
        with suppress(OSError):
            self._writer.close()
