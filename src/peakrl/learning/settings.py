"""What a learner is run with, in natural units, and the constants that follow for a given problem.

With H steps, I constraints, rewards in [lo, hi] and span = hi - lo:

    slack xi, Slater constant gamma <= xi (xi/2 unless given), penalty eta = 2 H I span / gamma
    Theorem 2 instead: xi = 0, eta = (K H)^phi span, 0 < phi < 1/2
    start and cap of Q from step h on: eta H (flat), eta (H-h) (stepwise), span (H-h) (tight)
    bonus: |R| <= B = eta max_i bound_i,  l = log(S A K H / p)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from peakrl.errors import SettingsError
from peakrl.kernels.arrays import Floats

Bonus = Literal["bernstein", "hoeffding", "none"]
Start = Literal["flat", "stepwise", "tight"]
Dependence = Literal["pair", "action", "state"]


class LearnerSettings(BaseModel):
    """Frozen, validated settings. Make them with `paper`, `published`, `deterministic` or `practical`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: Violations up to the slack go unpunished; in the constraints' own unit.
    slack: float = Field(ge=0)
    #: Slater constant gamma; half the slack unless given.
    slater: float | None = Field(default=None, gt=0)
    #: Penalty weight eta, outright; otherwise it follows from slack and Slater constant, or from the exponent.
    penalty: float | None = Field(default=None, ge=0)
    #: Theorem 2's phi: eta = (K H)^phi.
    exponent: float | None = Field(default=None, gt=0, lt=0.5)
    #: Take rewards as if they lay in [0, 1] when deriving the penalty (what the published curves use).
    unit_rewards: bool = False
    #: Which exploration bonus Algorithm 1 adds.
    bonus: Bonus = "none"
    #: Where estimates begin.
    start: Start = "stepwise"
    #: Constant of the Bernstein bonus.
    c1: float = Field(default=0.001, ge=0)
    #: Constant of either bonus.
    c2: float = Field(default=0.001, ge=0)
    #: p: how likely the theorems' promises may fail.
    failure_probability: float = Field(default=0.05, gt=0, lt=1)
    #: The practical learner in place of Algorithm 1; the rest is its own.
    practical_learner: bool = False
    #: Never choose again what was seen to violate, or to lead where nothing but violations is left.
    constraint_memory: bool = False
    #: One transition teaches every step; None: wherever dynamics do not depend on the step.
    share_steps: bool | None = False
    #: Step sizes that tell trend from noise; otherwise (H+1)/(H+t).
    adaptive_steps: bool = False
    #: Try again, now and then, what may be better than it looks, given the noise seen.
    second_looks: bool = False
    #: Pairs that a model stores with one law of the next state learn it together.
    share_outcomes: bool = False
    #: Remember transitions and compute from all of them what follows an action: a model-based step.
    replay: bool = False
    #: The most that a step without violation earns, where that is known to be less than the reward range allows.
    most_reward: float | None = None
    #: What the constraints depend on: an observed violation then holds for everything that shares it.
    constraint_depends_on: Dependence | None = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(describe(error)) from None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.penalty is None and self.exponent is None and self.slack == 0 and not self.practical_learner:
            raise ValueError("slack is 0: give a slack above 0, a penalty, or an exponent (Theorem 2)")
        if self.penalty is not None and self.exponent is not None:
            raise ValueError("penalty and exponent exclude each other: give one of them")
        if self.slater is not None and self.slater > self.slack:
            raise ValueError(f"slater is {self.slater}, above the slack of {self.slack}; it must be at most the slack")
        if self.practical_learner and (self.bonus != "none" or self.exponent is not None):
            raise ValueError("bonus and exponent belong to Algorithm 1; the practical learner has neither")
        own = (
            "constraint_memory", "share_steps", "adaptive_steps", "second_looks", "share_outcomes", "replay",
            "most_reward",
        )  # fmt: skip
        alien = [name for name in own if getattr(self, name) not in (False, None)]
        if not self.practical_learner and alien:
            raise ValueError(f"{' and '.join(alien)}: only the practical learner has that")
        if self.most_reward is not None and not (self.constraint_memory and self.start == "tight"):
            raise ValueError("most_reward needs tight_optimism and constraint_memory")
        if self.constraint_depends_on is not None and not self.constraint_memory:
            raise ValueError("constraint_depends_on needs constraint_memory")
        return self

    @classmethod
    def practical(
        cls,
        *,
        tight_optimism: bool = True,
        constraint_memory: bool = True,
        share_steps: bool | None = None,
        share_outcomes: bool = False,
        replay: bool = False,
        adaptive_steps: bool = True,
        second_looks: bool = True,
        constraint_depends_on: Dependence | None = None,
        most_reward: float | None = None,
        slack: float = 0.0,
        penalty: float | None = None,
    ) -> LearnerSettings:
        """The learner to use: tight optimism, constraint memory, all-step sharing, adaptive step sizes, second looks.

        Each part can be switched off. `share_steps=None` shares wherever the dynamics do not depend on the step.
        `second_looks` tries again, ever more rarely, what early bad luck may have made look worse than it is; it does
        nothing where nothing is random, and has no part in `replay`, which has a caution of its own.
        What you know of the structure helps a lot: `share_outcomes` tells the learner which pairs have the same law of
        the next state (as the model stores them, not the law itself), `constraint_depends_on` ("pair", "action" or
        "state") lets one violation stand for all that share it, and `most_reward` is the most that a step without
        violation earns. `replay` remembers transitions and is no longer model-free: it takes several times as long
        and as much memory, and learns faster.

        Slack and penalty matter only without the memory, or once the problem is proved infeasible.
        """
        return cls(
            slack=slack, penalty=penalty, bonus="none", start="tight" if tight_optimism else "stepwise",
            practical_learner=True, constraint_memory=constraint_memory, share_steps=share_steps,
            share_outcomes=share_outcomes, replay=replay, adaptive_steps=adaptive_steps, second_looks=second_looks,
            constraint_depends_on=constraint_depends_on, most_reward=most_reward,
        )  # fmt: skip

    @classmethod
    def paper(
        cls,
        slack: float,
        slater: float | None = None,
        penalty: float | None = None,
        bonus: Bonus = "bernstein",
        start: Start = "flat",
        c1: float = 0.001,
        c2: float = 0.001,
        failure_probability: float = 0.05,
    ) -> LearnerSettings:
        """Algorithm 1 as printed: Bernstein bonus, flat start. See docs for what the constants do."""
        return cls(
            slack=slack, slater=slater, penalty=penalty, bonus=bonus, start=start, c1=c1, c2=c2,
            failure_probability=failure_probability,
        )  # fmt: skip

    @classmethod
    def published(cls, slack: float) -> LearnerSettings:
        """What the paper's published curves use: no bonus, stepwise start, eta = 2HI/gamma for rewards as they are."""
        return cls(slack=slack, unit_rewards=True, bonus="none", start="stepwise")

    @classmethod
    def deterministic(
        cls,
        phi: float,
        bonus: Bonus = "bernstein",
        start: Start = "flat",
        c1: float = 0.001,
        c2: float = 0.001,
        failure_probability: float = 0.05,
    ) -> LearnerSettings:
        """Theorem 2: no slack, a penalty that grows with the length of the run, and the last policy is what counts."""
        return cls(
            slack=0.0, exponent=phi, bonus=bonus, start=start, c1=c1, c2=c2, failure_probability=failure_probability
        )

    def __repr__(self) -> str:
        """The call that makes these settings: a preset's where one can, with what differs from its defaults."""
        for preset in PRESETS:
            given = self._given(preset)
            try:
                made = None if given is None else getattr(LearnerSettings, preset)(**given)
            except SettingsError:
                continue
            if made == self:
                return f"LearnerSettings.{preset}({listed(given or {})})"
        return f"LearnerSettings({listed(self.model_dump(exclude_defaults=True))})"

    __str__ = __repr__

    def _given(self, preset: str) -> dict[str, Any] | None:
        """Return what a preset must be given for these settings; None where it needs a field that is not set."""
        given = {}
        for name, parameter in signature(getattr(LearnerSettings, preset)).parameters.items():
            value = self.start == "tight" if name == "tight_optimism" else getattr(self, OTHER_NAMES.get(name, name))
            if parameter.default is Parameter.empty and value is None:
                return None
            if parameter.default is Parameter.empty or value != parameter.default:
                given[name] = value
        return given

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a manifest."""
        return self.model_dump()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LearnerSettings:
        """Rebuild settings from `as_dict`."""
        return cls(**values)


#: The classmethods that make settings; of those that could have made some, the first is named.
PRESETS = ("practical", "published", "deterministic", "paper")
#: Parameters of theirs that are called otherwise than the field.
OTHER_NAMES = {"phi": "exponent"}


def listed(values: Mapping[str, Any]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


#: Where pydantic's own sentence would not read well after "... is ...".
OWN_WORDS = {"missing": "is missing", "extra_forbidden": "is no setting of the learner"}


def describe(error: ValidationError) -> str:
    """Return pydantic's findings as one sentence that names each field and its value."""
    found = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] in OWN_WORDS:
            found.append(f"{field} {OWN_WORDS[item['type']]}")
            continue
        found.append(f"{field} is {item['input']!r}: {message}" if field else message)
    return "; ".join(found)


@dataclass(frozen=True)
class Sizes:
    """What the formulas need to know of a problem."""

    horizon: int
    constraints: int
    states: int
    actions: int
    reward_range: tuple[float, float]
    constraint_bounds: tuple[float, ...]

    @property
    def span(self) -> float:
        """Width of the reward range; 1 where all rewards are equal."""
        lo, hi = self.reward_range
        return hi - lo if hi > lo else 1.0


@dataclass(frozen=True)
class Constants:
    """What the settings come to on a problem of given sizes for a run of given length."""

    penalty: float
    #: B, the bound on |R|.
    bound: float
    log_term: float
    #: [step]
    start: Floats
    cap: Floats


def resolve(settings: LearnerSettings, sizes: Sizes, episodes: int) -> Constants:
    """Return the constants of a run."""
    horizon = sizes.horizon
    unit = 1.0 if settings.unit_rewards else sizes.span
    if settings.penalty is not None:
        penalty = settings.penalty
    elif settings.exponent is not None:
        penalty = (episodes * horizon) ** settings.exponent * unit
    else:
        slater = settings.slater if settings.slater is not None else settings.slack / 2
        if slater == 0:  # the practical learner without slack: a hundredth of the tightest bound
            slater = 0.01 * min(sizes.constraint_bounds, default=1.0)
        penalty = 2 * horizon * max(sizes.constraints, 1) * unit / slater
    # Optimism needs a level of at least one step's reward, however small the penalty.
    level = max(penalty, sizes.span)
    most = sizes.span if settings.most_reward is None else settings.most_reward - sizes.reward_range[0]
    if not 0 < most <= sizes.span:
        lo, hi = sizes.reward_range
        raise SettingsError(
            f"most_reward is {settings.most_reward}; rewards lie between {lo:g} and {hi:g}, so it must too"
        )
    remaining = np.arange(horizon, 0, -1, dtype=np.float64)
    start = {
        "flat": np.full(horizon, level * horizon),
        "stepwise": level * remaining,
        "tight": most * remaining,
    }[settings.start]
    cap = start.copy() if settings.start == "tight" else np.full(horizon, level * horizon)
    log_term = math.log(sizes.states * sizes.actions * episodes * horizon / settings.failure_probability)
    return Constants(penalty, level * max(sizes.constraint_bounds, default=1.0), log_term, start, cap)
