"""A compiled model behind Gymnasium's interface, drawing from our own random stream as the kernels do."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from naive import ModelWalk


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
