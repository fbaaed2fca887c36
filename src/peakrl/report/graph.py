"""`show(model)`: the states and transitions of a small model as a picture, with the safe set and a policy on it.

States stand in columns by their distance from the first states (in a step-dependent model: by step); within a column
they are ordered by the mean place of their predecessors (the barycentre heuristic of Sugiyama, Tagawa and Toda, 1981).
The picture is one SVG: hovering over a state raises its actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import numpy as np

from peakrl.checks import check_count
from peakrl.compile import Target, as_model
from peakrl.errors import ProblemError
from peakrl.report.blocks import shown_state
from peakrl.storage import write_file

if TYPE_CHECKING:
    from peakrl.policy.mixture import AnyPolicy
    from peakrl.tabular import TabularModel

#: Pixels: distance of columns and of states, and half the width and height of a state.
COLUMN, LINE, HALF_WIDTH, HALF_HEIGHT = 250, 120, 42, 17
STYLE = """
text { font: 12px sans-serif; fill: #222; text-anchor: middle; dominant-baseline: central }
.small { font-size: 10px } .start rect { stroke-width: 3 }
rect { fill: #eef4fb; stroke: #0072b2 } .unsafe rect { fill: #fbe3dc; stroke: #d55e00 }
.end rect { fill: #f4f4f4; stroke: #888 }
path { fill: none; stroke: #999; stroke-width: 1.2 } circle { fill: #fff; stroke: #999 }
.forbidden path, .forbidden circle { stroke: #d55e00; stroke-dasharray: 4 3 }
.chosen path, .chosen circle { stroke: #0072b2; stroke-width: 2.6 }
.unreached { opacity: .35 } .state:hover { opacity: 1 } .state:hover :is(path, rect) { stroke-width: 3 }
"""


@dataclass(frozen=True)
class ModelGraph:
    """A picture of a model; a notebook shows it where a cell ends with it."""

    #: The picture as text.
    svg: str

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'

    def save(self, path: str | Path) -> Path:
        """Write an SVG file and return its path."""
        write_file(path, self.svg.encode())
        return Path(path)


def show(target: Target, policy: AnyPolicy | None = None, *, step: int = 0, max_states: int = 60) -> ModelGraph:
    """Draw the states and transitions of a small model.

    Boxes are states (orange: not safe; thick border: first states) and small circles actions, with probabilities
    beside their outcomes. Orange dashed actions are not safe; with a policy its actions are blue, and states that it
    does not reach are faded.

    Parameters
    ----------
    target
        A problem or a model.
    policy
        A policy of it.
    step
        For stationary models: the step whose safe set and decisions are drawn.
    max_states
        Larger models are refused.

    Returns
    -------
    ModelGraph
        Shown by notebooks; `save(path)` writes SVG.

    Examples
    --------
    >>> import peakrl
    >>> robot = peakrl.TabularModel.from_arrays([[[0, 1], [1, 0]], [[0, 1], [1, 0]]], [[1, 0], [2, 0]], [], horizon=3)
    >>> peakrl.show(robot, peakrl.solve(robot).policy).svg[:4]
    '<svg'
    """
    model = as_model(target)
    check_count(max_states, "max_states")
    if model.num_slots > max_states:
        raise ProblemError(
            f"{model.name!r} has {model.num_slots:,} states to draw, more than max_states = {max_states}; "
            "draw a smaller version, or raise max_states"
        )
    model.check_step(step)
    return ModelGraph(ET.tostring(drawing(model, policy, step), encoding="unicode"))


def drawing(model: TabularModel, policy: AnyPolicy | None, step: int) -> ET.Element:
    """Return the picture."""
    columns = columns_of(model)
    centers = {
        slot: (COLUMN * x + 1.6 * HALF_WIDTH, LINE * (y + 1)) for x, slots in enumerate(columns) for y, slot in slots
    }
    width = round(COLUMN * len(columns))
    height = round(max(y for _, y in centers.values()) + LINE)
    root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width=str(width))
    ET.SubElement(root, "style").text = STYLE
    marker = ET.SubElement(root, "marker", id="head", viewBox="0 0 8 8", refX="7", refY="4", orient="auto")
    ET.SubElement(marker, "path", d="M0 0 L8 4 L0 8 z", style="fill:#888; stroke:none")
    reached = reached_slots(model, policy, step)
    for slot, center in centers.items():
        now = step if model.stationary else int(model.step_of_slot[slot])
        rows = model.rows_of_slot(slot) if now < model.horizon else range(0)
        safe = not rows or model.safe.slot(now, slot)
        kinds = ["state", *(["unsafe"] if not safe else []), *(["end"] if not rows else [])]
        kinds += ["start"] if slot in model.first_slot else []
        kinds += ["unreached"] if slot not in reached else []
        state = model.state_of_slot(slot)
        group = ET.SubElement(root, "g", {"class": " ".join(kinds)})
        ET.SubElement(group, "title").text = f"{state!r}: " + ("safe" if safe else "not safe")
        chances = policy.probabilities(now, state) if policy is not None and rows and slot in reached else {}
        for number, row in enumerate(rows):
            mid = center[0] + COLUMN * 0.42, center[1] + LINE * 0.62 * ((number + 0.5) / len(rows) - 0.5)
            draw_action(group, model, row, (center, mid, centers), model.safe.row(now, row), chances)
        box = {
            "x": center[0] - HALF_WIDTH,
            "y": center[1] - HALF_HEIGHT,
            "width": 2 * HALF_WIDTH,
            "height": 2 * HALF_HEIGHT,
        }
        ET.SubElement(group, "rect", {name: f"{value:g}" for name, value in box.items()}, rx="6")
        write(group, shortened(shown_state(state), 11), center)
    return root


def draw_action(
    group: ET.Element, model: TabularModel, row: int, where: tuple[Any, Any, Any], safe: bool, chances: dict[Any, float]
) -> None:
    """Draw an action and its outcomes, each with its probability."""
    (x, y), mid, centers = where
    action = model.action_of_row(row)
    chance = chances.get(action, 0.0)
    kind = "chosen" if chance > 0.0 else "" if safe else "forbidden"
    own = ET.SubElement(group, "g", {"class": f"action {kind}".strip()})
    words = f"{action!r}: expected reward {model.row_reward[row]:g}, " + ("safe" if safe else "not safe")
    ET.SubElement(own, "title").text = words + (f", chosen with probability {chance:g}" if chance else "")
    ET.SubElement(own, "path", d=f"M{x:g} {y:g} L{mid[0]:g} {mid[1]:g}")
    outcomes = model.outcomes_of_row(row)
    for slot, probability in zip(model.next_slots(row), model.outcome_probability[outcomes].tolist(), strict=True):
        end_x, end_y = centers[slot]
        if end_x > mid[0]:  # onwards: into the left side of the next state
            tip = end_x - HALF_WIDTH, end_y
            bends = (mid[0] + 50, mid[1]), (tip[0] - 50, tip[1])
        else:  # back or around: into its top
            tip = end_x, end_y - HALF_HEIGHT
            bends = (mid[0] + 45, mid[1] - LINE * 0.55), (tip[0] + 25, tip[1] - LINE * 0.45)
        curve = " ".join(f"{a:g} {b:g}" for a, b in (*bends, tip))
        ET.SubElement(own, "path", {"d": f"M{mid[0]:g} {mid[1]:g} C{curve}", "marker-end": "url(#head)"})
        if probability < 1.0:
            points = (mid, *bends, tip)
            weights = (0.216, 0.432, 0.288, 0.064)  # of a cubic Bezier curve at 0.4
            at = tuple(sum(w * point[axis] for w, point in zip(weights, points, strict=True)) for axis in (0, 1))
            write(own, f"{probability:.3g}", at, "small")
    ET.SubElement(own, "circle", cx=f"{mid[0]:g}", cy=f"{mid[1]:g}", r="11")
    write(own, shortened(action, 5), mid, "small")


def columns_of(model: TabularModel) -> list[list[tuple[float, int]]]:
    """Return for each column its states as (line, slot)."""
    depth = dict.fromkeys(model.first_slot.tolist(), 0)
    before: dict[int, list[int]] = {slot: [] for slot in range(model.num_slots)}
    order = list(depth)
    for slot in order:
        for following in {each for row in model.rows_of_slot(slot) for each in model.next_slots(row)}:
            before[following].append(slot)
            if following not in depth:
                depth[following] = depth[slot] + 1
                order.append(following)
    order += [slot for slot in range(model.num_slots) if slot not in depth]  # states that nothing leads to
    columns: list[list[tuple[float, int]]] = [[] for _ in range(max(depth.values()) + 1)]
    line: dict[int, float] = {}
    for x, column in enumerate(columns):
        slots = [slot for slot in order if depth.get(slot, 0) == x]
        mean = {slot: np.mean([line.get(each, 0.0) for each in before[slot]] or [0.0]) for slot in slots}
        for y, slot in enumerate(sorted(slots, key=lambda each: mean[each])):
            line[slot] = float(y)
            column.append((float(y), slot))
    most = max(len(column) for column in columns)
    return [[(y + (most - len(column)) / 2, slot) for y, slot in column] for column in columns]


def reached_slots(model: TabularModel, policy: AnyPolicy | None, step: int) -> set[int]:
    """Return the states that a policy can reach; without a policy all."""
    if policy is None:
        return set(range(model.num_slots))
    reached, todo = set(model.first_slot.tolist()), list(model.first_slot.tolist())
    for slot in todo:
        now = step if model.stationary else int(model.step_of_slot[slot])
        rows = model.rows_of_slot(slot) if now < model.horizon else range(0)
        if not rows:
            continue
        taken = policy.probabilities(now, model.state_of_slot(slot))
        for row in rows:
            if taken.get(model.action_of_row(row), 0.0) > 0.0:
                new = set(model.next_slots(row)) - reached
                reached |= new
                todo += new
    return reached


def shortened(label: Any, most: int) -> str:
    """Return a label that fits into its shape."""
    text = str(label)
    return text if len(text) <= most else text[: most - 1] + "…"


def write(parent: ET.Element, text: str, at: Any, kind: str = "") -> None:
    """Add text at a point."""
    element = ET.SubElement(parent, "text", x=f"{at[0]:g}", y=f"{at[1]:g}")
    if kind:
        element.set("class", kind)
    element.text = text
