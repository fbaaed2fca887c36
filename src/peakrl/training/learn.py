"""`learn`, `load_run` and `resume`: run a learner on a target, read a run from its file, and continue it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from peakrl.checks import check_episodes, check_fraction, check_seed
from peakrl.compile import Target, as_model, is_problem
from peakrl.errors import SettingsError, StorageError
from peakrl.gym.adapter import DetachedEnvironment, Lanes, is_environment, load_rules
from peakrl.learners import DEFAULT, make_learner
from peakrl.learners.assumptions import NOTHING, Assumptions
from peakrl.learners.base import LearnerSettings
from peakrl.learners.custom import Learner, OwnLearner
from peakrl.learners.pessimistic import Pessimistic
from peakrl.learners.space import steps_with
from peakrl.memory import MOST_STEPS
from peakrl.model_file import restored_model
from peakrl.records import content_of, fields_of
from peakrl.specs.functions import same
from peakrl.tabular import TabularModel
from peakrl.training.logs import Logs, learn_from_logs
from peakrl.training.run import LearningRun, Watch
from peakrl.training.run_file import (
    Saver,
    bring_back,
    continued,
    description,
    kind_for,
    stored_learner,
    writer,
)
from peakrl.training.trainer import Trainer, drive, pieces

#: "auto" records this many points; sampled ones if the exact curve might visit more outcomes than this.
AUTO_POINTS, AUTO_WORK = 1000, 1e10

Record = Literal["auto", "sampled", "none"] | int


def learn(
    target: Any,
    learner: LearnerSettings | Learner | str | None = None,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    assumptions: Assumptions | None = None,
    discount: float | None = None,
    history: Record = "auto",
    average: bool = True,
    checkpoint: str | Path | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Learn a policy for `target` from experience and return the run.

    Parameters
    ----------
    target
        A model, a `Problem` (it is compiled), a `ConstrainedEnv`, `Logs`, or a Gymnasium environment that declares its
        horizon and reward range and reports its constraints by itself.
    learner
        One of `peakrl.learners`, its name, or your own `Learner`; by default `PosteriorSampling()`.
    episodes
        Number of episodes; an upper limit for learners that stop by themselves.
    steps
        With a discount, the number of steps in place of `episodes`. An environment without a horizon is then reset only
        after it has ended by itself; its episodes are blocks of up to 100 steps, up to the first violation. On a model
        the last episode is completed.
    assumptions
        What you declare about the target.
    discount
        Weight of the next step, for `PosteriorSampling`, `SafeQ` and `UCBVI`: the policy and the tables depend on the
        state alone. An episode is cut off at the horizon; without one, when later rewards weigh less than 1 %.
    seed
        Seed of all random numbers. The same seed gives the same run.
    history
        "auto": about a thousand points, exact on models unless that would take minutes (see `History.sampled`).
        "sampled": returns of episodes, on any model. "none": no history, full speed. A number: every so many episodes.
    average
        False: keep no averaged policy, so that memory does not grow with the run.
    checkpoint
        A file. The run is saved to it about every half minute, when it is interrupted and at its end. If the file
        holds the same run already, that run continues.
    progress
        Show a progress bar.
    watch
        A function that is called about twice a second with the run in progress (`episodes`, `steps`, `goal` in either,
        `violations`, `history_after(episode)`, `run()`). The result does not depend on it.

    Returns
    -------
    LearningRun

    Examples
    --------
    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.problems.scheduling_example(1))
    >>> peakrl.learn(model, episodes=500).episodes
    500
    """
    if isinstance(target, Logs) and learner is None:
        learner = Pessimistic()
    settings, assumptions, seed = check_learner(learner), check_assumptions(assumptions), check_seed(seed)
    if isinstance(target, Logs):
        if not isinstance(settings, Pessimistic):
            raise SettingsError(f"{settings} decides what to try, but a log is over: use peakrl.learners.Pessimistic()")
        if episodes is not None or steps is not None or checkpoint is not None:
            raise SettingsError("a log has its own episodes and is learned at once: omit episodes and checkpoint")
        if discount is not None:
            raise SettingsError("a log has a horizon: omit discount")
        every = recording_interval(history, max(1, target.episodes))
        return learn_from_logs(target, settings, assumptions, every=every, seed=seed)
    if steps is not None and episodes is not None:
        raise SettingsError("episodes and steps are both given: pass one of them")
    if steps is not None and discount is None:
        raise SettingsError("steps is for runs with a discount: pass discount=, or episodes= in place of steps=")
    planned = check_episodes(episodes) if steps is None else check_episodes(steps, "steps")
    trainer = new_trainer(
        prepared(target, progress=progress), settings, planned, seed, assumptions, history, average=average,
        discount=discount, by_steps=steps is not None,
    )  # fmt: skip
    if checkpoint is None:
        return drive(trainer, planned, progress=progress, watch=watch)
    saver = Saver(checkpoint, writer(trainer))
    return drive(continued(checkpoint, trainer), planned, saver=saver, progress=progress, watch=watch)


def learn_in_stages(
    model: TabularModel,
    learner: LearnerSettings | None = None,
    *,
    stages: Sequence[int],
    assumptions: Assumptions | None = None,
    seed: int = 0,
    history: Record = "none",
) -> Iterator[LearningRun]:
    """Learn on a model and yield the run after each of `stages`, numbers of episodes in ascending order.

    A run that was yielded does not change while learning continues. The last one has learned the same as
    `learn(model, learner, episodes=stages[-1], ...)`. A learner that stops by itself ends the stages early.

    Examples
    --------
    >>> import peakrl
    >>> from peakrl.training import learn_in_stages
    >>> model = peakrl.compile_model(peakrl.problems.scheduling_example(1))
    >>> [run.episodes for run in learn_in_stages(model, stages=[10, 100])]
    [10, 100]
    """
    stages = [check_episodes(stage, "stages") for stage in stages]
    if not stages or stages != sorted(set(stages)):
        raise SettingsError(f"stages is {stages}; it must hold numbers of episodes in ascending order")
    settings, assumptions = check_learner(learner), check_assumptions(assumptions)
    trainer = new_trainer(model, settings, stages[-1], check_seed(seed), assumptions, history, average=False)
    for stage in stages:
        for _ in pieces(trainer, stage):
            pass
        yield trainer.result(watched=True)
        if trainer.stop_reason is not None:
            return


def new_trainer(
    target: TabularModel | Lanes, settings: LearnerSettings, planned: int, seed: int, assumptions: Assumptions,
    history: Record, *, average: bool, discount: float | None = None, by_steps: bool = False,
) -> Trainer:  # fmt: skip
    """Return the trainer of a run of so many episodes, or steps, that has not begun."""
    discount = check_discount(discount, settings)
    model = target if isinstance(target, TabularModel) else None
    if model is not None:
        settings.check_model(model)
    limit = target.steps if isinstance(target, TabularModel) else target.rules.steps
    episodes = planned
    if by_steps and discount is not None:
        episodes = -(-planned // steps_with(discount, limit, goes_on=model is None))
    return Trainer(
        target, settings, planned=planned, by_steps=by_steps, seed=seed, every=recording_interval(history, episodes),
        average=average, assumptions=assumptions, discount=discount,
        sampled=model is not None and (discount is not None or is_sampled(history, episodes, model)),
    )  # fmt: skip


def prepared(target: Any, *, progress: bool = False) -> TabularModel | Lanes:
    """Return the model of a target, or the lanes of an environment."""
    if is_problem(target) or isinstance(target, TabularModel):
        return as_model(target, progress=progress)
    if not is_environment(target):
        raise SettingsError(
            f"target is {type(target).__name__}; it must be a Problem, a TabularModel or a Gymnasium environment"
        )
    from peakrl.gym.constrained_env import adapt

    return adapt(target, learns=True)


# Checks -------------------------------------------------------------------------------------------------------------


def check_learner(learner: Any) -> LearnerSettings:
    """Return the settings of a learner; None stands for the default."""
    if learner is None or isinstance(learner, str):
        return make_learner(DEFAULT if learner is None else learner)
    if isinstance(learner, LearnerSettings):
        return learner
    if isinstance(learner, Learner) or (isinstance(learner, type) and issubclass(learner, Learner)):
        return OwnLearner.of(learner)
    raise SettingsError(
        f"learner is {learner!r}; it must be settings such as peakrl.learners.SafeQ(), the name of a learner such as "
        '"SafeQ", or a peakrl.Learner'
    )


def check_assumptions(assumptions: Any) -> Assumptions:
    """Return the declarations; None stands for none."""
    if assumptions is not None and not isinstance(assumptions, Assumptions):
        raise SettingsError(f"assumptions is {assumptions!r}; it must be a peakrl.Assumptions(...)")
    return NOTHING if assumptions is None else assumptions


def check_discount(discount: Any, settings: LearnerSettings) -> float | None:
    """Return a discount that the learner supports, or None."""
    if discount is not None and not settings.discounts:
        raise SettingsError(
            f"discount is {discount!r}, but {settings} learns with a horizon only: use PosteriorSampling, SafeQ or "
            "UCBVI, or omit discount"
        )
    return None if discount is None else check_fraction(discount, "discount")


def recording_interval(history: Record, episodes: int) -> int:
    """Return the number of episodes between two recorded points; 0 for no history."""
    if history == "none":
        return 0
    if history in ("auto", "sampled"):
        return max(1, episodes // AUTO_POINTS)
    try:
        check_episodes(history, "history")
    except SettingsError as error:
        raise SettingsError(f'{error}, "auto", "sampled" or "none"') from None
    return int(history)


def is_sampled(history: Record, episodes: int, model: TabularModel) -> bool:
    """Return whether the history on a model holds returns of episodes instead of exact values."""
    too_slow = not model.deterministic and float(episodes) * model.num_outcomes > AUTO_WORK
    return history == "sampled" or (history == "auto" and too_slow)


# Runs from files ----------------------------------------------------------------------------------------------------


def load_run(path: str | Path, target: Any = None, *, assumptions: Assumptions | None = None) -> LearningRun:
    """Return the run that `LearningRun.save` or a checkpoint wrote.

    The file holds its model; `target` (the model, or the `Problem`) is needed only if its labels are of a type that a
    file cannot hold. A run on an environment is read without it; an environment that is given must be the same.
    `assumptions` are needed if they hold functions.
    """
    return read_run(path, target, assumptions)[0].result()


def resume(
    path: str | Path,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    model: Target | None = None,
    env: Any = None,
    assumptions: Assumptions | None = None,
    checkpoint: str | Path | Literal[False] | None = None,
    progress: bool = False,
    watch: Watch | None = None,
) -> LearningRun:
    """Continue a run until `episodes` are done in total (None: the planned number) and return it.

    The result equals that of a run that was never interrupted, except on an environment that goes on from episode to
    episode (`learn(..., steps=)`): it is reset.

    Parameters
    ----------
    path
        A file of `run.save` or `learn(..., checkpoint=)`.
    episodes
        Number of episodes in total. The interval of the history stays the same if the run is extended.
    steps
        Number of steps in total, for a run of `learn(..., steps=)`.
    model
        Needed only if the model's labels are of a type that a file cannot hold.
    env
        The environment, as it was passed to `learn`.
    assumptions
        Needed if they hold functions.
    checkpoint
        Where to save; by default the same file. False saves nothing.
    progress, watch
        As for `learn`.

    Returns
    -------
    LearningRun

    Examples
    --------
    >>> import peakrl, tempfile, os
    >>> problem = peakrl.problems.energy_harvesting(peak_power=3, battery=4, horizon=4)
    >>> path = os.path.join(tempfile.mkdtemp(), "first.run")
    >>> peakrl.learn(problem, episodes=100).save(path)
    >>> peakrl.resume(path, episodes=300).episodes
    300
    """
    trainer, goal = read_run(path, model if env is None else env, assumptions, episodes=episodes, steps=steps)
    if isinstance(trainer.target, DetachedEnvironment) and goal > trainer.reached:
        raise StorageError(f"{path} holds a run on an environment: pass that environment as env= to continue")
    if (reason := trainer.learned().not_resumable) is not None and goal > trainer.reached:
        raise SettingsError(f"{path}: {reason}")
    if checkpoint is False:
        return drive(trainer, goal, progress=progress, watch=watch)
    saver = Saver(path if checkpoint is None else checkpoint, writer(trainer))
    return drive(trainer, goal, saver=saver, progress=progress, watch=watch)


def read_run(
    path: str | Path, target: Any = None, assumptions: Assumptions | None = None, **asked: int | None
) -> tuple[Trainer, int]:
    """Return the run of a file, and the number of `episodes` or `steps` that is asked for or was planned.

    Without a target it is on its own model, or on a placeholder for its environment.
    """
    target = None if target is None else prepared(target)
    record = kind_for(path, target).read(path)
    plain = record.plain
    with fields_of(path):
        settings, declared = stored_learner(path, plain, assumptions)
        by_steps = plain["by_steps"] is True
        unit, other = ("steps", "episodes") if by_steps else ("episodes", "steps")
        planned, done = int(plain["planned"]), int(plain["steps" if by_steps else "done"])
        with content_of(path):  # what `learn` refuses
            check_episodes(plain["planned"], "planned")
            check_seed(plain["seed"])
            discount = check_discount(plain["discount"], settings)
            if plain["by_steps"] is not by_steps or (by_steps and discount is None):
                raise ValueError(f"by_steps is {plain['by_steps']!r}, discount is {discount!r}")
            if plain["every"] != 0:
                check_episodes(plain["every"], "every")
        if asked.get(other) is not None:
            raise SettingsError(f"the run in {path} was planned in {unit}: pass {unit}, not {other}")
        goal = planned if asked.get(unit) is None else check_episodes(asked[unit], unit)
        if goal != planned and goal < done:
            raise SettingsError(f"{unit} is {goal:,}, but {path} has {done:,} already; {unit} counts them too")
        if goal > planned and settings.bound_to_plan:
            raise SettingsError(
                f"episodes is {goal:,}, but {path} was planned for {planned:,} and its {settings.bound_to_plan} "
                f"depends on that number: continue to {planned:,}, or start a new run with episodes={goal}"
            )
        if target is None and "rules" not in plain:
            target = restored_model(path, record.part("model"))
        elif target is None:
            # Without a discount the tables have an entry for every step, which limits the horizon.
            longest = max(len(record.arrays["space.row_start"]), *record.arrays["greedy"].shape)
            longest = longest if discount is None else MOST_STEPS
            with content_of(path):
                target = DetachedEnvironment(load_rules(plain["rules"], longest))
        elif isinstance(target, TabularModel) and target.digest != plain["model"]["digest"]:
            raise StorageError(f"{path} holds a run on another model, {plain['model']['name']!r}, than {target!r}")
        trainer = Trainer(
            target,
            settings,
            planned=max(planned, goal),
            by_steps=by_steps,
            seed=int(plain["seed"]),
            every=int(plain["every"]),
            average=bool(plain["average"]),
            assumptions=declared,
            sampled=plain["sampled"] is True,
            discount=discount,
        )
        stored, rules = plain.get("rules", {}), description(trainer).get("rules", {})
        different = [name for name in rules if not same(rules[name], stored[name])]
        if different:
            before, now = ({name: declared[name] for name in different} for declared in (stored, rules))
            raise StorageError(f"{path} holds a run on an environment with {before}, not {now}: declare the same")
    bring_back(path, trainer, record)
    return trainer, goal
