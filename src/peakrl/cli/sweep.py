"""`peakrl sweep` and `peakrl summarize`: many runs and their statistics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.cli.command import Answer, asking
from peakrl.cli.output import print_table, say

if TYPE_CHECKING:
    from peakrl.evaluation.statistics import Estimate
    from peakrl.sweeps.grid import SweepReport
    from peakrl.sweeps.summary import Comparison, Group


def sweep(
    file: Path,
    *,
    folder: Path | None = None,
    workers: int | None = None,
    retries: int = 2,
    dry_run: bool = False,
    trust: bool = False,
) -> Answer:
    """Run the missing runs of a sweep. Exit code 1 if some failed.

    Parameters
    ----------
    file : SWEEP.toml
        Sweep file: problems, settings and seeds.
    folder : FOLDER
        Folder of the results; default: that of the file.
    workers
        Number of processes; default: one per core.
    retries
        Retries of a run whose worker died.
    dry_run
        List missing runs without running them.
    """
    from peakrl.sweeps.grid import sweep as run_sweep

    report = asking(
        lambda trust: run_sweep(
            file, folder=folder, workers=workers, retries=retries, dry_run=dry_run, progress=True, trust=trust
        ),
        trust,
    )
    values = report_json(report, dry_run=dry_run)
    return Answer(values, lambda: show_report(report, dry_run=dry_run), not report.failures)


def report_json(report: SweepReport, *, dry_run: bool) -> dict[str, Any]:
    """Return a report as plain values."""
    answer: dict[str, Any] = {
        "name": report.plan.name,
        "folder": str(report.folder),
        "runs": report.found + report.made + len(report.failures) + len(report.missing),
        "found": report.found,
        "made": report.made,
        "failed": [
            {"key": failure.task.key, "message": failure.message, "attempts": failure.attempts, **brief(failure.task)}
            for failure in report.failures
        ],
    }
    if dry_run:
        answer["missing"] = [{"key": task.key, **brief(task)} for task in report.missing]
    return answer


def brief(task: Any) -> dict[str, Any]:
    """Return the identification of a run."""
    return {"run": task.name, "episodes": task.config["episodes"], "seed": task.config["seed"]}


def show_report(report: SweepReport, *, dry_run: bool) -> None:
    """Print a report."""
    if dry_run:
        for task in report.missing:
            say(task)
        say(f"Runs: {len(report.missing):,} missing, {report.found:,} found; {report.folder}")
        return
    say(f"Runs: {report.made:,} made, {report.found:,} found, {len(report.failures):,} failed; {report.folder}")
    for failure in report.failures:
        say(f"  {failure}")


def summarize(
    folder: Path,
    *,
    csv: Path | None = None,
    curves: Path | None = None,
    epsilon: float | None = None,
    confidence: float = 0.95,
) -> Answer:
    """Report means with confidence intervals and compare the learners of a sweep.

    Parameters
    ----------
    folder : FOLDER
        The folder of a sweep.
    csv : FILE.csv
        Write one row per run.
    curves : FILE.csv
        Write the learning curves: one row per point.
    epsilon
        Largest gap that counts as solved; default: 1 % of the optimum.
    confidence
        Of the intervals.
    """
    from peakrl.evaluation.statistics import ENOUGH_RUNS
    from peakrl.storage import ready
    from peakrl.sweeps import summary

    ready(csv, curves)
    records = summary.read_records(folder, epsilon)
    groups, comparisons = summary.summarize(records, confidence=confidence)
    if csv is not None:
        summary.write_csv(records, csv)
    if curves is not None:
        summary.write_csv(summary.read_curves(folder), curves)
    fewest, warnings = min(group.seeds for group in groups), []
    if fewest < ENOUGH_RUNS:
        warnings.append(
            f"With {fewest} seed{'s' * (fewest > 1)} the intervals of value, gap and violation are too narrow: "
            f"use at least {ENOUGH_RUNS} seeds."
        )
    values = {"confidence": confidence, "warnings": warnings, **summary.as_json(groups, comparisons)}
    return Answer(values, lambda: show_summary(groups, comparisons, confidence, warnings))


def show_summary(groups: list[Group], comparisons: list[Comparison], confidence: float, warnings: list[str]) -> None:
    """Print a summary."""
    print_table(
        f"Interquartile means over seeds with {confidence:.0%} intervals; violating episodes: in training; "
        "solved: near the optimum (--epsilon), without avoidable violation",
        [
            "problem", "settings", "episodes", "seeds", "violating episodes", "value", "gap", "violation", "solved",
            "episodes to reach",
        ],
        [
            [
                group.problem, group.settings, group.episodes, group.seeds, shown(group.violating_episodes),
                shown(group.value), shown(group.gap), shown(group.violation),
                shown(group.share_solved, percent=True), reach(group),
            ]
            for group in groups
        ],
    )  # fmt: skip
    for warning in warnings:
        say(warning)
    if any(group.sampled for group in groups):
        print(
            "Rows without a gap: the environment has no transition table. Value and violation are means of new "
            "episodes of each policy (--csv has the intervals of each run); the optimum is unknown."
        )
    if comparisons:
        print_table(
            "Probability that a run is better (less violation, then more value)",
            ["problem", "episodes", "a run of", "is better than one of", "with probability"],
            [[one.problem, one.episodes, one.better, one.worse, shown(one.probability)] for one in comparisons],
        )


def shown(estimate: Estimate | None, *, percent: bool = False) -> str:
    """Return an estimate with its interval."""
    if estimate is None:
        return "unknown"
    if percent:
        return f"{estimate.value:.0%} [{estimate.low:.0%}, {estimate.high:.0%}]"
    return f"{estimate.value:.4g} [{estimate.low + 0.0:.4g}, {estimate.high:.4g}]"


def reach(group: Group) -> str:
    """Return the number of seeds that got and stayed within epsilon, and when."""
    if group.reached is None:
        return "no curve"
    if group.episodes_to_reach is None:
        return f"none of {group.seeds}"
    return f"{group.episodes_to_reach:,.0f} ({group.reached} of {group.seeds})"
