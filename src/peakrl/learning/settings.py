"""Settings of learners: one frozen class for each algorithm, all of them `LearnerSettings`.

An algorithm's class lives beside the algorithm; `peakrl.learners` lists them by name, and `LearnerSettings.practical`
and its like make them. In a file settings are plain values with the name of their class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, Literal, ParamSpec, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.kernels.arrays import Floats
    from peakrl.learning.algorithm import Algorithm, Task
    from peakrl.learning.algorithm_one import AlgorithmOne
    from peakrl.learning.certified.learner import Certified
    from peakrl.learning.knowledge import Knowledge
    from peakrl.learning.posterior import Posterior
    from peakrl.learning.practical import Practical
    from peakrl.model.tabular import TabularModel
    from peakrl.targets.adapters import Rules


Bonus = Literal["bernstein", "hoeffding", "none"]
Start = Literal["flat", "stepwise", "tight"]
Given = ParamSpec("Given")
Made = TypeVar("Made")
#: What used to be a setting and is a declaration now: {setting: how to declare it}.
DECLARED = {
    "share_outcomes": "outcome_groups=True",
    "constraint_depends_on": 'constraint_depends_on="action"',
    "most_reward": "most_reward=...",
}
#: What is no setting any more, and why.
DROPPED = {
    "replay": "replay is dropped: LearnerSettings.posterior() remembers outcomes and learns faster",
    "second_looks": "second_looks is dropped: trials takes its place",
}
#: Where pydantic's own sentence would not read well after "... is ...".
OWN_WORDS = {"missing": "is missing"}


def maker(function: Callable[Concatenate[Any, Given], Made]) -> Callable[Concatenate[Any, Given], Made]:
    """Decorate a classmethod that makes settings: a parameter that it does not have is a SettingsError."""

    @wraps(function)
    def make(cls: Any, *args: Given.args, **values: Given.kwargs) -> Made:
        known = [name for name in signature(function).parameters if name != "cls"]
        for name in values:
            if name not in known:
                raise SettingsError(unknown_setting(name, known))
        return function(cls, *args, **values)

    return cast("Callable[Concatenate[Any, Given], Made]", make)


class LearnerSettings(BaseModel, ABC):
    """What a learner is run with, frozen and validated. Make it with `practical`, `paper` or another of the makers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: The classmethods that make such settings; of those that could have made some, the first is named.
    presets: ClassVar[tuple[str, ...]] = ()
    #: On an environment: does the algorithm need tables of its own for each step, whatever is stationary?
    by_step: ClassVar[bool] = False
    #: Fields that a maker calls otherwise: {parameter: field}.
    other_names: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *args: Any, **values: Any) -> Self:
        if cls is LearnerSettings:
            raise SettingsError(
                "LearnerSettings alone names no learner: make settings with LearnerSettings.practical() or another of "
                "its makers, or by name, as in peakrl.learners.AlgorithmOne(slack=0.1)"
            )
        return super().__new__(cls)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise SettingsError(describe(error)) from None

    @abstractmethod
    def make(self, task: Task) -> Algorithm:
        """Return the algorithm, with its tables, for a target."""

    @property
    def bound_to_plan(self) -> str | None:
        """What of the run follows from the number of planned episodes, in a word; None where nothing does."""
        return None

    def tolerated(self) -> tuple[float, float | None]:
        """Return the violation that goes unpunished and the penalty beyond, where the learner has such settings."""
        return float(getattr(self, "slack", 0.0)), getattr(self, "penalty", None)

    def check_model(self, model: TabularModel) -> None:
        """Raise where the settings ask for what no policy does on a model."""
        return

    def check_environment(self, rules: Rules, knowledge: Knowledge) -> None:
        """Raise where the settings ask for what nobody has told of an environment."""
        return

    @property
    def aim(self) -> str | None:
        """What is to be kept on average, in words; None where nothing is."""
        return None

    def judged(self, step_violations: Floats) -> str | None:
        """Say what was to be kept on average, and what a policy of violations [step, constraint] has; None: nothing."""
        return None

    # Makers --------------------------------------------------------------------------------------------------

    @classmethod
    @maker
    def posterior(cls, *, ghost: float = 0.05, growth: float = 0.005) -> Posterior:
        """The default: counts what was seen and follows a plan on a law drawn from it, least known violation first.

        `ghost` is the mass of an outcome not seen yet that is as good as can be, in the draw of each pair: more of it
        explores more. All pairs are drawn anew when episodes have grown by the share `growth`. What is handed out is
        the plan on plain means. What you know of the target helps: declare it with `Knowledge`.
        """
        from peakrl.learning.posterior import Posterior

        return Posterior(ghost=ghost, growth=growth)

    @classmethod
    @maker
    def practical(
        cls,
        *,
        tight_optimism: bool = True,
        constraint_memory: bool = True,
        share_steps: bool = True,
        adaptive_steps: bool = True,
        trials: bool = True,
        slack: float = 0.0,
        penalty: float | None = None,
    ) -> Practical:
        """The model-free learner: tight optimism, constraint memory, all-step sharing, adaptive steps, trials.

        Each part can be switched off. Steps are shared wherever the target is stationary. `trials` tries again, ever
        more rarely, what early bad luck may have made look worse than it is; what is handed out holds none of them.
        Slack and penalty matter only without the memory, or once the problem is proved infeasible. What you know of the
        target helps a lot: declare it with `Knowledge`.
        """
        from peakrl.learning.practical import Practical

        return Practical(
            slack=slack, penalty=penalty, tight_optimism=tight_optimism, constraint_memory=constraint_memory,
            share_steps=share_steps, adaptive_steps=adaptive_steps, trials=trials,
        )  # fmt: skip

    @classmethod
    @maker
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
    ) -> AlgorithmOne:
        """Algorithm 1 as printed: Bernstein bonus, flat start. See docs for what the constants do."""
        from peakrl.learning.algorithm_one import AlgorithmOne

        return AlgorithmOne(
            slack=slack, slater=slater, penalty=penalty, bonus=bonus, start=start, c1=c1, c2=c2,
            failure_probability=failure_probability,
        )  # fmt: skip

    @classmethod
    @maker
    def published(cls, slack: float) -> AlgorithmOne:
        """What the paper's published curves use: no bonus, stepwise start, eta = 2HI/gamma for rewards as they are."""
        from peakrl.learning.algorithm_one import AlgorithmOne

        return AlgorithmOne(slack=slack, unit_rewards=True, bonus="none", start="stepwise")

    @classmethod
    @maker
    def deterministic(
        cls,
        phi: float,
        bonus: Bonus = "bernstein",
        start: Start = "flat",
        c1: float = 0.001,
        c2: float = 0.001,
        failure_probability: float = 0.05,
    ) -> AlgorithmOne:
        """Theorem 2: no slack, a penalty that grows with the length of the run, and the last policy is what counts."""
        from peakrl.learning.algorithm_one import AlgorithmOne

        return AlgorithmOne(
            slack=0.0, exponent=phi, bonus=bonus, start=start, c1=c1, c2=c2, failure_probability=failure_probability
        )

    @classmethod
    @maker
    def certified(
        cls,
        epsilon: float | Sequence[float],
        failure_probability: float = 0.05,
        relative: bool = False,
    ) -> Certified:
        """The learner that stops by itself: once its policy is proved to be within epsilon of the best safe one.

        The gap in value and the expected violation are both at most epsilon then, or a share epsilon of the best value
        (`relative`), except with `failure_probability`. Several epsilons are passed in turn. `learn(..., episodes=...)`
        is a limit, `run.stopped` says why the run ended and `run.certificate` what is certified, and on what grounds.
        What you declare with `Knowledge` makes it cheaper by far.
        """
        from peakrl.learning.certified.learner import Certified

        several = (epsilon,) if isinstance(epsilon, int | float) else tuple(epsilon)
        return Certified(epsilon=several, failure_probability=failure_probability, relative=relative)

    # Words and files -----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        """The call that makes these settings: a maker's where one can, with what differs from its defaults."""
        for preset in self.presets:
            given = self._given(preset)
            try:
                made = None if given is None else getattr(type(self), preset)(**given)
            except SettingsError:
                continue
            if made == self:
                return f"LearnerSettings.{preset}({listed(given or {})})"
        return f"{type(self).__name__}({listed(self.model_dump(exclude_defaults=True))})"

    __str__ = __repr__

    def _given(self, preset: str) -> dict[str, Any] | None:
        """Return what a maker must be given for these settings; None where it needs a field that is not set."""
        given = {}
        for name, parameter in signature(getattr(type(self), preset)).parameters.items():
            value = getattr(self, self.other_names.get(name, name))
            if parameter.default is Parameter.empty and value is None:
                return None
            if parameter.default is Parameter.empty or value != parameter.default:
                given[name] = value
        return given

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return {"learner": type(self).__name__, **self.model_dump()}

    def brief(self) -> dict[str, Any]:
        """Return the same without what is left at its default."""
        return {"learner": type(self).__name__, **self.model_dump(exclude_defaults=True)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LearnerSettings:
        """Rebuild settings from `as_dict`."""
        from peakrl.learners import find_learner

        given = dict(values)
        if ":" in str(given.get("learner")):  # of a user's own: what a file names is not run
            from peakrl.learning.own import OwnLearner

            return OwnLearner(source=given.pop("learner"), parameters=given)
        made: LearnerSettings = find_learner(given.pop("learner", None))(**given)
        return made


def unknown_setting(name: str, known: list[str]) -> str:
    """Say what to do with a name that is no setting."""
    if name in DECLARED:
        return (
            f"{name} is known of the target and no setting of the learner: declare it with "
            f"learn(..., knowledge=peakrl.Knowledge({DECLARED[name]}))"
        )
    if name in DROPPED:
        return DROPPED[name]
    return f"{name} is no setting of the learner; it has {', '.join(known)}"


def listed(values: Mapping[str, Any]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def describe(error: ValidationError, alien: str = "no setting of the learner") -> str:
    """Return pydantic's findings as one sentence that names each field and its value."""
    found = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            found.append(unknown_setting(field, []) if field in {**DECLARED, **DROPPED} else f"{field} is {alien}")
        elif item["type"] in OWN_WORDS:
            found.append(f"{field} {OWN_WORDS[item['type']]}")
        else:
            found.append(f"{field} is {item['input']!r}: {message}" if field else message)
    return "; ".join(found)
