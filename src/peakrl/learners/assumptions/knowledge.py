"""What a user declares of a target: it belongs to the problem, not to the learner.

A false declaration is an error on a model. On an environment it is believed until it is contradicted; then the run ends
with the observation that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.errors import SettingsError
from peakrl.learners.settings import describe, listed
from peakrl.tabular import TabularModel

Dependence = Literal["pair", "action", "state"]
#: (step, state, action) -> anything: pairs of one key share what is declared.
Function = Callable[[int, Any, Any], Any]


class Knowledge(BaseModel):
    """Frozen declarations; what is left out is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)

    #: True: nothing depends on the step.
    stationary: bool | None = None
    #: About how many states there are; of an environment the certified learner takes it that there are no more.
    states: int | None = None
    #: The most that a step without violation earns, where that is known to be less than the reward range allows.
    most_reward: float | None = None
    #: The reward of a pair: a function (step, state, action), or True, as the model has it; of an environment that says
    #: that it depends on nothing else.
    rewards: bool | Function | None = None
    #: What the constraints depend on: an observed violation then holds for everything that shares it.
    constraint_depends_on: Dependence | None = None
    #: Which pairs share the law of the next state: True, as the model stores them, or a function (step, state, action)
    #: whose value is the same for those that do.
    outcome_groups: bool | Function | None = None
    #: The next state as a function of (state, action, noise), None where an episode ends, and the noises there are:
    #: they are independent of each other and of everything before, with one law that is not known.
    outcome_map: tuple[Callable[[Any, Any, Any], Any], tuple[Any, ...]] | None = None
    #: True: nothing is random, neither the first state nor what follows.
    deterministic: bool | None = None
    #: A model or `Problem` whose possible outcomes include all real ones, with the real constraints: no learner leaves
    #: its safe set. Its probabilities may be wrong.
    support: Any = None
    #: A function (step, state, action) -> constraint value or values, >= 0 where met: what is below is never tried.
    constraints: Function | None = None
    #: A `Policy`, or a function (step, state) -> action, None where it promises nothing, that keeps every constraint
    #: wherever it names an action: learners stay with it wherever nothing else is known to be safe.
    safe_policy: Any = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(describe(error, "nothing that can be declared")) from None

    def __repr__(self) -> str:
        return f"Knowledge({listed(self.declared())})"

    __str__ = __repr__

    def check_model(self, model: TabularModel) -> None:
        """Raise where something is declared that is not so, or that a model tells by itself."""
        if self.stationary and not model.stationary:
            raise SettingsError(
                f"stationary is True, but in {model.name!r} states belong to steps: its dynamics depend on the step, "
                "or no state comes back at another one. Leave stationary out"
            )
        if self.deterministic and not model.deterministic:
            raise SettingsError(f"deterministic is True, but in {model.name!r} something is random. Leave it out")
        if self.states is not None:
            raise SettingsError("states is declared, but a model has it already; leave it out for a model")

    def declared(self) -> dict[str, Any]:
        """Return what is declared, by name."""
        return {name: value for name, value in self if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file; a function is named."""
        return {name: plain(value) for name, value in self.declared().items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Knowledge:
        """Rebuild knowledge from `as_dict`; functions cannot be."""
        for name, value in values.items():
            if isinstance(value, dict):
                what = " ".join(f"the {kind} {shown}" for kind, shown in value.items())
                raise SettingsError(f"{name} is {what}, which no file holds")
        return cls(**values)


def plain(value: Any) -> Any:
    """Return a declaration as a plain value."""
    if isinstance(value, tuple):
        return {"function": getattr(value[0], "__qualname__", repr(value[0])), "noises": len(value[1])}
    if callable(value):
        return {"function": getattr(value, "__qualname__", repr(value))}
    return value if isinstance(value, bool | int | float | str) else {"object": repr(value)}


#: Nothing is declared.
NOTHING = Knowledge()
