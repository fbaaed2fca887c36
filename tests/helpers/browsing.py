"""What tests in a real browser share: Chromium, driven by Playwright. Without either they say what is missing."""

from __future__ import annotations

import csv
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("PEAKRL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed (apt-get install chromium): the page is not tried", allow_module_level=True)
api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (pip install playwright): the page is not tried"
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Seconds to wait for the page at most: tests share the machine.
PATIENCE = 30.0


@contextmanager
def chromium() -> Iterator[Any]:
    with api.sync_playwright() as driver:
        # A new, empty profile each time: Playwright makes one and removes it.
        browser = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """The page, and what it complained of and asked for."""

    def __init__(self, browser: Any, place: Path | str, **options: Any) -> None:
        self.context = browser.new_context(accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(place if isinstance(place, str) else place.as_uri())
        self.page.wait_for_selector("html[data-charts]", timeout=1000 * PATIENCE)

    def draw_all(self) -> None:
        self.page.evaluate("peakrl.all('div.plot').forEach((one) => peakrl.drawn.has(one.id) || peakrl.draw(one.id))")

    def names(self, chart: str) -> list[str]:
        """The curves that are drawn, bands left out."""
        found = self.page.evaluate("(id) => document.getElementById(id).data.map((trace) => trace.name)", chart)
        return [name for name in found if not name.endswith(", band")]

    def download(self, selector: str) -> list[list[str]]:
        with self.page.expect_download() as saved:
            self.page.click(selector)
        return list(csv.reader(io.StringIO(Path(saved.value.path()).read_text())))
