"""Charts of a run: learning curves, one episode, risks, pictures of built-in problems, schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.errors import PeakError
from peakrl.report.blocks import Block, Chart, Drawn, Series, Table, Text, is_number
from peakrl.report.policy_blocks import field_count, field_names, fields_of, plain_label, state_words
from peakrl.specs.spec import ProblemSpec

if TYPE_CHECKING:
    from peakrl.evaluation import RolloutStep
    from peakrl.problems.charging.problem import VehicleCharging
    from peakrl.problems.flow_shops.problem import FlowShop
    from peakrl.problems.heating.problem import Thermostat
    from peakrl.problems.robots.problem import BatteryRobot
    from peakrl.report.analysis import ModelAnalysis, RunAnalysis
    from peakrl.training.trainer import LearningRun

#: Most points of a curve.
POINTS = 2000
#: Lower end of a logarithmic axis of gaps, relative to the optimum; smaller gaps are drawn there.
LEAST_GAP = 1e-6
BEYOND = (
    "At the bottom: gaps of 0, and policies that exceed the best safe policy by violating constraints. Hover for exact "
    "values."
)
COLOURS = ("purple", "green", "sky", "yellow", "orange", "grey")
SERIES_COLOURS = ("orange", "purple", "green", "sky", "yellow", "grey")


def curve_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the learning curves of a run on a model."""
    run = analysis.run
    if not len(run.history):
        blocks: list[Block] = [Text("No history was recorded: learn(..., history=...) sets how often.")]
    elif run.history.sampled:
        blocks = [sampled_chart(analysis, prefix), violation_chart(run, prefix)]
    else:
        blocks = [gap_chart(analysis, prefix) or value_chart(analysis, prefix), violation_chart(run, prefix)]
    return [*blocks, *proof_chart(analysis, prefix), *multiplier_chart(run, prefix)]


def gap_chart(analysis: RunAnalysis, prefix: str) -> Chart | None:
    """Return the gap to the optimum on a logarithmic axis; None if the optimum is not known."""
    history, optimum = analysis.run.history, analysis.optimum
    if optimum is None or not optimum.feasible:
        return None
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    end = analysis.last_metrics.below_optimum
    series = [
        Series("behavior policy", x, analysis.gaps(history.value[keep]), None, "sky"),
        Series("mean so far", x, analysis.gaps(history.averaged_value[keep]), None, "orange"),
        Series("last policy", [x[-1]], [end], None, "blue", mode="markers"),
    ]
    floor = LEAST_GAP * (abs(optimum.value) or 1.0)
    title = "Gap to the best safe policy"
    return Chart(f"{prefix}-gap", title, "episode", "gap", drawable(series), log_y=True, floor=floor, note=BEYOND)


def value_chart(analysis: RunAnalysis, prefix: str) -> Chart:
    """Return the value by episode."""
    history, optimum = analysis.run.history, analysis.optimum
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    series = [
        Series("behavior policy", x, finite(history.value[keep]), None, "sky"),
        Series("mean so far", x, finite(history.averaged_value[keep]), None, "orange"),
    ]
    if optimum is not None:
        name = "optimum" if optimum.feasible else "least violating policy"
        series.append(Series(name, [x[0], x[-1]], [optimum.value] * 2, None, "ink", "dash", level=True))
    return Chart(f"{prefix}-value", "Value by episode", "episode", "value", drawable(series))


def sampled_chart(analysis: RunAnalysis, prefix: str) -> Chart:
    """Return mean rewards with intervals, for models that are too large for exact curves."""
    curve, optimum = analysis.run.history.stretches(), analysis.optimum
    x, low, high = curve.episode.tolist(), curve.value - curve.value_margin, curve.value + curve.value_margin
    series = [
        Series(
            "mean over consecutive episodes", x, finite(curve.value), None, "blue", low=finite(low), high=finite(high)
        )
    ]
    if optimum is not None:
        series.append(Series("optimum", [x[0], x[-1]], [optimum.value] * 2, None, "ink", "dash", level=True))
    title = "Sampled reward per episode: means over consecutive episodes with 95 % intervals"
    return Chart(f"{prefix}-value", title, "episode", "reward", drawable(series))


def violation_chart(run: LearningRun, prefix: str) -> Chart:
    """Return the cumulative violation."""
    history, last = run.history, run.last_violation_episode
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    series = [Series("total so far", x, finite(history.cumulative_violation[keep]), None, "orange")]
    seen = f"{run.violations:,} violating episodes (last: {last:,})" if last else "no violating episode"
    drawn = drawable(series)
    if not drawn:
        series = [Series("behavior policy", x, finite(history.violation[keep]), None, "orange")]
        return Chart(f"{prefix}-violation", f"Violation: {seen}", "episode", "violation", drawable(series))
    return Chart(f"{prefix}-violation", f"Cumulative violation: {seen}", "episode", "violation", drawn)


def proof_chart(analysis: RunAnalysis, prefix: str) -> list[Chart]:
    """Return the certified gap and the true gap of the candidate policy."""
    proved, optimum = analysis.run.proof_history, analysis.optimum
    if proved is None:
        return []
    floor = None if optimum is None else LEAST_GAP * (abs(optimum.value) or 1.0)
    return proved_chart(analysis.run, prefix, analysis.gaps(proved.value), floor)


def proved_chart(
    run: LearningRun, prefix: str, gaps: Sequence[float | None] = (), floor: float | None = None
) -> list[Chart]:
    """Return the certified gap and violation by episode, with the true `gaps` if known."""
    proved, certificate = run.proof_history, run.certificate
    if proved is None or not len(proved):
        return []
    keep = thinned(len(proved))
    x = proved.episode[keep].tolist()
    series = [
        Series("certified gap", x, finite(proved.gap[keep]), None, "blue"),
        Series("certified violation", x, finite(proved.violation[keep]), None, "orange"),
    ]
    if gaps:
        series.append(Series("true gap of the candidate", x, [gaps[point] for point in keep], None, "ink", "dash"))
    if certificate is not None and certificate.epsilon is not None:
        series.append(Series("epsilon", [x[0], x[-1]], [certificate.epsilon] * 2, None, "grey", "dash", level=True))
    stopped = "" if run.stop_reason != "certified" else f", certified after {run.episodes:,} episodes"
    title = f"Certified bounds on the candidate policy{stopped}"
    return [Chart(f"{prefix}-proved", title, "episode", "gap", drawable(series), log_y=True, floor=floor, note=BEYOND)]


def multiplier_chart(run: LearningRun, prefix: str) -> list[Chart]:
    """Return the Lagrange multipliers by episode; nothing for learners without multipliers."""
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
    title = "Lagrange multipliers"
    return [Chart(f"{prefix}-multipliers", title, "episode", "reward per unit of violation", drawable(series))]


def drawable(series: Sequence[Series]) -> list[Series]:
    """Return the series that contain a finite number."""
    return [one for one in series if any(y is not None and isfinite(y) for y in one.y)]


def finite(values: Any) -> list[float | None]:
    """Return the numbers of a curve, None for those that are not finite."""
    return [value if isfinite(value) else None for value in values.tolist()]


def thinned(count: int) -> Any:
    """Return the indices of the points to draw: all, or evenly spaced ones."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(np.int64))


# One episode, and risks ---------------------------------------------------------------------------------------------

#: Most steps of an episode that the page lists or draws.
MOST_STEPS = 300


def episode_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return an episode of the last policy: states, actions, rewards and constraints."""
    steps = analysis.episode[:MOST_STEPS]
    names = analysis.run.model.constraint_names
    apart = field_count(steps[0].state)
    rows = [(one.step, *words(analysis, one.state, apart), *payoffs(one)) for one in steps]
    fields = ("state",) if apart is None else field_names(analysis.run.model, apart)
    columns = ("step", *fields, "action", "reward", *(f"{name} (>= 0: satisfied)" for name in names))
    more = f", the first {MOST_STEPS:,} steps" if len(analysis.episode) > MOST_STEPS else ""
    table = Table(f"{prefix}-episode", f"All steps{more}", columns, rows)
    return [*state_chart(analysis, prefix), payoff_chart(analysis, prefix), table]


def words(analysis: RunAnalysis, state: Any, apart: int | None) -> tuple[Any, ...]:
    """Return a state as cells of a table: one per field, or a single one if it has many."""
    if apart is None or field_count(state) != apart:
        return (state_words(analysis.run.model, state),)
    return tuple(map(plain_label, fields_of(state)))


def payoffs(one: RolloutStep) -> tuple[Any, ...]:
    """Return action, reward and constraints of a step as cells of a table."""
    return str(one.action), one.reward, *one.constraints


def state_chart(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the fields of the state and the action by step, if they are numbers."""
    steps = analysis.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    width = len(fields_of(steps[0].state))
    if width > len(SERIES_COLOURS) or any(len(fields_of(one.state)) != width for one in steps):
        return []
    table: list[list[Any]] = [[*fields_of(one.state), one.action] for one in steps]
    if not all(is_number(cell) for row in table for cell in row):
        return []
    series = [
        Series(name, x, [row[column] for row in table], None, SERIES_COLOURS[column], mode="lines+markers")
        for column, name in enumerate(field_names(analysis.run.model, width))
    ]
    series.append(Series("action", x, [row[-1] for row in table], None, "blue", mode="lines+markers"))
    return [Chart(f"{prefix}-path", "States and actions", "step", "state and action", series)]


def payoff_chart(analysis: RunAnalysis, prefix: str) -> Chart:
    """Return reward and constraints by step."""
    steps = analysis.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    series = [Series("reward", x, [one.reward for one in steps], None, "blue", mode="lines+markers")]
    for column, name in enumerate(analysis.run.model.constraint_names):
        values = [one.constraints[column] for one in steps]
        series.append(Series(name, x, values, None, SERIES_COLOURS[column % len(SERIES_COLOURS)], mode="lines+markers"))
    if analysis.run.model.constraint_names:
        series.append(Series("constraints are satisfied above", [x[0], x[-1]], [0, 0], None, "ink", "dash", level=True))
    return Chart(f"{prefix}-payoff", "Rewards and constraints", "step", "reward and constraints", series)


def risk_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return where the policy violates constraints, and the share of safe states and actions by step."""
    blocks: list[Block] = []
    if analysis.certificate.violation_high == 0:
        blocks.append(Text("None: the policy violates no constraint in any state that it can reach.", "good"))
    else:
        apart = field_count(analysis.risks[0].state) if analysis.risks else None
        fields = ("state",) if apart is None else field_names(analysis.run.model, apart)
        numbers = ("probability", "violation", "contribution")
        columns = ("step", *fields, "action", *numbers)
        rows = [(one.step, *words(analysis, one.state, apart), str(one.action), *one[3:]) for one in analysis.risks]
        blocks.append(Table(f"{prefix}-risks", "Largest contributions to the violation", columns, rows))
        blocks.append(step_chart(analysis, prefix))
    return [*blocks, *safe_chart(analysis.known, prefix)]


def step_chart(analysis: RunAnalysis, prefix: str) -> Chart:
    """Return the expected violation by step."""
    steps, last = list(range(analysis.run.model.horizon)), analysis.last
    series = []
    for column, name in enumerate(analysis.run.model.constraint_names):
        values, colour = last.step_violations[:, column].tolist(), SERIES_COLOURS[column % len(SERIES_COLOURS)]
        series.append(Series(name, steps, values, None, colour, mode="lines+markers"))
    return Chart(f"{prefix}-steps", "Expected violation by step", "step", "violation", series)


def safe_chart(known: ModelAnalysis, prefix: str) -> list[Chart]:
    """Return the share of safe states and actions by step, among those that can be reached."""
    if not known.model.num_constraints:
        return []
    counts = known.safe_set.counts
    steps = [count.step for count in counts]
    states = [100 * count.safe_states / max(count.states, 1) for count in counts]
    actions = [100 * count.safe_actions / max(count.actions, 1) for count in counts]
    series = [
        Series("states", steps, states, None, "green", mode="lines+markers"),
        Series("actions", steps, actions, None, "blue", mode="lines+markers"),
    ]
    note = "Share of the reachable states, and of the actions available there, that can still satisfy every constraint."
    return [Chart(f"{prefix}-safe-share", "Safe states and actions by step", "step", "safe (%)", series, note=note)]


# Pictures of an episode of built-in problems ------------------------------------------------------------------------

Steps = Sequence["RolloutStep"]
#: Name and colour of the cells of a floor plan.
CELLS = {
    "C": ("charger", "green"),
    "S": ("start", "sky"),
    "G": ("goal", "yellow"),
    "o": ("pit", "orange"),
    "#": ("wall", "ink"),
}


def picture_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the picture of an episode; nothing if the problem is unknown or has no picture."""
    model = analysis.known.model
    spec = model.spec or {}
    draw = PICTURES.get(str(spec.get("kind")))
    if draw is None or len(analysis.episode) > MOST_STEPS:
        return []
    # The specification may come from an untrusted file: build nothing that needs code or another file.
    try:
        parsed = ProblemSpec.from_dict(spec)
        problem = parsed.build() if parsed.self_contained else None
        if problem is None or problem.horizon != model.horizon:
            return []
        return draw(problem, analysis.episode, prefix)
    except (PeakError, TypeError, ValueError, LookupError):
        return []


def thermostat(problem: Thermostat, steps: Steps, prefix: str) -> list[Block]:
    """Temperature and band at the end of each hour; power and price."""
    hours = [one.step + 1 for one in steps]
    bands = [problem.band(hour) for hour in hours]
    inside = [problem.following(one.state, int(str(one.action))) / 2 for one in steps]
    band = [
        Series("inside", hours, inside, None, "blue", mode="lines+markers"),
        Series("not below", hours, [low for low, _ in bands], None, "orange", "dash"),
        Series("not above", hours, [high for _, high in bands], None, "orange", "dash"),
    ]
    prices = [10 * problem.prices[one.step] for one in steps]
    cost = [
        Series("heating (kW)", hours, [int(str(one.action)) for one in steps], None, "blue", mode="lines+markers"),
        Series("price of a kWh, in tenths", hours, prices, None, "purple", "dot"),
    ]
    return [
        Chart(f"{prefix}-band", "Temperature and comfort band", "hour", "degrees", band),
        Chart(f"{prefix}-heating", "Heating power and price", "hour", "kW", cost),
    ]


def charging(problem: VehicleCharging, steps: Steps, prefix: str) -> list[Block]:
    """Load by hour, stacked, and the limit of the connection."""
    hours = [one.step for one in steps]
    states: list[Any] = [one.state for one in steps]
    drawn = [[state[0]] for state in states]
    series = [Series("household", hours, [row[0] for row in drawn], None, "grey", mode="lines+markers")]
    colours = ("blue", "green", "sky", "yellow", "ink", "grey")
    for car in range(len(problem.cars)):
        for row, one in zip(drawn, steps, strict=True):
            row.append(row[-1] + problem.charges(one.action)[car])
        name = f"with car {car + 1}" if car == 0 else f"and car {car + 1}"
        series.append(Series(name, hours, [row[-1] for row in drawn], None, colours[car], mode="lines+markers"))
    ends = [hours[0], hours[-1]]
    series.append(Series("limit", ends, [problem.limit] * 2, None, "orange", "dash", level=True))
    prices = [10 * problem.prices[hour] for hour in hours]
    series.append(Series("price of a kWh, in tenths", hours, prices, None, "purple", "dot"))
    return [Chart(f"{prefix}-connection", "Load on the connection", "hour", "kW", series)]


def robot(problem: BatteryRobot, steps: Steps, prefix: str) -> list[Block]:
    """The path on the floor plan, and the battery level."""
    states: list[Any] = [one.state for one in steps]
    x, y = [state[1] for state in states], [state[0] for state in states]
    series = [Series("path", x, y, None, "blue", mode="lines+markers")]
    for sign, (name, colour) in CELLS.items():
        cells = sorted(problem.floor.cells(sign))
        if cells:
            x, y = [column for _, column in cells], [row for row, _ in cells]
            series.append(Series(name, x, y, None, colour, mode="markers"))
    levels = [Series("battery", [one.step for one in steps], [state[2] for state in states], None, "blue")]
    return [
        Chart(f"{prefix}-floor", "Path on the floor plan", "column", "row", series, down_y=True),
        Chart(f"{prefix}-battery", "Battery level", "step", "units", levels),
    ]


def shop(problem: FlowShop, steps: Steps, prefix: str) -> list[Block]:
    """Every operation from its start to its end."""
    bars = []
    for one in steps:
        begin: Any = one.action
        for machine, job in enumerate(begin):
            if job is not None:
                end = one.step + problem.times[job - 1][machine]
                name = f"{job} on machine {machine + 1}"
                bars.append({"job": name, "start": one.step, "end": end, "deadline": problem.horizon, "due": None})
    if not bars:
        return []
    note = f"The power limit is at least {min(problem.limits):g} at every step; machines draw "
    note += (
        ", ".join(f"{power:g}" for power in problem.power)
        + " while running. All jobs must be finished by the deadline."
    )
    return [Drawn(f"{prefix}-shop", "Operations by machine", "gantt", {"bars": bars}, note)]


#: Drawing function by kind of problem.
PICTURES: dict[str, Callable[[Any, Steps, str], list[Block]]] = {
    "thermostat": thermostat,
    "vehicle_charging": charging,
    "battery_robot": robot,
    "flow_shop": shop,
}


# Schedules ----------------------------------------------------------------------------------------------------------

#: Explanation of a scheduling rule.
RULES = {"DT": "The rule fills the last position first, with the least tardy of the jobs whose deadline allows it."}
#: Most bars of a readable chart.
MOST_JOBS = 60


def schedule_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return Gantt charts of the learned order and of the DT rule; nothing if it is not a scheduling problem."""
    model = analysis.known.model
    if not analysis.is_schedule:
        return []
    if not model.deterministic:
        return [Text("Processing times are random, so there is no single order; see the policy explorer.")]
    if model.horizon > MOST_JOBS:
        return [Text(f"{model.horizon} jobs are too many for a chart.")]
    if not analysis.ordered:
        return [Text("The run does not contain the jobs, so there is no chart of the order.")]
    blocks: list[Block] = []
    for one in analysis.ordered:
        bars = [
            {"job": str(bar.job), "start": bar.start, "end": bar.end, "deadline": bar.deadline, "due": bar.due}
            for bar in one.schedule.bars
        ]
        words = {"learned": "Learned order", "DT": "Order of the DT rule, for comparison"}[one.maker]
        cost = f"{one.objective.replace('_', ' ').capitalize()} {one.cost:g}"
        missed = f"deadlines missed by {one.schedule.violation} in total"
        note = f"{' → '.join(map(str, one.order))}. {cost}, {missed}. {RULES.get(one.maker, '')}".rstrip()
        blocks.append(Drawn(f"{prefix}-gantt-{one.maker.lower()}", words, "gantt", {"bars": bars}, note))
    return blocks
