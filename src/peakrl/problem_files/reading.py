"""From a file to a model, settings and a run: parse, validate, build."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, ProblemError, StorageError
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.problem import Problem
from peakrl.model.tabular import TabularModel
from peakrl.problem_files.schema import (
    EnergyHarvestingSection,
    JobEntry,
    MachineSchedulingSection,
    ProblemSection,
    PythonSection,
    RunSection,
    SchedulingExampleSection,
    Sections,
    TablesSection,
    learner_settings,
    problem_section,
    validated,
)
from peakrl.problem_files.table_files import model_of_arrays, problem_of_outcomes
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.job_files import read_jobs
from peakrl.problems.scheduling.jobs import Job, Processing, uniform
from peakrl.problems.scheduling.problem import machine_scheduling, scheduling_example

#: Problems that have a name in place of a file, on the command line.
BUILT_IN: dict[str, dict[str, Any]] = {
    "energy-harvesting": {"kind": "energy_harvesting"},
    **{f"scheduling-{number}": {"kind": "scheduling_example", "number": number} for number in (1, 2, 3)},
}
_RANGE = re.compile(r"([0-9]{1,9})\s*-\s*([0-9]{1,9})")


@dataclass(frozen=True)
class ProblemFile:
    """What a problem file says, validated."""

    path: Path
    problem: ProblemSection
    settings: LearnerSettings
    run: RunSection

    def build(self) -> Problem | TabularModel:
        """Return the problem, or the model where the file leads to one directly."""
        with naming(self.path):
            return build(self.problem, self.path.parent)

    def model(self, *, progress: bool = False) -> TabularModel:
        """Return the compiled model."""
        built = self.build()
        if isinstance(built, TabularModel):
            return built
        with naming(self.path):
            if not isinstance(self.problem, PythonSection):
                return compile_model(built, progress=progress)
            with users_code(f"problem.function {self.problem.function!r}: its problem"):
                return compile_model(built, progress=progress)

    @property
    def checkpoint(self) -> Path | None:
        """Where the run is to be saved while it goes on, if the file says so."""
        return None if self.run.checkpoint is None else self.path.parent / self.run.checkpoint


def read_problem_file(path: str | Path) -> ProblemFile:
    """Read and validate a .toml or .json problem file; the name of a built-in problem stands for one too."""
    path = Path(path)
    built_in = BUILT_IN.get(str(path))
    values = parsed(path) if built_in is None else {"problem": built_in}
    if isinstance(values, dict) and isinstance(values.get("problems"), list) and "problem" not in values:
        raise ProblemError(f"{path} describes a sweep, many runs of many problems: `peakrl sweep {path}` makes them")
    with naming(path):
        sections = validated(Sections, values)
        problem = problem_section(sections.problem)
        return ProblemFile(path, problem, learner_settings(sections.settings), sections.run)


def parsed(path: Path) -> Any:
    """Return the content of a TOML or JSON file."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: byte {error.start} is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        hint = "" if path.suffix else f" (and no built-in problem has that name; there are {', '.join(BUILT_IN)})"
        raise StorageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}{hint}") from error
    if path.suffix not in (".toml", ".json"):
        raise ProblemError(f"{path}: a problem file is TOML or JSON, so its name must end in .toml or .json")
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except RecursionError:
        raise ProblemError(f"{path}: lists within lists to too great a depth") from None
    except ValueError as error:
        raise ProblemError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Say in an error which file it comes from."""
    try:
        yield
    except StorageError:
        raise  # it names a file already
    except PeakError as error:
        if str(path) in str(error):
            raise
        raise ProblemError(f"{path}: {error}") from error


def build(section: ProblemSection, folder: Path) -> Problem | TabularModel:
    """Return the problem that a section describes."""
    if isinstance(section, EnergyHarvestingSection):
        return energy(section)
    if isinstance(section, MachineSchedulingSection):
        return scheduling(section, folder)
    if isinstance(section, SchedulingExampleSection):
        return scheduling_example(section.number, objective=section.objective)
    if isinstance(section, TablesSection):
        return tables(section, folder)
    return own_problem(section, folder)


def energy(section: EnergyHarvestingSection) -> Problem:
    """Return the problem of a transmitter."""
    values = section.model_dump(exclude={"kind"})
    arrivals = values["arrivals"]
    if isinstance(arrivals, dict):
        if set(arrivals) != {"matrix", "first"}:
            raise ProblemError("problem.arrivals needs both matrix and first")
        values["arrivals"] = (arrivals["matrix"], arrivals["first"])
    try:
        return energy_harvesting(**values)
    except PeakError as error:
        raise ProblemError(f"problem: {error}") from None


def scheduling(section: MachineSchedulingSection, folder: Path) -> Problem:
    """Return the problem of a list of jobs."""
    if isinstance(section.jobs, str):
        jobs = read_jobs(folder / section.jobs)
    else:
        jobs = tuple(job_of(entry, f"problem.jobs.{place}") for place, entry in enumerate(section.jobs))
    try:
        return machine_scheduling(jobs, objective=section.objective)
    except PeakError as error:
        raise ProblemError(f"problem: {error}") from None


def job_of(entry: JobEntry, where: str) -> Job:
    """Return a job."""
    try:
        return Job(processing_of(entry.processing), entry.due, entry.deadline, entry.weight, entry.name)
    except PeakError as error:
        raise ProblemError(f"{where}: {error}") from None


def processing_of(given: int | str | list[list[float]]) -> Processing:
    """Return a processing time."""
    if isinstance(given, str):
        matched = _RANGE.fullmatch(given.strip())
        if matched is None:
            raise ProblemError(f'processing is {given!r}; it must be a whole number, a range such as "2-4", or pairs')
        return uniform(int(matched[1]), int(matched[2]))
    if isinstance(given, list):
        # TOML's lists are of one type, so that times may come as 3.0.
        return [(pair[0], as_whole(pair[1])) if len(pair) == 2 else tuple(pair) for pair in given]  # type: ignore[misc]
    return given


def as_whole(number: float) -> Any:
    """Return a whole number as int; anything else stays as it is, for `Job` to refuse."""
    return int(number) if float(number).is_integer() else number


def tables(section: TablesSection, folder: Path) -> Problem | TabularModel:
    """Return what a table file describes."""
    path = folder / section.file
    options = section.model_dump(exclude={"kind", "file", "horizon"}, exclude_none=True)
    if path.suffix == ".npz":
        return model_of_arrays(path, section.horizon, options)
    if path.suffix == ".csv":
        return problem_of_outcomes(path, section.horizon, options)
    raise ProblemError(f"problem.file is {section.file!r}; it must be an .npz or a .csv file")


# The user's own Python ------------------------------------------------------------------------------------------------


def own_problem(section: PythonSection, folder: Path) -> Problem | TabularModel:
    """Call the user's function."""
    what = f"problem.function {section.function!r}"
    module, colon, name = section.function.rpartition(":")
    if not colon or not module or not name:
        raise ProblemError(f'{what} must be "file.py:function" or "module:function"')
    with users_code(what):
        function = getattr(imported(module, folder, what), name, None)
    if not callable(function):
        raise ProblemError(f"{what}: {module} has no function {name!r}")
    with users_code(what):
        made = call(function, section.arguments)
    if isinstance(made, TabularModel) or all(hasattr(made, part) for part in ("initial", "actions", "outcomes")):
        return made  # type: ignore[no-any-return]  # a Problem, or something with a problem's methods
    raise ProblemError(f"{what} returned {made!r}; it must return a Problem or a TabularModel")


def call(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function by name of arguments."""
    return function(**arguments)


def imported(module: str, folder: Path, what: str) -> Any:
    """Import a file beside the problem file, or a module that Python or that folder knows."""
    sys.path.insert(0, str(folder.resolve()))
    try:
        if not module.endswith(".py"):
            return importlib.import_module(module)
        path = folder / module
        if not path.is_file():
            raise ProblemError(f"{what}: there is no file {path}")
        name = f"peakrl_problem_{path.stem}"
        specification = importlib.util.spec_from_file_location(name, path)
        if specification is None or specification.loader is None:
            raise ProblemError(f"{what}: {path} cannot be imported")
        loaded = importlib.util.module_from_spec(specification)
        sys.modules[name] = loaded  # dataclasses look their module up
        specification.loader.exec_module(loaded)
        return loaded
    finally:
        sys.path.pop(0)


@contextmanager
def users_code(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into an error that says where."""
    try:
        yield
    except PeakError:
        raise
    except Exception as error:  # it is not our code: anything may come
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(frame.filename).name}, line {frame.lineno})"
        raise ProblemError(f"{what} raised {type(error).__name__}: {error}{place}") from error
