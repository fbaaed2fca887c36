"""One small interface to environments: lanes that start episodes and take steps.

A single environment has one lane, a vectorised one has several that are stepped together. The learner calls

    begin(lanes, seeds) -> [Observed | None]   start an episode; None: its first state comes with the next `advance`
    advance(actions)    -> [Step | Observed]   one step in every lane; Observed: a lane that has just begun an episode

`actions` are numbers of actions (see `ActionSet`), None in a lane without an episode. Whatever an environment does
against the rules is a `LaneError`, which says in which lane; the learner knows the episode and the step.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from peakrl.checks import ROUNDING, check_bounds, check_count, check_range, check_tolerances, shown
from peakrl.errors import SettingsError, TargetError
from peakrl.gym.constraints import ConstraintFunction, ConstraintReader, Transition
from peakrl.problem import State
from peakrl.spaces import ActionNumbers, ActionSet, check_observation_space, space_size
from peakrl.visited import label_of

#: More states than this are as good as unknown: the bonus formulas need a hint.
MOST_STATES = 2**53
#: Types that are labels as they are; not bool, which is equal to a number.
NUMBERS = frozenset({int, np.int64, np.int32})
LARGEST_FLOAT = sys.float_info.max


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed that an episode of a run is reset with."""
    return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0])


class Observed(NamedTuple):
    """A state and the numbers of the actions on offer there."""

    state: State
    offer: ActionNumbers


class Step(NamedTuple):
    """What one step came to."""

    reward: float
    constraints: tuple[float, ...]
    #: None where the process has ended, or was cut off in a state that offers nothing.
    following: Observed | None
    terminated: bool
    #: Over because a time limit said so, not because the process ended.
    truncated: bool

    @property
    def over(self) -> bool:
        """Is the episode over?"""
        return self.terminated or self.truncated


class LaneError(Exception):
    """Something went wrong in a lane (None: in all of them at once); `__cause__` holds what the environment raised."""

    def __init__(self, message: str, lane: int | None) -> None:
        super().__init__(message)
        self.lane = lane


class Lanes(Protocol):
    """What the learner and the simulation need of an environment."""

    count: int
    rules: Rules

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> list[Observed | None]: ...
    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]: ...


@dataclass
class Rules:
    """What holds for an environment during a run: declared by it (`metadata["peakrl"]`) or by the user."""

    name: str
    actions: ActionSet
    observation_space: Any
    horizon: int
    reward_range: tuple[float, float]
    constraints: ConstraintReader
    constraint_names: tuple[str, ...]
    #: S of the bonus formulas; None where it is unknown.
    states: int | None
    #: True where the environment declares that nothing depends on the step.
    stationary: bool
    #: What lanes that have no episode do in a first state, to which they are reset every time; None: whatever comes.
    idle: Callable[[Observed], int] | None = None

    def __post_init__(self) -> None:
        self._known: set[State] = set()
        #: States that were shown as plain numbers with every action on offer.
        self._numbered: dict[int, Observed] = {}
        #: The same of states that come with an array of what is on offer, which follows from the state; its bytes.
        self._masked: dict[int, tuple[Any, bytes, Observed]] = {}
        lo, hi = self.reward_range
        room = ROUNDING * max(1.0, abs(lo), abs(hi)) if math.isfinite(lo) and math.isfinite(hi) else 0.0
        #: The least and the largest reward that a step may have, rounding included.
        self.rewards = max(lo - room, -LARGEST_FLOAT), min(hi + room, LARGEST_FLOAT)

    def seen(self, observation: Any, info: dict[str, Any]) -> Observed:
        """Return the state and the offer that the environment shows."""
        if type(observation) not in NUMBERS:
            return self._looked_at(observation, info.get("action_mask"))
        if "action_mask" not in info:
            known = self._numbered.get(observation)
            if known is None:
                known = self._numbered[int(observation)] = self._looked_at(observation, None)
            return known
        mask = info["action_mask"]
        if type(mask) is not np.ndarray or mask.ndim != 1:
            return self._looked_at(observation, mask)
        before, given = self._masked.get(observation), mask.tobytes()
        if before is not None and before[0] is mask.dtype and before[1] == given:
            return before[2]
        seen = self._looked_at(observation, mask)
        self._masked[int(observation)] = mask.dtype, given, seen
        return seen

    def _looked_at(self, observation: Any, mask: Any) -> Observed:
        state = label_of(observation)
        if state not in self._known:
            if not self.observation_space.contains(observation):
                raise TargetError(f"the observation {shown(observation)} is not in {self.observation_space}")
            self._known.add(state)
        return Observed(state, self.actions.offer(mask))

    def seen_last(self, observation: Any, info: dict[str, Any], *, terminated: bool) -> Observed | None:
        """Return the state in which an episode is over; None where there is nothing left to do."""
        mask = info.get("action_mask")
        if terminated or (mask is not None and not self.actions.leaves_any(mask)):
            return None
        return self.seen(observation, info)

    def reward(self, given: Any) -> float:
        """Return a validated reward."""
        least, most = self.rewards
        if type(given) is float and least <= given <= most:  # by far the most frequent
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


def adapt(
    env: Any,
    *,
    horizon: int | None = None,
    reward_range: tuple[float, float] | None = None,
    constraint_bounds: Sequence[float] | None = None,
    constraint_tolerances: Sequence[float] | None = None,
    constraint: ConstraintFunction | None = None,
    states: int | None = None,
    needs_range: bool = True,
) -> Lanes:
    """Return the lanes of a Gymnasium environment; what is not given is taken from its `metadata["peakrl"]`."""
    from peakrl.gym.single import SingleLane
    from peakrl.gym.vector import VectorLanes

    vector = hasattr(env, "num_envs") and hasattr(env, "single_action_space")
    metadata = getattr(env, "metadata", None)
    declared = metadata.get("peakrl", {}) if isinstance(metadata, dict) else {}
    if not isinstance(declared, dict):
        raise SettingsError(f'metadata["peakrl"] of the environment is {shown(declared)}; it must be a dict')
    space = env.single_observation_space if vector else env.observation_space
    check_observation_space(space)
    if constraint is not None and not callable(constraint):
        raise SettingsError(f"constraint is {shown(constraint)}; it must be a function of the transition")
    bounds = constraint_bounds if constraint_bounds is not None else declared.get("constraint_bounds")
    bounds = None if bounds is None else check_bounds(bounds, "constraint_bounds", error=SettingsError)
    given = constraint_tolerances if constraint_tolerances is not None else declared.get("constraint_tolerances")
    tolerances = None if given is None else check_tolerances(given, "constraint_tolerances", error=SettingsError)
    if tolerances is not None and bounds is not None and len(tolerances) != len(bounds):
        raise SettingsError(f"constraint_tolerances has {len(tolerances)} numbers for {len(bounds)} constraints")
    names = declared.get("constraint_names")
    rules = Rules(
        name=name_of(env),
        actions=ActionSet(env.single_action_space if vector else env.action_space),
        observation_space=space,
        horizon=horizon_of(env, horizon, declared),
        reward_range=range_of(reward_range, declared, needs_range),
        constraints=ConstraintReader(constraint, bounds, tolerances),
        constraint_names=tuple(map(str, names)) if bounds is not None and names and len(names) == len(bounds) else (),
        states=states_of(states, declared, space),
        stationary=declared.get("stationary") is True,
    )
    return VectorLanes(env, rules) if vector else SingleLane(env, rules)


def name_of(env: Any) -> str:
    """Return what to call an environment."""
    return str(getattr(getattr(env, "spec", None), "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def horizon_of(env: Any, given: Any, declared: dict[str, Any]) -> int:
    """Return the number of steps of an episode: given, declared, or the environment's own time limit."""
    horizon = given if given is not None else declared.get("horizon")
    if horizon is None:
        horizon = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    if horizon is None:
        raise SettingsError(
            "horizon is not given, and the environment declares none: pass horizon=, the steps of an episode"
        )
    return check_count(horizon, "horizon", 1, 2**31 - 1)


def range_of(given: Any, declared: dict[str, Any], needed: bool) -> tuple[float, float]:
    """Return the least and the largest reward of a step."""
    found = given if given is not None else declared.get("reward_range")
    if found is None:
        if not needed:
            return -math.inf, math.inf
        raise SettingsError(
            "reward_range is not given, and the environment declares none: pass reward_range=(lowest, highest) reward "
            "of a step, from which the learner takes how optimistic it must be"
        )
    return check_range(found, "reward_range", error=SettingsError)


def states_of(given: Any, declared: dict[str, Any], space: Any) -> int | None:
    """Return S of the bonus formulas: given, declared, or the size of the observation space."""
    states = given if given is not None else declared.get("states")
    if states is None:
        size = space_size(space)
        return size if size <= MOST_STATES else None
    return check_count(states, "states", 1, MOST_STATES)


def kept(observation: Any) -> Any:
    """Return an observation that stays as it is when the environment writes to its buffers again."""
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
