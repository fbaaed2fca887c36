"""What may stand beside the problem in a problem file: settings, knowledge and a run; errors name the key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peakrl.errors import PeakError, ProblemError
from peakrl.learners import DEFAULT, learner_from
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.base import LearnerSettings
from peakrl.specs.registry import unknown_key


class Section(BaseModel):
    """A table of a problem file; unknown keys are refused, numbers must be numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RunSection(Section):
    """How long to learn and what to keep."""

    episodes: int = Field(default=50_000, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**64)
    history: Literal["auto", "sampled", "none"] | int = "auto"
    average: bool = True
    checkpoint: str | None = None
    checkpoint_every: int | None = Field(default=None, ge=1)


class Sections(Section):
    """The whole file; `problem` and `settings` are looked at more closely afterwards."""

    problem: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    knowledge: dict[str, Any] = Field(default_factory=dict)
    run: RunSection = Field(default_factory=RunSection)


Model = TypeVar("Model", bound=BaseModel)


def validated(section: type[Model], values: Any) -> Model:
    """Return a section, or raise an error that names every key at fault."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        raise ProblemError("; ".join({finding(item): None for item in error.errors()})) from None


def finding(item: Any) -> str:
    """Return what pydantic found as a phrase about a key."""
    # Where a key may be of several types pydantic adds the type's name to its place: the key alone is clearer.
    place = [str(part) for part in item["loc"] if str(part).isidentifier() and part not in ("str", "int")]
    key = ".".join(place)
    if item["type"] == "missing":
        return f"{key} is missing"
    if item["type"] == "extra_forbidden":
        section = RunSection if len(item["loc"]) > 1 else Sections
        return unknown_key(key, str(item["loc"][-1]), list(section.model_fields))
    shown = repr(item["input"])
    return f"{key or 'the file'} is {shown if len(shown) <= 60 else shown[:57] + '...'}: {item['msg']}"


def learner_settings(values: Mapping[str, Any], where: str, folder: Path) -> LearnerSettings:
    """Return the settings of the learner that `values` names, or of the default one."""
    with wording(where):
        return learner_from({"learner": DEFAULT, **values}, folder)


@contextmanager
def wording(where: str) -> Iterator[None]:
    """Name the table that settings or knowledge stand in, where they are refused."""
    try:
        yield
    except (PeakError, TypeError) as error:  # TypeError: a table or a list where a number should be
        raise ProblemError(f"{where}: {error}") from None


def declared_knowledge(values: Mapping[str, Any], where: str) -> Knowledge:
    """Return what a file declares of its problem."""
    with wording(where):
        return Knowledge(**values)
