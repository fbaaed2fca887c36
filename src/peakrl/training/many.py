"""`learn_many`: many runs in parallel, one thread for each core.

Kernels release the interpreter's lock, so threads of one process use all cores and share the models. A run has its own
tables and generator: each equals, bit for bit, the run of `learn`. An environment belongs to one run, so several runs
need a function that creates it, or one environment each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np

from peakrl.checks import check_count, check_episodes, check_seed
from peakrl.compile import Target, as_model, is_problem
from peakrl.cores import usable_cores
from peakrl.errors import SettingsError
from peakrl.gym.adapter import Lanes, is_environment
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import LearnerSettings
from peakrl.learners.custom import Learner, OwnLearner
from peakrl.progress import Progress
from peakrl.tabular import TabularModel
from peakrl.training.learn import Record, check_assumptions, check_learner, new_trainer, prepared, recording_interval
from peakrl.training.run import LearningRun
from peakrl.training.trainer import pieces

#: A `ConstrainedEnv` or another Gymnasium environment, or a function that creates one.
Environment = Any

#: Seconds between two updates of the progress bar.
LOOK_EVERY = 0.2


def learn_many(
    models: Target | Environment | Iterable[Target | Environment],
    learner: LearnerSettings | Learner | str,
    episodes: int,
    seeds: int | Iterable[int] = 0,
    *,
    discount: float | None = None,
    keep: Callable[[LearningRun], Any] | None = None,
    history: Record = "auto",
    average: bool = True,
    assumptions: Assumptions | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> list[Any]:
    """Learn one run for each seed (one model), for each model (one seed), or for each pair of a model and a seed.

    Parameters
    ----------
    models
        A model or several; or a function without arguments that creates a Gymnasium environment, called once for each
        run; or an environment for one run.
    learner, episodes, discount, history, average, assumptions
        As for `learn`.
    seeds
        One seed or several.
    keep
        Applied to each run, for instance `lambda run: run.history`: a run holds its tables, and a thousand of them may
        not fit into memory.
    workers
        Number of threads, by default one for each core.
    progress
        Show a progress bar.

    Returns
    -------
    list
        The runs, or what `keep` returned, in the order of models and seeds.

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.energy_harvesting(peak_power=3, battery=4, horizon=4))
    >>> runs = peakrl.learn_many(model, "SafeQ", episodes=300, seeds=range(3))
    >>> [run.seed for run in runs]
    [0, 1, 2]
    """
    pairs = paired(models, seeds)
    settings, known = check_learner(learner), check_assumptions(assumptions)
    check_episodes(episodes)
    threads = usable_cores() if workers is None else workers
    check_count(threads, "workers")
    recording_interval(history, episodes)  # a wrong one is an error before the first run
    done, stop = [0] * len(pairs), threading.Event()

    def run(index: int) -> Any:
        given, seed = pairs[index]
        own = settings.fresh() if isinstance(settings, OwnLearner) else settings
        with opened(given) as target:
            active = new_trainer(target, own, episodes, seed, known, history, average=average, discount=discount)
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


@contextmanager
def opened(given: Any) -> Iterator[TabularModel | Lanes]:
    """Yield the target of a run; an environment that is created for it is closed afterwards."""
    if isinstance(given, TabularModel):
        yield given
        return
    env = given if is_environment(given) else given()
    if not is_environment(env):
        raise SettingsError(f"models returned {env!r}; a function must return a Gymnasium environment")
    try:
        yield prepared(env)
    finally:
        if env is not given:
            env.close()


def is_model(target: Any) -> bool:
    """Return whether a target is a model or a problem."""
    return isinstance(target, TabularModel) or is_problem(target)


def paired(models: Any, seeds: Any) -> list[tuple[Any, int]]:
    """Return target and seed of each run; a single target or seed is used for all runs."""
    one_model = is_model(models) or is_environment(models) or callable(models)
    one_seed = isinstance(seeds, int | np.integer)
    try:
        model_list: Sequence[Any] = [models] if one_model else list(models)
        seed_list: Sequence[Any] = [seeds] if one_seed else list(seeds)
    except TypeError:
        raise SettingsError(
            "models must be a model, a problem or a function that creates an environment, or several; seeds a whole "
            "number or several"
        ) from None
    count = len(seed_list) if one_model else len(model_list)
    if not one_seed and len(seed_list) != count:
        raise SettingsError(
            f"{len(model_list)} models and {len(seed_list)} seeds: there must be one seed for each model"
        )
    for index, model in enumerate(model_list):
        if not is_model(model) and not is_environment(model) and not callable(model):
            raise SettingsError(
                f"models: number {index} is {type(model).__name__}; it must be a model, a Problem, an environment or a "
                "function that creates one"
            )
    shared = [model for model in model_list if is_environment(model)]
    if len({id(env) for env in shared}) < len(shared) or (shared and one_model and count > 1):
        raise SettingsError("an environment belongs to one run: pass a function that creates it, or one for each run")
    model_list = [as_model(model) if is_model(model) else model for model in model_list]
    seed_list = [check_seed(seed) for seed in seed_list]
    return [(model_list[0 if one_model else i], seed_list[0 if one_seed else i]) for i in range(count)]


def watch(futures: list[Future[Any]], look: Callable[[], None]) -> None:
    """Wait until all are done or one has failed, and call `look` from time to time."""
    unfinished = set(futures)
    while unfinished:
        finished, unfinished = wait(unfinished, timeout=LOOK_EVERY, return_when=FIRST_EXCEPTION)
        look()
        for future in finished:
            future.result()
