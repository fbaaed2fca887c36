"""Runs on Gymnasium environments in files.

A file holds what was learned and the states that were met, but not the environment: whoever continues the run brings it
along, with the arguments that the run was begun with. An episode is reset with a seed made from the run's seed and its
number, so that an environment whose randomness comes from that seed shows a resumed run what it would have shown an
uninterrupted one. Episodes in progress in the other lanes of a vectorised environment are begun anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, StorageError
from peakrl.learning.checkpoint import (
    ENVIRONMENT_KIND,
    SCHEMA,
    check_goal,
    check_plan,
    part,
    read_plain,
    refuse_other_run,
    stored_settings,
)
from peakrl.learning.environment import EnvironmentLearner
from peakrl.learning.run import check_count
from peakrl.model.labels import UnstorableLabel, load_labels, store_labels
from peakrl.storage import fields_of, remove_leftovers, write_record
from peakrl.targets.adapters import adapt


def write_environment_run(path: str | Path, learner: EnvironmentLearner) -> None:
    """Write a run on an environment to one file."""
    from peakrl import __version__

    try:
        labels, label_arrays = store_labels(learner.labels())
    except UnstorableLabel as error:
        raise StorageError(f"cannot write {path}: a file cannot hold a state such as {error}") from None
    plain = {"schema": SCHEMA, "peakrl": __version__, "labels": labels} | description(learner) | learner.plain()
    arrays = {f"learned.{name}": array for name, array in learner.arrays().items()}
    arrays |= {f"labels.{name}": array for name, array in label_arrays.items()}
    write_record(path, ENVIRONMENT_KIND, plain, arrays)


def description(learner: EnvironmentLearner) -> dict[str, Any]:
    """Return what tells one run from another."""
    rules = learner.rules
    return {
        "settings": learner.settings.as_dict(),
        "seed": int(learner.seed),
        "planned": int(learner.planned),
        "every": learner.recorder.every if learner.recorder is not None else 0,
        "average": learner.average,
        "environment": [rules.name, rules.horizon, *rules.reward_range],
    }


def continued_environment(path: str | Path, learner: EnvironmentLearner) -> EnvironmentLearner:
    """Bring a fresh learner to where the checkpoint at `path` stands, if there is one; another run's is an error."""
    if Path(path).exists():
        plain, arrays = read_plain(path, ENVIRONMENT_KIND)
        refuse_other_run(path, plain, description(learner) | {"settings": learner.settings})
        restore(path, learner, plain, arrays)
    return learner


def read_environment_learner(
    path: str | Path, env: Any, episodes: int | None = None, **declared: Any
) -> EnvironmentLearner:
    """Return the learner that a file holds, on `env`, planned for at least `episodes`."""
    remove_leftovers(Path(path))
    plain, arrays = read_plain(path, ENVIRONMENT_KIND)
    with fields_of(path):
        settings = stored_settings(path, plain["settings"])
        check_plan(path, plain)
        if episodes is not None:
            check_goal(path, settings, episodes, plain["planned"], int(plain["done"]))
        learner = EnvironmentLearner(
            adapt(env, **declared),
            settings,
            planned=max(plain["planned"], episodes or 0),
            seed=plain["seed"],
            every=plain["every"],
            average=bool(plain["average"]),
        )
        found = description(learner)["environment"]
        if found != plain["environment"]:
            raise StorageError(f"{path} holds a run on {plain['environment']}, not on {found} (name, horizon, rewards)")
    restore(path, learner, plain, arrays)
    return learner


def restore(path: str | Path, learner: EnvironmentLearner, plain: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Bring a fresh learner to where the file says."""
    with fields_of(path):
        try:
            check_count(plain["done"], "done", learner.planned)
            learner.load(plain, load_labels(plain["labels"], part(arrays, "labels.")), part(arrays, "learned."))
            learner.result()  # its policies refuse what does not fit the states
        except PeakError as error:
            raise StorageError(f"{path} is damaged: {error}") from error
