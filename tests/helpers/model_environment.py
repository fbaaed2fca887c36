"""A compiled model behind Gymnasium's interface, drawing from our own random stream as the kernels do."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from naive import Xoshiro


class ModelWalk:
    """A model as a plain environment: draws first states and outcomes by the model's alias tables, speaks in labels."""

    def __init__(self, model, seed):
        self.model, self.generator = model, Xoshiro(seed)

    def _draw(self, accept, alias, start, size):
        if size == 1:
            return start
        scaled = self.generator.uniform() * size
        column = int(scaled)
        return start + column if scaled - column < accept[start + column] else int(alias[start + column])

    def reset(self):
        sampler = self.model.sampler
        choice = self._draw(sampler.first_accept, sampler.first_alias, 0, len(sampler.first_slot))
        self.step_number, self.slot = 0, int(sampler.first_slot[choice])
        return self.model.state_of_slot(self.slot)

    def actions(self):
        return [self.model.action_of_row(row) for row in self.model.rows_of_slot(self.slot)]

    def step(self, action):
        model, layout, payoffs = self.model, self.model.layout, self.model.payoffs
        row = model.row_of(self.step_number, model.state_of_slot(self.slot), action)
        d = layout.row_distribution[row]
        start, end = layout.outcome_start[d], layout.outcome_start[d + 1]
        outcome = self._draw(model.sampler.accept, model.sampler.alias, start, end - start)
        record = payoffs.row_payoff[row] + payoffs.stride * (outcome - start)
        self.slot = int(layout.outcome_next[outcome])
        self.step_number += 1
        return (
            model.state_of_slot(self.slot),
            float(payoffs.reward[record]),
            [float(f) for f in payoffs.constraints[record]],
        )


class ModelEnvironment(gymnasium.Env):
    """Observations are indices of states, actions indices of actions; `seed` starts one stream for all episodes."""

    def __init__(self, model, seed, declared=True):
        self.model, self.walk = model, ModelWalk(model, seed)
        self.observation_space = spaces.Discrete(model.num_states)
        #: In the order in which states offer them, so that ties are broken alike.
        self.actions = sorted(model.action_labels)
        self.action_space = spaces.Discrete(len(self.actions))
        self.indices = {label: index for index, label in enumerate(model.state_labels)}
        self.metadata = {"render_modes": []}
        if declared:
            self.metadata["peakrl"] = {
                "horizon": model.horizon,
                "reward_range": model.reward_range,
                "constraint_bounds": model.constraint_bounds,
                "stationary": model.stationary,
                "states": model.max_states,
            }

    def info(self):
        mask = np.zeros(self.action_space.n, np.int8)
        for action in self.walk.actions():
            mask[self.actions.index(action)] = 1
        return {"action_mask": mask}

    def reset(self, *, seed=None, options=None):
        state = self.walk.reset()
        return self.indices[state], self.info()

    def step(self, action):
        state, reward, constraints = self.walk.step(self.actions[action])
        info = self.info() | {"constraints": np.array(constraints)}
        return self.indices[state], reward, False, self.walk.step_number == self.model.horizon, info


class EndingEnvironment(ModelEnvironment):
    """The same, but an episode is over when it comes to the model's last state, where nothing is left to be earned."""

    def __init__(self, model, seed):
        super().__init__(model, seed)
        self.metadata["peakrl"]["states"] = model.num_states - 1

    def step(self, action):
        state, reward, _, truncated, info = super().step(action)
        over = state == self.model.num_states - 1
        return state, reward, over, truncated and not over, info
