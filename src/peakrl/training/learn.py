"""`learn`: run a learner on a target and keep what came out.

History is exact on a model: pi^k is evaluated for every episode k (only where it changed), so that the averages of
pi-bar^k are over all episodes so far, not over samples. Where nothing is random, what an episode earns is its policy's
value. Of an environment nothing exact is known: there history holds what episodes earned and violated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from peakrl.certificates.certificate import Certificate
from peakrl.checks import check_episodes, check_seed
from peakrl.compile import as_model, is_problem
from peakrl.errors import PeakError, SettingsError
from peakrl.gym.adapter import is_environment
from peakrl.gym.targets import adapt
from peakrl.learners import DEFAULT, make_learner
from peakrl.learners.assumptions.knowledge import NOTHING, Knowledge
from peakrl.learners.base import Algorithm, Held, LearnerSettings, ProofHistory
from peakrl.learners.coverage import Coverage, find_coverage
from peakrl.learners.custom import Learner, OwnLearner
from peakrl.learners.infeasibility import Memory, Witness
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.space import StateSpace
from peakrl.tabular import TabularModel
from peakrl.training.history import History
from peakrl.training.watch import Watch
from peakrl.types import Floats, Ints, Longs

if TYPE_CHECKING:
    from peakrl.gym.constraints import ConstraintFunction
    from peakrl.training.trainer import ActiveRun

#: "auto" records this many points, sampled ones where the exact curve might have to look at more outcomes than this.
AUTO_POINTS, AUTO_WORK = 1000, 1e10

Record = Literal["auto", "sampled", "none"] | int
Table = Policy | StochasticPolicy
FEASIBLE = {True: "feasible", False: "proved infeasible", None: "feasibility not proved"}


@dataclass(frozen=True, eq=False, repr=False)
class LearningRun:
    """What a run has learned, and how it went."""

    #: What was learned on; of an environment, the states that were met.
    model: StateSpace
    #: Of the learner.
    settings: LearnerSettings
    #: What was declared of the target.
    knowledge: Knowledge
    #: K: how many were played.
    episodes: int
    #: Of the random numbers.
    seed: int
    #: How it went, point by point.
    history: History
    #: How many episodes violated a constraint.
    violations: int
    #: The last that did (1-based); None if none did.
    last_violation_episode: int | None
    #: True or False where the learner has proved it; None: unknown, since not violating so far proves nothing.
    feasible: bool | None
    #: What `feasible = False` rests on: every observation, from the first state on.
    infeasibility_proof: list[Witness]
    #: Why it ended before the planned episodes; None where it did not.
    stop_reason: str | None
    #: What a certified learner had proved, time by time; None of other learners.
    proof_history: ProofHistory | None
    #: The policies, or what makes them once they are asked for.
    _policy: Table | Callable[[], Table]
    _followed: Table | Callable[[], Table]
    _averaged: AveragedPolicy | None
    _learned: Algorithm | Held
    _active: ActiveRun | None = None

    @classmethod
    def of(
        cls,
        active: ActiveRun,
        algorithm: Algorithm,
        states: StateSpace,
        averaged: AveragedPolicy | None,
        *,
        watched: bool = False,
        over: bool = False,
    ) -> LearningRun:
        """Return the result of a run in progress; `watched`: one that keeps nothing of it; `over`: none goes on."""
        learned = Held(algorithm) if watched else algorithm

        def table(rows: Callable[[], Ints]) -> Table | Callable[[], Table]:
            make = partial(table_of, algorithm, states, rows, learned)
            return make if over and algorithm.vouches else make()

        violations, last = (int(count) for count in active.counters)
        return cls(
            model=states,
            settings=active.settings,
            knowledge=active.knowledge,
            episodes=active.done,
            seed=active.seed,
            history=History.empty() if active.recorder is None else active.recorder.history(active.done),
            violations=violations,
            last_violation_episode=last or None,
            feasible=algorithm.feasible(),
            infeasibility_proof=algorithm.proof(),
            stop_reason=algorithm.stopped,
            proof_history=algorithm.proof_history(),
            _policy=table(algorithm.decided),
            _followed=table(partial(getattr, active, "rows")),  # no lambda, which could not be pickled
            _averaged=averaged,
            _learned=learned,
            _active=None if watched else active,
        )

    @cached_property
    def policy(self) -> Table:
        """What to use: the learner's best decisions after the last episode, without exploration."""
        return self._policy() if callable(self._policy) else self._policy

    @cached_property
    def behavior_policy(self) -> Table:
        """pi^K, what the last episode followed."""
        return self._followed() if callable(self._followed) else self._followed

    @property
    def averaged_policy(self) -> AveragedPolicy:
        """pi-bar of Theorem 1: the uniform mixture of pi^1 .. pi^K."""
        if self._averaged is None:
            raise PeakError("this run kept no change list: learn(..., average=True) keeps one")
        return self._averaged

    @cached_property
    def q(self) -> Floats:
        """[entry]: what the learner holds each action to be worth (for Q-learners their Q-table)."""
        return self._learned.values().copy()

    @cached_property
    def certificate(self) -> Certificate | None:
        """What a certified learner has proved of `policy`, or its bounds as they stand; None of other learners."""
        return self._learned.certificate()

    @cached_property
    def issued(self) -> list[dict[str, float]]:
        """What a certified learner certified, one entry for each epsilon that it reached, in their order.

        Each entry holds `epsilon`, `episodes`, `gap`, `violation_high` and the other bounds at that time. The list is
        empty for other learners and for a run that is still learning.
        """
        return list(getattr(self._learned, "issued", ()))

    @property
    def proof_episode(self) -> int | None:
        """The episode that completed the proof of infeasibility; None without such a proof."""
        return getattr(self._learned, "proved_in", None)

    @property
    def stored_numbers(self) -> int | None:
        """How many numbers the learner's tables hold; None for a run that is still learning."""
        return None if isinstance(self._learned, Held) else sum(a.size for a in self._learned.arrays().values())

    @cached_property
    def coverage(self) -> Coverage | None:
        """Where `policy` may come to and its action was never tried, and how likely that is.

        None of learners that do not count visits or that draw their actions, and of a run that is watched.
        """
        model = self.model if isinstance(self.model, TabularModel) else None
        if isinstance(self._learned, Held) or not isinstance(self.policy, Policy):
            return None
        return find_coverage(self._learned, self.policy.rows, model)

    @cached_property
    def visits(self) -> Longs | None:
        """[row]: how often the learner took each action, at any step; None of learners that do not count."""
        return self._learned.visits()

    @cached_property
    def infeasible_limits(self) -> str | None:
        """Why no policy keeps the limits that the learner was given, by what it counted on an environment.

        None where one may, and of learners that count nothing. On a model `learn` refuses such limits.
        """
        return self._learned.unkept()

    @property
    def multipliers(self) -> Floats | None:
        """[cost]: what a unit of each limited violation is held to be worth; None of learners without such limits."""
        return self._learned.multipliers()

    @property
    def multiplier_curve(self) -> Floats | None:
        """[point, 1 + cost]: episode, and the multipliers then; None of learners that keep no such curve."""
        return self._learned.multiplier_curve()

    @property
    def averaged_multipliers(self) -> Floats | None:
        """[cost]: the mean of `multiplier_curve`, which is what bounds on primal-dual learners are about."""
        curve = self.multiplier_curve
        return None if curve is None or not len(curve) else curve[:, 1:].mean(axis=0)

    def memory(self) -> Memory | None:
        """What the learner has seen fail, and how; None where it keeps no such record."""
        return self._learned.memory()

    def save(self, path: str | Path) -> None:
        """Write the run, its model included, to one file for `peakrl.load_run` and `peakrl.resume`."""
        from peakrl.training.run_file import writer

        if self._active is None:
            raise PeakError("this run cannot be saved: what it learned with was not kept")
        writer(self._active)(Path(path), self._active)

    def __repr__(self) -> str:
        last = f", last in episode {self.last_violation_episode:,}" if self.last_violation_episode else ""
        coverage = "" if self.coverage is None else f", policy {self.coverage}"
        limits = "" if self.infeasible_limits is None else f"; {self.infeasible_limits}"
        return (
            f"<LearningRun of {self.model.name!r}: {self.episodes:,} episodes, seed {self.seed}, "
            f"{self.violations:,} violating{last}, {FEASIBLE[self.feasible]}{coverage}{limits}>"
        )


def table_of(algorithm: Algorithm, states: StateSpace, rows: Callable[[], Ints], learned: Algorithm | Held) -> Table:
    """Return a policy of an algorithm: its chances where it draws its actions, else these rows [node]."""
    chances = algorithm.chances()
    return Policy(states, rows(), learned) if chances is None else simplest_policy(states, chances)


def learn(
    target: Any,
    learner: LearnerSettings | Learner | str | None = None,
    *,
    episodes: int,
    knowledge: Knowledge | None = None,
    seed: int = 0,
    horizon: int | None = None,
    history: Record = "auto",
    average: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_every: int | None = None,
    progress: bool = False,
    watch: Watch | None = None,
    reward_range: tuple[float, float] | None = None,
    constraint_bounds: Sequence[float] | None = None,
    constraint_tolerances: Sequence[float] | None = None,
    constraint: ConstraintFunction | None = None,
    states: int | None = None,
) -> LearningRun:
    """Learn a policy for `target` from experience and return the run.

    `target` is a model, a `Problem` (compiled here) or a Gymnasium environment; `learner` is one of `peakrl.learners`
    or its name, by default `PosteriorSampling()`, or your own `Learner`. `knowledge` is what you declare of the target.
    `history`: "auto" (about a thousand points; on models so large that exact curves would take minutes what episodes
    earned, as `history` says), "sampled" (that on any model), "none" (no history, full speed), or every how many
    episodes. `average=False` keeps no averaged policy, so that memory does not grow with the run. `checkpoint` names a
    file that the run is saved to every `checkpoint_every` episodes (None: about every half minute), when it is
    interrupted and at its end; if it holds the same run already, that one goes on from there. `watch` is called about
    twice a second with the run as it stands (`episodes`, `goal`, `violations`, `history_after(episode)`, `run()`); the
    result is the same with and without it.

    The rest is for environments that do not declare it themselves: `horizon`, the `reward_range` (lowest, highest) of a
    step, `constraint_bounds`, `constraint_tolerances` (how far below 0 each still counts as met: 0 unless given), a
    `constraint` function of the transition (>= 0 is met; otherwise constraints are read from `info`), and, where a
    bonus is used, about how many `states` there are. See docs/gymnasium.md.
    """
    from peakrl.training.trainer import ActiveRun, drive

    settings, knowledge = check_learner(learner), check_knowledge(knowledge)
    episodes, seed = check_episodes(episodes), check_seed(seed)
    declared: dict[str, Any] = {
        "reward_range": reward_range, "constraint_bounds": constraint_bounds,
        "constraint_tolerances": constraint_tolerances, "constraint": constraint, "states": states,
    }  # fmt: skip
    if is_problem(target) or isinstance(target, TabularModel):
        target = as_model(target, progress=progress)
        if horizon is not None and horizon != target.horizon:
            raise SettingsError(f"horizon is {horizon}, but the model's is {target.horizon}; leave it out for a model")
        refuse_for_model(**declared)
        settings.check_model(target)
        sampled = is_sampled(history, episodes, target)
    elif is_environment(target):
        target, sampled = adapt(target, horizon=horizon, **declared), False
    else:
        raise SettingsError(
            f"target is {type(target).__name__}; it must be a Problem, a TabularModel or a Gymnasium environment"
        )
    active = ActiveRun(
        target, settings, planned=episodes, seed=seed, every=recording_interval(history, episodes), average=average,
        knowledge=knowledge, sampled=sampled,
    )  # fmt: skip
    if checkpoint is None:
        if checkpoint_every is not None:
            raise SettingsError("checkpoint_every says how often to save; checkpoint must say where")
        return drive(active, episodes, progress=progress, watch=watch)
    from peakrl.training.checkpointing import Saver
    from peakrl.training.run_file import continued, writer

    saver = Saver(checkpoint, checkpoint_every, writer(active))
    return drive(continued(checkpoint, active), episodes, saver=saver, progress=progress, watch=watch)


def learn_in_stages(
    model: TabularModel,
    learner: LearnerSettings | None = None,
    *,
    stages: Sequence[int],
    knowledge: Knowledge | None = None,
    seed: int = 0,
    history: Record = "none",
) -> Iterator[LearningRun]:
    """Learn on a model and yield the run as it stands after each of `stages`, numbers of episodes in ascending order.

    Use it to look at the policies of a run on its way. Every run that is yielded stays as it is while learning goes on;
    the last one has learned what `learn(model, learner, episodes=stages[-1], ...)` learns. Other parameters: see
    `learn`. A learner that stops by itself ends the stages early.

    >>> import peakrl
    >>> model = peakrl.compile_model(peakrl.scheduling_example(1))
    >>> [run.episodes for run in peakrl.learn_in_stages(model, stages=[10, 100])]
    [10, 100]
    """
    from peakrl.training.trainer import ActiveRun, pieces

    stages = [check_episodes(stage, "stages") for stage in stages]
    if not stages or stages != sorted(set(stages)):
        raise SettingsError(f"stages is {stages}; it must hold numbers of episodes in ascending order")
    settings = check_learner(learner)
    settings.check_model(model)
    active = ActiveRun(
        model, settings, planned=stages[-1], seed=check_seed(seed), every=recording_interval(history, stages[-1]),
        average=False, knowledge=check_knowledge(knowledge), sampled=is_sampled(history, stages[-1], model),
    )  # fmt: skip
    for stage in stages:
        for _ in pieces(active, stage):
            pass
        yield active.result(watched=True)
        if active.stopped is not None:
            return


def check_learner(learner: Any) -> LearnerSettings:
    """Return the settings to learn with; None stands for the default."""
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


def check_knowledge(knowledge: Any) -> Knowledge:
    """Return what is declared."""
    if knowledge is not None and not isinstance(knowledge, Knowledge):
        raise SettingsError(f"knowledge is {knowledge!r}; it must be a peakrl.Knowledge(...)")
    return NOTHING if knowledge is None else knowledge


def refuse_for_model(**arguments: Any) -> None:
    """Raise where something is given that only an environment needs."""
    for name, value in arguments.items():
        if value is not None:
            raise SettingsError(f"{name} is given, but a model has it already; leave it out for a model")


def recording_interval(history: Record, episodes: int) -> int:
    """Return every how many episodes to record; 0 for never."""
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
    """Does the history of a model hold what episodes earned in place of what policies are worth?"""
    too_dear = not model.deterministic and float(episodes) * model.num_outcomes > AUTO_WORK
    return history == "sampled" or (history == "auto" and too_dear)
