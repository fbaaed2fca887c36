"""An episode of a built-in problem as people of its field draw it: from the steps that it took, nothing is computed.

    thermostat        temperature inside its band by the hour, and what heating costs
    vehicle charging  household and cars together under the limit of the connection
    battery robot     the way over the floor, and what is left in the battery
    flow shop         which machine works on which job, as a Gantt chart

A problem without a picture here has the charts that every episode has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from peakrl.errors import PeakError
from peakrl.report.blocks import Block, Chart, Drawn, Series
from peakrl.specs.spec import ProblemSpec

if TYPE_CHECKING:
    from peakrl.evaluation import RolloutStep
    from peakrl.problems.charging.problem import VehicleCharging
    from peakrl.problems.flow_shops.problem import FlowShop
    from peakrl.problems.heating.problem import Thermostat
    from peakrl.problems.robots.problem import BatteryRobot
    from peakrl.report.analysis import RunFindings

Steps = Sequence["RolloutStep"]
#: An episode with more steps is too long for a picture.
MOST_STEPS = 300
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
