"""The package has no import cycles, and CONTRIBUTING.md lists its layers."""

from __future__ import annotations

import ast
import re
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def modules() -> dict[str, Path]:
    """Return every module of the package by name."""
    found = {}
    for path in (SOURCE / "peakrl").rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(source: str, known: dict[str, Path]) -> set[str]:
    """Return the modules that a source imports at run time, also inside of functions."""
    tree = ast.parse(source)
    guarded = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    typing = {id(inner) for node in guarded for inner in ast.walk(node)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("peakrl"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("peakrl.")}
    return found


def graph() -> dict[str, set[str]]:
    """Return what every module imports."""
    known = modules()
    return {name: imported(path.read_text(), known) - {name} for name, path in known.items()}


def test_no_module_imports_itself_through_others():
    TopologicalSorter(graph()).prepare()


def test_a_cycle_through_an_import_inside_of_a_function_is_found():
    lazy = {"peakrl.errors": imported("def f():\n    from peakrl.cli import main\n", modules())}
    with pytest.raises(CycleError):
        TopologicalSorter(graph() | lazy).prepare()


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found: list[str] = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    return [name for layer in found for name in layer.split(" : ")]


def test_contributing_lists_the_layers_from_the_top_to_the_bottom():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Architecture")[2].partition("\n## ")[0]
    listed = re.findall(r"^    ([a-z_, ]+?)  ", section, re.MULTILINE)
    assert [name for line in listed for name in line.split(", ")] == layers()
