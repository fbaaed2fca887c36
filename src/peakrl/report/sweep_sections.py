"""A sweep on the page: what each learner reached and how surely, curves over seeds, every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.report.blocks import Block, Chart, Section, Series, Settings, Table, Text, slug
from peakrl.report.curve_blocks import thinned
from peakrl.sweeps.summary import ENOUGH_SEEDS

COLOURS = ("blue", "orange", "green", "purple", "sky", "yellow", "grey")
CONFIDENCE = 0.95
#: Columns of a run's record that say how it was made, not what came out.
LEFT_OUT = ("key", "has_curve", "epsilon")


def sweep_sections(folder: Path) -> list[Section]:
    """Return a section for each problem of a sweep, and one with all runs."""
    from peakrl.sweeps.store import Store
    from peakrl.sweeps.summary import read_records, summarize

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
    """Return what the learners reached on one problem."""
    place = f"sweep-{slug(problem)}"
    seeds = sum(group.seeds for group in groups)
    solved = None if any(group.solved is None for group in groups) else sum(group.solved for group in groups)
    lead = unknown_lead(records) if solved is None else known_lead(records, solved, seeds, groups[0].epsilon)
    charts = list(curve_charts(store, place, records))
    # Value beside violation; the tables have too many columns for half a page.
    main: list[Block] = list(charts[::2]) or [Text("These runs kept no curves.")]
    wide: list[Block] = [group_table(place, groups)]
    if comparisons:
        wide.append(comparison_table(place, comparisons))
    short = f"{seeds} runs, no optimum known" if solved is None else f"{solved} of {seeds} solved"
    return Section(place, problem, lead, main, charts[1::2], ("good" if solved == seeds else "", short), wide)


def known_lead(records: Sequence[Any], solved: int, seeds: int, epsilon: float) -> str:
    """Return how the runs stand to an optimum that is known."""
    feasible = all(record["problem_feasible"] for record in records)
    return (
        f"{solved} of {seeds} runs end within {epsilon:.4g} of the optimum without avoidable violation. "
        f"The problem is {'feasible' if feasible else 'infeasible, as the exact planner proves'}; its optimum is "
        f"{records[0]['optimum']:.6g} at violation {records[0]['least_violation']:.6g}."
    )


def unknown_lead(records: Sequence[Any]) -> str:
    """Return what the figures of runs on an environment rest on that shows no table."""
    violating = sum(record["violation"] > 0 for record in records)
    return (
        "An environment that shows no table: value and violation are means of "
        f"{records[0]['sampled']:,} fresh episodes of each policy, nothing is exact, and no optimum is known. "
        f"{violating} of {len(records)} policies were seen to violate a constraint; that the others never do is not "
        "shown."
    )


def group_table(place: str, groups: Any) -> Table:
    """Return the interquartile means with their intervals."""
    columns = (
        "settings", "episodes", "seeds", "value", "value from", "value to", "gap", "gap in %", "violation",
        "violation to", "share solved", "share from", "share to", "episodes to reach",
    )  # fmt: skip
    rows = []
    for group in groups:
        gap = None if group.gap is None else group.gap.value
        best = None if gap is None else group.value.value + gap
        percent = 100.0 * gap / abs(best) if best and gap is not None else None
        share = (None, None, None) if group.share_solved is None else group.share_solved[:3]
        rows.append((
            group.settings, group.episodes, group.seeds, *group.value[:3], gap, percent,
            group.violation.value, group.violation.high, *share, group.episodes_to_reach,
        ))  # fmt: skip
    few = min(group.seeds for group in groups) < ENOUGH_SEEDS
    warning = f"; under {ENOUGH_SEEDS} seeds those of value and violation are too narrow" if few else ""
    title = f"Interquartile means over seeds with {CONFIDENCE:.0%} intervals{warning}"
    return Table(f"{place}-groups", title, columns, rows)


def comparison_table(place: str, comparisons: Any) -> Table:
    """Return how likely a run of one learner is better than one of another."""
    rows = [(one.episodes, one.better, one.worse, *one.probability[:3]) for one in comparisons]
    columns = ("episodes", "a run of", "is better than one of", "with probability", "from", "to")
    return Table(f"{place}-pairs", "Who is better: less violation, or as much with more value", columns, rows)


def curve_charts(store: Any, place: str, records: Sequence[Any]) -> Iterator[Chart]:
    """Yield value and violation over episodes, mean and standard deviation over seeds."""
    for episodes in dict.fromkeys(record["episodes"] for record in records):
        own = [record for record in records if record["episodes"] == episodes and record["has_curve"]]
        if not own:
            continue
        arrays: dict[str, list[Any]] = {}
        for record in own:
            arrays.setdefault(record["settings"], []).append(store.read(record["key"]).arrays)
        for measure, level in (("value", "optimum"), ("violation", "least_violation")):
            series = [
                mean_curve(name, found, measure, COLOURS[place_of % len(COLOURS)])
                for place_of, (name, found) in enumerate(arrays.items())
            ]
            levels = {record[level] for record in own}
            if len(levels) == 1 and levels != {None}:  # problems that follow the seed have an optimum each
                ends = [series[0].x[0], series[0].x[-1]]
                series.append(
                    Series(level.replace("_", " "), ends, [levels.pop()] * 2, None, "ink", "dash", level=True)
                )
            what = f"{measure.capitalize()} of the policy"
            if any(record["sampled_curve"] for record in own):
                what = f"{measure.capitalize()} of episodes of learning, exploration included"
            title = f"{what}, {episodes:,} episodes, mean and sd over seeds"
            yield Chart(f"{place}-{episodes}-{measure}", title, "episode", measure, series)


def mean_curve(name: str, found: Sequence[Any], measure: str, colour: str) -> Series:
    """Return the mean and standard deviation of curves; of runs that were recorded alike."""
    episode = found[0]["history_episode"]
    alike = [arrays for arrays in found if np.array_equal(arrays["history_episode"], episode)]
    table = np.stack([arrays[f"history_{measure}"] for arrays in alike])
    keep = thinned(len(episode))
    std = table.std(axis=0, ddof=1)[keep].tolist() if len(alike) > 1 else None
    return Series(name, episode[keep].tolist(), table.mean(axis=0)[keep].tolist(), std, colour)


def runs_section(records: Sequence[Any], names: dict[str, Any]) -> Section:
    """Return every run, and what problems and settings are."""
    columns = [name for name in records[0] if name not in LEFT_OUT]
    rows = [[record.get(name) for name in columns] for record in records]
    lead = (
        "A sweep keeps figures and curves; `peakrl train ... --out` keeps a run whose policy can be explored as well."
    )
    table = Table("sweep-runs", f"All {len(rows):,} runs", [name.replace("_", " ") for name in columns], rows)
    return Section("sweep-all", "Runs", lead, [table, Settings("sweep-settings", "Problems and settings", names)])
