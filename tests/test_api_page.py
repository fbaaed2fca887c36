"""The reference page and the public list of names agree."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import peakrl

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_the_reference_describes_every_public_name():
    described: dict[str, list[str]] = {}
    for directive, name in re.findall(r"^\.\. (auto\w+|currentmodule):: ([\w.]+)", PAGE.read_text(), re.MULTILINE):
        if directive == "currentmodule":
            module = name
        else:
            described.setdefault(module, []).append(name)
    assert sorted(described["peakrl.learners"]) == sorted(peakrl.learners.LEARNERS)
    assert sorted(described["peakrl.theory"]) == sorted(peakrl.theory.__all__)
    assert set(described["peakrl.problems"]) == {
        name for name in peakrl.problems.__all__ if not inspect.ismodule(getattr(peakrl.problems, name))
    }
    assert sorted(described.pop("peakrl")) == sorted(peakrl._HOMES)
    for module, names in described.items():
        assert set(names) <= set(importlib.import_module(module).__all__)


def test_the_first_table_lists_every_public_name():
    table = PAGE.read_text().partition("| group | names |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(peakrl.__all__)


def test_the_tables_contain_what_the_docstrings_say(monkeypatch):
    monkeypatch.syspath_prepend(PAGE.parent)
    api_tables = importlib.import_module("api_tables")
    text = PAGE.read_text(encoding="utf-8")
    assert api_tables.tables(text) == text, "python docs/api_tables.py updates the tables"
    assert "| `solve(...)` | Solve a model or problem" in text
