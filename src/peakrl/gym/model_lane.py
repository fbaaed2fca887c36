"""A compiled model as one lane, for learners without a kernel: it draws as kernels do, from the run's own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peakrl.gym.adapter import Observed, Rules, Step
from peakrl.gym.constraints import ConstraintReader
from peakrl.sampling import Words, draw_alias
from peakrl.tabular import TabularModel


class ModelLane:
    """Episodes of a model, step by step; actions are given by their numbers."""

    count = 1

    def __init__(self, model: TabularModel, generator: Words) -> None:
        self.model, self.generator = model, generator
        nothing: Any = None  # of an environment's spaces
        self.rules = Rules(
            name=model.name,
            actions=nothing,
            observation_space=nothing,
            horizon=model.horizon,
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
        place = draw_alias(self.generator, sampler.first_accept, sampler.first_alias, 0, len(sampler.first_slot))
        self._slot, self._step = int(sampler.first_slot[place]), 0
        return [self._seen()]

    def advance(self, actions: Sequence[int | None]) -> list[Step | Observed | None]:
        """Take one step."""
        (action,) = actions
        if action is None:
            return [None]
        model, layout, sampler = self.model, self.model.layout, self.model.sampler
        row = next(row for row in model.rows_of_slot(self._slot) if model.row_action[row] == action)
        law = int(layout.row_distribution[row])
        start, end = int(layout.outcome_start[law]), int(layout.outcome_start[law + 1])
        outcome = int(draw_alias(self.generator, sampler.accept, sampler.alias, start, end - start))
        record = int(model.payoffs.row_payoff[row]) + model.payoffs.stride * (outcome - start)
        self._slot, self._step = int(layout.outcome_next[outcome]), self._step + 1
        reward, constraints = float(model.payoffs.reward[record]), tuple(model.payoffs.constraints[record].tolist())
        last = self._step == model.horizon
        return [Step(reward, constraints, None if last else self._seen(), terminated=False, truncated=last)]

    def _seen(self) -> Observed:
        return Observed(self.model.state_of_slot(self._slot), ())
