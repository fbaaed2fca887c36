"""A run's history as TensorBoard reads it: `peakrl train FILE --tensorboard DIR`.

A folder holds one run. Each session adds a file to it, and each recorded episode one event with all its numbers:

    policy/value, policy/violation          of the policy of that episode, exact
    averaged/value, averaged/violation      of the mixture of all policies so far, exact
    policy/gap, averaged/gap                optimum minus value, where the optimum is known
    episode/reward, episode/violation       as experienced
    violations                              violating episodes so far
    certified/gap, certified/violation      what a certified learner has proved of its candidate
    certified/true_gap                      the candidate's gap, where the optimum is known

A session goes on after the last episode that the folder holds. Where the run goes on from an earlier one (its latest
checkpoint was older, or it was started anew), TensorBoard is told to forget what came after that.
"""

from __future__ import annotations

import math
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peakrl.certifying.findings import ModelFindings
from peakrl.errors import SettingsError, StorageError
from peakrl.model.tabular import TabularModel
from peakrl.report.blocks import flattened
from peakrl.storage import read_file

if TYPE_CHECKING:
    from peakrl.learning.history import History, ProofHistory
    from peakrl.learning.settings import LearnerSettings
    from peakrl.learning.watching import RunView

PATTERN = "events.out.tfevents.*"
#: Points that are written at a time: TensorBoard shows about a thousand in all.
MOST_POINTS = 500
MEASURES = {
    "policy/value": "value",
    "policy/violation": "violation",
    "averaged/value": "averaged_value",
    "averaged/violation": "averaged_violation",
    "episode/reward": "episode_reward",
    "episode/violation": "episode_violation",
}
GAPS = {"policy/gap": "value", "averaged/gap": "averaged_value"}
COUNT = "violations"


class Package(NamedTuple):
    """What is used of tensorboardX."""

    events: Any
    summaries: Any
    helpers: Any
    open_file: Any


def package() -> Package:
    """Return tensorboardX, or say how to get it."""
    try:
        from tensorboardX import summary
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2
    except ImportError as error:
        raise SettingsError(
            f"--tensorboard needs a package that is not installed ({error}): pip install 'peakrl[tensorboard]'"
        ) from error
    return Package(event_pb2, summary_pb2, summary, EventsWriter)


class EventLog:
    """Writes what a watched run records; `watch` goes to `learn`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder, self._package = Path(folder), package()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._last = last_step(self.folder, self._package)
            # Files of one second are told apart, and read in this order.
            suffix = f".{len(list(self.folder.glob(PATTERN))):04d}"
            self._file = self._package.open_file(str(self.folder / "events"), suffix)
        except OSError as error:
            raise StorageError(f"cannot log to {self.folder}: {error.strerror or error}") from error
        self._optimum: float | None = None
        self._begun = self._failed = False

    def watch(self, moment: RunView) -> None:
        """Write what is new; a disk that is full ends the log, not the run."""
        if self._failed:
            return
        try:
            if not self._begun:
                self._begin(moment)
            if moment.episodes > self._last:
                self._write(moment.history_after(self._last, latest=moment.episodes == moment.goal))
                self._scalars(moment.episodes, {COUNT: float(moment.violations)})
                self._write_proved(moment.proof_history_after(self._last))
                self._last = moment.episodes
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._failed = True
        print(f"peakrl: cannot log to {self.folder} ({error}); learning goes on without", file=sys.stderr)

    def close(self) -> None:
        """Write no more."""
        try:
            self._file.close()
        except OSError as error:
            if not self._failed:
                self._give_up(error)

    def _begin(self, moment: RunView) -> None:
        self._begun = True
        if moment.episodes < self._last:
            start = self._package.events.SessionLog(status=self._package.events.SessionLog.START)
            self._event(step=moment.episodes + 1, session_log=start)
        if not self._last or not moment.episodes:
            self._describe(
                {"problem": moment.model.name, "seed": moment.seed, "episodes": moment.goal}, moment.settings
            )
        self._last = min(self._last, moment.episodes)
        if moment.active.recorder is not None and isinstance(moment.model, TabularModel):
            best = ModelFindings(moment.model).optimum
            self._optimum = None if best is None else best.value

    def _describe(self, told: Mapping[str, Any], settings: LearnerSettings) -> None:
        """Write the settings, as text and for the table of hyperparameters."""
        named = dict(told) | {name: value for name, value in flattened(settings.as_dict()) if value is not None}
        rows = "\n".join(f"| {name} | {value} |" for name, value in named.items())
        self._event(summary=self._package.helpers.text("settings", f"| setting | value |\n|---|---|\n{rows}"))
        plain = {name: value if isinstance(value, bool | int | float) else str(value) for name, value in named.items()}
        experiment, start, _ = self._package.helpers.hparams(plain, dict.fromkeys([*MEASURES, *GAPS]))
        for summary in (experiment, start):
            self._event(summary=summary)

    def _write(self, history: History) -> None:
        keep = np.unique(np.linspace(0, len(history) - 1, min(len(history), MOST_POINTS)).round().astype(np.int64))
        columns = {tag: getattr(history, name)[keep] for tag, name in MEASURES.items()}
        if self._optimum is not None:
            columns |= {tag: self._optimum - getattr(history, name)[keep] for tag, name in GAPS.items()}
        for place, episode in enumerate(history.episode[keep].tolist()):
            self._scalars(episode, {tag: float(column[place]) for tag, column in columns.items()})

    def _write_proved(self, proved: ProofHistory | None) -> None:
        """Write what a certified learner proved."""
        for place, episode in enumerate([] if proved is None else proved.episode.tolist()):
            assert proved is not None  # or there is no episode
            told = {"certified/gap": float(proved.gap[place]), "certified/violation": float(proved.violation[place])}
            if self._optimum is not None:
                told["certified/true_gap"] = self._optimum - float(proved.value[place])
            self._scalars(episode, told)

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        kinds = self._package.summaries.Summary
        found = [kinds.Value(tag=tag, simple_value=value) for tag, value in values.items() if math.isfinite(value)]
        self._event(step=step, summary=kinds(value=found))

    def _event(self, **fields: Any) -> None:
        self._file.write_event(self._package.events.Event(wall_time=time.time(), **fields))


def last_step(folder: Path, used: Package) -> int:
    """Return the last episode that a folder's logs hold; 0 for none."""
    last = 0
    for path in sorted(folder.glob(PATTERN)):
        for record in records(read_file(path)):
            try:
                event = used.events.Event.FromString(record)
            except Exception as error:  # protobuf's own kind, which is not for others to import
                raise StorageError(f"{path} is no log of TensorBoard; name another folder") from error
            last = min(last, event.step - 1) if event.HasField("session_log") else max(last, event.step)
    return last


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file: length, checksum, content, checksum; one that was cut off is left out."""
    place = 0
    while place + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        if place + 16 + length > len(data):
            return
        yield data[place + 12 : place + 12 + length]
        place += 16 + length
