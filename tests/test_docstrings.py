"""Docstrings of public names: sections in numpydoc form, and examples that run."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

import peakrl

NAMES = {name: getattr(peakrl, name) for name in peakrl.__all__ if name != "PeakError"}
for part in (peakrl.problems, peakrl.theory):
    NAMES |= {f"{part.__name__}.{name}": getattr(part, name) for name in part.__all__}
FUNCTIONS = {name: item for name, item in NAMES.items() if inspect.isfunction(inspect.unwrap(item))}
CLASSES = [name for name in peakrl.__all__ if inspect.isclass(getattr(peakrl, name)) and name != "PeakError"]


def test_every_public_function_has_parameters_returns_and_an_example() -> None:
    for name, function in FUNCTIONS.items():
        doc = inspect.getdoc(function) or ""
        missing = [
            title for title in ("Parameters", "Returns", "Examples") if f"\n{title}\n{'-' * len(title)}\n" not in doc
        ]
        assert not missing, name
        described = doc.partition("\nParameters\n")[2].partition("\n\n")[0]
        names = {each.strip(" :") for line in described.splitlines() if line[:1].strip() for each in line.split(",")}
        left_out = [each for each in inspect.signature(function).parameters if each not in names]
        assert not left_out, name


@pytest.mark.parametrize("name", [*FUNCTIONS, *CLASSES])
def test_the_example_of_every_public_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    item = inspect.unwrap(NAMES[name])
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(item, name, globs=dict(vars(inspect.getmodule(item))))
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
