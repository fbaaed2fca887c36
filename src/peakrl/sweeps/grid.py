"""`sweep`: run a grid of problems, settings and seeds, described by a TOML file or an equal mapping.

    name = "peaks"                  # optional
    folder = "results/peaks"        # optional: relative to the file
    seeds = 20                      # 0 .. 19; or a list; or { first = 100, count = 20 }
    episodes = [10_000, 50_000]     # a number or a list
    points = 200                    # points of the learning curve; 0: no curve

    [[problems]]
    name = "harvest"
    kind = "energy_harvesting"      # any kind, as in problem files
    mean = 10                       # its parameters
    grid = { peak_power = [8, 15] } # every combination of these

    [[settings]]
    name = "default"
    learner = "PosteriorSampling"   # or another of `peakrl.learners`, with its settings

    [[settings]]
    learner = "ConstrainedQ"
    preset = "paper"                # a class method of the learner
    slack = 0.1

The runs are all combinations of problems, settings, episodes and seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from peakrl.checks import LARGEST_SEED, MOST_EPISODES, check_count
from peakrl.errors import SweepError
from peakrl.gym.env_spec import described_target
from peakrl.learners import DEFAULT
from peakrl.specs.registry import unknown_key
from peakrl.specs.spec import as_plain, located, parsed
from peakrl.specs.user_code import permit
from peakrl.sweeps.executor import Failure, complete, missing_tasks
from peakrl.sweeps.learning import FUNCTION, described, with_source
from peakrl.sweeps.store import MARKER, Result, Store, Task
from peakrl.training.spec_file import learner_settings

KEYS = ("name", "folder", "seeds", "episodes", "points", "problems", "settings")
DEFAULT_POINTS = 200
#: Most combinations of a grid, and most runs.
MOST_CHOICES, MOST_RUNS = 100_000, 1_000_000


class Choice(NamedTuple):
    """A problem or settings by name."""

    name: str
    #: The configuration, with the digests of what it depends on.
    config: dict[str, Any]


@dataclass(frozen=True)
class SweepPlan:
    """The checked content of a sweep."""

    name: str
    folder: Path
    #: Folder of modules that the file names.
    search: str
    problems: tuple[Choice, ...]
    settings: tuple[Choice, ...]
    tasks: tuple[Task, ...]

    def names(self) -> dict[str, Any]:
        """The names that the folder stores: of problems and settings."""
        return {
            "name": self.name,
            "problems": {choice.name: choice.config for choice in self.problems},
            "settings": {choice.name: choice.config for choice in self.settings},
        }


def read_plan(
    source: str | Path | Mapping[str, Any], folder: str | Path | None = None, *, trust: bool = False
) -> SweepPlan:
    """Return the checked plan of a sweep file or mapping.

    A file that names code is refused unless `trust` allows it (`peakrl.specs.user_code`); a mapping comes from the
    caller's own code.
    """
    if isinstance(source, Mapping):
        table, base, name = dict(source), Path(), "sweep"
    else:
        path = Path(source)
        table, base, name = read_table(path), path.absolute().parent, path.stem
    check_keys(table, KEYS, "")
    name = text(table, "name", "name", name)
    specs, values = distinct(problem_specs(table)), distinct(settings_values(table))
    if not isinstance(source, Mapping):
        code = [named for where, spec in specs.values() for named in spec.code(where)]
        permit(source, [*code, *((f"{where}.learner", own["learner"]) for where, own in values.values())], trust)
    target = Path(folder) if folder is not None else base / text(table, "folder", "folder", f"results/{name}")
    runs = list(plan_runs(table, len(specs) * len(values)))
    problems = tuple(Choice(name, problem_config(*found, base)) for name, found in specs.items())
    settings = tuple(Choice(name, settings_config(*found, base)) for name, found in values.items())
    tasks = [
        Task(
            FUNCTION,
            {"problem": problem.config, "settings": setting.config, **run},
            f"{problem.name}, {setting.name}, {run['episodes']:,} episodes, seed {run['seed']}",
        )
        for problem, setting, run in itertools.product(problems, settings, runs)
    ]
    return SweepPlan(name, target, str(base.absolute()), problems, settings, tuple(tasks))


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a sweep file."""
    table = parsed(path, "sweep file")
    if not isinstance(table, dict):
        raise SweepError(f"{path} is not a table; a sweep has problems, settings, episodes and seeds")
    if isinstance(table.get("problem"), Mapping) and "problems" not in table:
        raise SweepError(f"{path} is a problem file, not a sweep file: use `peakrl train {path}`")
    return table


def check_keys(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Raise for an unknown key."""
    for key in given:
        if key not in known:
            raise SweepError(unknown_key(f"{where}{key}", key, list(known)))


# --- problems and settings ---


def distinct(found: Iterable[tuple[str, str, Any]]) -> dict[str, tuple[str, Any]]:
    """Return {name: (where, what)} of (name, where, what); names must differ."""
    named: dict[str, tuple[str, Any]] = {}
    for name, where, what in found:
        if name in named:
            raise SweepError(f"{where}.name: {name!r} is already the name of {named[name][0]}")
        named[name] = where, what
    return named


def tables(table: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tables of a list, each with its key."""
    given = table.get(key)
    if not isinstance(given, list | tuple) or not given:
        raise SweepError(f"{key} is {'missing' if given is None else 'empty'}: give at least one [[{key}]] table")
    for index, one in enumerate(given):
        if not isinstance(one, Mapping):
            raise SweepError(f"{key}[{index}] is {one!r}; it must be a table")
        yield f"{key}[{index}]", as_plain(one, f"{key}[{index}]")


def problem_specs(table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the name, the table and the specification of each problem."""
    for where, given in tables(table, "problems"):
        kind = text(given, "kind", f"{where}.kind")
        name = text(given, "name", f"{where}.name", str(given.get("function", kind)) if kind == "python" else kind)
        for suffix, parameters in combinations(given, ("kind", "name"), where):
            with located(where):
                spec = described_target({"kind": kind, **parameters})
            if spec.kind == "logs":
                raise SweepError(f"{where}: a log has its own episodes and certifies one run of it: use `peakrl train`")
            yield name + suffix, where, spec


def problem_config(where: str, spec: Any, base: Path) -> dict[str, Any]:
    """Return the configuration of a problem; this may run code."""
    with located(where):
        return described(spec, base)[0]


def settings_values(table: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, the table and the values of each settings."""
    for where, given in tables(table, "settings"):
        learner = text(given, "learner", f"{where}.learner", DEFAULT)
        preset = f".{given['preset']}" if "preset" in given else ""
        name = text(given, "name", f"{where}.name", learner + preset)
        for suffix, parameters in combinations(given, ("learner", "name"), where):
            yield name + suffix, where, {"learner": learner, **parameters}


def settings_config(where: str, values: dict[str, Any], base: Path) -> dict[str, Any]:
    """Return the configuration of settings; this may run code."""
    # Without default values: new settings of later versions do not change the keys of these runs.
    return with_source(learner_settings(values, where, base).brief(), base)


def combinations(entry: Mapping[str, Any], own: tuple[str, ...], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (suffix of the name, parameters) for every combination of an entry's grid."""
    fixed = {key: value for key, value in entry.items() if key not in (*own, "grid")}
    grid = entry.get("grid", {})
    if not isinstance(grid, Mapping):
        raise SweepError(f"{where}.grid is {grid!r}; it must be a table of lists")
    for key, values in grid.items():
        if not isinstance(values, list | tuple):
            raise SweepError(f"{where}.grid.{key} is {values!r}; it must be a list")
        several(values, f"{where}.grid.{key}")
        if key in fixed:
            raise SweepError(f"{where}.{key} is given twice, once in the grid")
    if math.prod(map(len, grid.values())) > MOST_CHOICES:
        raise SweepError(f"{where}.grid has over {MOST_CHOICES:,} combinations; cut it into several sweeps")
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        yield "".join(f" {key}={value}" for key, value in chosen.items()), {**fixed, **chosen}


# --- runs ---


def plan_runs(table: Mapping[str, Any], pairs: int) -> Iterator[dict[str, int]]:
    """Yield episodes, seed and points of the runs of each of the pairs of a problem and settings."""
    points = whole(table.get("points", DEFAULT_POINTS), "points", 0, 1_000_000)
    for key in ("episodes", "seeds"):
        if table.get(key) is None:
            raise SweepError(f"{key} is missing")
    episodes = whole_numbers(table["episodes"], "episodes", 1, MOST_EPISODES)
    seeds = seed_list(table["seeds"], "seeds")
    if pairs * len(episodes) * len(seeds) > MOST_RUNS:
        raise SweepError(f"the sweep has over {MOST_RUNS:,} runs; cut it into several")
    for count, seed in itertools.product(episodes, seeds):
        yield {"episodes": count, "seed": seed, "points": points}


def seed_list(given: Any, where: str) -> list[int]:
    """Return the seeds: a count, a list, or a table of `first` and `count`."""
    if isinstance(given, Mapping):
        check_keys(given, ("first", "count"), f"{where}.")
        first = whole(given.get("first", 0), f"{where}.first", 0, 2**63)
        return list(range(first, first + whole(given.get("count"), f"{where}.count", 1, MOST_RUNS)))
    if isinstance(given, Iterable) and not isinstance(given, str):
        return whole_numbers(list(given), where, 0, LARGEST_SEED)
    return list(range(whole(given, where, 1, MOST_RUNS)))


def whole_numbers(given: Any, where: str, least: int, most: int) -> list[int]:
    """Return a list of distinct integers."""
    numbers, seen = several(given, where), set[int]()
    for number in numbers:
        if whole(number, where, least, most) in seen:
            raise SweepError(f"{where}: {number} is listed twice")
        seen.add(number)
    return numbers


def several(given: Any, where: str) -> list[Any]:
    """Return the items of a list that is not empty; a single value is a list of one."""
    items = list(given) if isinstance(given, list | tuple) else [given]
    if not items:
        raise SweepError(f"{where} is empty: there would be no runs")
    return items


def whole(value: Any, where: str, least: int, most: int) -> int:
    """Return a checked integer."""
    return check_count(value, where, least, most, error=SweepError)


def text(table: Mapping[str, Any], key: str, where: str, default: str | None = None) -> str:
    """Return a checked non-empty text."""
    value = table.get(key, default)
    if value is None:
        raise SweepError(f"{where} is missing")
    if not isinstance(value, str) or not value.strip():
        raise SweepError(f"{where} is {value!r}; it must be a non-empty text")
    return value


# --- sweep ---


@dataclass(frozen=True, repr=False)
class SweepReport:
    """The outcome of a sweep."""

    plan: SweepPlan
    #: Results found in the folder, and runs made now.
    found: int
    made: int
    #: Failed runs; the next sweep retries them.
    failures: tuple[Failure, ...]
    #: Missing runs of a dry run.
    missing: tuple[Task, ...]

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.plan.folder

    def results(self) -> Iterator[Result]:
        """Yield the available results in the order of the plan; `task.name` is the name of the run."""
        store = Store.open(self.folder)
        there = store.keys()
        for task in dict.fromkeys(self.plan.tasks):
            if task.key in there:
                yield replace(store.read(task.key), task=task)

    def __repr__(self) -> str:
        total = len({task.key for task in self.plan.tasks})
        return (
            f"<SweepReport of {self.plan.name!r}: {total:,} runs, {self.found:,} found, {self.made:,} made, "
            f"{len(self.failures):,} failed, {len(self.missing):,} missing; in {self.folder}>"
        )


def sweep(
    source: str | Path | Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    workers: int | None = None,
    engine: Executor | None = None,
    retries: int = 2,
    dry_run: bool = False,
    progress: bool = False,
    trust: bool = False,
) -> SweepReport:
    """Run the missing runs of a sweep.

    Failed runs are listed in the report and do not stop the others.

    Parameters
    ----------
    source:
        A TOML file or an equal mapping (see `peakrl.sweeps.grid`).
    folder:
        Folder of the results. Default: that of the file.
    workers:
        Number of processes. Default: one per core.
    engine:
        A `concurrent.futures.Executor` of processes, such as that of a cluster. Default: processes of this machine.
    retries:
        Retries of a run whose worker died.
    dry_run:
        List missing runs without running them. The models of the problems are compiled.
    progress:
        Show progress on stderr.
    trust:
        Run the code that a file names.

    Returns
    -------
    SweepReport
        What ran, what failed, and where the results are.

    Examples
    --------
    >>> import peakrl
    >>> example = {"name": "first", "kind": "scheduling_example", "number": 1}
    >>> learner = {"name": "SafeQ", "learner": "SafeQ"}
    >>> source = {"name": "two", "seeds": 2, "episodes": 50, "problems": [example], "settings": [learner]}
    >>> len(peakrl.sweep(source, folder="results", dry_run=True).missing)
    2
    """
    plan = read_plan(source, folder, trust=trust)
    if dry_run:
        unique = list(dict.fromkeys(plan.tasks))
        there = (plan.folder / MARKER).exists()
        missing = missing_tasks(unique, Store.open(plan.folder)) if there else unique
        return SweepReport(plan, len(unique) - len(missing), 0, (), tuple(missing))
    store = Store.create(plan.folder)
    store.keep_names(plan.names())
    done = complete(
        plan.tasks, plan.folder, workers=workers, engine=engine, retries=retries, progress=progress, title=plan.name,
        search=plan.search,
    )  # fmt: skip
    return SweepReport(plan, done.found, done.made, tuple(done.failures), ())
