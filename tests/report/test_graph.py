"""`show(model)`: which states and actions the picture has, and how it marks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import peakrl
from peakrl.errors import ProblemError
from peakrl.report.graph import ModelGraph

SVG = "{http://www.w3.org/2000/svg}"


def robot(horizon: int = 3) -> peakrl.TabularModel:
    """From 0 one stays or moves to 1 (.5) or 2 (.5); 2 violates whatever is done."""
    transitions = [[[1, 0, 0], [0, 0.5, 0.5]], [[0, 1, 0], [1, 0, 0]], [[0, 0, 1], [0, 0, 1]]]
    return peakrl.TabularModel.from_arrays(transitions, [[0, 1], [0, 0], [0, 0]], [[[0, 0], [0, 0], [-1, -1]]], horizon)


def marked(graph: ModelGraph, kind: str) -> Iterator[tuple[str, list[str]]]:
    """The title of each state or action, and its classes."""
    for group in ET.fromstring(graph.svg).iter(f"{SVG}g"):
        classes = group.get("class", "").split()
        if kind in classes:
            yield str(group.findtext(f"{SVG}title")), classes


def test_every_state_and_action_is_drawn_once_with_its_safety() -> None:
    model = robot()
    states = dict(marked(peakrl.show(model), "state"))
    assert list(states) == ["0: safe", "1: safe", "2: not safe"]
    assert "start" in states["0: safe"]
    assert "unsafe" in states["2: not safe"]
    actions = [(title.split(",")[0], "forbidden" in kinds) for title, kinds in marked(peakrl.show(model), "action")]
    safe = peakrl.safe_set(model)
    expected = [
        (f"{action!r}: expected reward {float(state == 0 and action == 1):g}", action not in safe.actions(state))
        for state in range(3)
        for action in range(2)
    ]
    assert actions == expected


def test_a_policy_marks_its_actions_and_fades_what_it_does_not_reach() -> None:
    model = robot()
    graph = peakrl.show(model, peakrl.solve(model).policy)
    assert [title.split(",")[0] for title, kinds in marked(graph, "action") if "chosen" in kinds] == [
        "0: expected reward 0"
    ]
    assert ["unreached" in kinds for _, kinds in marked(graph, "state")] == [False, True, True]


def test_probabilities_stand_beside_random_outcomes_only() -> None:
    texts = [each.text for each in ET.fromstring(peakrl.show(robot()).svg).iter(f"{SVG}text")]
    assert texts.count("0.5") == 2


def test_states_of_a_step_dependent_model_stand_in_the_column_of_their_step() -> None:
    model = peakrl.compile_model(peakrl.problems.scheduling_example(1))
    root = ET.fromstring(peakrl.show(model, max_states=100).svg)
    columns = {float(rect.get("x", "")) for rect in root.iter(f"{SVG}rect")}
    assert len(columns) == model.horizon + 1


def test_a_model_too_large_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"3 states to draw, more than max_states = 2"):
        peakrl.show(robot(), max_states=2)
    assert peakrl.show(robot()).save(tmp_path / "robot.svg").read_text().startswith("<svg")
