"""Runs in files: save, load, resume.

A run file holds everything that the next episode depends on: settings, what was declared, seed, planned episodes, the
generator's four words, the tables, the counters, the change list and the history with its running sums; of a model the
model, of an environment the states that were met, in the order of being met. The value tables of the exact curve are a
function of the policy in force, so its rows are kept and the tables are computed anew. Where a run is cut makes no
difference: cut anywhere, any number of times, and resumed, it equals the uncut run bit for bit.

An environment is not in the file, only what it declared: the run can be read without it, and whoever continues the run
brings the environment along, with the arguments that the run was begun with. Episodes in progress in the other lanes of
a vectorised environment are begun anew.

Constants that depend on the number of episodes K (Theorem 2's penalty and the l = log(S A K H / p) of a bonus) are
those of the planned K, so a run that uses them cannot go beyond it; every other run can.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from peakrl.checks import check_episodes, check_seed
from peakrl.compile import Target, as_model
from peakrl.errors import PeakError, SettingsError, StorageError
from peakrl.gym.adapter import AbsentEnvironment, Lanes, load_rules, store_rules
from peakrl.gym.targets import adapt
from peakrl.labels import Arrays, UnstorableLabel, load_labels, store_labels
from peakrl.learners import learner_from
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.base import LearnerSettings
from peakrl.learners.space import GrowingSpace
from peakrl.model_file import restored_model
from peakrl.storage import fields_of, kind_of, read_record, remove_leftovers, write_record
from peakrl.tabular import TabularModel, store_model
from peakrl.training.checkpointing import Saver, Writer
from peakrl.training.learn import LearningRun
from peakrl.training.snapshots import part, restore, snapshot
from peakrl.training.trainer import ActiveRun, drive
from peakrl.training.watch import Watch

KIND, ENVIRONMENT_KIND = "learning run", "learning run on an environment"
#: Of the fields below; files of another number are refused.
SCHEMA = 5
#: What tells one run from another, in words.
WORDS = {
    "settings": "learner",
    "knowledge": "knowledge",
    "seed": "seed",
    "planned": "number of episodes",
    "every": "history",
    "average": "average",
    "sampled": "history",
    "model": "problem",
    "environment": "environment",
}


def load_run(
    path: str | Path,
    model: Target | None = None,
    *,
    env: Any = None,
    knowledge: Knowledge | None = None,
    **declared: Any,
) -> LearningRun:
    """Return the run that `LearningRun.save` or a checkpoint wrote.

    The file holds its model; `model` (or the `Problem`) is needed only where its labels are of a type that a file
    cannot hold. A run on an environment is read without it; `env` and what else it was begun with (`horizon`,
    `constraint`, ...) are checked where they are given. One with functions among its `knowledge` needs that.
    """
    return read_any(path, model, env, None, knowledge, declared).result(over=True)


def resume(
    path: str | Path,
    *,
    episodes: int | None = None,
    model: Target | None = None,
    env: Any = None,
    knowledge: Knowledge | None = None,
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
        check_episodes(episodes)
    active = read_any(path, model, env, episodes, knowledge, declared)
    goal = active.planned if episodes is None else episodes
    if isinstance(active.target, AbsentEnvironment) and goal > active.done:
        raise StorageError(f"{path} holds a run on an environment: pass that environment as env= to go on")
    if (reason := active.learned().not_resumable) is not None and goal > active.done:
        raise SettingsError(f"{path}: {reason}")
    if checkpoint is False:
        return drive(active, goal, progress=progress, watch=watch)
    saver = Saver(path if checkpoint is None else checkpoint, checkpoint_every, writer(active))
    return drive(active, goal, saver=saver, progress=progress, watch=watch)


# Writing ------------------------------------------------------------------------------------------------------------


def writer(active: ActiveRun) -> Writer:
    """Return what writes a run to a file; a model is put in the form for it once only."""
    if not isinstance(active.target, TabularModel):
        return write_run
    stored = store_model(active.target)
    return lambda path, running: write_run(path, running, stored)


def write_run(path: str | Path, active: ActiveRun, model: tuple[dict[str, Any], Arrays] | None = None) -> None:
    """Write a run to one file; `model` is `store_model(active.model)` where that is known."""
    from peakrl.version import __version__

    plain, arrays = snapshot(active)
    plain = {"schema": SCHEMA, "peakrl": __version__} | description(active) | plain
    if isinstance(active.target, TabularModel):
        kind, (plain["model"], own), prefix = KIND, model or store_model(active.target), "model."
    else:
        kind, (plain["labels"], own), prefix = ENVIRONMENT_KIND, stored_states(path, active), "labels."
        plain["rules"] = store_rules(active.target.rules)
    write_record(path, kind, plain, arrays | {f"{prefix}{name}": array for name, array in own.items()})


def stored_states(path: str | Path, active: ActiveRun) -> tuple[dict[str, Any], Arrays]:
    """Return the states that were met, in the form of a file."""
    space = active.space
    assert isinstance(space, GrowingSpace)  # of an environment
    try:
        return store_labels(space.labels[space.ends :])
    except UnstorableLabel as error:
        raise StorageError(f"cannot write {path}: a file cannot hold a state such as {error}") from None


def description(active: ActiveRun) -> dict[str, Any]:
    """Return what tells one run from another, its model aside."""
    described = {
        "settings": active.settings.as_dict(),
        "knowledge": active.knowledge.as_dict(),
        "seed": int(active.seed),
        "planned": int(active.planned),
        "every": active.recorder.every if active.recorder is not None else 0,
        "average": active.average,
        "sampled": active.sampled,
    }
    if not isinstance(active.target, TabularModel):
        rules = active.target.rules
        described["environment"] = [rules.name, rules.horizon, *rules.reward_range]
    return described


# Reading ------------------------------------------------------------------------------------------------------------


def read_any(
    path: str | Path,
    model: Target | None,
    env: Any,
    episodes: int | None,
    knowledge: Knowledge | None,
    declared: dict[str, Any],
) -> ActiveRun:
    """Return the run that a file holds, on a model or on an environment, planned for at least `episodes`."""
    if env is not None:
        return read_run(path, adapt(env, **declared), episodes, knowledge)
    if declared:
        raise SettingsError(f"{', '.join(declared)} belong to a run on an environment: pass that as env=")
    return read_run(path, None if model is None else as_model(model), episodes, knowledge)


def read_run(
    path: str | Path,
    target: TabularModel | Lanes | None = None,
    episodes: int | None = None,
    knowledge: Knowledge | None = None,
) -> ActiveRun:
    """Return the run that a file holds; its model, or what it tells of its environment, where no target is given."""
    remove_leftovers(Path(path))
    plain, arrays = read_plain(path, kind_for(path, target))
    with fields_of(path):
        settings, declared = stored_learner(path, plain, knowledge)
        planned = int(plain["planned"])
        check_plan(path, plain)
        if episodes is not None:
            check_goal(path, settings, episodes, planned, int(plain["done"]))
        if target is None:
            target = stored_target(path, plain, arrays)
        elif isinstance(target, TabularModel) and target.digest != plain["model"]["digest"]:
            raise StorageError(f"{path} holds a run on another model, {plain['model']['name']!r}, than {target!r}")
        active = ActiveRun(
            target,
            settings,
            planned=max(planned, episodes or 0),
            seed=int(plain["seed"]),
            every=int(plain["every"]),
            average=bool(plain["average"]),
            knowledge=declared,
            sampled=plain["sampled"] is True,
        )
        found = description(active).get("environment")
        if found != plain.get("environment"):
            raise StorageError(f"{path} holds a run on {plain['environment']}, not on {found} (name, horizon, rewards)")
    bring_back(path, active, plain, arrays)
    return active


def kind_for(path: str | Path, target: TabularModel | Lanes | None) -> str:
    """Return what a file must hold to be a run on a target; on any, where there is none."""
    if target is None:
        return ENVIRONMENT_KIND if kind_of(path) == ENVIRONMENT_KIND else KIND
    return KIND if isinstance(target, TabularModel) else ENVIRONMENT_KIND


def stored_target(path: str | Path, plain: Mapping[str, Any], arrays: Arrays) -> TabularModel | Lanes:
    """Return the model that a file holds, or what stands for an environment."""
    if "rules" not in plain:
        return restored_model(path, plain["model"], part(arrays, "model."))
    # The tables of an environment have a place for every step: a longer horizon than theirs is forged.
    longest = max(len(arrays["space.row_start"]), *arrays["greedy"].shape)
    try:
        return AbsentEnvironment(load_rules(plain["rules"], longest))
    except SettingsError as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def continued(path: str | Path, active: ActiveRun) -> ActiveRun:
    """Bring a fresh run to where the checkpoint at `path` stands, if there is one; another run's is an error."""
    if not Path(path).exists():
        return active
    plain, arrays = read_plain(path, kind_for(path, active.target))
    with fields_of(path):
        refuse_other_run(path, plain, active)
    bring_back(path, active, plain, arrays)
    return active


def bring_back(path: str | Path, active: ActiveRun, plain: Mapping[str, Any], arrays: Arrays) -> None:
    """Bring a fresh run to where the file says; whatever a kernel will trust is checked."""
    with fields_of(path):
        try:
            check_episodes(plain["done"], "done", active.planned)
            labels = None
            if "labels" in plain:  # a state may have been met at several steps
                labels = load_labels(plain["labels"], part(arrays, "labels."), distinct=False)
            restore(active, plain, arrays, labels)
        except PeakError as error:
            raise StorageError(f"{path} is damaged: {error}") from error


def refuse_other_run(path: str | Path, plain: Mapping[str, Any], active: ActiveRun) -> None:
    """Raise unless a file holds the very run that is about to be made."""
    wanted: dict[str, Any] = description(active)
    settings, _ = stored_learner(path, plain, active.knowledge)
    found = {key: plain[key] for key in wanted if key in plain} | {"settings": settings.as_dict()}
    if isinstance(active.target, TabularModel):
        wanted["model"], found["model"] = active.target.digest, plain["model"]["digest"]
    different = [WORDS[key] for key, value in wanted.items() if found[key] != value]
    if different:
        raise StorageError(
            f"{path} holds another run, with a different {' and a different '.join(different)}. Continue that one with "
            "peakrl.resume (on the command line: --resume), save this one elsewhere, or remove the file (--overwrite)"
        )


def read_plain(path: str | Path, kind: str = KIND) -> tuple[dict[str, Any], Arrays]:
    """Read a run file, and refuse one that this peakrl cannot."""
    try:
        plain, arrays = read_record(path, kind)
    except StorageError as error:
        if f"holds a {ENVIRONMENT_KIND!r}" in str(error):
            raise StorageError(f"{path} holds a run on an environment, not on a model") from None
        raise
    with fields_of(path):
        if plain["schema"] != SCHEMA:
            raise StorageError(
                f"{path} was written by peakrl {plain['peakrl']} (schema {plain['schema']}), and this peakrl reads "
                f"schema {SCHEMA}: load it with that version, or learn again"
            )
    return plain, arrays


def stored_learner(
    path: str | Path, plain: Mapping[str, Any], knowledge: Knowledge | None
) -> tuple[LearnerSettings, Knowledge]:
    """Return the settings and the knowledge that a file holds; knowledge that is given must agree with it."""
    try:
        settings, declared = learner_from(plain["settings"]), plain["knowledge"]
        if knowledge is None:
            return settings, Knowledge.from_dict(declared)
    except SettingsError as error:
        raise StorageError(f"{path} holds settings that this peakrl does not know: {error}") from error
    if knowledge.as_dict() != declared:
        raise StorageError(f"{path} holds a run with other knowledge, {declared}, than {knowledge}")
    return settings, knowledge


def check_plan(path: str | Path, plain: Mapping[str, Any]) -> None:
    """Raise where a forged file asks for a run that `learn` would refuse."""
    try:
        check_episodes(plain["planned"], "planned")
        check_seed(plain["seed"])
        if plain["every"] != 0:
            check_episodes(plain["every"], "every")
    except SettingsError as error:
        raise StorageError(f"{path} is damaged: {error}") from error


def check_goal(path: str | Path, settings: LearnerSettings, episodes: int, planned: int, done: int) -> None:
    """Raise where a run cannot be continued to `episodes`."""
    if episodes < done:
        raise SettingsError(f"episodes is {episodes:,}, but {path} has {done:,} already; episodes counts them too")
    cause = settings.bound_to_plan
    if episodes > planned and cause:
        raise SettingsError(
            f"episodes is {episodes:,}, but {path} was planned for {planned:,} and its {cause} depends on that number: "
            f"continue to {planned:,}, or learn anew with episodes={episodes}"
        )
