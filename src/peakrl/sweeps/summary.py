"""Summary of the runs of a sweep folder.

For the runs of one learner on one problem, over seeds:

    interquartile mean of value, gap, violation and violating training episodes, with bootstrap intervals
    share of solved seeds (within eps of the optimum without avoidable violation), with exact binomial intervals
    episodes after which the policies stay solved: number of seeds, and their median
    probability that a run of one learner is better than one of another, with an interval that is valid for few runs;
    less violation is better, then more value

eps is 1 % of the optimum (at least 0.01) by default. The unavoidable violation is the least expected violation of any
policy, 0 if the problem is feasible. For environments without a transition table the optimum is unknown: there is no
gap, and no run counts as solved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from peakrl.checks import check_confidence, check_number
from peakrl.errors import StorageError
from peakrl.evaluation.statistics import (
    ENOUGH_RUNS,
    Estimate,
    clopper_pearson,
    episodes_to_reach,
    improvement_probability,
    interquartile_mean,
)
from peakrl.records import content_of
from peakrl.sweeps.learning import FUNCTION
from peakrl.sweeps.store import Result, Store, canonical, written
from peakrl.types import Floats

#: With fewer seeds the intervals of value and violation are too narrow.
ENOUGH_SEEDS = ENOUGH_RUNS
#: Differences in violation below this are rounding.
TINY = 1e-9
#: Default eps relative to the optimum.
RELATIVE = 0.01

#: For environments without a table: number of new episodes, and intervals.
SAMPLED = ("sampled", "value_low", "value_high", "violation_probability_high")
#: The columns that identify a run.
RUN = ("problem", "settings", "episodes", "seed")
#: Prefix of the columns of a curve.
CURVE_PREFIX = "history_"

Row = dict[str, Any]
Read = TypeVar("Read")


@dataclass(frozen=True)
class Group:
    """The runs of one learner on one problem, over seeds."""

    problem: str
    settings: str
    episodes: int
    seeds: int
    epsilon: float
    #: Episodes of training with a violation.
    violating_episodes: Estimate
    value: Estimate
    #: None if the optimum is unknown.
    gap: Estimate | None
    violation: Estimate
    #: Seeds whose last policy is eps-optimal without avoidable violation; None if the optimum is unknown.
    solved: int | None
    share_solved: Estimate | None
    #: Seeds whose curve reached that and stayed, and the median episode; None without exact curves.
    reached: int | None
    episodes_to_reach: float | None
    #: Are value and violation means of new episodes?
    sampled: bool = False


@dataclass(frozen=True)
class Comparison:
    """Probability that a run of one learner is better than a run of another."""

    problem: str
    episodes: int
    better: str
    worse: str
    probability: Estimate


def read_records(folder: str | Path, epsilon: float | None = None) -> list[Row]:
    """Return one flat record per run of the folder, sorted; the latest result of each configuration."""
    epsilon = None if epsilon is None else check_number(epsilon, "epsilon", least=0)
    records = each_run(folder, lambda result, labels: record_of(result, labels, epsilon))
    for name in SAMPLED:
        if all(record[name] is None for record in records):
            for record in records:
                del record[name]
    return sorted(records, key=lambda record: (*(record[name] for name in RUN), record["key"]))


def read_curves(folder: str | Path) -> list[Row]:
    """Return one flat record for each recorded point of each run of the folder, in the order of `read_records`."""
    runs = sorted(each_run(folder, curve_of), key=lambda points: [points[0][name] for name in RUN] if points else [])
    points = list(itertools.chain.from_iterable(runs))
    if not points:
        raise StorageError(f"the runs of {folder} have no learning curves: sweep with points = 200, for example")
    return points


def each_run(folder: str | Path, read: Callable[[Result, Labels], Read]) -> list[Read]:
    """Return `read` of the latest result of each configuration in a sweep folder."""
    store = Store.open(folder)
    labels = Labels(store.kept_names())
    chosen: dict[str, Read] = {}
    for key in sorted(store.keys(), key=lambda key: written(store.path(key))):
        result = store.read(key)
        if result.task.function == FUNCTION:
            with content_of(store.path(key)):
                chosen[canonical(result.task.config, "config")] = read(result, labels)
    if not chosen:
        raise StorageError(f"{folder} contains no results of a sweep")
    return list(chosen.values())


def named(result: Result, labels: Labels) -> Row:
    """Return the columns that identify a run."""
    config = result.task.config
    names = labels.of("problems", config["problem"]), labels.of("settings", config["settings"])
    return dict(zip(RUN, (*names, config["episodes"], config["seed"]), strict=True))


def curve_of(result: Result, labels: Labels) -> list[Row]:
    """Return the points of the learning curve of a run."""
    columns = {
        name[len(CURVE_PREFIX) :]: column for name, column in result.arrays.items() if name.startswith(CURVE_PREFIX)
    }
    values = [[None if value != value else value for value in column.tolist()] for column in columns.values()]
    run = named(result, labels)
    return [run | dict(zip(columns, point, strict=True)) for point in zip(*values, strict=True)]


def record_of(result: Result, labels: Labels, epsilon: float | None) -> Row:
    """Return the flat record of a run."""
    values, optimum = result.values, result.values["optimum"]
    eps = RELATIVE * max(1.0, abs(optimum or 0.0)) if epsilon is None else epsilon
    solved = None
    if optimum is not None:
        excess = max(0.0, values["violation"] - values["least_violation"])
        solved = bool(values["gap"] <= eps + TINY and excess <= TINY)
    return {
        **named(result, labels),
        **dict.fromkeys(("value", "gap", "violation", "violations", "last_violation_episode")),  # first
        **values,
        **{name: values.get(name) for name in SAMPLED},
        "sampled_curve": values.get("sampled_curve", False),
        "epsilon": eps,
        "solved": solved,
        "episodes_to_reach": reaching(result, eps),
        "has_curve": "history_episode" in result.arrays,
        "seconds": result.seconds,
        "key": result.task.key,
    }


def reaching(result: Result, epsilon: float) -> int | None:
    """Return the first recorded episode from which on the curve is eps-optimal without avoidable violation.

    None without an exact curve.
    """
    arrays, values = result.arrays, result.values
    if "history_episode" not in arrays or values.get("sampled_curve") or values["optimum"] is None:
        return None
    gap = values["optimum"] - arrays["history_value"]
    avoidable = arrays["history_violation"] - values["least_violation"] > TINY
    distance = np.where(avoidable, np.maximum(gap, 0.0) + 2 * epsilon + 1.0, gap)
    return episodes_to_reach(arrays["history_episode"], distance, epsilon + TINY)


class Labels:
    """Names of problems and settings: those of the sweep file, else their content."""

    def __init__(self, kept: Iterable[Mapping[str, Any]]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        used: dict[tuple[str, str], int] = {}
        for names in kept:
            for part in ("problems", "settings"):
                for name, config in names[part].items():
                    key = (part, canonical(config, part))
                    if key not in self._names:
                        # Sweeps that share a folder may use one name for different configurations.
                        count = used[part, name] = used.get((part, name), 0) + 1
                        self._names[key] = name if count == 1 else f"{name} #{count}"

    def of(self, part: str, config: Mapping[str, Any]) -> str:
        """Return the label of a problem or of settings."""
        content = canonical(config, part)
        return self._names.get((part, content), content)


def summarize(records: Sequence[Row], *, confidence: float = 0.95) -> tuple[list[Group], list[Comparison]]:
    """Return the groups of runs and their pairwise comparisons."""
    check_confidence(confidence)
    by_cell: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for record in records:
        cell = by_cell.setdefault((record["problem"], record["episodes"]), {})
        cell.setdefault(record["settings"], []).append(record)
    groups, comparisons = [], []
    for (problem, episodes), learners in by_cell.items():
        for name, runs in learners.items():
            groups.append(group_of(problem, name, episodes, runs, confidence))
        ranks = ranked(learners)
        for first, second in itertools.combinations(learners, 2):
            probability = improvement_probability(ranks[first], ranks[second], confidence=confidence)
            comparisons.append(Comparison(problem, episodes, first, second, probability))
    return groups, comparisons


def group_of(problem: str, settings: str, episodes: int, runs: Sequence[Row], confidence: float) -> Group:
    """Summarize the runs of one learner on one problem."""

    def middle(name: str) -> Estimate:
        return interquartile_mean([run[name] for run in runs], confidence=confidence)

    known = all(run["gap"] is not None for run in runs)
    solved = sum(run["solved"] for run in runs) if known else None
    share = None
    if solved is not None:
        share = Estimate(solved / len(runs), *clopper_pearson(solved, len(runs), confidence))
    curves = [run for run in runs if run["has_curve"] and not run.get("sampled_curve")]
    reached = [run["episodes_to_reach"] for run in curves if run["episodes_to_reach"] is not None]
    return Group(
        problem, settings, episodes, len(runs),
        epsilon=max(run["epsilon"] for run in runs),
        violating_episodes=middle("violations"),
        value=middle("value"),
        gap=middle("gap") if known else None,
        violation=middle("violation"),
        solved=solved,
        share_solved=share,
        reached=len(reached) if curves else None,
        episodes_to_reach=float(np.median(reached)) if reached else None,
        sampled=any(run.get("sampled") for run in runs),
    )  # fmt: skip


def ranked(learners: Mapping[str, Sequence[Row]]) -> dict[str, Floats]:
    """Return the rank of each run among all: better runs have higher ranks, equal runs equal ones."""
    scores = {
        name: [(-round(run["violation"] / TINY), round(run["value"] / TINY)) for run in runs]
        for name, runs in learners.items()
    }
    ranks = {score: rank for rank, score in enumerate(sorted(set(itertools.chain(*scores.values()))))}
    return {name: np.array([ranks[score] for score in own], np.float64) for name, own in scores.items()}


# --- files ---


def write_csv(records: Sequence[Row], path: str | Path) -> None:
    """Write one row per record; missing values are empty cells."""
    import csv
    import io

    from peakrl.storage import quoted, write_file

    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    columns = dict.fromkeys(name for record in records for name in record)
    writer.writerow(map(quoted, columns))
    writer.writerows([quoted(record.get(name)) for name in columns] for record in records)
    write_file(path, text.getvalue().encode())


def as_json(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a summary as plain values."""

    def plain(item: Group | Comparison) -> dict[str, Any]:
        return {name: value._asdict() if isinstance(value, Estimate) else value for name, value in vars(item).items()}

    return {"groups": [plain(group) for group in groups], "comparisons": [plain(one) for one in comparisons]}
