"""Base class of the settings of learners.

The settings class of an algorithm stands beside the algorithm, and `peakrl.learners` lists all of them. In a file,
settings are plain values with the name of their class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions.knowledge import Knowledge
    from peakrl.learners.base import Algorithm, Task
    from peakrl.tabular import TabularModel
    from peakrl.types import Floats


Bonus = Literal["bernstein", "hoeffding", "none"]
Start = Literal["flat", "stepwise", "tight"]


class LearnerSettings(BaseModel, ABC):
    """Settings of a learner, frozen and validated; `peakrl.learners` has a class for each algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=False)

    #: On an environment: does the algorithm need tables of its own for each step, whatever is stationary?
    by_step: ClassVar[bool] = False

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            kind = type(self)
            raise SettingsError(describe(error, f"not a setting of {kind.__name__}", list(kind.model_fields))) from None

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

    # Words and files -----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"{type(self).__name__}({listed(self.model_dump(exclude_defaults=True))})"

    __str__ = __repr__

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a file."""
        return {"learner": type(self).__name__, **self.model_dump()}

    def brief(self) -> dict[str, Any]:
        """Return the same without what is left at its default."""
        return {"learner": type(self).__name__, **self.model_dump(exclude_defaults=True)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LearnerSettings:
        """Rebuild settings from `as_dict`."""
        from peakrl.learners import make_learner

        given = dict(values)
        learner = given.pop("learner", None)
        if ":" in str(learner):  # a user's own: code that a file names is not run
            from peakrl.learners.custom import OwnLearner

            return OwnLearner(source=learner, parameters=given)
        return make_learner(learner, **given)


def listed(values: Mapping[str, Any]) -> str:
    """Return arguments as they are written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def describe(error: ValidationError, unknown: str, known: Collection[str] = ()) -> str:
    """Return pydantic's errors as one sentence that names each field and its value.

    `unknown` says what a field that does not exist is not; `known` are those that exist.
    """
    found = []
    for item in error.errors():
        field = ".".join(str(part) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            near = get_close_matches(field, known, 1)
            meant = f"; do you mean {near[0]}?" if near else ""
            found.append(f"{field} is {unknown}{meant}" + (f" (it has {', '.join(known)})" if known else ""))
        elif item["type"] == "missing":
            found.append(f"{error.title} needs {field}: give {field}=...")
        else:
            found.append(f"{field} is {item['input']!r}: {message}" if field else message)
    return "; ".join(found)
