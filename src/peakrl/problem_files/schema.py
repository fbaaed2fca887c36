"""What may stand in a problem file: keys, types, and errors that name the key."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peakrl.errors import ProblemError, SettingsError
from peakrl.learning.settings import LearnerSettings


class Section(BaseModel):
    """A table of a problem file; unknown keys are refused, numbers must be numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class EnergyHarvestingSection(Section):
    """Parameters of `peakrl.energy_harvesting`."""

    kind: Literal["energy_harvesting"]
    horizon: int = 20
    battery: int = 20
    peak_power: float = 8
    max_arrival: int = 20
    mean: float = 10
    std: float = 5
    #: "random", "frozen", a sequence of whole numbers, or {matrix = [[...]], first = [...]}.
    arrivals: str | list[int] | dict[Literal["matrix", "first"], list[Any]] = "random"
    log_base: float = 2
    seed: int = 0


class JobEntry(Section):
    """One job; `processing` a whole number, a range such as "2-4", or [probability, time] pairs."""

    processing: int | str | list[list[float]]
    due: int
    deadline: int
    weight: float = 1
    name: int | str | None = None


class MachineSchedulingSection(Section):
    """Parameters of `peakrl.machine_scheduling`; `jobs` is a list of jobs or the name of a CSV file."""

    kind: Literal["machine_scheduling"]
    jobs: str | list[JobEntry]
    objective: str = "max_tardiness"


class SchedulingExampleSection(Section):
    """One of the paper's three instances."""

    kind: Literal["scheduling_example"]
    number: int = 1
    objective: str = "max_tardiness"


class TablesSection(Section):
    """Arrays in an .npz file or outcomes in a .csv file."""

    kind: Literal["tables"]
    file: str
    horizon: int
    #: A state, or {state = probability}; by default state 0 (npz) or the state of the first row (csv).
    initial: int | str | dict[str, float] | list[float] | None = None
    reward_range: list[float] | None = Field(default=None, min_length=2, max_length=2)
    constraint_bounds: list[float] | None = None
    constraint_names: list[str] | None = None
    name: str | None = None


class PythonSection(Section):
    """A function of the user's own that returns a Problem or a TabularModel."""

    kind: Literal["python"]
    #: "mine.py:make" (beside the problem file) or "package.module:make".
    function: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class RunSection(Section):
    """How long to learn and what to keep."""

    episodes: int = Field(default=50_000, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**64)
    record: Literal["auto", "none"] | int = "auto"
    average: bool = True
    checkpoint: str | None = None
    checkpoint_every: int | None = Field(default=None, ge=1)


class Sections(Section):
    """The whole file; `problem` and `settings` are looked at more closely afterwards."""

    problem: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    run: RunSection = Field(default_factory=RunSection)


ProblemSection = (
    EnergyHarvestingSection | MachineSchedulingSection | SchedulingExampleSection | TablesSection | PythonSection
)
KINDS: dict[str, type[ProblemSection]] = {
    "energy_harvesting": EnergyHarvestingSection,
    "machine_scheduling": MachineSchedulingSection,
    "scheduling_example": SchedulingExampleSection,
    "tables": TablesSection,
    "python": PythonSection,
}
LEARNERS: dict[str, Callable[..., LearnerSettings]] = {
    "practical": LearnerSettings.practical,
    "paper": LearnerSettings.paper,
    "published": LearnerSettings.published,
    "deterministic": LearnerSettings.deterministic,
}
Model = TypeVar("Model", bound=BaseModel)


def validated(section: type[Model], values: Any, path: tuple[str, ...] = ()) -> Model:
    """Return a section, or raise an error that names every key at fault."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        findings = {finding(item, path, section): None for item in error.errors()}
        raise ProblemError("; ".join(findings)) from None


def finding(item: Any, path: tuple[str, ...], section: type[BaseModel]) -> str:
    """Return what pydantic found as a phrase about a key."""
    # Where a key may be of several types pydantic adds the type's name to its place: the key alone is clearer.
    place = [part for part in item["loc"] if isinstance(part, int) or part.isidentifier()]
    key = ".".join([*path, *(str(part) for part in place if part not in ("str", "int", "JobEntry", "float"))])
    if item["type"] == "missing":
        return f"{key} is missing"
    if item["type"] == "extra_forbidden":
        return unknown(key, str(item["loc"][-1]), keys_near(section, item["loc"]))
    shown = repr(item["input"])
    return f"{key or 'the file'} is {shown if len(shown) <= 60 else shown[:57] + '...'}: {item['msg']}"


def keys_near(section: type[BaseModel], place: tuple[Any, ...]) -> list[str]:
    """Return the keys that may stand where an unknown one was found."""
    if "JobEntry" in place:
        return list(JobEntry.model_fields)
    if section is Sections and place[0] == "run" and len(place) > 1:
        return list(RunSection.model_fields)
    return list(section.model_fields)


def unknown(key: str, name: str, known: list[str]) -> str:
    """Say that a key is unknown and what was probably meant."""
    near = difflib.get_close_matches(name, known, 1)
    meant = f"; do you mean {near[0]}?" if near else ""
    return f"{key} is not a key here{meant} (there are {', '.join(known)})"


def problem_section(values: Mapping[str, Any]) -> ProblemSection:
    """Return the section of the kind that `values` names."""
    if "kind" not in values:
        raise ProblemError(f"problem.kind is missing; it must be one of {', '.join(KINDS)}")
    kind = values["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ProblemError(f"problem.kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    return validated(KINDS[kind], dict(values), ("problem",))


def learner_settings(values: Mapping[str, Any]) -> LearnerSettings:
    """Return the settings of the learner that `values` names; the practical one where it names none."""
    rest = dict(values)
    learner = rest.pop("learner", "practical")
    if not isinstance(learner, str) or learner not in LEARNERS:
        raise ProblemError(f"settings.learner is {learner!r}; it must be one of {', '.join(LEARNERS)}")
    make = LEARNERS[learner]
    parameters = inspect.signature(make).parameters
    for name in rest:
        if name not in parameters:
            raise ProblemError(f"{unknown(f'settings.{name}', name, list(parameters))} for the learner {learner!r}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in rest:
            raise ProblemError(f"settings.{name} is missing; the learner {learner!r} needs it")
    try:
        return make(**rest)
    except SettingsError as error:
        raise ProblemError(f"settings: {error}") from None
    except TypeError as error:  # a table or a list where a number should be
        raise ProblemError(f"settings: {error}") from None
