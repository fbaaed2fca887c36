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
    Dict({...})              ->  Dict({"step": Discrete(H + 1), ...})

Step H follows the last action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
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
from peakrl.problem import Problem
from peakrl.problems.harvesting import EnergyHarvesting
from peakrl.problems.scheduling import MachineScheduling
from peakrl.safety.safe_set import SafeSet
from peakrl.safety.shield import shield
from peakrl.specs.registry import kind_named
from peakrl.specs.spec import ProblemSpec, located, naming, read_spec
from peakrl.specs.user_code import Trust
from peakrl.tabular import TabularModel

#: Without an end only the last steps are kept, at least so many.
MOST_SHOWN = 1000


class ProblemEnvironment(gymnasium.Env[Any, Any]):
    """A compiled problem as an environment; observations and actions are indices of labels."""

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012  # Gymnasium's own form

    def __init__(self, problem: Any, render_mode: str | None = None, with_step: bool | None = None) -> None:
        if render_mode not in (None, "ansi"):
            raise ProblemError(f"render_mode is {render_mode!r}; it must be None or 'ansi'")
        #: A problem, or its model.
        self.problem = problem
        self.model = model = compile_model(problem)
        self.render_mode = render_mode
        self.metadata = {**type(self).metadata, "peakrl": declaration(model)}
        self.actions = tuple(model.action_labels)
        #: Do observations contain the step?
        self.with_step = needs_step(model) if with_step is None else with_step
        shown = self.make_observation_space()
        self.observation_space = space_with_step(shown, model.horizon) if self.with_step else shown
        self.action_space = spaces.Discrete(len(self.actions))
        self._slot = -1
        self._step, self._last = 0, math.inf  # set by `reset`
        #: (state, action, reward, constraints) of each step so far; of the last ones if there is no end.
        self.trace: list[tuple[Hashable, Hashable, float, tuple[float, ...]]] = []

    # What subclasses may override ---------------------------------------------------------------------------

    @property
    def states(self) -> Any:
        """The labels that observations are indices of."""
        return self.model.state_labels

    def make_observation_space(self) -> spaces.Space[Any]:
        """One number for each state."""
        return spaces.Discrete(self.model.num_states)

    def observe(self, slot: int) -> Any:
        """Return the observation of a stored state."""
        return int(self.model.slot_state[slot])

    def _observed(self) -> Any:
        """Return the present observation."""
        shown = self.observe(self._slot)
        return shown_with_step(shown, self._step) if self.with_step else shown

    def text(self) -> str:
        """Return the present state as text."""
        return f"state {self.state!r}"

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
        self._step, self.trace = 0, []
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
        if model.steps is None and len(self.trace) == 2 * MOST_SHOWN:
            del self.trace[:MOST_SHOWN]
        self.trace.append((before, self.actions[index], reward, constraints))
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
        lines = [f"step {self._step}{'' if self.model.steps is None else f' of {self.model.steps}'}: {self.text()}"]
        if self.trace:
            _, action, reward, constraints = self.trace[-1]
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


class HarvestingEnvironment(ProblemEnvironment):
    """Energy harvesting: observations are (battery, arrival), actions the powers 0, 1, ..."""

    problem: EnergyHarvesting

    def make_observation_space(self) -> spaces.Space[Any]:
        """Battery level and arrival."""
        return spaces.MultiDiscrete([self.problem.battery + 1, self.problem.max_power - self.problem.battery + 1])

    def observe(self, slot: int) -> Any:
        """Return [battery, arrival]."""
        return np.array(self.model.state_of_slot(slot), np.int64)

    def text(self) -> str:
        """Return the battery as a bar."""
        state: Any = self.state
        (level, arrival), size = state, self.problem.battery
        width = min(max(size, 1), 40)
        bar = ("#" * round(width * level / max(size, 1))).ljust(width, ".")
        return f"battery [{bar}] {level}/{size}  arrival {arrival}  peak {self.problem.peak_power:g}"


class SchedulingEnvironment(ProblemEnvironment):
    """Machine scheduling: observations are the jobs done, the time and the largest tardiness; actions are jobs."""

    problem: MachineScheduling

    def make_observation_space(self) -> spaces.Space[Any]:
        """Done: one bit for each job; time and worst: whole numbers up to the longest schedule."""
        longest = self.problem.latest_end
        return spaces.Dict(
            {
                "done": spaces.MultiBinary(len(self.problem.jobs)),
                "time": spaces.Discrete(longest + 1),
                "worst": spaces.Discrete(longest + 1),
            }
        )

    def observe(self, slot: int) -> Any:
        """Return {"done": bits, "time": ..., "worst": the largest tardiness so far}."""
        state: Any = self.model.state_of_slot(slot)
        done = np.array([job.name in state.done for job in self.problem.jobs], np.int8)
        return {"done": done, "time": self.problem.time(state), "worst": state.worst or 0}

    def text(self) -> str:
        """Return one line for each job."""
        done: Any = self.state
        lines, bars = [f"time {self.problem.time(done)}"], {bar[0]: bar for bar in self._bars()}
        for name, deadline in self._deadlines().items():
            _, begin, end, margin = bars.get(name, (name, 0.0, 0.0, 0.0))
            when = f"{begin:g}-{end:g}" if name in bars else "waiting"
            lines.append(f"job {name:<8} deadline {deadline:>6g}  {when}{f'  late by {-margin:g}' * (margin < 0)}")
        return "\n".join(lines)

    def _deadlines(self) -> dict[str, float]:
        return {str(job.name): float(job.deadline) for job in self.problem.jobs}

    def _bars(self) -> list[tuple[str, float, float, float]]:
        states: list[Any] = [entry[0] for entry in self.trace] + [self.state]
        times = [float(self.problem.time(state)) for state in states]
        release: dict[Any, int] = {job.name: job.release for job in self.problem.jobs}
        return [
            (str(entry[1]), max(times[index], release[entry[1]]), times[index + 1], min(entry[3]))
            for index, entry in enumerate(self.trace)
        ]


#: Problems with observations of their own.
ENVIRONMENTS: dict[type, Callable[..., ProblemEnvironment]] = {
    EnergyHarvesting: HarvestingEnvironment,
    MachineScheduling: SchedulingEnvironment,
}


def make_environment(
    problem: Problem | TabularModel | ProblemSpec | Mapping[str, Any] | str | Path,
    render_mode: str | None = None,
    *,
    with_step: bool | None = None,
    trust: Trust = False,
) -> ProblemEnvironment:
    """Return a problem, a mapping or a problem file as an environment.

    A file that names code is refused unless `trust` is True, or lists "." (its own folder) and installed packages.
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

    Observations and actions are indices into the environment's `states` and `actions`, which contain the labels.

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
        return ContinuousEnvironment(problem)
    env = make_environment(problem, render_mode, with_step=with_step)
    return shield(env, SafeSet(env.model)) if shielded else env


def built(problem: Any, trust: Trust) -> Any:
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
    if type(problem) not in ENVIRONMENTS:
        return make_environment(problem, render_mode, with_step=with_step)
    return ENVIRONMENTS[type(problem)](problem, render_mode, with_step)


# Observations with the step ------------------------------------------------------------------------------------------


def needs_step(model: TabularModel) -> bool:
    """Can a state of a non-stationary problem be reached at several steps?"""
    if model.stationary:
        return False
    reached = model.slot_state[: int(model.stage_start[-1])]
    return len(np.unique(reached)) < len(reached)


def space_with_step(space: spaces.Space[Any], horizon: int) -> spaces.Space[Any]:
    """Return the space of observations with the step."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({"step": spaces.Discrete(horizon + 1), **space.spaces})
    sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.tolist()  # type: ignore[attr-defined]
    return spaces.MultiDiscrete([horizon + 1, *map(int, sizes)])


def shown_with_step(observation: Any, step: int) -> Any:
    """Return an observation with the step."""
    if isinstance(observation, dict):
        return {"step": step, **observation}
    return np.append(np.int64(step), observation)
