"""Docstrings of public names: sections in numpydoc form, and examples that run."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import peakrl

FUNCTIONS = [name for name in peakrl.__all__ if inspect.isfunction(inspect.unwrap(getattr(peakrl, name)))]
CLASSES = [name for name in peakrl.__all__ if inspect.isclass(getattr(peakrl, name)) and name != "PeakError"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_function_has_parameters_returns_and_an_example(name: str) -> None:
    doc = inspect.getdoc(getattr(peakrl, name)) or ""
    missing = [
        title for title in ("Parameters", "Returns", "Examples") if f"\n{title}\n{'-' * len(title)}\n" not in doc
    ]
    assert not missing
    described = doc.partition("\nParameters\n")[2].partition("\n\n")[0]
    names = {each.strip(" :") for line in described.splitlines() if line[:1].strip() for each in line.split(",")}
    left_out = [each for each in inspect.signature(getattr(peakrl, name)).parameters if each not in names]
    assert not left_out


@pytest.mark.parametrize("name", FUNCTIONS + CLASSES)
def test_the_example_of_every_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = inspect.unwrap(getattr(peakrl, name))
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(item, name, globs=dict(vars(inspect.getmodule(item))))
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
