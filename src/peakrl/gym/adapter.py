"""A small interface to environments: lanes that start episodes and take steps.

A single environment has one lane, a vectorised one (`peakrl.gym.vector`) has several that are stepped together. The
training loop calls

    begin(lanes, seeds) -> [Observed | None]   start episodes; None: the first state comes with the next `advance`
    advance(actions)    -> [Step | Observed]   one step in every lane; Observed: the lane has just started an episode

`actions` are action numbers (see `ActionSet`), None in a lane without an episode. An environment that breaks its
contract raises a `LaneError` with the number of the lane; the training loop adds the episode and the step.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from peakrl.checks import check_bounds, check_count, check_horizon, check_range, check_tolerances, reward_limits, shown
from peakrl.errors import PeakError, SettingsError, TargetError
from peakrl.gym.constraints import ConstraintReader, Transition
from peakrl.problem import State
from peakrl.sampling import Words, draw_alias
from peakrl.spaces import ActionNumbers, ActionSet
from peakrl.tabular import TabularModel
from peakrl.visited import label_of

#: With more states than this the number of states counts as unknown.
MOST_STATES = 2**53
#: Types that are labels without conversion; not bool, which equals a number.
NUMBERS = frozenset({int, np.int64, np.int32})
LARGEST_FLOAT = sys.float_info.max


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of an episode to learn from; episodes for other purposes have a stream of their own."""
    return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0])


class Observed(NamedTuple):
    """A state and the numbers of its available actions."""

    #: The label of the observation; a copy of it in spaces without labels.
    state: State
    offer: ActionNumbers
    #: As the environment returned it, until its next step.
    observation: Any = None
    #: A shield takes other actions as well, and replaces them.
    shielded: bool = False


class Step(NamedTuple):
    """The result of one step."""

    reward: float
    constraints: tuple[float, ...]
    #: None after termination, or after truncation in a state without available actions.
    following: Observed | None
    terminated: bool
    #: Ended by a time limit.
    truncated: bool

    @property
    def over(self) -> bool:
        """Is the episode over?"""
        return self.terminated or self.truncated


class LaneError(Exception):
    """An error in a lane (None: in all of them); `__cause__` is what the environment raised."""

    def __init__(self, message: str, lane: int | None) -> None:
        super().__init__(message)
        self.lane = lane


class Lanes(Protocol):
    """What training and simulation need from an environment."""

    count: int
    rules: Rules

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]: ...
    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]: ...


@dataclass
class Rules:
    """Declarations of an environment (`metadata["peakrl"]`) or of the user, and checks of what it returns."""

    name: str
    actions: ActionSet
    observation_space: Any
    #: Steps of an episode; None: no limit is declared.
    steps: int | None
    reward_range: tuple[float, float]
    constraints: ConstraintReader
    constraint_names: tuple[str, ...]
    #: S of the bonus formulas; None if unknown.
    states: int | None
    #: True if the environment declares that nothing depends on the step.
    stationary: bool
    #: Are observations declared to be states, by their number? Only then can observations prove infeasibility.
    observes_states: bool = False
    #: Are several states one observation (`Discretize`)? Then observations are no states, whatever is declared.
    aliased: bool = False
    #: False: states and actions are indices, which are not the labels of the problem behind them.
    shows_labels: bool = True
    #: Has every observation a label? Learning needs it.
    labelled: bool = True
    #: Action of idle lanes in an initial state; None: the first available action.
    idle: Callable[[Observed], int] | None = None

    @property
    def horizon(self) -> int:
        """Steps of an episode; an error if there is no limit."""
        if self.steps is None:
            raise SettingsError(
                f"{self.name} has no end, because no horizon, the steps of an episode, is declared: learn with "
                "discount= and steps=, or pass peakrl.ConstrainedEnv(env, horizon=...)"
            )
        return self.steps

    def __post_init__(self) -> None:
        self._known: set[State] = set()
        #: Integer observations without an action mask.
        self._numbered: dict[int, Observed] = {}
        lo, hi = reward_limits(self.reward_range)
        #: Least and largest allowed reward, with a margin for rounding.
        self.rewards = max(lo, -LARGEST_FLOAT), min(hi, LARGEST_FLOAT)

    def seen(self, observation: Any, info: dict[str, Any]) -> Observed:
        """Return the state and the available actions."""
        if type(observation) not in NUMBERS or "action_mask" in info:
            return self._checked(observation, info)
        known = self._numbered.get(observation)
        if known is None:
            known = self._numbered[int(observation)] = self._checked(observation, info)
        return known

    def _checked(self, observation: Any, info: dict[str, Any]) -> Observed:
        offer, shielded = self.actions.offer(info.get("action_mask")), "shield_replacements" in info
        if not self.labelled:
            observation = kept(observation)
            return Observed(observation, offer, observation, shielded)
        state = label_of(observation)
        if state not in self._known:
            if not self.observation_space.contains(observation):
                raise TargetError(f"the observation {shown(observation)} is not in {self.observation_space}")
            self._known.add(state)
        return Observed(state, offer, observation, shielded)

    def seen_last(self, observation: Any, info: dict[str, Any], *, terminated: bool) -> Observed | None:
        """Return the last state of an episode; None if it has no available action."""
        mask = info.get("action_mask")
        if terminated or (mask is not None and not self.actions.leaves_any(mask)):
            return None
        return self.seen(observation, info)

    def reward(self, given: Any) -> float:
        """Return a validated reward."""
        least, most = self.rewards
        if type(given) is float and least <= given <= most:  # the usual case
            return given
        if type(given) is int and least <= given <= most:
            return float(given)
        try:
            reward = float(given)
        except (TypeError, ValueError, OverflowError):
            raise TargetError(f"the reward is {shown(given)}; it must be a number") from None
        if not least <= reward <= most:
            why = "it must be finite" if not math.isfinite(reward) else f"reward_range is {self.reward_range}"
            raise TargetError(f"the reward is {reward}; {why}")
        return reward

    def step(self, transition: Transition, following: Observed | None) -> Step:
        """Return a validated step."""
        over, cut_off = transition.terminated, transition.truncated and not transition.terminated
        return Step(transition.reward, self.constraints.read(transition), following, over, cut_off)


def is_environment(target: Any) -> bool:
    """Does this look like a Gymnasium environment?"""
    return all(hasattr(target, name) for name in ("reset", "step", "observation_space", "action_space"))


def kept(observation: Any) -> Any:
    """Return a copy of an observation, in case the environment reuses its buffers."""
    return observation if isinstance(observation, int | str | np.integer) else copy.deepcopy(observation)


def truth(value: Any, what: str) -> bool:
    """Return a validated flag."""
    if value is True or value is False:
        return value
    if not isinstance(value, bool | np.bool_):
        raise TargetError(f"{what} is {shown(value)}; it must be True or False")
    return bool(value)


def info_of(value: Any, where: str) -> dict[str, Any]:
    """Return a validated info."""
    if not isinstance(value, dict):
        raise TargetError(f"{where} returned {shown(value)} as info; it must be a dict")
    return value


#: Creates a named tuple from a plain one, twice as fast as its constructor.
named = tuple.__new__


class SingleLane:
    """A single environment; `step` may return six values, with the cost in third place, as in Safety-Gymnasium."""

    count = 1

    def __init__(self, env: Any, rules: Rules) -> None:
        self.env, self.rules = env, rules
        #: Only a constraint function needs the previous observation.
        self._remembers = rules.constraints.function is not None
        #: The latest observation.
        self._observation: Any = None
        self._step = 0
        #: [number]: argument of `step`, if it is the same object every time.
        self._actions = list(rules.actions.labels) if rules.actions.sizes is None else None

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]:
        """Start an episode."""
        first = guarded(self._reset, seeds[0])
        self._step = 0
        return [first]

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step."""
        (index,) = actions
        return [None if index is None else self.take(index)]

    def take(self, index: int) -> Step:
        """Take one step with an action number."""
        action = self.rules.actions.value(index) if self._actions is None else self._actions[index]
        try:
            step = self._checked(action, self.env.step(action))
        except Exception as error:
            raise failure(error) from error
        self._step += 1
        return step

    def _reset(self, seed: int | None) -> Observed:
        result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise TargetError(f"reset() returned {shown(result)}; it must return (observation, info)")
        seen = self.rules.seen(result[0], info_of(result[1], "reset()"))
        self._observation = kept(result[0]) if self._remembers else None
        return seen

    def _checked(self, action: Any, result: Any) -> Step:
        """Return the checked result of a step."""
        rules = self.rules
        usual = type(result) is tuple and len(result) == 5
        observation, reward, over, cut_off, info = result if usual else five_values(result)
        if type(info) is not dict:
            info = info_of(info, "step()")
        reward = rules.reward(reward)
        following: Observed | None
        if over is False and cut_off is False:
            following = rules.seen(observation, info)
        else:
            over, cut_off = truth(over, "terminated"), truth(cut_off, "truncated")
            ends = over or cut_off
            following = rules.seen_last(observation, info, terminated=over) if ends else rules.seen(observation, info)
        fields = (self._step, self._observation, action, reward, observation, over, cut_off, info)
        constraints = rules.constraints.read(named(Transition, fields))
        if self._remembers:
            self._observation = kept(observation)
        return named(Step, (reward, constraints, following, over, cut_off and not over))


def five_values(result: Any) -> tuple[Any, ...]:
    """Return five values, with the cost of six values moved into `info`."""
    if not isinstance(result, tuple) or len(result) not in (5, 6):
        raise TargetError(
            f"step() returned {shown(result)}; it must return (observation, reward, terminated, truncated, info), "
            "or six values with the cost in third place"
        )
    if len(result) == 5:
        return result
    observation, reward, cost, terminated, truncated, info = result
    return observation, reward, terminated, truncated, {**info_of(info, "step()"), "cost": cost}


def guarded(call: Any, *arguments: Any) -> Any:
    """Call into an environment and turn any exception into a LaneError."""
    try:
        return call(*arguments)
    except Exception as error:
        raise failure(error) from error


def failure(error: Exception) -> LaneError:
    """Return an exception as a LaneError."""
    if isinstance(error, PeakError):
        return LaneError(str(error), 0)
    return LaneError(f"the environment raised {type(error).__name__}: {error}", 0)


class ModelLane:
    """A compiled model as one lane, for learners without a kernel; it samples as kernels do."""

    count = 1

    def __init__(self, model: TabularModel, generator: Words) -> None:
        self.model, self.generator = model, generator
        unused: Any = None
        self.rules = Rules(
            name=model.name,
            actions=unused,
            observation_space=unused,
            steps=model.steps,
            reward_range=model.reward_range,
            constraints=ConstraintReader(None, model.constraint_bounds),
            constraint_names=model.constraint_names,
            states=model.max_states,
            stationary=model.stationary,
        )
        self._slot = 0
        self._step = 0

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]:
        """Start an episode."""
        sampler = self.model.sampler
        index = draw_alias(self.generator, sampler.first_accept, sampler.first_alias, 0, len(sampler.first_slot))
        self._slot, self._step = int(sampler.first_slot[index]), 0
        return [self._seen()]

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step."""
        (action,) = actions
        if action is None:
            return [None]
        model, sampler = self.model, self.model.sampler
        row = next(row for row in model.rows_of_slot(self._slot) if model.row_action[row] == action)
        distribution = int(model.row_distribution[row])
        start, end = model.outcome_start[distribution : distribution + 2].tolist()
        outcome = int(draw_alias(self.generator, sampler.accept, sampler.alias, start, end - start))
        record = int(model.payoffs.row_payoff[row]) + model.payoffs.stride * (outcome - start)
        self._slot, self._step = int(model.outcome_next[outcome]), self._step + 1
        reward, constraints = float(model.payoffs.reward[record]), tuple(model.payoffs.constraints[record].tolist())
        last = self._step == model.steps
        return [Step(reward, constraints, None if last else self._seen(), terminated=False, truncated=last)]

    def _seen(self) -> Observed:
        return Observed(self.model.state_of_slot(self._slot), ())


class DetachedEnvironment:
    """Placeholder for an environment that was not passed to `load`: the run can be read but not resumed."""

    count = 1

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> NoReturn:
        """Raise: there is no environment."""
        raise LaneError("the environment is missing: pass it as env= to continue", None)

    def advance(self, actions: Sequence[int | None]) -> NoReturn:
        """Raise: there is no environment."""
        self.begin((), ())


def store_rules(rules: Rules) -> dict[str, Any]:
    """Return the stored form of the rules."""
    return {
        "name": rules.name,
        "actions": rules.actions.described(),
        "horizon": rules.steps,
        "reward_range": list(rules.reward_range),
        "constraint_bounds": None if rules.constraints.bounds is None else list(rules.constraints.bounds),
        "constraint_tolerances": list(rules.constraints.tolerances or ()),
        "constraint": rules.constraints.described,
        "constraint_names": list(rules.constraint_names),
        "states": rules.states,
        "stationary": rules.stationary,
        "observes_states": rules.observes_states,
        "aliased": rules.aliased,
    }


def load_rules(plain: Mapping[str, Any], longest: int) -> Rules:
    """Return the rules of a stored form; `longest` is the largest horizon that fits the rest of the file."""
    bounds, states = plain["constraint_bounds"], plain["states"]
    bounds = None if bounds is None else check_bounds(bounds, "constraint_bounds", error=SettingsError)
    tolerances = check_tolerances(plain["constraint_tolerances"], "constraint_tolerances", error=SettingsError)
    names = tuple(map(str, plain["constraint_names"]))
    if names and bounds is not None and len(names) != len(bounds):
        raise SettingsError(f"constraint_names has {len(names)} names for {len(bounds)} bounds")
    constraints = ConstraintReader(None, bounds, tolerances or None, names)
    constraints.described = plain["constraint"]
    return Rules(
        name=str(plain["name"]),
        actions=ActionSet.from_description(plain["actions"]),
        observation_space=None,
        steps=check_horizon(plain["horizon"], "horizon", longest),
        reward_range=check_range(plain["reward_range"], "reward_range", error=SettingsError),
        constraints=constraints,
        constraint_names=names,
        states=None if states is None else check_count(states, "states", 1, MOST_STATES),
        stationary=plain["stationary"] is True,
        observes_states=plain["observes_states"] is True,
        aliased=plain["aliased"] is True,
    )
