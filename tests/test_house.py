"""The drawing of the house in CONTRIBUTING.md is the one that import-linter checks."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def floors() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: list[str] = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return found


def test_the_drawing_shows_the_floors_that_are_checked_from_the_roof_down():
    drawn = re.findall(r"^    (\d)  (.+?)   ", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert [rooms for _, rooms in drawn] == floors()
    assert [int(number) for number, _ in drawn] == list(range(8, 0, -1))


def test_every_module_has_a_room_and_every_room_is_there():
    rooms = {name for floor in floors() for name in re.split(r" [|:] ", floor)}
    modules = {path.stem for path in (ROOT / "src" / "peakrl").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms == modules - {"__init__", "__pycache__", "py"}


def test_no_source_file_has_more_than_400_lines():
    source = ROOT / "src" / "peakrl"
    sizes = {str(path.relative_to(source)): len(path.read_text().splitlines()) for path in source.rglob("*.py")}
    assert {name: lines for name, lines in sizes.items() if lines > 400} == {}
