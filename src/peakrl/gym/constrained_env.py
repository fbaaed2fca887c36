"""`ConstrainedEnv`: a Gymnasium environment with everything that peakrl has to know about it.

Learning needs the number of steps of an episode, the range of the rewards and the constraints of a step. An environment
may declare these itself, in `metadata["peakrl"]` and by its time limit, and report constraints in `info`;
`ConstrainedEnv` adds or replaces them. `learn`, `simulate`, `certify` and `rollout` accept both.

`info` of a step contains

    constraints   [constraint] >= 0 if satisfied
    cost          max(0, -constraint): a float for one constraint, an array for several
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from inspect import signature
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from peakrl.checks import check_bounds, check_count, check_horizon, check_range, check_tolerances, shown
from peakrl.errors import SettingsError
from peakrl.gym.adapter import MOST_STATES, Lanes, Rules, SingleLane, five_values, kept
from peakrl.gym.constraints import ConstraintFunction, ConstraintReader, Transition, cost_of
from peakrl.gym.vector import VectorLanes, autoreset_mode, lane_info
from peakrl.spaces import ActionSet, actions_of, check_observation_space, space_size, unlabelled_part


class ConstraintWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that reads the constraints of each step."""

    def __init__(self, env: Any, constraints: ConstraintReader) -> None:
        super().__init__(env)
        self._constraints, self._steps, self._observation = constraints, 0, None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._steps, self._observation = 0, kept(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step and write its constraints into `info`."""
        observation, reward, terminated, truncated, info = five_values(self.env.step(action))
        values = self._constraints.read(
            Transition(self._steps, self._observation, action, reward, observation, terminated, truncated, info)
        )
        self._steps, self._observation = self._steps + 1, kept(observation)
        return observation, reward, terminated, truncated, {**info, **reported(values)}


class ConstrainedEnv(ConstraintWrapper):
    """An environment with its horizon, reward range and constraints.

    Parameters
    ----------
    env
        A Gymnasium environment, also a vectorised one; `step` may return six values, with the cost in third place.
    constraint
        A function of the `Transition` (`step`, `observation`, `action`, `reward`, `next_observation`, `terminated`,
        `truncated`, `info`) that returns one or several numbers, >= 0 if satisfied. By default the constraints are read
        from `info["constraints"]`, or else `info["cost"]` (> 0: violated).
    constraint_bounds
        The largest absolute value of each constraint; `()`: there are no constraints. Needed for certificates.
    constraint_tolerances
        How far below 0 each constraint still counts as satisfied. Default: 0.
    constraint_names
        A name for each constraint.
    horizon
        Steps of an episode; `math.inf`: it has no end. Default: the time limit of the environment.
    reward_range
        The least and the largest reward of a step.

    Examples
    --------
    >>> import gymnasium, peakrl
    >>> def dry(transition):
    ...     return -1.0 if transition.next_observation in {5, 7, 11, 12} else 1.0
    >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> env = peakrl.ConstrainedEnv(lake, constraint=dry, horizon=8, reward_range=(0, 1))
    >>> run = peakrl.learn(env, episodes=500)
    >>> peakrl.simulate(env, run.policy, episodes=10).value
    1.0
    """

    def __new__(cls, env: Any = None, **declared: Any) -> Any:
        """Return the twin for a vectorised environment."""
        return ConstrainedVectorEnv(env, **declared) if isinstance(env, VectorEnv) else super().__new__(cls)

    def __init__(
        self,
        env: Any,
        *,
        constraint: ConstraintFunction | None = None,
        constraint_bounds: Sequence[float] | None = None,
        constraint_tolerances: Sequence[float] | None = None,
        constraint_names: Sequence[str] | None = None,
        horizon: float | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise SettingsError(f"env is {shown(env)}; it must be a Gymnasium environment")
        #: The arguments that are given.
        self.declared = given(
            constraint=constraint, constraint_bounds=constraint_bounds, constraint_tolerances=constraint_tolerances,
            constraint_names=constraint_names, horizon=horizon, reward_range=reward_range,
        )  # fmt: skip
        rules = rules_of(env, self.declared)
        super().__init__(env, rules.constraints)
        self.metadata = metadata_of(env, rules, self.declared)


class ConstrainedVectorEnv(VectorWrapper):
    """The `ConstrainedEnv` of a vectorised environment; its arguments are those of a single one."""

    def __init__(self, env: Any, **declared: Any) -> None:
        signature(ConstrainedEnv.__init__).bind(self, env, **declared)  # a TypeError names an unknown argument
        super().__init__(env)
        self.declared = given(**declared)
        self._rules = rules_of(env, self.declared)
        self.metadata = metadata_of(env, self._rules, self.declared)
        self.mode = autoreset_mode(env)
        self._steps = [0] * env.num_envs
        self._observations: list[Any] = [None] * env.num_envs
        #: NEXT_STEP: the next step resets this sub-environment.
        self._resets = [False] * env.num_envs

    def __del__(self) -> None:
        """Leave what is inside open: before Gymnasium 1.3 a wrapper that is no longer used closes it."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin episodes."""
        begun = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))  # before Gymnasium removes it
        observations, infos = self.env.reset(seed=seed, options=options)
        for lane, observation in enumerate(iterate(self.observation_space, observations)):
            if begun[lane]:
                self._begin(lane, observation)
        return observations, infos

    def _begin(self, lane: int, observation: Any) -> None:
        self._steps[lane], self._observations[lane], self._resets[lane] = 0, kept(observation), False

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take one step everywhere and write the constraints into the infos."""
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        #: By lane; the last step of an episode has its constraints in "final_info" if the lane is already reset.
        found: dict[int, tuple[float, ...]] = {}
        final: dict[int, tuple[float, ...]] = {}
        for lane, observation in enumerate(iterate(self.observation_space, observations)):
            if self._resets[lane]:
                self._begin(lane, observation)
                continue
            terminated, truncated = bool(terminations[lane]), bool(truncations[lane])
            is_reset = (terminated or truncated) and self.mode is AutoresetMode.SAME_STEP
            values = self._rules.constraints.read(
                Transition(
                    self._steps[lane], self._observations[lane], actions[lane], float(rewards[lane]),
                    infos["final_obs"][lane] if is_reset else observation, terminated, truncated,
                    lane_info(infos["final_info"] if is_reset else infos, lane),
                )
            )  # fmt: skip
            (final if is_reset else found)[lane] = values
            self._steps[lane], self._observations[lane] = 0 if is_reset else self._steps[lane] + 1, kept(observation)
            self._resets[lane] = (terminated or truncated) and self.mode is AutoresetMode.NEXT_STEP
        infos = {**infos, **self._reported(found)}
        if final:
            infos["final_info"] = {**infos["final_info"], **self._reported(final)}
        return observations, rewards, terminations, truncations, infos

    def _reported(self, values: dict[int, tuple[float, ...]]) -> dict[str, Any]:
        """Return the infos of these lanes, in the form of vectorised environments."""
        lanes, found = list(values), dict[str, Any]()
        for key in ("constraints", "cost"):
            each = [reported(values[lane])[key] for lane in lanes]
            array = np.zeros((self.num_envs, *np.shape(each)[1:]))
            array[lanes] = each
            found |= {key: array, f"_{key}": np.isin(np.arange(self.num_envs), lanes)}
        return found if lanes else {}


def reported(values: tuple[float, ...]) -> dict[str, Any]:
    """Return the constraints of a step as `info` contains them."""
    return {"constraints": np.array(values), "cost": cost_of(values)}


def given(**declared: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {name: value for name, value in declared.items() if value is not None}


def metadata_of(env: Any, rules: Rules, declared: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of an environment with its declarations, for wrappers and vectorised environments."""
    own = {name: value for name, value in declared.items() if name != "constraint"}
    own |= {"horizon": math.inf if rules.steps is None else rules.steps, "reward_range": rules.reward_range}
    return {**env.metadata, "peakrl": {**env.metadata.get("peakrl", {}), **own}}


# Lanes --------------------------------------------------------------------------------------------------------------


def adapt(env: Any, *, needs_range: bool = True, learns: bool = False) -> Lanes:
    """Return the lanes of an environment for training and simulation; raise if it does not declare what they need.

    Only what `learns` tables needs observations and actions that can be listed.

    The lanes of a `ConstrainedEnv` step what is inside of it, so that `info` need not be written and read.
    """
    declared: dict[str, Any] = {}
    if isinstance(env, ConstrainedEnv | ConstrainedVectorEnv):
        env, declared = env.env, env.declared
    rules = rules_of(env, declared, needs_range=needs_range, learns=learns)
    return VectorLanes(env, rules) if is_vector(env) else SingleLane(env, rules)


def is_vector(env: Any) -> bool:
    """Is it a vectorised environment?"""
    return hasattr(env, "num_envs") and hasattr(env, "single_action_space")


def rules_of(env: Any, declared: dict[str, Any], *, needs_range: bool = True, learns: bool = False) -> Rules:
    """Return the checked declarations of an environment; `declared` comes before its own."""
    vector, metadata = is_vector(env), getattr(env, "metadata", None)
    own = metadata.get("peakrl", {}) if isinstance(metadata, dict) else {}
    if not isinstance(own, dict):
        raise SettingsError(f'metadata["peakrl"] of the environment is {shown(own)}; it must be a dict')
    own = {**given(**own), **declared}
    space = env.single_observation_space if vector else env.observation_space
    action_space = env.single_action_space if vector else env.action_space
    labelled = unlabelled_part(space) is None
    if learns:
        check_observation_space(space)
    horizon = own.get("horizon", getattr(getattr(env, "spec", None), "max_episode_steps", None))
    refuse_missing(env, own | given(horizon=horizon), needs_range)
    function, bounds, tolerances = own.get("constraint"), own.get("constraint_bounds"), own.get("constraint_tolerances")
    if function is not None and not callable(function):
        raise SettingsError(f"constraint is {shown(function)}; it must be a function of the transition")
    bounds = None if bounds is None else check_bounds(bounds, "constraint_bounds", error=SettingsError)
    if tolerances is not None:
        tolerances = check_tolerances(tolerances, "constraint_tolerances", error=SettingsError)
    names = names_of(own.get("constraint_names", ()))
    for name, values in (("constraint_tolerances", tolerances), ("constraint_names", names)):
        if values and bounds is not None and len(values) != len(bounds):
            raise SettingsError(f"{name} has {len(values)} entries for {len(bounds)} constraints")
    rewards = -math.inf, math.inf
    if "reward_range" in own:
        rewards = check_range(own["reward_range"], "reward_range", error=SettingsError)
    return Rules(
        name=name_of(env),
        actions=ActionSet(action_space) if learns else actions_of(action_space),
        observation_space=space,
        steps=check_horizon(horizon, "horizon", 2**31 - 1),
        reward_range=rewards,
        constraints=ConstraintReader(function, bounds, tolerances, names),
        constraint_names=names,
        states=states_of(own.get("states"), space if labelled else None),
        stationary=own.get("stationary") is True,
        observes_states=own.get("states") is not None and own.get("aliased") is not True,
        aliased=own.get("aliased") is True,
        shows_labels=own.get("shows_labels") is not False,
        labelled=labelled,
    )


def refuse_missing(env: Any, declared: dict[str, Any], needs_range: bool) -> None:
    """Raise an error that names everything that is missing."""
    missing = {}
    if "horizon" not in declared:
        missing["horizon=..."] = "horizon, the steps of an episode (math.inf: it has no end)"
    if "reward_range" not in declared and needs_range:
        missing["reward_range=(lowest, highest)"] = "reward_range, the least and the largest reward of a step"
    if not missing:
        return
    if "constraint" not in declared and "constraint_bounds" not in declared:
        missing["constraint=..."] = (
            'constraint, a function of the transition (unless `info` has "constraints" or "cost")'
        )
    raise SettingsError(
        f"{name_of(env)} does not declare {'; '.join(missing.values())}. Pass "
        f"peakrl.ConstrainedEnv(env, {', '.join(missing)})"
    )


def names_of(names: Any) -> tuple[str, ...]:
    """Return checked names of constraints."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise SettingsError(f"constraint_names is {shown(names)}; it must hold a text for each constraint")
    return tuple(names)


def name_of(env: Any) -> str:
    """Return the name of an environment."""
    return str(getattr(getattr(env, "spec", None), "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def states_of(declared: Any, space: Any) -> int | None:
    """Return S of the bonus formulas: declared, or the size of the space; None if it has none or it is too large."""
    if declared is None:
        size = MOST_STATES + 1 if space is None else space_size(space)
        return size if size <= MOST_STATES else None
    return check_count(declared, "states", 1, MOST_STATES)
