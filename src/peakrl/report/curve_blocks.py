"""How learning went, as curves: the gap to the optimum, violations summed up, what was proved, multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.report.blocks import Block, Chart, Series, Text

if TYPE_CHECKING:
    from peakrl.report.analysis import RunFindings
    from peakrl.training.learn import LearningRun

#: Points of a curve.
POINTS = 2000
#: A logarithmic axis of gaps ends here, as a part of the optimum: what lies below is drawn there.
LEAST_GAP = 1e-6
BEYOND = (
    "At the bottom: a gap of 0, and policies that earn more than the best safe one because they violate. Hovering "
    "tells the number."
)
COLOURS = ("purple", "green", "sky", "yellow", "orange", "grey")


def curve_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return the curves of a run on a model."""
    run = found.run
    if not len(run.history):
        blocks: list[Block] = [Text("No history was recorded: learn(..., history=...) says how often.")]
    elif run.history.sampled:
        blocks = [sampled_chart(found, place), violation_chart(run, place)]
    else:
        blocks = [gap_chart(found, place) or value_chart(found, place), violation_chart(run, place)]
    return [*blocks, *proof_chart(found, place), *multiplier_chart(run, place)]


def gap_chart(found: RunFindings, place: str) -> Chart | None:
    """Return how far policies lie below the optimum, on a logarithmic axis; None where the optimum is not known."""
    history, optimum = found.run.history, found.optimum
    if optimum is None or not optimum.feasible:
        return None
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    end = found.last_figures.below_optimum
    series = [
        Series("what an episode followed, trying things out", x, found.gaps(history.value[keep]), None, "sky"),
        Series("averaged over the episodes so far", x, found.gaps(history.averaged_value[keep]), None, "orange"),
        Series("what is handed out at the end", [x[-1]], [end], None, "blue", mode="markers"),
    ]
    floor = LEAST_GAP * (abs(optimum.value) or 1.0)
    title = "How far below the best safe policy"
    return Chart(f"{place}-gap", title, "episode", "gap", drawable(series), log_y=True, floor=floor, note=BEYOND)


def value_chart(found: RunFindings, place: str) -> Chart:
    """Return the value over the episodes."""
    history, optimum = found.run.history, found.optimum
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    series = [
        Series("what an episode followed, trying things out", x, finite(history.value[keep]), None, "sky"),
        Series("averaged over the episodes so far", x, finite(history.averaged_value[keep]), None, "orange"),
    ]
    if optimum is not None:
        name = "optimum" if optimum.feasible else "least violating policy"
        series.append(Series(name, [x[0], x[-1]], [optimum.value] * 2, None, "ink", "dash", level=True))
    return Chart(f"{place}-value", "Value over the episodes", "episode", "value", drawable(series))


def sampled_chart(found: RunFindings, place: str) -> Chart:
    """Return means of what episodes earned, with intervals: exact curves would have taken too long."""
    curve, optimum = found.run.history.stretches(), found.optimum
    x, low, high = curve.episode.tolist(), curve.value - curve.value_margin, curve.value + curve.value_margin
    told = "means of stretches of episodes"
    series = [Series(told, x, finite(curve.value), None, "blue", low=finite(low), high=finite(high))]
    if optimum is not None:
        series.append(Series("optimum", [x[0], x[-1]], [optimum.value] * 2, None, "ink", "dash", level=True))
    title = f"Reward of an episode, sampled, nothing exact: {told} with 95 % intervals"
    return Chart(f"{place}-value", title, "episode", "reward", drawable(series))


def violation_chart(run: LearningRun, place: str) -> Chart:
    """Return the violation of all episodes so far, summed up."""
    history, last = run.history, run.last_violation_episode
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    series = [Series("all episodes so far", x, finite(history.cumulative_violation[keep]), None, "orange")]
    seen = f"{run.violations:,} violating episodes, the last {last:,}" if last else "no violating episode"
    drawn = drawable(series)
    if not drawn:
        series = [Series("of the episode's policy", x, finite(history.violation[keep]), None, "orange")]
        return Chart(f"{place}-violation", f"Violation: {seen}", "episode", "violation", drawable(series))
    return Chart(f"{place}-violation", f"Violation summed up: {seen}", "episode", "violation", drawn)


def proof_chart(found: RunFindings, place: str) -> list[Chart]:
    """Return the gap that a certified learner has proved, beside the true one of its candidate."""
    proved, optimum = found.run.proof_history, found.optimum
    if proved is None:
        return []
    floor = None if optimum is None else LEAST_GAP * (abs(optimum.value) or 1.0)
    return proved_chart(found.run, place, found.gaps(proved.value), floor)


def proved_chart(
    run: LearningRun, place: str, gaps: Sequence[float | None] = (), floor: float | None = None
) -> list[Chart]:
    """Return what a certified learner has proved as it went on, beside the true `gaps` where they are known."""
    proved, certificate = run.proof_history, run.certificate
    if proved is None or not len(proved):
        return []
    keep = thinned(len(proved))
    x = proved.episode[keep].tolist()
    series = [
        Series("certified gap", x, finite(proved.gap[keep]), None, "blue"),
        Series("certified bound on the violation", x, finite(proved.violation[keep]), None, "orange"),
    ]
    if gaps:
        series.append(Series("true gap of the candidate", x, [gaps[point] for point in keep], None, "ink", "dash"))
    if certificate is not None and certificate.epsilon is not None:
        series.append(Series("epsilon", [x[0], x[-1]], [certificate.epsilon] * 2, None, "grey", "dash", level=True))
    stopped = "" if run.stop_reason != "certified" else f", certified after {run.episodes:,} episodes"
    title = f"What is proved of the candidate{stopped}"
    return [Chart(f"{place}-proved", title, "episode", "gap", drawable(series), log_y=True, floor=floor, note=BEYOND)]


def multiplier_chart(run: LearningRun, place: str) -> list[Chart]:
    """Return what a unit of each limited violation was held to be worth; nothing of learners without such prices."""
    curve = run.multiplier_curve
    if curve is None or not len(curve):
        return []
    keep = thinned(len(curve))
    x = curve[keep, 0].tolist()
    columns = range(1, curve.shape[1])
    names = ["multiplier"] if len(columns) == 1 else [f"multiplier {column}" for column in columns]
    series = [
        Series(name, x, finite(curve[keep, column]), None, COLOURS[(column - 1) % len(COLOURS)])
        for name, column in zip(names, columns, strict=True)
    ]
    title = "What a unit of violation is held to be worth"
    return [Chart(f"{place}-multipliers", title, "episode", "reward for a unit of violation", drawable(series))]


def drawable(series: Sequence[Series]) -> list[Series]:
    """Return the curves that hold a number: one that was not recorded is not drawn."""
    return [one for one in series if any(y is not None and isfinite(y) for y in one.y)]


def finite(values: Any) -> list[float | None]:
    """Return numbers for a curve; where there is none, a gap in it."""
    return [value if isfinite(value) else None for value in values.tolist()]


def thinned(count: int) -> Any:
    """Return which points of a curve to draw: all, or evenly spaced ones with the last."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(np.int64))
