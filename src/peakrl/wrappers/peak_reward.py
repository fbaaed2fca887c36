"""The paper's modified reward for any agent.

With rewards r, I constraints f_i, x^- = min(x, 0), slack xi and penalty eta a step earns

    R = r + (eta / I) * sum_i min(0, f_i^- + xi)

A violation of up to xi is free; beyond it each unit costs eta / I. By default eta = 2 H I (hi - lo) / gamma with
gamma = xi / 2 for H steps and rewards in [lo, hi], as in the paper. `theory` states what this implies.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from peakrl.checks import LARGEST_PENALTY, check_number
from peakrl.errors import SettingsError
from peakrl.gym.constrained_env import ConstraintWrapper, rules_of
from peakrl.gym.constraints import ConstraintFunction, ConstraintReader


class PeakReward(ConstraintWrapper):
    """An environment whose reward is lowered by violations, for agents that know rewards only.

    Observations and actions may be of any kind. `info` contains the reward of the environment as `task_reward`, and
    `constraints` and `cost` as in `ConstrainedEnv`.

    Parameters
    ----------
    env
        A Gymnasium environment.
    constraint
        A function of the `Transition`, as for `ConstrainedEnv`. By default constraints are read from
        `info["constraints"]` or `info["cost"]`.
    slack
        The violation, in units of the constraint, that costs nothing: the best policy may violate by so much at every
        step. With 0 every violation costs, and `penalty` must be given.
    penalty
        What a unit of violation beyond the slack costs, divided among the constraints. By default 4 H I (hi - lo) /
        slack, which needs a declared horizon H and reward_range (lo, hi) (`ConstrainedEnv`).

    Notes
    -----
    For the best policy of the modified reward: if some policy satisfies every constraint, it is worth at least as much
    as the best of those. If outcomes are deterministic, it never violates by more than slack + H I (hi - lo) / penalty,
    which is 1.25 slack by default; if they are random, a larger violation of small probability can pay, so that no
    penalty makes violations impossible. `theory.audit_slack` computes this for models.

    An agent need not find that policy: estimate the violation of what it learned by `simulate`, or bound it by
    `certify`. Rewards of R are negative where violations are large; if violating ends an episode, or an episode can be
    ended on purpose, ending it early may pay.

    Examples
    --------
    >>> import gymnasium, peakrl
    >>> cart = gymnasium.make("CartPole-v1")
    >>> env = peakrl.PeakReward(cart, lambda t: 0.5 - abs(float(t.next_observation[0])), slack=0.01, penalty=100.0)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(1)
    >>> reward, info["task_reward"], info["cost"]
    (1.0, 1.0, 0.0)
    """

    def __init__(
        self, env: Any, constraint: ConstraintFunction | None = None, *, slack: float, penalty: float | None = None
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise SettingsError(f"{env!r} is not a single Gymnasium environment; wrap each one of a vectorised one")
        super().__init__(env, ConstraintReader(constraint, None))
        #: xi, in units of the constraints.
        self.slack = check_number(slack, "slack", least=0.0)
        self._penalty, self._each = penalty, 0.0
        if penalty is not None:
            check_number(penalty, "penalty", least=0.0, most=LARGEST_PENALTY)
        elif self.slack == 0.0:
            raise SettingsError("slack is 0, for which the paper's penalty is infinite: pass penalty=")
        else:
            rules = rules_of(env, {} if constraint is None else {"constraint": constraint})
            low, high = rules.reward_range
            self._each = 4.0 * rules.horizon * (high - low) / self.slack
        own = dict(env.metadata.get("peakrl", {}))
        own.pop("reward_range", None)  # that of the task
        self.metadata = {**env.metadata, "peakrl": own}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one step and return the modified reward."""
        observation, reward, terminated, truncated, info = super().step(action)
        values = info["constraints"].tolist()
        #: eta / I
        each = self._each if self._penalty is None else self._penalty / max(len(values), 1)
        excess = sum(min(0.0, value + self.slack) for value in values)
        return observation, float(reward) + each * excess, terminated, truncated, {**info, "task_reward": reward}
