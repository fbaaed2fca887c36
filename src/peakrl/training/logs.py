"""`Logs`: recorded transitions as a target of `learn` and `evaluate`, without a simulator.

A log is an immutable list of rows (episode, step, state, action, reward, constraint values, next state) in the order of
time. The rows before the middle episode are the earlier half, from which a policy is chosen; the others bound it
(`learners.pessimistic`). Rows belong to a half by their own place, so that episodes that ran side by side may be mixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.certificates.certificate import Certificate
from peakrl.certificates.episodes import decided
from peakrl.checks import ROUNDING, check_bounds, check_count, check_fraction, check_no_costs, check_range, shown
from peakrl.errors import PolicyError, SettingsError, StorageError, TargetError, UnknownStateError
from peakrl.evaluation.exact import evaluate_on
from peakrl.gym.adapter import DetachedEnvironment, Observed, Rules, Step
from peakrl.gym.constraints import ConstraintReader
from peakrl.learners.assumptions import NOTHING, Assumptions
from peakrl.learners.certified.values import LEFT_OUT
from peakrl.learners.pessimistic import LogFacts, Pessimistic, PessimisticLearner
from peakrl.learners.space import GrowingSpace
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.spaces import ActionNumbers, ActionSet
from peakrl.specs.csv_table import read_lines
from peakrl.tabular import TabularModel
from peakrl.training.run import LearningRun
from peakrl.training.trainer import Trainer
from peakrl.types import Bools, Floats, Longs
from peakrl.visited import label_of

#: In place of the number of a next state: the episode is over, or it is missing.
END, MISSING = -1, -2
Names = str | Sequence[str]
NO_CHANGES = (np.empty(0, np.int32),) * 3


@dataclass(frozen=True, eq=False, repr=False)
class Logs:
    """Recorded transitions; create them with `Logs.from_frame`, `Logs.from_csv` or `Logs.from_minari`.

    Examples
    --------
    >>> import peakrl
    >>> table = {"episode": [0, 0, 1, 1], "state": [0, 1, 0, 1], "action": [0, 0, 1, 0], "reward": [1, 0, 0, 1]}
    >>> logs = peakrl.Logs.from_frame(table, horizon=2, reward_range=(0, 1))
    >>> logs
    <Logs 'log': 4 rows, 2 episodes, 2 states, 2 actions, 1 of 4 pairs never tried>
    >>> logs.untried
    [(1, 1)]
    """

    #: Horizon, ranges, actions and constraints, as for environments.
    rules: Rules
    #: The states, in the order of their first visits.
    states: tuple[Hashable, ...]
    #: [row]: its episode, in the order of their beginnings.
    episode: Longs
    #: [row]: its step.
    step: Longs
    #: [row]: index of the state.
    state: Longs
    #: [row]: index of the action.
    action: Longs
    #: [row]: index of the next state, or `END`, `MISSING`.
    following: Longs
    #: [row]: the reward.
    reward: Floats
    #: [row, constraint]: values, >= 0 if satisfied.
    constraints: Floats
    #: [row]: does an episode begin with it?
    begins: Bools
    #: Number of episodes.
    episodes: int
    #: The actions of a state; None: every state offers all of them.
    offers: Callable[[Any], Sequence[Hashable]] | None
    #: Are the actions those of the rows?
    inferred: bool
    #: Are steps given?
    stepped: bool
    #: Are next states given?
    shown: bool
    #: Observed first states beside those of the rows.
    first_states: Longs
    #: Number of states that were listed as all there are; 0: not known.
    listed: int

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        episode: str | None = "episode",
        step: str | None = None,
        state: Names = "state",
        action: Names = "action",
        reward: str = "reward",
        next_state: Names | None = None,
        terminated: str | None = None,
        constraints: Names = (),
        constraint_bounds: Sequence[float] = (),
        actions: Sequence[Any] | Callable[[Any], Sequence[Any]] | None = None,
        states: Sequence[Any] = (),
        first_states: Sequence[Any] = (),
        name: str = "log",
    ) -> Logs:
        """Return the log in a table: a pandas or polars frame, or a dict of arrays, one row for each step.

        Parameters
        ----------
        frame
            The table; its rows must be in the order of time.
        horizon
            Number of steps of a complete episode.
        reward_range
            Least and largest possible reward of a step; it must hold 0 if episodes may end early.
        episode
            Column with a number or name of the episode; None: rows are single transitions, which need `next_state`.
        step
            Column of the step, from 0; by default rows of an episode are counted. Single transitions without steps
            need `Assumptions(stationary=True)`.
        state, action, next_state
            Columns of whole numbers or words; several columns make a tuple. By default the next state is the state of
            the next row of the episode, and missing for the last one; empty cells are missing, too.
        reward
            Column of the reward.
        terminated
            Column that is true if the episode ended with this row, in no further state.
        constraints
            Columns of constraint values, which are satisfied if they are >= 0.
        constraint_bounds
            The largest absolute value of each.
        actions
            All actions, or a function that returns those of a state. By default every state offers the actions of the
            log, which its certificates then rest on.
        states
            All states, if they are known; otherwise what is not in the log may be worth anything.
        first_states
            Independent first states of episodes, if rows are single transitions without steps.
        name
            Name for messages and reports.
        """
        table = Table(frame)
        constraints = (constraints,) if isinstance(constraints, str) else tuple(constraints)
        check_no_costs(constraints, name, error=SettingsError)
        check_range(reward_range, "reward_range", error=SettingsError)
        bounds = check_bounds(list(constraint_bounds), "constraint_bounds", len(constraints), error=SettingsError)
        numbers: dict[Hashable, int] = {label_of(one): number for number, one in enumerate(states)}
        listed = len(numbers)
        rows = table.codes(state, numbers)
        rules = Rules(
            name=name,
            actions=ActionSet.of_labels([]),
            observation_space=None,
            steps=check_count(horizon, "horizon"),
            reward_range=(float(reward_range[0]), float(reward_range[1])),
            constraints=ConstraintReader(None, bounds),
            constraint_names=constraints,
            states=listed or None,
            stationary=False,
            observes_states=True,
        )
        taken: dict[Hashable, int] = {}
        offers = actions if callable(actions) else None
        if actions is not None and not callable(actions):
            taken = {label_of(one): number for number, one in enumerate(actions)}
        given = len(taken)
        chosen = table.codes(action, taken)
        names = list(taken)
        refuse(
            (chosen >= given) & (given > 0),
            lambda row: f"action {names[chosen[row]]!r} is not one of actions={names[:given]}",
        )
        values = np.array([table.floats(one) for one in constraints]).reshape(len(constraints), len(rows)).T
        owner = np.arange(len(rows)) if episode is None else table.codes(episode, {}, any_label=True)
        order = np.argsort(owner, kind="stable")  # the rows of each episode together
        at, begins = steps_of(table, step, owner, order, rules.horizon, single=episode is None)
        ended = np.zeros(len(rows), np.bool_) if terminated is None else table.flags(terminated)
        following = None if next_state is None else table.codes(next_state, numbers, missing=True, ended=ended)
        if episode is None and following is None:
            raise SettingsError("rows are single transitions (episode=None), so next_state must name a column")
        following = next_states(rows, following, ended, owner, order, numbers)
        cut = (following == MISSING) & (at < rules.horizon - 1)
        refuse(
            cut & (ended.any() and next_state is None),
            "the episode stops here, is not over, and its next state is missing. If only episodes that are over show "
            "what their last row led to, the bounds are wrong: name a column with next_state=",
        )
        firsts = np.array([numbers.setdefault(label_of(one), len(numbers)) for one in first_states], np.int64)
        beyond = (np.maximum(rows, following) >= listed) & (listed > 0)
        refuse(beyond, lambda row: f"{list(numbers)[listed]!r} is not one of the {listed:,} states=")
        labels = list(taken)
        if offers is not None:
            known = {label_of(one): None for label in numbers for one in offers(label)}
            labels += [one for one in known if one not in taken]
        if len(labels) < 1:
            raise SettingsError("the log has no rows, and actions declares none")
        rules.actions = ActionSet.of_labels(labels)
        logs = cls(
            rules=rules, states=tuple(numbers), episode=owner, step=at, state=rows, action=chosen, following=following,
            reward=table.floats(reward), constraints=values, begins=begins, episodes=int(owner.max(initial=-1)) + 1,
            offers=offers, inferred=actions is None, stepped=episode is not None or step is not None,
            shown=next_state is not None, first_states=firsts, listed=listed,
        )  # fmt: skip
        logs._check()
        return logs

    @classmethod
    def from_csv(cls, path: str | Path, **options: Any) -> Logs:
        """Return the log in a CSV file with a header; cells that are whole numbers are read as numbers.

        `options` are those of `from_frame`; the log has the name of the file.
        """
        path = Path(path)
        lines = read_lines(path)
        if not lines:
            raise StorageError(f"{path} is empty; its first line must name the columns")
        (_, header), *rest = lines
        rows = [cells for _, cells in rest]
        for number, cells in rest:
            if len(cells) != len(header):
                raise StorageError(f"{path}, line {number}: {len(cells)} cells for {len(header)} columns")
        columns = {head: [cell_of(line[index]) for line in rows] for index, head in enumerate(header)}
        return cls.from_frame(columns, **{"name": path.name} | options)

    @classmethod
    def from_minari(
        cls,
        dataset: Any,
        *,
        constraint: Callable[[Mapping[str, Any]], Sequence[float]] | None = None,
        **options: Any,
    ) -> Logs:
        """Return the log of a Minari dataset, or of its name (extra `minari`); observations must be discrete.

        `constraint(step)` returns the constraint values of a step from a mapping with `observation`, `action`,
        `reward`, `next_observation` and `info`. Further options are those of `from_frame`.
        """
        if isinstance(dataset, str):
            try:
                import minari
            except ImportError:
                raise SettingsError(
                    "a Minari dataset is read by its name with minari: install peakrl[minari]"
                ) from None
            dataset = minari.load_dataset(dataset)
        names = [f"constraint {number}" for number in range(len(options.get("constraint_bounds", ())))]
        columns: dict[str, list[Any]] = {
            one: [] for one in ("episode", "state", "action", "reward", "next_state", "terminated", *names)
        }
        for number, episode in enumerate(dataset.iterate_episodes()):
            for index in range(len(episode.rewards)):
                seen, after = (part_of(episode.observations, index + more) for more in (0, 1))
                step = {
                    "observation": seen, "action": part_of(episode.actions, index), "next_observation": after,
                    "reward": float(episode.rewards[index]), "info": part_of(episode.infos or {}, index),
                }  # fmt: skip
                values = () if constraint is None else np.ravel(constraint(step)).tolist()
                if len(values) != len(names):
                    raise SettingsError(f"constraint returns {len(values)} values, constraint_bounds has {len(names)}")
                line = (number, seen, step["action"], step["reward"], after, bool(episode.terminations[index]), *values)
                for column, value in zip(columns.values(), line, strict=True):
                    column.append(value)
        shown = {"name": "minari", "next_state": "next_state", "terminated": "terminated", "constraints": names}
        return cls.from_frame(columns, **shown | options)

    def _check(self) -> None:
        """Raise for the first row that contradicts what is declared; set values within rounding."""
        rules, bounds = self.rules, (bound * (1 + 1e-9) for bound in self.rules.constraints.bounds or ())
        checked = [(self.reward, *rules.rewards, f"the reward is outside of reward_range {rules.reward_range}")]
        for name, bound, values in zip(rules.constraint_names, bounds, self.constraints.T, strict=True):
            checked.append((values, -bound, bound, f"{name} is beyond its bound of {bound:g}"))
        for values, low, high, why in checked:
            wrong = ~((low <= values) & (values <= high))
            refuse(wrong, f"{values[wrong][:1].sum():g}; {why}")
        if self.offers is None:
            return
        labels, pairs = self.rules.actions.labels, np.stack([self.state, self.action], axis=1)
        for state, action in np.unique(pairs, axis=0).tolist():
            if action not in self.offer(state):
                what = f"action {labels[action]!r} is not on offer in state {self.states[state]!r}, by actions="
                refuse((pairs == (state, action)).all(axis=1), what)

    def offer(self, state: int) -> ActionNumbers:
        """Return the numbers of the actions of a state."""
        if self.offers is None:
            return self.rules.actions.everything
        return tuple(self.rules.actions.index(label_of(one)) for one in self.offers(self.states[state]))

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def half(self) -> int:
        """The first row of the later half: that with which the middle episode begins."""
        return int(np.argmax(self.episode >= (self.episodes + 1) // 2)) if self.episodes > 1 else len(self)

    @cached_property
    def untried(self) -> list[tuple[Hashable, Hashable]]:
        """Pairs of state and action that no row has, at any step: nothing is known of them."""
        labels, tried = self.rules.actions.labels, set(zip(self.state.tolist(), self.action.tolist(), strict=True))
        visited = np.unique(self.state).tolist()
        pairs = ((state, action) for state in visited for action in self.offer(state))
        return [(self.states[state], labels[action]) for state, action in pairs if (state, action) not in tried]

    def __repr__(self) -> str:
        pairs = sum(len(self.offer(state)) for state in np.unique(self.state).tolist())
        return (
            f"<Logs {self.rules.name!r}: {len(self):,} rows, {self.episodes:,} episodes, {len(self.states):,} states, "
            f"{len(self.rules.actions):,} actions, {len(self.untried):,} of {pairs:,} pairs never tried>"
        )


# Tables ---------------------------------------------------------------------------------------------------------------


def refuse(wrong: Bools, why: str | Callable[[int], str]) -> None:
    """Raise for the first row that is wrong."""
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TargetError(f"{row_name(row)}: {why if isinstance(why, str) else why(row)}")


def row_name(row: int) -> str:
    """Return the number of a row for messages; a spreadsheet would count from 1, and the header too."""
    return f"row {row} (counted from 0)"


class Table:
    """The columns of a frame."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.size: int | None = None

    def column(self, name: str) -> list[Any]:
        """Return a column; raise if there is none, or it has another length."""
        names: list[Any] = list(self.frame.columns if hasattr(self.frame, "columns") else self.frame)
        if name not in names:
            raise SettingsError(
                f"the log has no column {name!r}; it has {', '.join(map(repr, names))}. If it is one of "
                "these, say so, as in state='position'"
            )
        found = self.frame[name]
        cells: list[Any] = found.tolist() if hasattr(found, "tolist") else list(found)
        if self.size not in (None, len(cells)):
            raise SettingsError(f"column {name!r} has {len(cells)} rows, others have {self.size}")
        self.size = len(cells)
        return cells

    def codes(
        self, names: Names, numbers: dict[Hashable, int], *, missing: bool = False, ended: Bools | None = None,
        any_label: bool = False,
    ) -> Longs:  # fmt: skip
        """[row]: the numbers of the labels in one or several columns; new labels get the next number."""
        parts = [self.column(one) for one in ((names,) if isinstance(names, str) else names)]
        codes = np.empty(len(parts[0]), np.int64)
        known: dict[Any, int] = {}
        for row, cells in enumerate(zip(*parts, strict=True)):
            value = cells[0] if isinstance(names, str) else cells
            if missing and (any(map(is_missing, cells)) or (ended is not None and ended[row])):
                codes[row] = MISSING
                continue
            try:
                if any_label or (code := known.get(value)) is None:
                    label = value if any_label else label_of(whole_numbers(value))
                    code = known[value] = numbers.setdefault(label, len(numbers))
            except TypeError:  # an array
                code = numbers.setdefault(label_of(value), len(numbers))
            except TargetError:
                what = f"{row_name(row)}: {names} is {shown(value)}"
                raise TargetError(f"{what}; it must be whole numbers or words") from None
            codes[row] = code
        return codes

    def floats(self, name: str) -> Floats:
        """[row]: finite numbers; a truth value is none, since False would be a constraint that is satisfied."""
        column = self.column(name)
        valid = (isinstance(one, int | float | np.number) and not isinstance(one, bool) for one in column)
        values = np.array([float(one) if good else math.nan for one, good in zip(column, valid, strict=True)])
        refuse(~np.isfinite(values), lambda row: f"{name} is {shown(column[row])}; it must be a number")
        return values

    def flags(self, name: str) -> Bools:
        """[row]: true or false."""
        column = self.column(name)
        words = {"true": True, "false": False}
        values = [words.get(one.lower()) if isinstance(one, str) else one for one in column]
        known = [isinstance(one, bool | np.bool_ | int | float | np.number) and one in (0, 1) for one in values]
        refuse(~np.array(known, np.bool_), lambda row: f"{name} is {shown(column[row])}; it must be true or false")
        return np.array(values, np.bool_)


def is_missing(cell: Any) -> bool:
    """Is a cell empty?"""
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell) in ("", "<NA>", "NaT")


def whole_numbers(cell: Any) -> Any:
    """Return a label with whole floats as integers, which tables make of integers beside empty cells."""
    if isinstance(cell, tuple):
        return tuple(map(whole_numbers, cell))
    return int(cell) if isinstance(cell, float | np.floating) and cell == math.floor(cell) else cell


def cell_of(text: str) -> Any:
    """Return a number if a cell of a CSV file is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def part_of(values: Any, index: int) -> Any:
    """Return one step of stacked, possibly nested, observations."""
    if isinstance(values, Mapping):
        return {name: part_of(part, index) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(part_of(part, index) for part in values)
    return values[index]


def steps_of(
    table: Table, step: str | None, owner: Longs, order: Longs, horizon: int, *, single: bool
) -> tuple[Longs, Bools]:
    """Return [row] the step, and whether an episode begins there."""
    together = owner[order]
    begin = np.append(True, together[1:] != together[:-1])[: len(order)]
    if step is None:
        place = np.arange(len(order))
        counted = np.empty(len(order), np.int64)
        counted[order] = place - np.maximum.accumulate(np.where(begin, place, 0))
        at, begins = (
            (np.zeros(len(order), np.int64), np.zeros(len(order), np.bool_)) if single else (counted, counted == 0)
        )
    else:
        values = table.floats(step)
        at = values.astype(np.int64)
        refuse(at != values, lambda row: f"{step} is {values[row]:g}; it must be a whole number")
        gap, before = np.zeros(len(order), np.bool_), np.zeros(len(order), np.int64)
        before[order[1:]] = order[:-1]
        gap[order[1:]] = ~begin[1:] & (at[order[1:]] != at[order[:-1]] + 1)
        refuse(
            gap,
            lambda row: (
                f"step {at[row]} follows step {at[before[row]]} of the same episode (row {before[row]}); the "
                "rows of an episode must not leave steps out. Give the parts before and after a gap different episodes"
            ),
        )
        begins = at == 0
    outside = (at < 0) | (at >= horizon)
    refuse(outside, lambda row: f"step {at[row]} is outside of 0..{horizon - 1}: horizon is {horizon}")
    return at, begins


def next_states(
    rows: Longs, given: Longs | None, ended: Bools, owner: Longs, order: Longs, numbers: Mapping[Hashable, int]
) -> Longs:
    """[row]: the next state; raise if the next row of the episode has another state."""
    after = np.full(len(rows), MISSING)
    same = owner[order[1:]] == owner[order[:-1]]
    after[order[:-1][same]] = rows[order[1:][same]]
    if given is not None:
        labels, own = list(numbers), after
        refuse(
            (given >= 0) & (own >= 0) & (given != own),
            lambda row: (
                f"the next state is {labels[given[row]]!r}, but the next row of the episode is in state "
                f"{labels[own[row]]!r}: a row is missing, or the episode numbers are wrong"
            ),
        )
        after = np.where(given >= 0, given, after)
    refuse(ended & (after >= 0), "the episode is over, but it has further rows or a next state")
    return np.where(ended, END, after)


# Learning and evaluating ----------------------------------------------------------------------------------------------


def learn_from_logs(
    logs: Logs, settings: Pessimistic, assumptions: Assumptions = NOTHING, *, every: int = 0, seed: int = 0
) -> LearningRun:
    """Return the run of `learn` on a log; every `every`-th episode of the log becomes a point of its history."""
    trainer = trainer_of(logs, settings, assumptions, every, seed)
    learner = replay(trainer, logs, behavior=settings.behavior)
    trainer.done, trainer.steps = logs.episodes, len(logs)
    trainer.greedy = learner.chosen()
    totals = np.stack([logs.reward, violations(logs)], axis=1)
    paid = np.zeros((logs.episodes, 2))
    np.add.at(paid, logs.episode, totals)
    bad = np.flatnonzero(paid[:, 1] > 0)
    trainer.counters[:] = len(bad), bad[-1] + 1 if len(bad) else 0
    if trainer.recorder is not None:
        trainer.recorder.add(0, logs.episodes, paid, NO_CHANGES)
    return trainer.result()


def evaluate_on_logs(
    logs: Logs, policy: Any, *, failure_probability: float = 0.05, assumptions: Assumptions | None = None
) -> Certificate:
    """Bound the value and the violation of a policy by a log of other policies' episodes.

    Parameters
    ----------
    logs
        The log, all of which bounds the policy; its choice must not depend on it.
    policy
        One of ours, also randomised, or a function (step, state, actions) -> action or {action: probability}. In states
        of the log in which it has no action its value counts as the least possible one, and a violation as certain.
    failure_probability
        Upper bound on the probability that one of the bounds is wrong; of several policies each has its own.
    assumptions
        What you declare about the system. If the policy violates nothing by any outcome of a declared `support`, the
        bound on the violation is 0.

    Returns
    -------
    Certificate
    """
    failure = check_fraction(failure_probability, "failure_probability", otherwise=", such as 0.05")
    if not (isinstance(policy, Policy | StochasticPolicy) or callable(policy)):
        raise PolicyError(f"{policy!r} is not a policy that can be evaluated on a log")
    trainer = trainer_of(logs, Pessimistic(failure_probability=failure), assumptions or NOTHING)
    learner, limits = replay(trainer, logs, given=True), trainer.limits
    learner.weights, learner.log.random = weights_of(learner, policy), not isinstance(policy, Policy)
    if limits is not None and limits.safe is not None:
        learner.log.kept = keeps(policy, limits.safe.model, logs)
    return learner.certificate()


evaluate_on.register(Logs, evaluate_on_logs)  # type: ignore[arg-type]  # another kind of result


def trainer_of(logs: Logs, settings: Pessimistic, assumptions: Assumptions, every: int = 0, seed: int = 0) -> Trainer:
    """Return a trainer for a log, which has not begun."""
    if not len(logs):
        raise SettingsError("the log has no rows")
    target = DetachedEnvironment(replace(logs.rules))
    return Trainer(
        target, settings, planned=max(1, logs.episodes), seed=seed, every=every, average=False, assumptions=assumptions
    )


def violations(logs: Logs) -> Floats:
    """[row]: the sum of the violations."""
    return np.asarray(np.maximum(-logs.constraints, 0.0).sum(axis=1))


def replay(trainer: Trainer, logs: Logs, *, behavior: Any = None, given: bool = False) -> PessimisticLearner:
    """Feed a log to a trainer that has not begun: the earlier half, the choice of a policy, and the later half.

    The policy may follow the `behavior`. If it is `given`, all rows count as the later half.
    """
    space = trainer.space
    assert isinstance(space, GrowingSpace)  # that of an environment
    if not (logs.stepped or space.shared):
        raise SettingsError(
            "the log is made of single transitions without steps: name the column with step=, or declare "
            "Assumptions(stationary=True)"
        )
    learner = trainer.begin_algorithm()
    assert isinstance(learner, PessimisticLearner)
    half = 0 if given else logs.half
    learner.log = LogFacts(len(logs.rules.actions) * logs.inferred, given=given)
    for number in range(logs.listed):
        for step in range(1 if space.shared else space.horizon):
            space.add(step, Observed(logs.states[number], logs.offer(number)))
    if logs.listed:
        trainer.grow(space.ends)
    for part in (slice(0, half), slice(half, len(logs))):
        if part.start == half:
            learner.choose(None if behavior is None else weights_of(learner, behavior))
        before = space.slots
        first, slot, row, following = slots_of(space, logs, part)
        if space.slots > before:
            trainer.grow(before)
        compare(trainer, logs, part.start, slot, row, following)
        learner.log.missing += int(np.count_nonzero((following == LEFT_OUT) & (logs.step[part] < space.horizon - 1)))
        learner.count(first, row, following, logs.reward[part], violations(logs)[part])
    if behavior is not None:
        learner.follow(weights_of(learner, behavior))
    learner.finish(logs.episodes)
    return learner


def slots_of(space: GrowingSpace, logs: Logs, part: slice) -> tuple[Longs, Longs, Longs, Longs]:
    """Return the first slots of episodes, and [row] slot, row and next slot; new states are added in their order."""
    step, state, after = logs.step[part], logs.state[part], logs.following[part]
    last, states = step == space.horizon - 1, len(logs.states)
    column = np.zeros_like(step) if space.shared else step
    goes_on = (after >= 0) & (space.shared or ~last) & ~(last & (not logs.shown))
    own, later = column * states + state, np.where(goes_on, (column + (not space.shared)) * states + after, -1)
    extra = logs.first_states if part.stop == len(logs) else logs.first_states[:0]
    keys = np.concatenate([np.stack([own, later], axis=1).ravel(), extra])  # by the order of the visits
    known, first, place = np.unique(keys, return_index=True, return_inverse=True)
    slots = np.full(len(known), LEFT_OUT)
    for index in np.argsort(first).tolist():
        if known[index] < 0:
            continue
        at, number = divmod(int(known[index]), states)
        seen = Observed(logs.states[number], logs.offer(number))
        slots[index] = found if (found := space.find(at, seen)) >= 0 else space.add(at, seen)
    slot = slots[place[: 2 * len(state) : 2]]
    following = slots[place[1 : 2 * len(state) : 2]]
    ends = np.zeros_like(step) if space.shared else step + 1
    # If steps share slots, what follows the last step counts only if every row shows it.
    nothing_follows = not space.shared or space.horizon == 1
    over = (after == END) & ~(last & (space.shared and not logs.shown)) | (last & nothing_follows)
    following = np.where(over, ends, following)
    places = np.zeros((states, len(logs.rules.actions)), np.int64)
    for number in np.unique(state).tolist():
        places[number, list(logs.offer(number))] = np.arange(len(logs.offer(number)))
    starts = np.array(space.starts)
    row = starts[slot] + places[state, logs.action[part]] if len(state) else np.empty(0, np.int64)
    return np.append(slot[logs.begins[part]], slots[place[2 * len(state) :]]), slot, row, following


def compare(trainer: Trainer, logs: Logs, first: int, slot: Longs, row: Longs, following: Longs) -> None:
    """Raise for the first row from `first` on that contradicts a declaration."""
    space, limits, seen = trainer.space, trainer.limits, trainer.observations
    assert isinstance(space, GrowingSpace)  # that of an environment
    violation = violations(logs)[first : first + len(row)]
    for index in range(len(row)):
        at = first + index
        step, ended = int(logs.step[at]), logs.following[at] == END
        if not (limits is not None or seen.active or (ended and step + 1 < space.horizon)):
            continue
        try:
            if ended and step + 1 < space.horizon:
                trainer.check_early_end(step + 1)
            state = space.state_of_slot(int(slot[index]))
            if logs.begins[at]:
                seen.check_first(state)
                if limits is not None:
                    limits.check_first(state, [space.action_of_row(one) for one in rows_of(space, int(slot[index]))])
            after, paid = int(following[index]), float(violation[index])
            seen_step = Step(float(logs.reward[at]), tuple(logs.constraints[at].tolist()), None, bool(ended), False)
            if limits is not None:
                then = None if after < space.ends else space.state_of_slot(after)
                limits.check_step(step, int(slot[index]), int(row[index]), then, paid, chosen=False)
            seen.check(step, int(row[index]), seen_step, after, paid)
        except TargetError as error:
            raise TargetError(f"{row_name(at)}: {error}") from None


def rows_of(space: GrowingSpace, slot: int) -> range:
    """Return the rows of a slot."""
    return range(space.starts[slot], space.starts[slot] + len(space.offers[slot]))


def weights_of(learner: PessimisticLearner, policy: Any) -> Floats:
    """[row, column]: how likely a policy takes each row; 0 in states that it does not know."""
    space = learner.space
    assert isinstance(space, GrowingSpace)  # that of an environment
    weights = np.zeros((space.rows, learner.columns))
    for step, slot in space.decisions():
        rows = rows_of(space, slot)
        state, actions = space.state_of_slot(slot), [space.action_of_row(row) for row in rows]
        chances = chances_of(policy, step, state, actions)
        unknown = [action for action, chance in chances.items() if chance > 0 and action not in actions]
        if unknown:
            raise PolicyError(
                f"the policy takes {unknown[0]!r} at step {step} in state {state!r}, which the log's actions lack"
            )
        if chances and not (min(chances.values()) >= 0 and abs(sum(chances.values()) - 1) <= ROUNDING):
            raise PolicyError(f"the policy's probabilities at step {step} in state {state!r} are {shown(chances)}")
        weights[rows.start : rows.stop, step if space.shared else 0] = [chances.get(one, 0.0) for one in actions]
    return weights


def chances_of(policy: Any, step: int, state: Hashable, actions: list[Hashable]) -> Mapping[Any, float]:
    """Return how likely a policy takes each action; nothing in a state that it does not know."""
    try:
        if isinstance(policy, StochasticPolicy):
            return policy.probabilities(step, state)
        if isinstance(policy, Policy):
            return {policy.action(step, state, actions): 1.0}
        found: Any = decided(policy, step, state, actions)
        return found if isinstance(found, Mapping) else {found: 1.0}
    except UnknownStateError:
        return {}


def keeps(policy: Any, support: TabularModel, logs: Logs) -> bool:
    """Does a policy violate nothing, by every outcome of a declared support?"""
    reached = set(support.first_slot.tolist())
    for step in range(logs.rules.horizon):
        after = set[int]()
        for slot in reached:
            state, offer = support.state_of_slot(slot), logs.rules.actions.labels
            actions = list(offer if logs.offers is None else map(label_of, logs.offers(state)))
            rows = {support.action_of_row(row): row for row in support.rows_of_slot(slot)}
            taken = [
                rows.get(one, -1) for one, chance in chances_of(policy, step, state, actions).items() if chance > 0
            ]
            if not taken or min(taken) < 0 or not support.keeps[taken].all():
                return False
            after.update(*map(support.next_slots, taken))
        reached = after
    return True
