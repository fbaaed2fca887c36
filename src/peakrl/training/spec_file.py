"""Problem files: a problem, a learner's settings and a run in one TOML or JSON file.

    [problem]                        # kind: one that `peakrl.specs.registry` lists, or "gymnasium"
    kind = "energy_harvesting"
    peak_power = 8

    [settings]                       # learner: a class of `peakrl.learners`, its settings beside it
    learner = "PosteriorSampling"

    [run]                            # episodes, seed, history, average, checkpoint, checkpoint_every
    episodes = 50_000

Only `problem` is needed (`peakrl.specs.spec`, `peakrl.gym.env_spec`). Paths in a file are relative to the folder
that the file lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from peakrl.errors import PeakError, ProblemError
from peakrl.gym.env_spec import EnvironmentSpec, LearningTarget, described_target
from peakrl.learners import DEFAULT, learner_from
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.base import LearnerSettings
from peakrl.problem import Problem
from peakrl.specs.problem_file import described, naming
from peakrl.specs.registry import unknown_key
from peakrl.specs.spec import ProblemSpec, located
from peakrl.specs.user_code import Trust, permit
from peakrl.tabular import TabularModel


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


@dataclass(frozen=True)
class ProblemFile:
    """What a problem file says, validated."""

    path: Path
    spec: ProblemSpec | EnvironmentSpec
    settings: LearnerSettings
    knowledge: Knowledge
    run: RunSection

    def build(self) -> Problem | TabularModel:
        """Return the problem, or the model where the file leads to one directly; of an environment the table shown."""
        with naming(self.path), located("problem"):
            return self.spec.build(self.path.parent)

    def model(self, *, progress: bool = False) -> TabularModel:
        """Return the compiled model; of an environment the table that it shows."""
        with naming(self.path), located("problem"):
            return self.spec.compile(self.path.parent, progress=progress)

    def target(self, *, progress: bool = False) -> LearningTarget:
        """Return what is learned on: the compiled model, or the environment with what is declared of it."""
        if isinstance(self.spec, EnvironmentSpec):
            with naming(self.path), located("problem"):
                return self.spec.open(self.path.parent, progress=progress)
        model = self.model(progress=progress)
        return LearningTarget(model, {}, model)

    @property
    def checkpoint(self) -> Path | None:
        """Where the run is to be saved while it goes on, if the file says so."""
        return None if self.run.checkpoint is None else self.path.parent / self.run.checkpoint


def read_problem_file(path: str | Path, *, trust: Trust = False) -> ProblemFile:
    """Read and validate a .toml or .json problem file; the name of a built-in problem stands for one too.

    One that names code is refused unless `trust` says that it may be run (`peakrl.specs.user_code`).
    """
    path = Path(path)
    values: Any = described(path)
    if isinstance(values, dict) and isinstance(values.get("problems"), list) and "problem" not in values:
        raise ProblemError(f"{path} describes a sweep, many runs of many problems: `peakrl sweep {path}` makes them")
    with naming(path):
        sections = validated(Sections, values)
        with located("problem"):
            spec = described_target(sections.problem)
        permit(path, [*spec.code("problem"), ("settings.learner", sections.settings.get("learner"))], trust)
        settings = learner_settings(sections.settings, "settings", path.parent)
        return ProblemFile(path, spec, settings, declared_knowledge(sections.knowledge, "knowledge"), sections.run)
