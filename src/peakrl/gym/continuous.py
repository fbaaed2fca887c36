"""Continuous problems as Gymnasium environments."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from peakrl.continuous import ContinuousProblem
from peakrl.errors import ProblemError
from peakrl.gym.constraints import cost_of
from peakrl.types import Floats


class ContinuousEnvironment(gymnasium.Env[Floats, Any]):
    """A continuous problem as an environment: observations are states in float64, actions are indices.

    After `step`, `info` contains `constraints`, which are >= 0 if satisfied, in the order of
    `problem.margin_names`, and `cost`. An episode terminates if a coordinate leaves its range.
    """

    def __init__(self, problem: ContinuousProblem) -> None:
        self.problem = problem
        self.metadata = {"render_modes": [], "peakrl": {"constraint_names": problem.margin_names, "stationary": True}}
        self.actions = problem.actions
        self.observation_space = spaces.Box(problem.low, problem.high, dtype=np.float64)
        self.action_space = spaces.Discrete(len(problem.actions))
        #: The present state; None before the first episode and after the end of one.
        self.state: Floats | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Draw a first state."""
        super().reset(seed=seed, options=options)
        self.state = self.problem.draw_start(self.np_random)
        return self.state.copy(), {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take an action, given by its index."""
        problem = self.problem
        if self.state is None:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        if not self.action_space.contains(action):
            raise ProblemError(f"action {action!r} is not the index of an action, 0 to {len(self.actions) - 1}")
        x, chosen = list(self.state), self.actions[int(action)]
        following = problem.move(x, chosen, list(problem.draw_disturbance(self.np_random)))
        constraints = tuple(float(value) for value in problem.margins(x, chosen, following))
        if np.isnan([*following, *constraints]).any():
            raise ProblemError(
                f"{problem.name!r}: the constraints or the state after action {chosen!r} in "
                f"{problem.named(self.state)} are not a number"
            )
        reward = 0.0 if problem.reward is None else float(problem.reward(x, chosen))
        observation = np.array(following, np.float64)
        over = not bool(((problem.low <= observation) & (observation <= problem.high)).all())
        self.state = None if over else observation
        return (
            observation.copy(),
            reward,
            over,
            False,
            {"constraints": np.array(constraints), "cost": cost_of(constraints)},
        )
