"""The page of a safe set of continuous states."""

from __future__ import annotations

import base64

import numpy as np
import pytest

import peakrl
from helpers import continuous_systems as systems
from peakrl.report import safe_sets


@pytest.mark.parametrize(("name", "most"), [("room", 200_000), ("pendulum", 200_000), ("cruise", 3_000)])
@pytest.mark.parametrize("horizon", [np.inf, 5])
def test_the_map_shows_the_safe_choices_of_its_cells(name, most, horizon, monkeypatch):
    monkeypatch.setattr(safe_sets, "MOST_CELLS", most)
    make, cells = systems.SYSTEMS[name]
    safe = peakrl.safe_set(make(), cells=cells, horizon=horizon)
    (drawn,) = safe_sets.safe_set_section(safe).main
    spec, d = drawn.content, safe.problem.dimensions
    (layer,) = spec["layers"]
    assert 0.1 * most < spec["nodes"] <= most or spec["nodes"] == safe.grid.size
    at = [np.frombuffer(base64.b64decode(text), "<u2") for text in spec["at"]]
    points = np.stack([np.array(spec["fields"][j]["values"], float)[at[j]] for j in range(d)], axis=1)
    labels = np.repeat(np.array(layer["labels"])[layer["runs"][::2]], layer["runs"][1::2])
    for index in np.random.default_rng(0).choice(len(points), 300):
        expected = ", ".join(map(str, safe.actions(points[index]))) or "none: not proved safe"
        assert labels[index] == expected


def test_a_safe_set_has_a_page(tmp_path):
    safe = peakrl.safe_set(systems.cruise(name="<b>car</b>"), cells=(6, 7, 8))
    text = peakrl.write_report(safe, tmp_path / "page.html").read_text()
    assert "<b>car" not in text
    assert '"kind":"map"' in text


def test_one_coordinate_has_no_picker_of_a_second_axis(tmp_path):
    make, cells = systems.SYSTEMS["room"]
    text = peakrl.write_report(peakrl.safe_set(make(), cells=cells), tmp_path / "page.html").read_text()
    assert 'data-choice="x"' in text
    assert 'data-choice="y"' not in text
