"""Experiments use public names of peakrl only."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "experiments"
#: Modules of peakrl whose names experiments may import.
ALLOWED = {
    "peakrl",
    "peakrl.errors",
    "peakrl.evaluation",
    "peakrl.learners",
    "peakrl.learners.base",  # LearnerSettings, for annotations
    "peakrl.policy",
    "peakrl.problems",
    "peakrl.problems.harvesting",
    "peakrl.problems.heating",
    "peakrl.problems.robots",
    "peakrl.problems.scheduling",
    "peakrl.report",
    "peakrl.specs",
    "peakrl.sweeps",
    "peakrl.theory",
    "peakrl.training",
}


def private_imports(source: str) -> list[str]:
    """Return what a source imports of peakrl that is not public, as "module.name"."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            imported = [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            imported = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, name in imported:
            if module.split(".")[0] == "peakrl" and not is_public(module, name):
                found.append(f"{module}.{name}")
    return found


def is_public(module: str, name: str) -> bool:
    """Does one of the allowed modules have this name?"""
    return module in ALLOWED and not name.startswith("_") and hasattr(importlib.import_module(module), name)


def test_experiments_import_public_names_only() -> None:
    for path in sorted(FOLDER.glob("*.py")):
        assert private_imports(path.read_text()) == [], path


PRIVATE = [
    "from peakrl.training.trainer import ActiveRun",
    "from peakrl.types import Floats",
    "from peakrl import _HOMES",
    "from peakrl import nothing",
    "from peakrl.sweeps import _x",
    "import peakrl.training.learn",
    "def f():\n    from peakrl.storage import read_file",
]


def test_a_private_import_is_found() -> None:
    for line in PRIVATE:
        assert private_imports(f"from peakrl import learn\n{line}\n") != []
