"""Problem files: a problem, a learner's settings and a run in one TOML or JSON file.

    [problem]                        # kind: one that `peakrl.specs.registry` lists, or "gymnasium", "logs"
    kind = "energy_harvesting"
    peak_power = 8

    [settings]                       # learner: a class of `peakrl.learners`, its settings beside it
    learner = "PosteriorSampling"

    [run]                            # episodes or steps, seed, history, average, checkpoint
    episodes = 50_000

Only `problem` is required (`peakrl.specs.spec`, `peakrl.gym.env_spec`). Paths are relative to the folder of the file.
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
from peakrl.learners.assumptions import Assumptions
from peakrl.learners.base import LearnerSettings
from peakrl.problem import Problem
from peakrl.specs.registry import additions, unknown_key
from peakrl.specs.spec import ProblemSpec, described, located, naming
from peakrl.specs.user_code import is_name, load_named, permit
from peakrl.tabular import TabularModel
from peakrl.training.log_spec import described_log


class Section(BaseModel):
    """A table of a problem file; unknown keys are refused, numbers must be numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class RunSection(Section):
    """The table `run`."""

    episodes: int | None = Field(default=None, ge=1)
    #: In place of episodes, with a discount.
    steps: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**64)
    history: Literal["auto", "sampled", "none"] | int = "auto"
    average: bool = True
    checkpoint: str | None = None


class Sections(Section):
    """The whole file; `problem`, `settings` and `assumptions` are validated separately."""

    problem: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    assumptions: dict[str, Any] = Field(default_factory=dict)
    run: RunSection = Field(default_factory=RunSection)


Model = TypeVar("Model", bound=BaseModel)


def validated(section: type[Model], values: Any) -> Model:
    """Return a section, or raise an error that names every wrong key."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        raise ProblemError("; ".join({finding(item): None for item in error.errors()})) from None


def finding(item: Any) -> str:
    """Return an error of pydantic as a phrase about a key."""
    # If a key may have several types, pydantic appends the type's name: the key alone is clearer.
    path = [str(part) for part in item["loc"] if str(part).isidentifier() and part not in ("str", "int")]
    key = ".".join(path)
    if item["type"] == "missing":
        return f"{key} is missing"
    if item["type"] == "extra_forbidden":
        known = list(RunSection.model_fields) if len(item["loc"]) > 1 else [*Sections.model_fields, *additions()]
        return unknown_key(key, str(item["loc"][-1]), known)
    shown = repr(item["input"])
    return f"{key or 'the file'} is {shown if len(shown) <= 60 else shown[:57] + '...'}: {item['msg']}"


def learner_settings(values: Mapping[str, Any], where: str, folder: Path) -> LearnerSettings:
    """Return the settings of the learner that `values` names, or of the default one."""
    with wording(where):
        return learner_from({"learner": DEFAULT, **values}, folder)


@contextmanager
def wording(where: str) -> Iterator[None]:
    """Name the table of settings or assumptions in errors."""
    try:
        yield
    except (PeakError, TypeError) as error:  # TypeError: a table or a list instead of a number
        raise ProblemError(f"{where}: {error}") from None


@dataclass(frozen=True)
class ProblemFile:
    """A validated problem file."""

    path: Path
    spec: ProblemSpec | EnvironmentSpec
    settings: LearnerSettings
    assumptions: Assumptions
    run: RunSection

    def build(self) -> Problem | TabularModel:
        """Return the problem, or the model if the file describes one; for environments their transition table."""
        with naming(self.path), located("problem"):
            return self.spec.build(self.path.parent)

    def model(self, *, progress: bool = False) -> TabularModel:
        """Return the compiled model; for environments their transition table."""
        with naming(self.path), located("problem"):
            return self.spec.compile(self.path.parent, progress=progress)

    def target(self, *, progress: bool = False) -> LearningTarget:
        """Return the target of `learn`: the compiled model, or the environment."""
        if isinstance(self.spec, EnvironmentSpec):
            with naming(self.path), located("problem"):
                return self.spec.open(self.path.parent, progress=progress)
        model = self.model(progress=progress)
        return LearningTarget(model, model)

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint file of the run, or None."""
        return None if self.run.checkpoint is None else self.path.parent / self.run.checkpoint


def read_problem_file(path: str | Path, *, trust: bool = False) -> ProblemFile:
    """Read and validate a .toml or .json problem file; the name of a built-in problem is accepted too.

    A file that names code is refused unless `trust` allows it (`peakrl.specs.user_code`).
    """
    path = described_log(Path(path))
    values: Any = described(path)
    if isinstance(values, dict) and isinstance(values.get("problems"), list) and "problem" not in values:
        raise ProblemError(f"{path} describes a sweep, many runs of many problems: `peakrl sweep {path}` makes them")
    with naming(path):
        sections = validated(Sections, values)
        with located("problem"):
            spec = described_target(sections.problem)
        named = [(f"settings.{name}", sections.settings.get(name)) for name in ("learner", "behavior")]
        permit(path, [*spec.code("problem"), *named], trust)
        given = {} if isinstance(spec, ProblemSpec) or spec.learner is None else {"learner": spec.learner}
        given |= sections.settings
        if is_name(given.get("behavior")):
            given["behavior"] = load_named(given["behavior"], path.parent, "settings.behavior")
        settings = learner_settings(given, "settings", path.parent)
        with wording("assumptions"):
            assumptions = Assumptions(**sections.assumptions)
        return ProblemFile(path, spec, settings, assumptions, sections.run)
