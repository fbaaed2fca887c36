"""`adapt`: the lanes of a Gymnasium environment, with what it or the user declares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from peakrl.checks import check_bounds, check_count, check_range, check_tolerances, shown
from peakrl.errors import SettingsError
from peakrl.gym.adapter import MOST_STATES, Lanes, Rules, SingleLane
from peakrl.gym.constraints import ConstraintFunction, ConstraintReader
from peakrl.spaces import ActionSet, check_observation_space, space_size


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
    """Return the lanes of a Gymnasium environment; arguments that are None are taken from its `metadata["peakrl"]`."""
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
    """Return the name of an environment."""
    return str(getattr(getattr(env, "spec", None), "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def horizon_of(env: Any, given: Any, declared: dict[str, Any]) -> int:
    """Return the number of steps of an episode: given, declared, or the environment's own time limit."""
    horizon = given if given is not None else declared.get("horizon")
    if horizon is None:
        horizon = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    if horizon is None:
        raise SettingsError(
            "horizon is not specified, and the environment declares none: pass horizon=, the steps of an episode"
        )
    return check_count(horizon, "horizon", 1, 2**31 - 1)


def range_of(given: Any, declared: dict[str, Any], needed: bool) -> tuple[float, float]:
    """Return the least and the largest reward of a step."""
    found = given if given is not None else declared.get("reward_range")
    if found is None:
        if not needed:
            return -math.inf, math.inf
        raise SettingsError(
            "reward_range is not specified, and the environment declares none: pass reward_range=(lowest, highest) "
            "reward of a step; learners need it for optimism"
        )
    return check_range(found, "reward_range", error=SettingsError)


def states_of(given: Any, declared: dict[str, Any], space: Any) -> int | None:
    """Return S of the bonus formulas: given, declared, or the size of the observation space."""
    states = given if given is not None else declared.get("states")
    if states is None:
        size = space_size(space)
        return size if size <= MOST_STATES else None
    return check_count(states, "states", 1, MOST_STATES)
