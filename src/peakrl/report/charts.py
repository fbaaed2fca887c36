"""How learning went, as curves: the gap to the optimum, violations summed up, what was proved, multipliers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.errors import PeakError
from peakrl.report.blocks import Block, Chart, Drawn, Series, Table, Text, is_number
from peakrl.report.policy_blocks import field_count, field_names, fields_of, place_words, plain_label
from peakrl.specs.spec import ProblemSpec

if TYPE_CHECKING:
    from peakrl.evaluation import RolloutStep
    from peakrl.problems.charging.problem import VehicleCharging
    from peakrl.problems.flow_shops.problem import FlowShop
    from peakrl.problems.heating.problem import Thermostat
    from peakrl.problems.robots.problem import BatteryRobot
    from peakrl.report.analysis import ModelFindings, RunFindings
    from peakrl.training.trainer import LearningRun

#: Points of a curve.
POINTS = 2000
#: A logarithmic axis of gaps ends here, as a part of the optimum: what lies below is drawn there.
LEAST_GAP = 1e-6
BEYOND = (
    "At the bottom: a gap of 0, and policies that earn more than the best safe one because they violate. Hovering "
    "tells the number."
)
COLOURS = ("purple", "green", "sky", "yellow", "orange", "grey")
SERIES_COLOURS = ("orange", "purple", "green", "sky", "yellow", "grey")


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


# ------------------------------------------------------------
# One episode of a policy step by step, and where a policy may violate.

#: Steps of an episode that the page lists.
MOST_STEPS = 300


def episode_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return an episode of the last policy: what it saw and did, and what came of that."""
    steps = found.episode[:MOST_STEPS]
    names = found.run.model.constraint_names
    apart = field_count(steps[0].state)
    rows = [(one.step, *words(found, one.state, apart), *payoffs(one)) for one in steps]
    fields = ("state",) if apart is None else field_names(found.run.model, apart)
    columns = ("step", *fields, "action", "reward", *(f"{name} (met from 0 on)" for name in names))
    more = f", the first {MOST_STEPS:,} steps" if len(found.episode) > MOST_STEPS else ""
    table = Table(f"{place}-episode", f"Every step of it{more}", columns, rows)
    return [*state_chart(found, place), payoff_chart(found, place), table]


def words(found: RunFindings, state: Any, apart: int | None) -> tuple[Any, ...]:
    """Return a state as cells of a table: one for each of its fields, or one for all where they are no few."""
    if apart is None or field_count(state) != apart:
        return (place_words(found.run.model, state),)
    return tuple(map(plain_label, fields_of(state)))


def payoffs(one: RolloutStep) -> tuple[Any, ...]:
    """Return what was done at a step and what came of it, as cells of a table."""
    return str(one.action), one.reward, *one.constraints


def state_chart(found: RunFindings, place: str) -> list[Block]:
    """Return the fields of the state and the action along the episode, where they are numbers."""
    steps = found.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    width = len(fields_of(steps[0].state))
    if width > len(SERIES_COLOURS) or any(len(fields_of(one.state)) != width for one in steps):
        return []
    table: list[list[Any]] = [[*fields_of(one.state), one.action] for one in steps]
    if not all(is_number(cell) for row in table for cell in row):
        return []
    series = [
        Series(name, x, [row[column] for row in table], None, SERIES_COLOURS[column], mode="lines+markers")
        for column, name in enumerate(field_names(found.run.model, width))
    ]
    series.append(Series("action", x, [row[-1] for row in table], None, "blue", mode="lines+markers"))
    return [Chart(f"{place}-path", "What it saw and did", "step", "state and action", series)]


def payoff_chart(found: RunFindings, place: str) -> Chart:
    """Return reward and constraints along the episode."""
    steps = found.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    series = [Series("reward", x, [one.reward for one in steps], None, "blue", mode="lines+markers")]
    for column, name in enumerate(found.run.model.constraint_names):
        values = [one.constraints[column] for one in steps]
        series.append(Series(name, x, values, None, SERIES_COLOURS[column % len(SERIES_COLOURS)], mode="lines+markers"))
    if found.run.model.constraint_names:
        series.append(
            Series("a constraint is met from here on", [x[0], x[-1]], [0, 0], None, "ink", "dash", level=True)
        )
    return Chart(f"{place}-payoff", "What came of it", "step", "reward and constraints", series)


def risk_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return where the policy violates, by step and by state, and how much is safe at each step."""
    blocks: list[Block] = []
    if found.certificate.violation_high == 0:
        blocks.append(Text("Nowhere: no state that the policy can come to violates a constraint.", "good"))
    else:
        apart = field_count(found.risks[0].state) if found.risks else None
        fields = ("state",) if apart is None else field_names(found.run.model, apart)
        numbers = ("probability of being there", "violation there", "expected in an episode")
        columns = ("step", *fields, "action", *numbers)
        rows = [(one.step, *words(found, one.state, apart), str(one.action), *one[3:]) for one in found.risks]
        blocks.append(Table(f"{place}-risks", "Where the policy violates most", columns, rows))
        blocks.append(step_chart(found, place))
    return [*blocks, *safe_chart(found.known, place)]


def step_chart(found: RunFindings, place: str) -> Chart:
    """Return the expected violation of each step."""
    steps, last = list(range(found.run.model.horizon)), found.last
    series = []
    for column, name in enumerate(found.run.model.constraint_names):
        values, colour = last.step_violations[:, column].tolist(), SERIES_COLOURS[column % len(SERIES_COLOURS)]
        series.append(Series(name, steps, values, None, colour, mode="lines+markers"))
    return Chart(f"{place}-steps", "Expected violation by step", "step", "violation", series)


def safe_chart(known: ModelFindings, place: str) -> list[Chart]:
    """Return how much is safe at each step, among the states that an episode can be in there."""
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
    note = (
        "Of the states that an episode can be in at a step, and of the actions on offer there: from which on, and by "
    )
    note += "which, every constraint can still be kept with certainty."
    return [Chart(f"{place}-safe-share", "How much is safe, by step", "step", "safe (%)", series, note=note)]


# ------------------------------------------------------------
# An episode of a built-in problem as people of its field draw it: from the steps that it took, nothing is computed.
#
#     thermostat        temperature inside its band by the hour, and what heating costs
#     vehicle charging  household and cars together under the limit of the connection
#     battery robot     the way over the floor, and what is left in the battery
#     flow shop         which machine works on which job, as a Gantt chart
#
# A problem without a picture here has the charts that every episode has.

Steps = Sequence["RolloutStep"]
#: What the cells of a floor are called and how they are drawn.
CELLS = {
    "C": ("charger", "green"),
    "S": ("start", "sky"),
    "G": ("goal", "yellow"),
    "o": ("pit", "orange"),
    "#": ("wall", "ink"),
}


def picture_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return the picture of an episode; nothing where its problem has none or the run does not tell its problem."""
    model = found.known.model
    spec = model.spec or {}
    draw = PICTURES.get(str(spec.get("kind")))
    if draw is None or len(found.episode) > MOST_STEPS:
        return []
    # A file may say anything: nothing is built that needs code or a further file, nor drawn that does not fit.
    try:
        told = ProblemSpec.from_dict(spec)
        problem = told.build() if told.self_contained else None
        if problem is None or problem.horizon != model.horizon:
            return []
        return draw(problem, found.episode, place)
    except (PeakError, TypeError, ValueError, LookupError):
        return []


def thermostat(problem: Thermostat, steps: Steps, place: str) -> list[Block]:
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
        Chart(f"{place}-band", "The temperature in its band", "hour", "degrees", band),
        Chart(f"{place}-heating", "When it heats, and what that costs", "hour", "kW", cost),
    ]


def charging(problem: VehicleCharging, steps: Steps, place: str) -> list[Block]:
    """What is drawn in each hour, one on top of the other, and the limit."""
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
    return [Chart(f"{place}-connection", "What the connection bears", "hour", "kW", series)]


def robot(problem: BatteryRobot, steps: Steps, place: str) -> list[Block]:
    """The floor with the way on it, and the battery."""
    states: list[Any] = [one.state for one in steps]
    x, y = [state[1] for state in states], [state[0] for state in states]
    series = [Series("its way", x, y, None, "blue", mode="lines+markers")]
    for sign, (name, colour) in CELLS.items():
        cells = sorted(problem.floor.cells(sign))
        if cells:
            x, y = [column for _, column in cells], [row for row, _ in cells]
            series.append(Series(name, x, y, None, colour, mode="markers"))
    levels = [Series("battery", [one.step for one in steps], [state[2] for state in states], None, "blue")]
    return [
        Chart(f"{place}-floor", "Its way over the floor", "column", "row", series, down_y=True),
        Chart(f"{place}-battery", "What is left in its battery", "step", "units", levels),
    ]


def shop(problem: FlowShop, steps: Steps, place: str) -> list[Block]:
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
    note = f"The limit on power allows {min(problem.limits):g} at least at every step; machines draw "
    note += ", ".join(f"{power:g}" for power in problem.power) + " while they run. All must be done at the deadline."
    return [Drawn(f"{place}-shop", "Which machine works on which job", "gantt", {"bars": bars}, note)]


#: By kind of problem.
PICTURES: dict[str, Callable[[Any, Steps, str], list[Block]]] = {
    "thermostat": thermostat,
    "vehicle_charging": charging,
    "battery_robot": robot,
    "flow_shop": shop,
}


# ------------------------------------------------------------
# Schedules on the page: the learned order beside DT's, for runs that tell which jobs they are about.

#: What a reader must know of an order.
RULES = {
    "DT": "The rule fills the last place first: of the jobs whose deadline allows it there, the one that is least late."
}
#: More bars than these cannot be read.
MOST_JOBS = 60


def schedule_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return the Gantt charts of the learned order and of DT's; nothing where the problem is no schedule."""
    model = found.known.model
    if not found.is_schedule:
        return []
    if not model.deterministic:
        return [
            Text("Processing times are random, so the policy has no single order: the explorer shows what it does.")
        ]
    if model.horizon > MOST_JOBS:
        return [Text(f"{model.horizon} jobs are too many for a chart on a page.")]
    if not found.ordered:
        return [Text("The run does not tell its jobs, so there is no chart of the order.")]
    blocks: list[Block] = []
    for one in found.ordered:
        bars = [
            {"job": str(bar.job), "start": bar.start, "end": bar.end, "deadline": bar.deadline, "due": bar.due}
            for bar in one.schedule.bars
        ]
        words = {"learned": "Learned order", "DT": "Order of the DT rule, to compare with"}[one.maker]
        cost = f"{one.objective.replace('_', ' ').capitalize()} {one.cost:g}"
        missed = f"deadlines missed by {one.schedule.violation} in total"
        note = f"{' → '.join(map(str, one.order))}. {cost}, {missed}. {RULES.get(one.maker, '')}".rstrip()
        blocks.append(Drawn(f"{place}-gantt-{one.maker.lower()}", words, "gantt", {"bars": bars}, note))
    return blocks
