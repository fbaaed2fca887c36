"""The page of a run that goes on, in a real browser: it follows the run, and leaves the reader where they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.browsing import PATIENCE, Opened, chromium
from helpers.watched_runs import PacedRun
from peakrl import LearnerSettings, compile_model, energy_harvesting
from peakrl.learning.active import ActiveRun
from peakrl.learning.watching import RunView
from peakrl.report.live import LiveView

MODEL = compile_model(energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1))
CHART = "run-small-gap"
AVERAGED = "averaged over the episodes so far"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakrl.report.live.LEAST", 0.1)


def until(opened: Opened, condition: str) -> None:
    end = time.monotonic() + PATIENCE
    while not opened.page.evaluate(condition):  # the page's policy forbids Playwright's own way of waiting
        assert time.monotonic() < end, f"{condition} did not come; the page says {opened.page.inner_text('#live')}"
        opened.page.wait_for_timeout(50)


def latest(chart: str = CHART) -> str:
    """The last episode that a chart shows."""
    return f"Math.max(...document.getElementById('{chart}').data.flatMap((trace) => trace.x))"


def said(words: str) -> str:
    return f"document.getElementById('live-state').textContent === '{words}'"


def test_an_open_page_follows_the_run_and_keeps_what_the_reader_chose(browser: Any) -> None:
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        opened = Opened(browser, view.address, viewport={"width": 1300, "height": 700})
        page = opened.page
        until(opened, said("running"))
        assert "no figures" not in page.inner_text("main")
        run.go_on_to(50)
        until(opened, f"document.getElementById('{CHART}')?.data && {latest()} === 50")
        assert page.inner_text("#live-numbers").startswith("50 of 400 episodes")

        # What a reader does: switch a series, an axis and the theme, fold out, pick, scroll, put the cursor somewhere.
        page.uncheck(f"[data-legend={CHART}] [data-series='1']")
        page.click(f"[data-chart={CHART}][data-log=x]")
        page.click("#theme")
        theme = page.get_attribute("html", "data-theme")
        page.click("details > summary")
        explorer = page.locator("#run-small-explorer")
        explorer.scroll_into_view_if_needed()
        explorer.locator("[data-pick=step]").fill("2")
        explorer.locator("[data-pick=step]").press("Enter")
        explorer.locator("[data-pick=state]").select_option(label="battery 1, arrival 3")
        explorer.locator("[data-pick=find]").fill("battery 1")
        page.evaluate(f"window.before = document.getElementById('{CHART}')")
        scrolled = page.evaluate("scrollY")
        assert scrolled > 0

        for episodes in (120, 250):
            version = int(page.get_attribute("#live", "data-version"))
            run.go_on_to(episodes)
            until(opened, f"{latest()} === {episodes}")
            assert int(page.get_attribute("#live", "data-version")) > version
            assert AVERAGED not in opened.names(CHART)
            assert f"{episodes} episodes with seed 0" in page.inner_text(".lead")
        assert page.evaluate(f"window.before === document.getElementById('{CHART}')")
        assert page.evaluate(f"document.getElementById('{CHART}')._fullLayout.xaxis.type") == "log"
        assert page.get_attribute("html", "data-theme") == theme
        assert page.evaluate("document.querySelector('details').open")
        assert page.evaluate("document.activeElement.dataset.pick") == "find"
        told = explorer.locator("[data-answer]").inner_text()
        assert told.startswith("Step 2, state battery 1, arrival 3: the policy takes ")
        assert abs(page.evaluate("scrollY") - scrolled) < 200

        run.go_on_to(400)
        until(opened, said("run finished"))
        until(opened, f"{latest()} === 400")
        result = run.wait()
    # The server is gone: the page stays as it was and asks no more.
    asked = len(opened.requests)
    page.check(f"[data-legend={CHART}] [data-series='1']")
    assert AVERAGED in opened.names(CHART)
    page.wait_for_timeout(1500)
    assert page.inner_text("#live-state") == "run finished"
    assert len(opened.requests) == asked
    assert {url.split("?")[0] for url in opened.requests} == {view.address + path for path in ("", "news", "content")}
    assert opened.complaints == []
    action = result.policy.action(2, (1, 3))
    assert explorer.locator("tr.chosen td").first.inner_text() == str(action)
    opened.context.close()


def test_a_page_that_is_opened_before_the_first_episode_waits_and_then_fills(browser: Any) -> None:
    with LiveView("small") as view:
        opened = Opened(browser, view.address)
        until(opened, said("starting"))
        assert "as soon as some episodes are done" in opened.page.inner_text("main")
        with PacedRun(view, MODEL) as run:
            run.go_on_to(30)
            until(opened, f"document.getElementById('{CHART}')?.data && {latest()} === 30")
            opened.draw_all()
            until(opened, "peakrl.all('.plot').every((one) => one.querySelector('.main-svg'))")
            assert "as soon as" not in opened.page.inner_text("main")
            assert opened.page.locator("nav li").first.inner_text() == "The answer"
        until(opened, said("run finished"))
    assert opened.complaints == []
    opened.context.close()


@pytest.mark.slow
def test_a_page_whose_server_vanished_says_so_and_stops_asking(browser: Any) -> None:
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        opened = Opened(browser, view.address)
        run.go_on_to(30)
        until(opened, f"document.getElementById('{CHART}')?.data && {latest()} === 30")
        view._server.stop()  # as if the process had been killed
        until(opened, said("the server is gone"))
        asked = len(opened.requests)
        opened.page.wait_for_timeout(1500)
        assert len(opened.requests) == asked
        assert len(opened.complaints) <= 4  # the browser's own word on a refused connection, once a try
        assert opened.page.is_visible("#live-again")
        assert "30 of 400 episodes" in opened.page.inner_text("#live-numbers")
        opened.context.close()


def test_an_interrupted_run_is_told_to_the_page(browser: Any) -> None:
    with LiveView("small") as view:
        learner = ActiveRun(MODEL, LearnerSettings.practical(), planned=400, seed=0, every=1)
        learner.advance(30)
        view.watch(RunView(learner, 400))
        opened = Opened(browser, view.address)
        until(opened, said("running"))
        view.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    until(opened, said("run interrupted"))
    assert opened.complaints == []
    opened.context.close()


def test_a_phone_shows_the_live_page_without_scrolling_sideways(browser: Any) -> None:
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        run.go_on_to(30)
        options = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
        opened = Opened(browser, view.address, **options)
        until(opened, f"peakrl.data['{CHART}']?.series[0].x.at(-1) === 30")  # drawn only when it is scrolled to
        opened.draw_all()
        until(opened, f"document.getElementById('{CHART}')?.data && {latest()} === 30")
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        opened.context.close()
