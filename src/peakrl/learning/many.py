"""`learn_many`: many runs at once, one thread for each core.

Kernels run without the interpreter's lock, so threads of one process use all cores and share the models. A run has its
own tables and its own generator: each is the same, bit for bit, as `learn` gives by itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar, overload

import numpy as np

from peakrl.checks import check_count, check_episodes, check_seed
from peakrl.errors import SettingsError
from peakrl.learning.active import ActiveRun, pieces
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.own import Learner, OwnLearner
from peakrl.learning.run import (
    LearningRun,
    Record,
    check_knowledge,
    check_learner,
    recording_interval,
)
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import Target, as_model, is_problem
from peakrl.model.tabular import TabularModel
from peakrl.progress import Progress

Kept = TypeVar("Kept")

#: Seconds between two looks at how far the runs are.
LOOK_EVERY = 0.2


@overload
def learn_many(
    models: Target | Iterable[Target],
    learner: LearnerSettings | Learner,
    episodes: int,
    seeds: int | Iterable[int] = ...,
    *,
    keep: None = ...,
    record: Record = ...,
    average: bool = ...,
    knowledge: Knowledge | None = ...,
    workers: int | None = ...,
    progress: bool = ...,
) -> list[LearningRun]: ...


@overload
def learn_many(
    models: Target | Iterable[Target],
    learner: LearnerSettings | Learner,
    episodes: int,
    seeds: int | Iterable[int] = ...,
    *,
    keep: Callable[[LearningRun], Kept],
    record: Record = ...,
    average: bool = ...,
    knowledge: Knowledge | None = ...,
    workers: int | None = ...,
    progress: bool = ...,
) -> list[Kept]: ...


def learn_many(
    models: Target | Iterable[Target],
    learner: LearnerSettings | Learner,
    episodes: int,
    seeds: int | Iterable[int] = 0,
    *,
    keep: Callable[[LearningRun], Any] | None = None,
    record: Record = "auto",
    average: bool = True,
    knowledge: Knowledge | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Any]:
    """Learn one run for each seed (one model), for each model (one seed), or for each pair of a model and a seed.

    Runs are returned in that order. `keep` says what to keep of each, for instance `lambda run: run.history`: a run
    holds its tables, and a thousand of them may not fit into memory. `workers` is the number of threads, by default
    one for each core. `record` and `average` are those of `learn`.
    """
    pairs = paired(models, seeds)
    settings, declared = check_learner(learner), check_knowledge(knowledge)
    check_episodes(episodes)
    threads = usable_cores() if workers is None else workers
    check_count(threads, "workers")
    intervals = [recording_interval(record, episodes, model) for model, _ in pairs]
    done, stop = [0] * len(pairs), threading.Event()

    def run(index: int) -> Any:
        model, seed = pairs[index]
        own = settings.fresh() if isinstance(settings, OwnLearner) else settings
        active = ActiveRun(
            model, own, planned=episodes, seed=seed, every=intervals[index], average=average, knowledge=declared
        )
        for count in pieces(active, episodes):
            done[index] = count
            if stop.is_set():
                raise InterruptedError
        result = active.result()
        return result if keep is None else keep(result)

    bar = Progress("Learning", total=episodes * len(pairs), unit="episodes", enabled=progress)
    with bar, ThreadPoolExecutor(max(1, min(threads, len(pairs)))) as pool:
        futures = [pool.submit(run, index) for index in range(len(pairs))]
        try:
            watch(futures, lambda: bar.reach(sum(done), runs=sum(count == episodes for count in done)))
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def paired(models: Any, seeds: Any) -> list[tuple[TabularModel, int]]:
    """Return the (model, seed) of each run; one of either goes with all of the other."""
    one_model = isinstance(models, TabularModel) or is_problem(models)
    one_seed = isinstance(seeds, int | np.integer)
    try:
        model_list: Sequence[Any] = [models] if one_model else list(models)
        seed_list: Sequence[Any] = [seeds] if one_seed else list(seeds)
    except TypeError:
        raise SettingsError("models must be a model or problem, or several; seeds a whole number or several") from None
    count = len(seed_list) if one_model else len(model_list)
    if not one_seed and len(seed_list) != count:
        raise SettingsError(
            f"{len(model_list)} models and {len(seed_list)} seeds: there must be one seed for each model"
        )
    for index, model in enumerate(model_list):
        if not isinstance(model, TabularModel) and not is_problem(model):
            raise SettingsError(f"models: number {index} is {type(model).__name__}; it must be a model or a Problem")
    model_list = [as_model(model) for model in model_list]
    for seed in seed_list:
        check_seed(seed)
    return [(model_list[0 if one_model else i], int(seed_list[0 if one_seed else i])) for i in range(count)]


def watch(futures: list[Future[Any]], look: Callable[[], None]) -> None:
    """Wait until all are done or one has failed, looking from time to time."""
    while True:
        finished, unfinished = wait(futures, timeout=LOOK_EVERY, return_when=FIRST_EXCEPTION)
        look()
        for future in finished:
            future.result()
        if not unfinished:
            return


def usable_cores() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
