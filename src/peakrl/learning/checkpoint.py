"""Runs in files: save, load, resume.

A run file holds everything that the next episode depends on: settings, seed, planned episodes, the generator's four
words, the tables, the counters, the change list, the history with its running sums, and the model. The value tables
of the exact curve are a function of the policy in force, so its rows are kept and the tables are computed anew. Where
a run is cut makes no difference: cut anywhere, any number of times, and resumed, it equals the uncut run bit for bit.

Constants that depend on the number of episodes K (Theorem 2's penalty and the l = log(S A K H / p) of a bonus) are
those of the planned K, so a run that uses them cannot go beyond it; every other run can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PeakError, SettingsError, StorageError
from peakrl.kernels.learning import GREEDY, NODE_COLUMNS
from peakrl.kernels.practical_tables import DEAD_FIRST
from peakrl.learning.algorithm_one import AlgorithmOne
from peakrl.learning.history import PolicyCurve
from peakrl.learning.practical import Practical
from peakrl.learning.run import Learner, LearningRun, check_count, check_seed, drive
from peakrl.learning.saver import Saver, Writer
from peakrl.learning.settings import LearnerSettings
from peakrl.learning.watching import Watch
from peakrl.model.explore import Target, as_model
from peakrl.model.files import load_model, store_model, within
from peakrl.model.labels import Arrays
from peakrl.model.tabular import TabularModel
from peakrl.policy.tables import AveragedPolicy, Policy, first_rows
from peakrl.storage import fields_of, read_record, remove_leftovers, write_record

if TYPE_CHECKING:
    from peakrl.learning.environment import EnvironmentLearner

KIND, ENVIRONMENT_KIND = "learning run", "learning run on an environment"
#: Of the fields below; files of a higher number are refused. Schema 2 added the tables of second looks.
SCHEMA = 2
#: What tells one run from another, in words.
WORDS = {
    "settings": "learner",
    "seed": "seed",
    "planned": "number of episodes",
    "every": "record",
    "average": "average",
    "model": "problem",
    "environment": "environment",
}


def write_run(path: str | Path, learner: Learner, model: tuple[dict[str, Any], Arrays] | None = None) -> None:
    """Write a run to one file; `model` is `store_model(learner.model)` where that is known."""
    plain, arrays = snapshot(learner)
    plain["model"], model_arrays = model or store_model(learner.model)
    write_record(path, KIND, plain, arrays | {f"model.{name}": array for name, array in model_arrays.items()})


def load_run(path: str | Path, model: Target | None = None, *, env: Any = None, **declared: Any) -> LearningRun:
    """Return the run that `LearningRun.save` or a checkpoint wrote.

    The file holds its model; `model` (or the `Problem`) is needed only where its labels are of a type that a file
    cannot hold. A run on an environment needs `env` and what else it was begun with (`horizon`, `constraint`, ...).
    """
    return read_any(path, model, env, None, declared).result()


def resume(
    path: str | Path,
    *,
    episodes: int | None = None,
    model: Target | None = None,
    env: Any = None,
    checkpoint: str | Path | Literal[False] | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    watch: Watch | None = None,
    **declared: Any,
) -> LearningRun:
    """Continue a run until `episodes` are done in total (None: as many as were planned) and return it.

    The result equals that of a run that was never interrupted. It is saved on the way, to the same file unless
    `checkpoint` names another; False saves nothing. The history keeps its interval also where the run is made longer.
    `watch`: see `learn`. `model`, `env` and the rest: see `load_run`.
    """
    if episodes is not None:
        check_count(episodes, "episodes")
    learner = read_any(path, model, env, episodes, declared)
    goal = learner.planned if episodes is None else episodes
    if checkpoint is False:
        return drive(learner, goal, progress=progress, watch=watch)
    saver = Saver(path if checkpoint is None else checkpoint, checkpoint_every, writer(learner))
    return drive(learner, goal, saver=saver, progress=progress, watch=watch)


def read_any(
    path: str | Path, model: Target | None, env: Any, episodes: int | None, declared: dict[str, Any]
) -> Learner | EnvironmentLearner:
    """Return the learner that a file holds, on a model or on an environment."""
    if env is not None:
        from peakrl.learning.environment_files import read_environment_learner

        return read_environment_learner(path, env, episodes, **declared)
    if declared:
        raise SettingsError(f"{', '.join(declared)} belong to a run on an environment: pass that as env=")
    return read_learner(path, None if model is None else as_model(model), episodes)


def writer(learner: Learner | EnvironmentLearner) -> Writer:
    """Return what writes a learner to a file; a model is put in the form for it once only."""
    if not isinstance(learner, Learner):
        from peakrl.learning.environment_files import write_environment_run

        return write_environment_run
    stored = store_model(learner.model)
    return lambda path, running: write_run(path, running, stored)


def continued(path: str | Path, learner: Learner) -> Learner:
    """Bring a fresh learner to where the checkpoint at `path` stands, if there is one; another run's is an error."""
    if not Path(path).exists():
        return learner
    plain, arrays = read_plain(path)
    wanted = description(learner) | {"settings": learner.settings, "model": learner.model.digest}
    with fields_of(path):
        refuse_other_run(path, plain | {"model": plain["model"]["digest"]}, wanted)
    restore(path, learner, plain, arrays)
    return learner


def refuse_other_run(path: str | Path, plain: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise unless a file holds the very run that is about to be made."""
    with fields_of(path):
        found = {key: plain[key] for key in wanted} | {"settings": stored_settings(path, plain["settings"])}
    different = [WORDS[key] for key, value in wanted.items() if found[key] != value]
    if different:
        raise StorageError(
            f"{path} holds another run, with a different {' and a different '.join(different)}. Continue that one with "
            "peakrl.resume (on the command line: --resume), save this one elsewhere, or remove the file (--overwrite)"
        )


# What a file holds --------------------------------------------------------------------------------------------------


def description(learner: Learner) -> dict[str, Any]:
    """Return what tells one run from another, its model aside."""
    return {
        "settings": learner.settings.as_dict(),
        "seed": int(learner.seed),
        "planned": int(learner.planned),
        "every": learner.recorder.every if learner.recorder is not None else 0,
        "average": learner.average,
    }


def snapshot(learner: Learner) -> tuple[dict[str, Any], Arrays]:
    """Return plain values and arrays that say where a run stands."""
    from peakrl import __version__

    plain = {"schema": SCHEMA, "peakrl": __version__, "done": learner.done} | description(learner)
    arrays: Arrays = {"generator": learner.generator, "counters": learner.counters, "rows": learner.rows}
    arrays |= {f"engine.{name}": array for name, array in learner.engine.arrays().items()}
    if learner.average:
        arrays["changes"] = np.stack(learner.change_list())
    recorder = learner.recorder
    if recorder is not None:
        recorder.parts = [np.concatenate([np.empty((0, 7)), *recorder.parts])]
        arrays |= {"history": recorder.parts[0], "history.last": recorder.last, "history.sums": recorder.sums}
        if recorder.curve is not None:
            arrays |= {"curve.rows": recorder.curve.curve.rows, "curve.pending": np.stack(recorder.curve.pending)}
    return plain, arrays


def read_plain(path: str | Path, kind: str = KIND) -> tuple[dict[str, Any], Arrays]:
    """Read a run file, and refuse one that a later peakrl wrote."""
    try:
        plain, arrays = read_record(path, kind)
    except StorageError as error:
        if f"holds a {ENVIRONMENT_KIND!r}" in str(error):
            raise StorageError(f"{path} holds a run on an environment: pass that environment as env=") from None
        raise
    with fields_of(path):
        if int(plain["schema"]) > SCHEMA:
            raise StorageError(
                f"{path} was written by peakrl {plain['peakrl']}, which is newer: its runs are of schema "
                f"{plain['schema']}, and this peakrl reads up to {SCHEMA}"
            )
    return plain, arrays


def read_learner(path: str | Path, model: TabularModel | None = None, episodes: int | None = None) -> Learner:
    """Return the learner that a file holds, planned for at least `episodes`."""
    remove_leftovers(Path(path))
    plain, arrays = read_plain(path)
    with fields_of(path):
        settings = stored_settings(path, plain["settings"])
        planned = int(plain["planned"])
        if episodes is not None:
            check_goal(path, settings, episodes, planned, int(plain["done"]))
        if model is None:
            model = load_model(path, plain["model"], part(arrays, "model."))
        elif model.digest != plain["model"]["digest"]:
            raise StorageError(f"{path} holds a run on another model, {plain['model']['name']!r}, than {model!r}")
        check_plan(path, plain)
        learner = Learner(
            model,
            settings,
            planned=max(planned, episodes or 0),
            seed=int(plain["seed"]),
            every=int(plain["every"]),
            average=bool(plain["average"]),
        )
    restore(path, learner, plain, arrays)
    return learner


def stored_settings(path: str | Path, values: Mapping[str, Any]) -> LearnerSettings:
    """Return the settings that a file holds."""
    try:
        return LearnerSettings.from_dict(values)
    except SettingsError as error:
        raise StorageError(f"{path} holds settings that this peakrl does not know: {error}") from error


def check_plan(path: str | Path, plain: Mapping[str, Any]) -> None:
    """Raise where a forged file asks for a run that `learn` would refuse."""
    try:
        check_count(plain["planned"], "planned")
        check_seed(plain["seed"])
        if plain["every"] != 0:
            check_count(plain["every"], "every")
    except SettingsError as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def check_goal(path: str | Path, settings: LearnerSettings, episodes: int, planned: int, done: int) -> None:
    """Raise where a run cannot be continued to `episodes`."""
    if episodes < done:
        raise SettingsError(f"episodes is {episodes:,}, but {path} has {done:,} already; episodes counts them too")
    cause = "penalty" if settings.exponent is not None else "bonus" if settings.bonus != "none" else None
    if episodes > planned and cause:
        raise SettingsError(
            f"episodes is {episodes:,}, but {path} was planned for {planned:,} and its {cause} depends on that number: "
            f"continue to {planned:,}, or learn anew with episodes={episodes}"
        )


def part(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin so, without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


# Putting a learner back where it stood --------------------------------------------------------------------------------


def restore(path: str | Path, learner: Learner, plain: Mapping[str, Any], arrays: Arrays) -> None:
    """Bring a fresh learner to where the file says; whatever a kernel will trust is checked."""
    with fields_of(path):
        try:
            check_count(plain["done"], "done", learner.planned)
            learner.done = plain["done"]
            for name, array in learner.engine.arrays().items():
                if array.size or f"engine.{name}" in arrays:  # files of schema 1 lack tables that they do not use
                    overwrite(array, arrays[f"engine.{name}"], f"engine.{name}")
            overwrite(learner.generator, arrays["generator"], "generator")
            overwrite(learner.counters, arrays["counters"], "counters")
            learner.rows = Policy(learner.model, alike(learner.rows, arrays["rows"], "rows")).rows
            check_engine(learner.engine, learner.model, learner.done)
            if learner.average:
                learner.changes = [tuple(changes(learner, arrays["changes"]))]
            restore_history(learner, arrays)
        except PeakError as error:
            raise StorageError(f"{path} is damaged: {error}") from error


def restore_history(learner: Learner, arrays: Arrays) -> None:
    """Bring the recorder back."""
    recorder = learner.recorder
    if recorder is None:
        return
    table = arrays["history"]
    if table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != 7:
        raise ValueError(f"history has shape {table.shape}")
    recorder.parts = [table]
    overwrite(recorder.last, arrays["history.last"], "history.last")
    overwrite(recorder.sums, arrays["history.sums"], "history.sums")
    if recorder.curve is not None:
        rows = Policy(learner.model, alike(learner.rows, arrays["curve.rows"], "curve.rows")).rows
        recorder.curve = PolicyCurve(learner.model, rows)
        recorder.curve.pending = list(changes(learner, arrays["curve.pending"]))


def changes(learner: Learner, table: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return the three columns of a stored change list, checked."""
    if table.dtype != np.int32 or table.ndim != 2 or len(table) != 3:
        raise ValueError(f"a change list has shape {table.shape}")
    policy = AveragedPolicy(learner.model, learner.done, first_rows(learner.model), *table)
    return policy.change_episode, policy.change_node, policy.change_row


def alike(like: NDArray[Any], array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return `array`, or raise where its type or shape is not that of `like`."""
    if array.dtype != like.dtype or array.shape != like.shape:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}, not {like.dtype} of shape {like.shape}")
    return array


def overwrite(target: NDArray[Any], source: NDArray[Any], name: str) -> None:
    """Copy bytes: in one table whole numbers stand in columns of floats."""
    target.view(np.uint8)[...] = alike(target, source, name).view(np.uint8)


def check_engine(engine: AlgorithmOne | Practical, model: TabularModel, done: int) -> None:
    """Raise where a table holds an index that leads nowhere."""
    Policy(model, engine.rows())
    if isinstance(engine, Practical):
        greedy: NDArray[Any] = engine.tables.greedy
    else:
        greedy = engine.tables.choice.reshape(-1, int(NODE_COLUMNS))[:, int(GREEDY)]
    # The policy's rows are these, cut to 32 bits; a state without actions has the number of the row after it.
    if not within(greedy, model.num_rows + 1):
        raise ValueError("a greedy row is none of the model's")
    if not within(engine.tables.visits, done * model.horizon + 1):
        raise ValueError("engine.visits holds a number that cannot be")
    if isinstance(engine, Practical):
        for name in ("witness", "law_witness"):
            if not within(getattr(engine.tables, name) + 2, model.num_slots + 2):
                raise ValueError(f"engine.{name} names a state that there is not")
        if not within(engine.tables.look + 1, engine.columns + 1):
            raise ValueError("engine.look names a step that there is not")
        if not within(engine.tables.latest_next, model.num_slots):
            raise ValueError("engine.latest_next names a state that there is not")
        if not within(engine.tables.status[DEAD_FIRST:], model.num_slots):
            raise ValueError("engine.status names a state that there is not")
