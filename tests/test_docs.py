"""Every Python block of README and docs runs, page by page, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(?:python|\{code-block\} python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


#: Pages whose code takes longest; the slow suite runs it.
LONG = ("reproducing-the-paper", "neighbouring-learners")


def effort(page):
    return pytest.mark.slow if page.stem in LONG else ()


@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=effort(p)) for p in PAGES if BLOCK.search(p.read_text())]
)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    namespace = {"__name__": f"page_{page.stem}"}
    for match in BLOCK.finditer(text):
        line = text[: match.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + match.group(1), str(page), "exec")
        exec(code, namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
