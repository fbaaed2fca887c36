"""Every Python block of README and docs runs, page by page, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?:python|\{code-block\} python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What a block prints, where the page tells it right below.
OUTPUT = re.compile(r"\n*```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What a block needs beside peakrl.
NEEDS = re.compile(r"^# needs (\w+)$", re.MULTILINE)


#: Pages whose code takes longest; the slow suite runs it.
LONG = ("reproducing-the-paper",)


def effort(page):
    return pytest.mark.slow if page.stem in LONG else ()


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=effort(p)) for p in PAGES if BLOCK.search(p.read_text())]
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"page_{page.stem}"}
    for match in BLOCK.finditer(page.read_text()):
        if needed(match) is None:
            run(page, match, namespace)
            printed, told = capsys.readouterr().out, OUTPUT.match(page.read_text(), match.end())
            assert told is None or printed == told.group(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "package"),
    [pytest.param(p, name, id=f"{p.stem}-{name}") for p in PAGES for name in NEEDS.findall(p.read_text())],
)
def test_what_needs_another_package_runs_where_that_is_installed(page, package, tmp_path, monkeypatch):
    pytest.importorskip(package, reason=f"{package} is not installed: what the page says of it is not tried")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": f"page_{page.stem}"}
    for match in BLOCK.finditer(page.read_text()):
        if needed(match) in (None, package):
            run(page, match, namespace)


def needed(match):
    """The package that a block needs beside peakrl."""
    found = NEEDS.match(match.group(1))
    return None if found is None else found.group(1)


def run(page, match, namespace):
    line = page.read_text()[: match.start()].count("\n") + 2
    exec(compile("\n" * (line - 1) + match.group(1), str(page), "exec"), namespace)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page, target)


def test_the_tests_that_pages_name_are_there():
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)", written, re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert not set(re.findall(r"`(test_\w+)`", text)) - there, page
        assert all((ROOT / path).exists() for path in re.findall(r"`(tests/[\w/]+\.py)`", text)), page
