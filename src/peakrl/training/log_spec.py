"""A log as data, for problem files.

    [problem]
    kind = "logs"
    file = "plant.csv"                    # relative to this file
    horizon = 24
    reward_range = [0, 3]
    step = "step"                         # and further options of `Logs.from_frame`

    [assumptions]
    stationary = true

`peakrl train plant.csv` looks for such a file beside the log, `plant.toml`.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar

from peakrl.errors import ProblemError
from peakrl.gym.env_spec import TARGETS, EnvironmentSpec, LearningTarget
from peakrl.problem import Problem
from peakrl.specs.registry import unknown_key
from peakrl.specs.spec import as_plain
from peakrl.tabular import TabularModel
from peakrl.training.logs import Logs

#: Options of a log; its table is a file.
OPTIONS = ["file", *list(inspect.signature(Logs.from_frame).parameters)[1:]]


class LogSpec(EnvironmentSpec):
    """A log as data."""

    kind: ClassVar[str] = "logs"
    learner: ClassVar[str | None] = "Pessimistic"

    def __post_init__(self) -> None:
        given = as_plain(self.parameters, "")
        for name in given:
            if name not in OPTIONS:
                raise ProblemError(unknown_key(name, name, OPTIONS))
        missing = [name for name in ("file", "horizon", "reward_range") if name not in given]
        if missing:
            raise ProblemError(f"{' and '.join(missing)} must be given: a log does not show the possible")
        object.__setattr__(self, "parameters", given)

    def code(self, where: str) -> list[tuple[str, Any]]:
        """Return nothing: a log runs no code."""
        return []

    def open(self, folder: str | Path = ".", *, progress: bool = False) -> LearningTarget:
        """Return the log."""
        options = dict(self.parameters)
        return LearningTarget(Logs.from_csv(Path(folder) / str(options.pop("file")), **options), None)

    def build(self, folder: str | Path = ".") -> Problem:
        """Raise: there is no model."""
        raise ProblemError("a log has no model, only recorded transitions: `peakrl train` learns from it")

    def compile(self, folder: str | Path = ".", *, progress: bool = False) -> TabularModel:
        """Raise: there is no model."""
        raise ProblemError("a log has no model, only recorded transitions: `peakrl train` learns from it")


TARGETS["logs"] = lambda values: LogSpec({name: value for name, value in values.items() if name != "kind"})


def described_log(path: Path) -> Path:
    """Return the file that describes a log NAME.csv: NAME.toml beside it; any other path as it is."""
    if path.suffix != ".csv":
        return path
    described = path.with_suffix(".toml")
    if not described.exists():
        raise ProblemError(
            f"{path} is a log; its horizon and range of rewards must be declared: write {described.name} beside it:\n\n"
            f'[problem]\nkind = "logs"\nfile = "{path.name}"\nhorizon = 24\nreward_range = [0, 1]\n\n'
            "with further options of Logs.from_frame (docs/logs.md)"
        )
    return described
