"""Sections of the page of a sweep: results of the learners on each problem, and all runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.report.blocks import Block, Chart, Section, Series, Table, Text, settings_table, slug
from peakrl.report.charts import level, thinned
from peakrl.sweeps.store import Store
from peakrl.sweeps.summary import ENOUGH_SEEDS, read_records, summarize

COLOURS = ("blue", "orange", "green", "purple", "sky", "yellow", "grey")
CONFIDENCE = 0.95
#: Columns of a record that are not results.
LEFT_OUT = ("key", "has_curve", "epsilon")


def sweep_sections(folder: Path) -> list[Section]:
    """Return a section for each problem of a sweep, and one with all runs."""
    store, records = Store.open(folder), read_records(folder)
    groups, comparisons = summarize(records, confidence=CONFIDENCE)
    names = {}
    for kept in reversed(store.kept_names()):
        names.update(kept)
    sections = []
    for problem in dict.fromkeys(record["problem"] for record in records):
        mine = [group for group in groups if group.problem == problem]
        pairs = [one for one in comparisons if one.problem == problem]
        own = [record for record in records if record["problem"] == problem]
        sections.append(problem_section(store, problem, own, mine, pairs))
    return [*sections, runs_section(records, names)]


def problem_section(store: Any, problem: str, records: Sequence[Any], groups: Any, comparisons: Any) -> Section:
    """Return the results of the learners on one problem."""
    prefix = f"sweep-{slug(problem)}"
    seeds = sum(group.seeds for group in groups)
    solved = None if any(group.solved is None for group in groups) else sum(group.solved for group in groups)
    lead = unknown_lead(records) if solved is None else known_lead(records, solved, seeds, groups[0].epsilon)
    charts: list[Block] = list(curve_charts(store, prefix, records)) or [Text("These runs have no learning curves.")]
    tables = [group_table(prefix, groups), *([comparison_table(prefix, comparisons)] if comparisons else [])]
    short = f"{seeds} runs, no optimum known" if solved is None else f"{solved} of {seeds} solved"
    return Section(prefix, problem, lead, [*charts, *tables], ("good" if solved == seeds else "", short))


def known_lead(records: Sequence[Any], solved: int, seeds: int, epsilon: float) -> str:
    """Return how many runs reached the optimum."""
    feasible = all(record["problem_feasible"] for record in records)
    return (
        f"{solved} of {seeds} runs end within {epsilon:.4g} of the optimum without avoidable violation. "
        f"The problem is {'feasible' if feasible else 'infeasible (proved by the exact planner)'}; its optimum is "
        f"{records[0]['optimum']:.6g} at violation {records[0]['least_violation']:.6g}."
    )


def unknown_lead(records: Sequence[Any]) -> str:
    """Return what the metrics rest on if the optimum is unknown."""
    violating = sum(record["violation"] > 0 for record in records)
    return (
        "An environment without a transition table: value and violation are means of "
        f"{records[0]['sampled']:,} new episodes of each policy; the optimum is unknown. "
        f"{violating} of {len(records)} policies violated a constraint in them; this does not prove that the others "
        "never do."
    )


def reached(group: Any) -> str | None:
    """Return the episodes to reach the optimum, and how many runs did."""
    if group.episodes_to_reach is None:
        return None
    return f"{group.episodes_to_reach:,.0f} ({group.reached} of {group.seeds})"


def group_table(prefix: str, groups: Any) -> Table:
    """Return the interquartile means with their intervals."""
    columns = (
        "settings", "episodes", "seeds", "violating episodes", "value", "value low", "value high", "gap", "gap in %",
        "violation", "violation high", "share solved", "share low", "share high", "episodes to reach",
    )  # fmt: skip
    rows = []
    for group in groups:
        gap = None if group.gap is None else group.gap.value
        best = None if gap is None else group.value.value + gap
        percent = 100.0 * gap / abs(best) if best and gap is not None else None
        share = (None, None, None) if group.share_solved is None else group.share_solved[:3]
        rows.append((
            group.settings, group.episodes, group.seeds, group.violating_episodes.value, *group.value[:3], gap, percent,
            group.violation.value, group.violation.high, *share, reached(group),
        ))  # fmt: skip
    few = min(group.seeds for group in groups) < ENOUGH_SEEDS
    warning = f"; with fewer than {ENOUGH_SEEDS} seeds the intervals of value and violation are too narrow"
    title = f"Interquartile means over seeds with {CONFIDENCE:.0%} intervals; violating episodes: in training"
    return Table(f"{prefix}-groups", title + warning if few else title, columns, rows)


def comparison_table(prefix: str, comparisons: Any) -> Table:
    """Return the probability that a run of one learner is better than one of another."""
    rows = [(one.episodes, one.better, one.worse, *one.probability[:3]) for one in comparisons]
    columns = ("episodes", "a run of", "is better than one of", "with probability", "low", "high")
    return Table(f"{prefix}-pairs", "Comparison: less violation is better, then more value", columns, rows)


def curve_charts(store: Any, prefix: str, records: Sequence[Any]) -> Iterator[Chart]:
    """Yield value and violation over episodes, mean and standard deviation over seeds."""
    for episodes in dict.fromkeys(record["episodes"] for record in records):
        own = [record for record in records if record["episodes"] == episodes and record["has_curve"]]
        if not own:
            continue
        arrays: dict[str, list[Any]] = {}
        for record in own:
            arrays.setdefault(record["settings"], []).append(store.read(record["key"]).arrays)
        for measure, level_name in (("value", "optimum"), ("violation", "least_violation")):
            series = [
                mean_curve(name, curves, measure, COLOURS[index % len(COLOURS)])
                for index, (name, curves) in enumerate(arrays.items())
            ]
            levels = {record[level_name] for record in own}
            if len(levels) == 1 and levels != {None}:  # problems that follow the seed have an optimum each
                series.append(level(level_name.replace("_", " "), series[0].x, levels.pop()))
            what = f"{measure.capitalize()} of the policy"
            if any(record["sampled_curve"] for record in own):
                what = f"{measure.capitalize()} of training episodes, exploration included"
            title = f"{what}, {episodes:,} episodes, mean and sd over seeds"
            yield Chart(f"{prefix}-{episodes}-{measure}", title, "episode", measure, series)


def mean_curve(name: str, curves: Sequence[Any], measure: str, colour: str) -> Series:
    """Return the mean and standard deviation of the curves that were recorded at the same episodes."""
    episode = curves[0]["history_episode"]
    alike = [arrays for arrays in curves if np.array_equal(arrays["history_episode"], episode)]
    table = np.stack([arrays[f"history_{measure}"] for arrays in alike])
    keep = thinned(len(episode))
    std = table.std(axis=0, ddof=1)[keep].tolist() if len(alike) > 1 else None
    return Series(name, episode[keep].tolist(), table.mean(axis=0)[keep].tolist(), colour, std=std)


def runs_section(records: Sequence[Any], names: dict[str, Any]) -> Section:
    """Return every run, and the problems and settings by name."""
    columns = [name for name in records[0] if name not in LEFT_OUT]
    rows = [[record.get(name) for name in columns] for record in records]
    lead = "A sweep stores metrics and curves; `peakrl train ... --out` stores a run with its policy."
    table = Table("sweep-runs", f"All {len(rows):,} runs", [name.replace("_", " ") for name in columns], rows)
    return Section("sweep-all", "Runs", lead, [table, settings_table("sweep-settings", "Problems and settings", names)])
