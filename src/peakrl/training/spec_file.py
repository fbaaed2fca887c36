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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakrl.errors import ProblemError
from peakrl.gym.env_spec import EnvironmentSpec, LearningTarget, described_target
from peakrl.learners.assumptions.knowledge import Knowledge
from peakrl.learners.base import LearnerSettings
from peakrl.problem import Problem
from peakrl.specs.problem_file import described, naming
from peakrl.specs.spec import ProblemSpec, located
from peakrl.specs.user_code import Trust, permit
from peakrl.tabular import TabularModel
from peakrl.training.spec_schema import RunSection, Sections, declared_knowledge, learner_settings, validated


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
