"""From a file to a problem, settings and a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakrl.envs.described import EnvironmentSpec, LearningTarget, described_target
from peakrl.errors import ProblemError
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.settings import LearnerSettings
from peakrl.model.problem import Problem
from peakrl.model.tabular import TabularModel
from peakrl.problem_files.schema import RunSection, Sections, declared_knowledge, learner_settings, validated
from peakrl.problems.files import described, naming
from peakrl.problems.spec import ProblemSpec, located
from peakrl.user_code import Trust, permit


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

    One that names code is refused unless `trust` says that it may be run (`peakrl.user_code`).
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
