"""Run files: write a run, bring a fresh trainer to the state of a file, and checkpoints while learning.

A run file holds everything that the next episode depends on: settings, declarations, seed, planned episodes, the four
words of the generator, the tables, the counters, the list of policy changes and the history with its running sums; for
a model the model, for an environment the visited states in the order of their first visit. The value tables of the
exact curve are a function of the current policy, so only the policy is stored. A run that is interrupted anywhere, any
number of times, and resumed equals the uninterrupted run bit for bit.

An environment is not stored, only what it declared: the run can be read without it, and whoever continues the run
passes the environment with the same arguments again. Episodes in progress in the other lanes of a vectorised
environment start over, and an environment that goes on from episode to episode (`by_steps`) is reset: the run then
equals one whose environment was reset at that moment.

Constants that depend on the number of episodes K (the penalty of Theorem 2 and l = log(S A K H / p) of a bonus) are
those of the planned K, so a run that uses them cannot be extended; every other run can.
"""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import check_count, check_episodes, whole
from peakrl.errors import LearnerError, SettingsError, StorageError, TargetError
from peakrl.evaluation.curve import PolicyCurve
from peakrl.gym.adapter import Lanes, store_rules
from peakrl.labels import UnstorableLabel, load_labels, store_labels
from peakrl.learners import learner_from
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import LearnerSettings
from peakrl.learners.episode import Changes
from peakrl.learners.space import GrowingSpace, checked_rows
from peakrl.learners.tables import alike, overwrite
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, first_rows
from peakrl.progress import Interrupts
from peakrl.records import Arrays, Field, FileKind, Record, check_range, content_of, fields_of, kind_of
from peakrl.specs.functions import same
from peakrl.storage import ready
from peakrl.tabular import TabularModel, store_model
from peakrl.training.history import POINT_COLUMNS

if TYPE_CHECKING:
    from peakrl.training.trainer import Trainer

#: The files of runs on models and on environments.
RUN, ENVIRONMENT_RUN = (
    FileKind(name, schema=11, remedy="load it with that version, or learn again")
    for name in ("learning run", "learning run on an environment")
)
#: The facts by which two runs differ, for messages.
WORDS = {
    "settings": "learner",
    "assumptions": "assumptions",
    "seed": "seed",
    "planned": "number of episodes or steps",
    "by_steps": "number of episodes or steps",
    "every": "history",
    "average": "average",
    "sampled": "history",
    "discount": "discount",
    "model": "problem",
    "rules": "environment",
}
HISTORY = {
    "history": Field(np.float64, ("point", POINT_COLUMNS)),
    "history.last": Field(np.float64, (POINT_COLUMNS,)),
    "history.sums": Field(np.float64, (2,)),
}
#: An upper limit for the number of constraints in a file.
MOST_CONSTRAINTS = 10_000
#: Default interval between checkpoints in seconds, and the largest share of the time that saving may take.
SECONDS, SHARE = 30.0, 0.05
#: Writes a run to a file.
Writer = Callable[[Path, Any], None]

# Writing ------------------------------------------------------------------------------------------------------------


def writer(trainer: Trainer) -> Writer:
    """Return a function that writes a run to a file; it converts the model only once."""
    if not isinstance(trainer.target, TabularModel):
        return write_run
    stored = store_model(trainer.target)
    return lambda path, running: write_run(path, running, stored)


def write_run(path: str | Path, trainer: Trainer, model: Record | None = None) -> None:
    """Write a run to one file; `model` is `store_model(trainer.target)` if that is known."""
    record = snapshot(trainer)
    record.plain |= description(trainer)
    if isinstance(trainer.target, TabularModel):
        record.add("model", model or store_model(trainer.target))
        RUN.write(path, record)
    else:
        space = trainer.space
        assert isinstance(space, GrowingSpace)  # an environment
        try:
            record.add("labels", store_labels(space.labels[space.ends :]))
        except UnstorableLabel as error:
            raise StorageError(f"cannot write {path}: a file cannot hold a state such as {error}") from None
        ENVIRONMENT_RUN.write(path, record)


def description(trainer: Trainer) -> dict[str, Any]:
    """Return the facts by which two runs differ, without the model."""
    described = {
        "settings": trainer.settings.as_dict(),
        "assumptions": trainer.assumptions.as_dict(),
        "seed": int(trainer.seed),
        "planned": int(trainer.planned),
        "by_steps": trainer.by_steps,
        "every": trainer.recorder.every if trainer.recorder is not None else 0,
        "average": trainer.average,
        "sampled": trainer.sampled,
        "discount": trainer.discount,
    }
    if not isinstance(trainer.target, TabularModel):
        described["rules"] = store_rules(trainer.target.rules)
    return described


def snapshot(trainer: Trainer) -> Record:
    """Return the state of a run."""
    algorithm, recorder, space = trainer.learned(), trainer.recorder, trainer.space
    arrays: Arrays = {"generator": trainer.generator, "counters": trainer.counters, "greedy": trainer.greedy}
    record = Record({"done": trainer.done, "steps": trainer.steps}, arrays)
    record.add("engine", Record({}, algorithm.arrays()))
    if trainer.average:
        arrays["changes"] = np.stack(trainer.change_list())
    if isinstance(space, GrowingSpace):
        record.plain["constraints"] = space.rules.constraints.count
        record.add("space", Record({}, space.arrays()))
    if recorder is not None:
        recorder.parts = [np.concatenate([np.empty((0, POINT_COLUMNS)), *recorder.parts])]
        arrays |= {"history": recorder.parts[0], "history.last": recorder.last, "history.sums": recorder.sums}
        if recorder.curve is not None:
            arrays |= {"curve.rows": recorder.curve.rows, "curve.pending": np.stack(recorder.curve.pending)}
    return record


# Reading ------------------------------------------------------------------------------------------------------------


def continued(path: str | Path, trainer: Trainer) -> Trainer:
    """Bring a fresh trainer to the checkpoint at `path`, if there is one; a checkpoint of another run is an error."""
    if not Path(path).exists():
        return trainer
    record = kind_for(path, trainer.target).read(path)
    with fields_of(path):
        plain, wanted = record.plain, description(trainer)
        settings, _ = stored_learner(path, plain, trainer.assumptions)
        found = {key: plain[key] for key in wanted if key in plain} | {"settings": settings.as_dict()}
        if isinstance(trainer.target, TabularModel):
            wanted["model"], found["model"] = trainer.target.digest, plain["model"]["digest"]
        different = dict.fromkeys(WORDS[key] for key, value in wanted.items() if not same(found[key], value))
        if different:
            raise StorageError(
                f"{path} holds another run, with a different {' and a different '.join(different)}. Continue that one "
                "with peakrl.resume (on the command line: --resume), save this one elsewhere, or remove the file "
                "(--overwrite)"
            )
    bring_back(path, trainer, record)
    if (reason := trainer.learned().not_resumable) is not None and trainer.reached < trainer.planned:
        raise SettingsError(f"{path} holds {trainer.done:,} episodes of this run, but {reason}, to another file")
    return trainer


def kind_for(path: str | Path, target: TabularModel | Lanes | None) -> FileKind:
    """Return the kind of file that holds a run on `target`; None: the kind of the file."""
    if target is None:
        return ENVIRONMENT_RUN if kind_of(path) == ENVIRONMENT_RUN.name else RUN
    return RUN if isinstance(target, TabularModel) else ENVIRONMENT_RUN


def stored_learner(
    path: str | Path, plain: Mapping[str, Any], assumptions: Assumptions | None
) -> tuple[LearnerSettings, Assumptions]:
    """Return the settings and the assumptions of a file; assumptions that are passed must agree with the file."""
    try:
        settings, declared = learner_from(plain["settings"]), plain["assumptions"]
    except SettingsError as error:
        raise StorageError(f"{path} holds settings that this peakrl does not know: {error}") from error
    if assumptions is None:
        try:
            return settings, Assumptions.from_dict(declared)
        except SettingsError as error:
            raise StorageError(f"{path}: {error}") from error
    if not same(assumptions.as_dict(), declared):
        raise StorageError(f"{path} holds a run with other assumptions, {declared}, than {assumptions}")
    return settings, assumptions


def bring_back(path: str | Path, trainer: Trainer, record: Record) -> None:
    """Bring a fresh trainer to the state of a file."""
    with content_of(path):
        check_episodes(record.plain["done"], "done", trainer.planned)
        labels = None
        if "labels" in record.plain:  # a state may have been visited at several steps
            labels = load_labels(record.part("labels"), distinct=False)
        restore(trainer, record, labels)


def restore(trainer: Trainer, record: Record, labels: Sequence[Hashable] | None) -> None:
    """Bring a fresh trainer to a snapshot; `labels` are the visited states of an environment.

    Sizes, types, ranges and indices are checked before a kernel reads an array.
    """
    plain, arrays = record.plain, record.arrays
    trainer.done, most = plain["done"], plain["done"] * trainer.space.horizon
    trainer.steps = check_count(plain["steps"], "steps", trainer.done, most)
    if trainer.lanes is not None:
        trainer.started = trainer.done
    if labels is not None:
        space = trainer.space
        assert isinstance(space, GrowingSpace)  # an environment
        count, bounds = whole(plain["constraints"]), space.rules.constraints.bounds
        if count is None or not 0 <= count <= MOST_CONSTRAINTS or (bounds is not None and count != len(bounds)):
            raise ValueError(f"it has {plain['constraints']!r} constraints")
        space.rules.constraints.count = count
        space.load(labels, record.part("space").arrays)
        trainer.begin_algorithm()
    algorithm = trainer.learned()
    algorithm.load(record.part("engine").arrays)
    overwrite(trainer.generator, arrays["generator"], "generator")
    overwrite(trainer.counters, arrays["counters"], "counters")
    algorithm.check(trainer.done)
    trainer.greedy = checked_rows(trainer.space, arrays["greedy"], trainer.greedy.shape[1], "greedy")
    if len(trainer.greedy) < trainer.space.slots and labels is None:
        raise ValueError("greedy leaves states out")
    if trainer.average:
        trainer.changes = [stored_changes(trainer, arrays["changes"])]
    recorder = trainer.recorder
    if recorder is not None:
        kept = record.checked(HISTORY)
        recorder.parts, recorder.last, recorder.sums = [kept["history"]], kept["history.last"], kept["history.sums"]
        if recorder.curve is not None:
            like = first_rows(recorder.curve.model)
            rows = Policy(recorder.curve.model, alike(like, arrays["curve.rows"], "curve.rows")).rows
            recorder.curve = PolicyCurve(recorder.curve.model, rows)
            recorder.curve.pending = list(stored_changes(trainer, arrays["curve.pending"]))


def stored_changes(trainer: Trainer, table: NDArray[Any]) -> Changes:
    """Return the three columns of a stored list of policy changes, checked."""
    if table.dtype != np.int32 or table.ndim != 2 or len(table) != 3:
        raise ValueError(f"a change list has shape {table.shape}")
    episode, node, row = table
    space = trainer.space
    if isinstance(space, GrowingSpace):
        step, slot = np.divmod(node, space.node_stride) if space.shift else (node[:0], node)
        sizes = {"step": space.horizon, "slot": space.slots, "row": space.rows}
        for axis, part in zip(sizes, (step, slot, row), strict=True):
            check_range(part, f"changes ({axis})", Field(np.int32, "change", below=axis), sizes)
    changes = space.ordered((episode, node, row))
    policy = AveragedPolicy(trainer.model, trainer.done, space.first_rows(), *changes)
    if isinstance(space, GrowingSpace):
        return np.array(episode), np.array(node), np.array(row)
    return policy.change_episode, policy.change_node, policy.change_row


# Checkpoints --------------------------------------------------------------------------------------------------------


class Saver(Interrupts):
    """Saves a run while it is learning: at intervals, when it is interrupted or its target fails, and at the end.

    SIGTERM is delayed as well until the run is saved. If an intermediate save fails, a warning is issued; if the last
    one fails, an error is raised.
    """

    numbers = (signal.SIGINT, signal.SIGTERM)

    def __init__(self, path: str | Path, write: Writer) -> None:
        super().__init__()
        ready(path)
        self.path, self._write = Path(path), write
        self._next = time.monotonic() + SECONDS

    def look(self, trainer: Trainer, *, last: bool) -> None:
        """Save if it is time to."""
        if last or time.monotonic() >= self._next or self._asked is not None:
            self._save(trainer, last=last)
        super().look(trainer, last=last)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, TargetError | LearnerError) and error.run is not None:
            with contextlib.suppress(StorageError):
                error.run.save(self.path)
                error.add_note(f"the {error.run.episodes:,} episodes before it are in {self.path}")

    def _save(self, trainer: Trainer, *, last: bool) -> None:
        begun = time.monotonic()
        try:
            self._write(self.path, trainer)
        except StorageError as error:
            if not last:  # a disk that is full for a while must not end a run of many hours
                warnings.warn(f"{error}; learning continues without that checkpoint", RuntimeWarning, stacklevel=2)
                return
            before = "; the previous checkpoint is still there" if self.path.exists() else ""
            failed = StorageError(f"{error}: the run is over, but it is not saved{before}")
            failed.run = trainer.result()
            raise failed from error
        finally:
            now = time.monotonic()
            self._next = now + max(SECONDS, (now - begun) / SHARE)
