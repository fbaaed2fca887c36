"""Problems as Gymnasium environments.

An episode is a random walk through the compiled model, sampled with the generator of the environment. `info` contains

    action_mask   [action] 1 if available                step         number of steps taken
    constraints   [constraint] >= 0 if satisfied         cost         max(0, -constraint): a float for one constraint,
                  (after `step` only)                                 an array for several (after `step` only)

and `metadata["peakrl"]` declares horizon, reward range, constraint names and bounds for `learn(env)`. The horizon,
infinite if the problem has no end, truncates an episode of a stationary problem and terminates one of a problem whose
states belong to steps. An action that is not available ends the episode with the lowest reward and every constraint
violated by its bound.

If a state of a non-stationary problem can be reached at several steps, observations contain the step:

    Discrete(n)              ->  MultiDiscrete([H + 1, n])           [step, number]
    MultiDiscrete([a, b])    ->  MultiDiscrete([H + 1, a, b])        [step, ...]

Step H follows the last action.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from peakrl.compile import compile_model
from peakrl.continuous import ContinuousProblem
from peakrl.errors import ProblemError
from peakrl.gym.constraints import cost_of
from peakrl.gym.continuous import ContinuousEnvironment
from peakrl.labels import integer_table
from peakrl.problem import Problem
from peakrl.safety.safe_set import SafeSet
from peakrl.safety.shield import shield
from peakrl.specs.registry import kind_named
from peakrl.specs.spec import ProblemSpec, located, naming, read_spec
from peakrl.tabular import TabularModel


class ProblemEnvironment(gymnasium.Env[Any, Any]):
    """A compiled problem as an environment; observations and actions are indices of labels.

    With `by_parts`, states that are tuples of whole numbers are observed as these numbers.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's own form

    def __init__(
        self, problem: Any, render_mode: str | None = None, with_step: bool | None = None, *, by_parts: bool = False
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ProblemError(f"render_mode is {render_mode!r}; it must be None or 'ansi'")
        #: A problem, or its model.
        self.problem = problem
        self.model = model = compile_model(problem)
        self.render_mode = render_mode
        self.actions = tuple(model.action_labels)
        #: Do observations contain the step?
        self.with_step = needs_step(model) if with_step is None else with_step
        parts = integer_table(model.state_labels) if by_parts else None
        #: [state, part]: what is observed of each state; None: its index.
        self._parts = parts if parts is not None and parts.ndim == 2 and parts.min() >= 0 else None
        sizes = [model.num_states] if self._parts is None else (self._parts.max(axis=0) + 1).tolist()
        if self.with_step:
            sizes = [model.horizon + 1, *sizes]
        numbered = list(model.action_labels) == list(range(len(self.actions)))
        numbered &= self._parts is not None or list(model.state_labels) == list(range(model.num_states))
        declared = declaration(model) | {"shows_labels": numbered and not self.with_step}
        self.metadata = {**type(self).metadata, "peakrl": declared}
        plain = self._parts is None and not self.with_step
        self.observation_space = spaces.Discrete(model.num_states) if plain else spaces.MultiDiscrete(sizes)
        self.action_space = spaces.Discrete(len(self.actions))
        self._slot = -1
        self._step, self._last = 0, math.inf  # set by `reset`
        #: State, action, reward and constraints of the last step.
        self.last: tuple[Hashable, Hashable, float, tuple[float, ...]] | None = None

    @property
    def states(self) -> Any:
        """The labels of states, in the order of their indices."""
        return self.model.state_labels

    def _observed(self) -> Any:
        """Return the present observation."""
        state = int(self.model.slot_state[self._slot])
        shown = [state] if self._parts is None else self._parts[state].tolist()
        if self.with_step:
            shown = [self._step, *shown]
        return np.array(shown, np.int64) if isinstance(self.observation_space, spaces.MultiDiscrete) else state

    # Gymnasium -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> Hashable:
        """The label of the present state."""
        return self.model.state_of_slot(self._slot)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw a first state."""
        super().reset(seed=seed, options=options)
        model = self.model
        self._slot = int(model.first_slot[self._draw(model.first_probability)])
        self._step, self.last = 0, None
        self._last = math.inf if model.steps is None else model.steps
        return self._observed(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action, given by its index."""
        if self._slot < 0 or self._step >= self._last:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        if not self.action_space.contains(action):
            raise ProblemError(f"action {action!r} is not the index of an action, 0 to {len(self.actions) - 1}")
        model, index = self.model, int(action)
        rows = [row for row in model.rows_of_slot(self._slot) if model.row_action[row] == index]
        before = self.state
        reward, constraints = self._take(rows[0]) if rows else self._refuse()
        self.last = before, self.actions[index], reward, constraints
        info = self._info()
        info["constraints"] = np.array(constraints)
        info["cost"] = cost_of(constraints)
        over, limited = self._step >= self._last, bool(rows) and model.stationary and model.steps != 1
        return self._observed(), reward, over and not limited, over and limited, info

    def _take(self, row: int) -> tuple[float, tuple[float, ...]]:
        """Sample the outcome of a state-action pair."""
        layout, payoffs = self.model, self.model.payoffs
        distribution = layout.row_distribution[row]
        start, end = layout.outcome_start[distribution : distribution + 2]
        index = self._draw(layout.outcome_probability[start:end])
        record = payoffs.row_payoff[row] + payoffs.stride * index
        self._slot = int(layout.outcome_next[start + index])
        self._step += 1
        return float(payoffs.reward[record]), tuple(float(value) for value in payoffs.constraints[record])

    def _refuse(self) -> tuple[float, tuple[float, ...]]:
        """End the episode after an action that is not available."""
        self._last = self._step = self.model.steps or self._step + 1
        return self.model.reward_range[0], tuple(-bound for bound in self.model.constraint_bounds)

    def _draw(self, probability: Any) -> int:
        if len(probability) == 1:
            return 0
        return int(np.searchsorted(np.cumsum(probability)[:-1], self.np_random.random(), side="right"))

    def _info(self) -> dict[str, Any]:
        mask = np.zeros(len(self.actions), np.int8)
        rows = self.model.rows_of_slot(self._slot)
        mask[self.model.row_action[rows.start : rows.stop]] = 1
        return {"action_mask": mask, "step": self._step}

    def render(self) -> Any:
        """Return the present state and the last step as text, if `render_mode` is "ansi"."""
        if self.render_mode != "ansi":
            return None
        lines = [
            f"step {self._step}{'' if self.model.steps is None else f' of {self.model.steps}'}: state {self.state!r}"
        ]
        if self.last is not None:
            _, action, reward, constraints = self.last
            margins = ", ".join(
                f"{name} {value:g}{' violated' if value < 0 else ''}"
                for name, value in zip(self.model.constraint_names, constraints, strict=True)
            )
            lines.append(f"last action {action!r}, reward {reward:g}, {margins}")
        return "\n".join(lines)


def declaration(model: TabularModel) -> dict[str, Any]:
    """Return the declarations of a model for `learn`."""
    return {
        "horizon": math.inf if model.steps is None else model.steps,
        "reward_range": model.reward_range,
        "constraint_names": model.constraint_names,
        "constraint_bounds": model.constraint_bounds,
        "stationary": model.stationary,
        "states": model.max_states,
    }


def make_environment(
    problem: Problem | TabularModel | ProblemSpec | Mapping[str, Any] | str | Path,
    render_mode: str | None = None,
    *,
    with_step: bool | None = None,
    trust: bool = False,
) -> ProblemEnvironment:
    """Return a problem, a mapping or a problem file as an environment.

    A file that names code is refused unless `trust` is True.
    """
    model = compile_model(built(problem, trust))
    env = ProblemEnvironment(model, render_mode, with_step)
    # Gymnasium's checker and wrappers create further environments from the specification.
    name, entry_point = "peakrl/Problem-v0", "peakrl.gym.export:make_environment"
    env.spec = EnvSpec(
        id=name, entry_point=entry_point, kwargs={"problem": model, "render_mode": render_mode, "with_step": with_step}
    )
    return env


def to_gymnasium(
    problem: Problem | TabularModel | ProblemSpec | ContinuousProblem,
    render_mode: str | None = None,
    *,
    shielded: bool = False,
    with_step: bool | None = None,
) -> Any:
    """Return a problem as a Gymnasium environment, with action masks and constraints in `info`.

    Observations and actions are indices into the environment's `states` and `actions`, which contain the labels. What
    is declared to `learn` about the environment is in terms of these indices.

    Parameters
    ----------
    problem:
        A problem, a compiled model or a specification. A continuous problem has its states as observations, actions by
        index, and no other argument; leaving the box ends an episode.
    render_mode:
        None or "ansi" (text).
    shielded:
        Wrap the environment in the `shield` of its safe set.
    with_step:
        Are observations [step, index]? Default: if the problem is not stationary and a state can be reached at several
        steps. The optimal policy of a stationary problem with a horizon may depend on the step too.

    Returns
    -------
    gymnasium.Env

    Examples
    --------
    >>> import peakrl
    >>> env = peakrl.to_gymnasium(peakrl.problems.energy_harvesting(peak_power=8))
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    >>> info["cost"]
    0.0
    """
    if isinstance(problem, ContinuousProblem):
        if shielded:
            raise ProblemError(
                "shielded=True needs the cells of a grid for a problem with continuous states: "
                "shield(to_gymnasium(problem), safe_set(problem, cells=...))"
            )
        return ContinuousEnvironment(problem)
    env = make_environment(problem, render_mode, with_step=with_step)
    return shield(env, SafeSet(env.model)) if shielded else env


def built(problem: Any, trust: bool) -> Any:
    """Return the problem of a mapping or a file; anything else unchanged."""
    if isinstance(problem, str | Path):
        with naming(problem), located("problem"):
            return read_spec(problem, trust=trust).compile(Path(problem).parent)
    if isinstance(problem, Mapping):
        problem = ProblemSpec.from_dict(problem)
    return problem.compile() if isinstance(problem, ProblemSpec) else problem


def make_built_in(
    kind: str, render_mode: str | None = None, with_step: bool | None = None, **parameters: Any
) -> ProblemEnvironment:
    """Return a built-in problem as an environment; entry point of Gymnasium."""
    if kind == "machine_scheduling" and "jobs" not in parameters:
        kind, parameters["number"] = "scheduling_example", parameters.pop("example", 1)
    problem = kind_named(kind).build(parameters, Path())
    return ProblemEnvironment(problem, render_mode, with_step, by_parts=True)


def needs_step(model: TabularModel) -> bool:
    """Can a state of a non-stationary problem be reached at several steps?"""
    if model.stationary:
        return False
    reached = model.slot_state[: int(model.stage_start[-1])]
    return len(np.unique(reached)) < len(reached)
