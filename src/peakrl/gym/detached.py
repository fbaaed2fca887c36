"""An environment that is not at hand: what a run's file tells of it is enough to read the run, not to go on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from peakrl.checks import check_bounds, check_count, check_range
from peakrl.errors import SettingsError
from peakrl.gym.adapter import MOST_STATES, LaneError, Rules
from peakrl.gym.constraints import ConstraintReader
from peakrl.spaces import ActionSet


class AbsentEnvironment:
    """Lanes in which nothing can be played."""

    count = 1

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def begin(self, lanes: Sequence[int], seeds: Sequence[int | None]) -> NoReturn:
        """Refuse to start an episode."""
        raise LaneError("the environment is not at hand: pass it as env= to go on", None)

    def advance(self, actions: Sequence[int | None]) -> NoReturn:
        """Refuse to take a step."""
        self.begin((), ())


def store_rules(rules: Rules) -> dict[str, Any]:
    """Return what a file tells of an environment."""
    return {
        "name": rules.name,
        "actions": rules.actions.described(),
        "horizon": rules.horizon,
        "reward_range": list(rules.reward_range),
        "constraint_bounds": None if rules.constraints.bounds is None else list(rules.constraints.bounds),
        "constraint_names": list(rules.constraint_names),
        "states": rules.states,
        "stationary": rules.stationary,
    }


def load_rules(plain: Mapping[str, Any], longest: int) -> Rules:
    """Return what `store_rules` told; `longest` is the horizon for which the rest of the file has room."""
    bounds, states = plain["constraint_bounds"], plain["states"]
    bounds = None if bounds is None else check_bounds(bounds, "constraint_bounds", error=SettingsError)
    names = tuple(map(str, plain["constraint_names"]))
    if names and (bounds is None or len(names) != len(bounds)):
        raise SettingsError(f"constraint_names has {len(names)} names for {len(bounds or ())} bounds")
    return Rules(
        name=str(plain["name"]),
        actions=ActionSet.from_description(plain["actions"]),
        observation_space=None,
        horizon=check_count(plain["horizon"], "horizon", 1, longest),
        reward_range=check_range(plain["reward_range"], "reward_range", error=SettingsError),
        constraints=ConstraintReader(None, bounds),
        constraint_names=names,
        states=None if states is None else check_count(states, "states", 1, MOST_STATES),
        stationary=plain["stationary"] is True,
    )
