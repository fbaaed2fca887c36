"""Charts of a run: learning curves, one episode, risks."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.report.blocks import Block, Chart, Series, Table, Text, is_number, slug
from peakrl.report.policy_blocks import field_count, field_names, fields_of, plain_label, state_words

if TYPE_CHECKING:
    from peakrl.evaluation import RolloutStep
    from peakrl.report.analysis import ModelAnalysis, RunAnalysis
    from peakrl.space import StateSpace
    from peakrl.training.run import LearningRun
    from peakrl.types import Floats

#: Most points of a curve.
POINTS = 2000
#: Lower end of a logarithmic axis of gaps, relative to the optimum; smaller gaps are drawn there.
LEAST_GAP = 1e-6
BEYOND = (
    "At the bottom: gaps of 0, and policies that exceed the best safe policy by violating constraints. Hover for exact "
    "values."
)
COLOURS = ("orange", "purple", "green", "sky", "yellow", "grey")


# Learning curves ----------------------------------------------------------------------------------------------------


def curve_blocks(analysis: RunAnalysis) -> list[Block]:
    """Return the learning curves of a run."""
    run, history, optimum = analysis.run, analysis.run.history, analysis.optimum
    blocks: list[Block] = []
    if not len(history):
        blocks.append(Text("No history was recorded: learn(..., history=...) sets how often."))
    elif analysis.on_environment:
        columns = [
            ("episode", history.episode_reward, "grey", "solid", "markers"),
            ("mean so far", history.averaged_value, "blue"),
        ]
        blocks.append(curves("value", "Observed reward per episode", "reward", history.episode, columns))
    elif history.sampled:
        blocks.append(sampled_chart(analysis))
    elif optimum is not None and optimum.feasible:
        blocks.append(gap_chart(analysis))
    else:
        columns = [("behavior policy", history.value, "sky"), ("mean so far", history.averaged_value, "orange")]
        levels = [] if optimum is None else [level("least violating policy", history.episode, optimum.value)]
        blocks.append(curves("value", "Value by episode", "value", history.episode, columns, *levels))
    if len(history):
        blocks.append(violation_chart(analysis))
    return [*blocks, *proof_chart(analysis), *multiplier_chart(run)]


def curves(id: str, title: str, y: str, episode: Any, columns: Sequence[Any], *more: Series, **options: Any) -> Chart:
    """Return a chart over episodes of `columns` (name, values, colour, ...), thinned, and of `more` series."""
    keep = thinned(len(episode))
    x = episode[keep].tolist()
    series = [Series(name, x, values[keep].tolist(), *style) for name, values, *style in columns]
    drawn = [one for one in (*series, *more) if any(y is not None and isfinite(y) for y in one.y)]
    return Chart(id, title, "episode", y, drawn, **options)


def level(name: str, x: Any, value: float, colour: str = "ink") -> Series:
    """Return a horizontal line from the first to the last x."""
    return Series(name, [float(x[0]), float(x[-1])], [value] * 2, colour, "dash", level=True)


def gap_chart(analysis: RunAnalysis) -> Chart:
    """Return the gap to the optimum on a logarithmic axis."""
    history, gap = analysis.run.history, analysis.metrics["policy"].below_optimum
    columns = [
        ("behavior policy", analysis.gaps(history.value), "sky"),
        ("mean so far", analysis.gaps(history.averaged_value), "orange"),
    ]
    last, floor = Series("last policy", [int(history.episode[-1])], [gap], mode="markers"), floor_of(analysis)
    title = "Gap to the best safe policy"
    return curves("gap", title, "gap", history.episode, columns, last, log_y=True, floor=floor, note=BEYOND)


def floor_of(analysis: RunAnalysis) -> float | None:
    """Return the lower end of a logarithmic axis of gaps."""
    return None if analysis.optimum is None else LEAST_GAP * (abs(analysis.optimum.value) or 1.0)


def sampled_chart(analysis: RunAnalysis) -> Chart:
    """Return mean rewards with intervals, for models that are too large for exact curves."""
    curve, optimum = analysis.run.history.stretches(), analysis.optimum
    low, high = (curve.value - curve.value_margin).tolist(), (curve.value + curve.value_margin).tolist()
    name = "mean over consecutive episodes"
    mean = Series(name, curve.episode.tolist(), curve.value.tolist(), low=low, high=high)
    levels = [] if optimum is None else [level("optimum", curve.episode, optimum.value)]
    title = "Sampled reward per episode: means over consecutive episodes with 95 % intervals"
    return curves("value", title, "reward", curve.episode, [], mean, *levels)


def violation_chart(analysis: RunAnalysis) -> Chart:
    """Return the cumulative violation, or that of the policies if it was not recorded."""
    run, history, last = analysis.run, analysis.run.history, analysis.run.last_violation_episode
    title, columns = "Cumulative violation", [("total so far", history.cumulative_violation, "orange")]
    if not analysis.on_environment:
        if not np.isfinite(history.cumulative_violation[thinned(len(history))]).any():
            title, columns = "Violation", [("behavior policy", history.violation, "orange")]
        title += f": {run.violations:,} violating episodes (last: {last:,})" if last else ": no violating episode"
    return curves("violation", title, "violation", history.episode, columns)


def proof_chart(analysis: RunAnalysis) -> list[Chart]:
    """Return the certified gap and violation by episode, with the true gap of the candidate policy if it is known."""
    run, proved, certificate = analysis.run, analysis.run.proof_history, analysis.run.certificate
    if proved is None or not len(proved):
        return []
    columns: list[Any] = [("certified gap", proved.gap, "blue"), ("certified violation", proved.violation, "orange")]
    if not analysis.on_environment:
        columns.append(("true gap of the candidate", analysis.gaps(proved.value), "ink", "dash"))
    levels = []
    if certificate is not None and certificate.epsilon is not None:
        levels.append(level("epsilon", proved.episode, certificate.epsilon, "grey"))
    floor = None if analysis.on_environment else floor_of(analysis)
    stopped = "" if run.stop_reason != "certified" else f", certified after {run.episodes:,} episodes"
    title = f"Certified bounds on the candidate policy{stopped}"
    options: Any = {"log_y": True, "floor": floor, "note": BEYOND}
    return [curves("proved", title, "gap", proved.episode, columns, *levels, **options)]


def multiplier_chart(run: LearningRun) -> list[Chart]:
    """Return the Lagrange multipliers by episode; nothing for learners without multipliers."""
    curve = run.multiplier_curve
    if curve is None or not len(curve):
        return []
    names = [f"multiplier {number}" for number in range(1, curve.shape[1])] if curve.shape[1] > 2 else ["multiplier"]
    columns = [(name, curve[:, at], COLOURS[at % len(COLOURS)]) for at, name in enumerate(names, 1)]
    y = "reward per unit of violation"
    return [curves("multipliers", "Lagrange multipliers", y, curve[:, 0], columns)]


def thinned(count: int) -> Any:
    """Return the indices of the points to draw: all, or evenly spaced ones."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(np.int64))


# One episode, and risks ---------------------------------------------------------------------------------------------

#: Most steps of an episode that the page lists or draws.
MOST_STEPS = 300


def dotted(name: str, x: Sequence[Any], y: Sequence[Any], colour: str = "blue") -> Series:
    """Return a line with a dot at each point."""
    return Series(name, x, y, colour, mode="lines+markers")


def episode_blocks(analysis: RunAnalysis) -> list[Block]:
    """Return an episode of the last policy: states, actions, rewards and constraints."""
    steps, model = analysis.episode[:MOST_STEPS], analysis.run.model
    x = [one.step for one in steps]
    payoffs = [dotted("reward", x, [one.reward for one in steps])]
    for column, name in enumerate(model.constraint_names):
        payoffs.append(dotted(name, x, [one.constraints[column] for one in steps], COLOURS[column % len(COLOURS)]))
    if model.constraint_names:
        payoffs.append(level("constraints are satisfied above", x, 0))
    fields, cells = state_cells(model, [one.state for one in steps])
    rows = [
        (one.step, *state, str(one.action), one.reward, *one.constraints)
        for one, state in zip(steps, cells, strict=True)
    ]
    columns = ("step", *fields, "action", "reward", *(f"{name} (>= 0: satisfied)" for name in model.constraint_names))
    more = f", the first {MOST_STEPS:,} steps" if len(analysis.episode) > MOST_STEPS else ""
    return [
        *state_chart(analysis, steps),
        Chart("payoff", "Rewards and constraints", "step", "reward and constraints", payoffs),
        Table("episode", f"All steps{more}", columns, rows),
    ]


def state_cells(model: Any, states: Sequence[Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return columns and cells of states: one for each field, or a single one if they have many."""
    width = field_count(model, states[0]) if states else None
    names = ("state",) if width is None else field_names(model, width)
    return names, [
        (state_words(model, state),)
        if width is None or field_count(model, state) != width
        else tuple(map(plain_label, fields_of(model, state)))
        for state in states
    ]


def state_chart(analysis: RunAnalysis, steps: Sequence[RolloutStep]) -> list[Block]:
    """Return the fields of the state and the action by step, if they are numbers."""
    model, x = analysis.run.model, [one.step for one in steps]
    table = [[*fields_of(model, one.state), one.action] for one in steps]
    width = len(table[0]) - 1
    if width > len(COLOURS) or not all(len(row) == width + 1 and all(map(is_number, row)) for row in table):
        return []
    names, colours = (*field_names(model, width), "action"), (*COLOURS[:width], "blue")
    series = [
        dotted(name, x, [row[column] for row in table], colour)
        for column, (name, colour) in enumerate(zip(names, colours, strict=True))
    ]
    return [Chart("path", "States and actions", "step", "state and action", series)]


def risk_blocks(analysis: RunAnalysis) -> list[Block]:
    """Return where the policy violates constraints, and the share of safe states and actions by step."""
    if analysis.certificate.violation_high == 0:
        text = "None: the policy violates no constraint in any state that it can reach."
        return [Text(text, "good"), *safe_chart(analysis.exact), *budget_charts(analysis.exact)]
    risks, model = analysis.tables.risks(), analysis.exact.model
    fields, cells = state_cells(model, [one.state for one in risks])
    columns = ("step", *fields, "action", "probability", "violation", "contribution")
    rows = [(one.step, *state, str(one.action), *one[3:]) for one, state in zip(risks, cells, strict=True)]
    x, violations = list(range(model.horizon)), analysis.last.step_violations
    series = [
        dotted(name, x, violations[:, column].tolist(), COLOURS[column % len(COLOURS)])
        for column, name in enumerate(model.constraint_names)
    ]
    return [
        Table("risks", "Largest contributions to the violation", columns, rows),
        Chart("steps", "Expected violation by step", "step", "violation", series),
        *safe_chart(analysis.exact),
        *budget_charts(analysis.exact),
    ]


def margins_table(model: StateSpace, worst: Floats, policy: str) -> Table:
    """Return the least possible value of each constraint."""
    rows = [(name, margin, margin >= 0) for name, margin in zip(model.constraint_names, worst.tolist(), strict=True)]
    caption = f"Worst constraint values of the {policy} over all possible outcomes (>= 0: satisfied)"
    return Table("margins", caption, ("constraint", "worst value", "always satisfied"), rows)


def safe_chart(known: ModelAnalysis) -> list[Chart]:
    """Return the share of safe states and actions by step, among those that can be reached."""
    if not known.model.num_constraints:
        return []
    counts = known.safe_set.counts
    steps = [count.step for count in counts]
    series = [
        dotted("states", steps, [100 * count.safe_states / max(count.states, 1) for count in counts], "green"),
        dotted("actions", steps, [100 * count.safe_actions / max(count.actions, 1) for count in counts]),
    ]
    note = "Share of the reachable states, and of the actions available there, that can still satisfy every constraint."
    return [Chart("safe-share", "Safe states and actions by step", "step", "safe (%)", series, note=note)]


def budget_charts(known: ModelAnalysis) -> list[Chart]:
    """Return the best safe value by the first amount of each budget (`with_budget`)."""
    names = [axis.name for axis in known.model.memory if axis.unit is not None]
    curves = {} if known.optimum is None else {name: known.optimum.value_by_budget(name) for name in names}
    note = "The optimum among policies that never violate, for every amount at the start that suffices."
    return [
        Chart(f"budget-{slug(name)}", f"Best value by budget: {name}", name, "value",
              [dotted("optimum", list(curve), list(curve.values()), "green")], note=note)
        for name, curve in curves.items() if curve
    ]  # fmt: skip
