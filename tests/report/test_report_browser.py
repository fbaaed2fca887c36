"""The report page in a real browser: Chromium, driven by Playwright. Without either the tests say what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.page import figure_section
from experiments.records import read_figure
from helpers import continuous_systems as systems
from helpers.browsing import Opened, chromium
from helpers.certified_problems import near_tie
from helpers.report_pages import figure_record, save_all_kinds
from peakrl import learn, safe_set, sweep, write_report
from peakrl.learners import Certified
from peakrl.report.page import Page, make_page, write_page
from peakrl.training import load_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    figure_record().write(folder)
    save_all_kinds(folder)
    Page("Report", "results", [figure_section(figure_record()), *make_page(folder).sections]).write(folder)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(browser: Any, folder: Path) -> Iterator[Opened]:
    opened = Opened(browser, folder / "report.html", viewport={"width": 1300, "height": 900})
    yield opened
    opened.context.close()


def test_everything_is_drawn_without_complaints_and_nothing_is_asked_of_the_network(opened: Opened) -> None:
    opened.draw_all()
    opened.page.wait_for_function("peakrl.all('div.plot').every((one) => one.querySelector('.main-svg'))")
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in opened.requests if url.startswith("file:")]) == 1


def loading(browser: Any, folder: Path, what: str, times: int) -> float:
    """The least time, in seconds, that it took until the page was `what`."""
    taken = []
    for _ in range(times):
        page = Opened(browser, folder / "report.html")
        taken.append(float(page.page.get_attribute("html", f"data-{what}")))
        page.context.close()
    return min(taken) / 1000


def test_tables_and_controls_answer_within_2_seconds(browser: Any, folder: Path) -> None:
    assert loading(browser, folder, "ready", 2) < 2.0


def test_series_can_be_switched_with_the_keyboard(opened: Opened) -> None:
    chart = "figure-2-frozen-sum-rate"
    opened.draw_all()
    before = opened.names(chart)
    assert before == ["slack 0.1", "slack 0.01", "paper: slack 0.1", "integer optimum"]
    opened.page.focus(f"[data-legend={chart}] [data-series='1']")
    opened.page.keyboard.press("Space")
    assert opened.names(chart) == ["slack 0.1", "paper: slack 0.1", "integer optimum"]
    opened.page.keyboard.press("Space")
    assert opened.names(chart) == before


def test_an_axis_can_be_made_logarithmic_and_zoomed(opened: Opened) -> None:
    chart = "figure-2-frozen-violation"
    opened.draw_all()
    axis = f"document.getElementById('{chart}')._fullLayout.yaxis"
    assert opened.page.evaluate(f"{axis}.type") == "linear"
    opened.page.click(f"[data-chart={chart}][data-log=y]")
    assert opened.page.evaluate(f"{axis}.type") == "log"
    assert opened.page.get_attribute(f"[data-chart={chart}][data-log=y]", "aria-pressed") == "true"
    width = f"{axis}.range[1] - {axis}.range[0]"
    full = opened.page.evaluate(width)
    opened.page.click(f"[data-chart={chart}][data-zoom='0.5']")
    assert opened.page.evaluate(width) == pytest.approx(full / 2)
    opened.page.click(f"[data-chart={chart}][data-zoom='0']")
    assert opened.page.evaluate(width) == pytest.approx(full)


def test_downloads_have_the_rows_of_the_record(opened: Opened, folder: Path) -> None:
    record = read_figure(folder, "figure-2")
    head, *rows = opened.download("[data-csv-table=figure-2-checks]")
    assert head[0] == "quantity"
    assert [row[0] for row in rows] == [check.what for check in record.checks]
    assert [float(row[3]) for row in rows] == [check.ours for check in record.checks]
    drawn = opened.download("[data-csv-chart=figure-2-frozen-violation]")
    expected = [row for row in record.rows if row.measure == "violation"]
    assert [(row[0], float(row[1])) for row in drawn[1:]] == [(row.curve, row.x) for row in expected]
    assert [float(row[2]) for row in drawn[1:]] == pytest.approx([row.mean for row in expected], rel=1e-6)


def test_curves_and_maps_can_be_saved_as_they_are_drawn(opened: Opened) -> None:
    opened.draw_all()
    assert opened.download("[data-csv-chart=run-energy-run-map]")[0] == ["arrival", "battery", "value"]
    for chart in ("figure-2-frozen-violation", "run-energy-run-map"):
        with opened.page.expect_download() as saved:
            opened.page.click(f"[data-png={chart}]")
        assert saved.value.suggested_filename == f"{chart}.png"
        picture = imread(saved.value.path())[..., :3]  # curves and cells have colours, axes and words are grey
        assert np.count_nonzero(np.ptp(picture, axis=2) > 0.3) > 1000


def test_a_filter_hides_rows_but_the_download_keeps_them(opened: Opened) -> None:
    opened.page.select_option("[data-filter=figure-2-checks]", "exact value")
    assert opened.page.locator("#figure-2-checks tbody tr:visible").count() == 1
    assert len(opened.download("[data-csv-table=figure-2-checks]")) == 4


def test_the_explorer_answers_what_the_policy_does(opened: Opened, folder: Path) -> None:
    run = load_run(folder / "energy.run")
    explorer = opened.page.locator("#run-energy-run-explorer")
    explorer.scroll_into_view_if_needed()
    explorer.locator("[data-pick=step]").fill("2")
    explorer.locator("[data-pick=step]").press("Enter")
    explorer.locator("[data-pick=state]").select_option(label="battery 1, arrival 3")
    action = run.policy.action(2, (1, 3))
    told = explorer.locator("[data-answer]").inner_text()
    assert told.startswith(f"Step 2, state battery 1, arrival 3: the policy takes {action}.")
    assert explorer.locator("tr.chosen td").first.inner_text() == str(action)
    lines = {row[0]: row for row in explorer.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))")}  # fmt: skip
    assert set(lines) == {"0", "1", "2", "3", "4"}
    assert "violates peak power by up to 1" in lines["4"][5]
    assert lines["0"][5] == ""


def test_a_search_narrows_the_states_to_pick_from(opened: Opened) -> None:
    explorer = opened.page.locator("#run-jobs-run-explorer")
    explorer.scroll_into_view_if_needed()
    explorer.locator("[data-pick=step]").fill("1")
    explorer.locator("[data-pick=step]").press("Enter")
    assert explorer.locator("[data-pick=state] option").count() == 5
    explorer.locator("[data-pick=find]").fill("done: 4")
    assert explorer.locator("[data-pick=state] option").count() == 1
    explorer.locator("[data-pick=find]").fill("no such state")
    assert explorer.locator("[data-answer]").inner_text() == "No matching state at this step."


def grid(opened: Opened, run: str) -> Any:
    return opened.page.evaluate("(id) => document.getElementById(id).data[0].z", f"run-{run}-run-map")


def test_a_map_goes_from_step_to_step(opened: Opened) -> None:
    opened.draw_all()
    opened.page.locator("[data-slice=run-energy-run-map]").focus()
    opened.page.keyboard.press("Home")
    first = grid(opened, "energy")
    # The battery is empty at first: all other rows are blank.
    assert all(cell is None for row in first[1:] for cell in row)
    opened.page.keyboard.press("ArrowRight")
    veil = opened.page.evaluate("document.getElementById('run-energy-run-map').data[1].z")
    assert any(1 in row for row in veil)  # what the policy never reaches is faded
    opened.page.keyboard.press("End")
    assert grid(opened, "energy") != first


def test_of_three_fields_two_are_picked_and_the_third_is_sliced(opened: Opened, folder: Path) -> None:
    opened.draw_all()
    run, page, place = load_run(folder / "rooms.run"), opened.page, "run-rooms-run-map"
    names = page.locator(f"[data-map={place}][data-choice=x] option").all_inner_texts()
    assert names == ["step", "field 1", "field 2", "field 3"]
    assert page.locator(f"[data-slice={place}]").count() == 2  # the step and the third field
    page.select_option(f"[data-map={place}][data-choice=x]", label="step")
    page.select_option(f"[data-map={place}][data-choice=y]", label="field 3")
    for field, value in ((1, "2"), (2, "1")):
        slider = page.locator(f"[data-slice={place}][data-field='{field}']")
        slider.focus()
        page.keyboard.press("Home")
        for _ in range(int(value)):
            page.keyboard.press("ArrowRight")
        assert slider.locator("xpath=following-sibling::output").inner_text() == value
    labels = page.locator(f"[data-key={place}] .key").all_inner_texts()
    assert labels == ["none", "left", "right"]
    told = {time: grid(opened, "rooms")[row][2] for row, time in enumerate(("day", "night"))}
    assert told == {time: labels.index(run.policy.action(2, (2, 1, time))) for time in told}
    # An axis that is picked twice changes places with the other.
    page.select_option(f"[data-map={place}][data-choice=x]", label="field 3")
    assert page.locator(f"[data-map={place}][data-choice=y]").input_value() == "0"


def test_a_click_on_the_map_asks_about_the_state_there(opened: Opened) -> None:
    opened.page.evaluate(
        "document.getElementById('run-rooms-run-map').emit('plotly_click', { points: [{ pointIndex: [0, 0] }] })"
    )
    told = opened.page.locator("#run-rooms-run-explorer [data-answer]").inner_text()
    assert told.startswith("Step ")
    assert ": the policy takes " in told


def test_no_control_lies_on_a_picture(opened: Opened) -> None:
    opened.draw_all()
    covering = opened.page.evaluate("""() => {
      const boxes = peakrl.all('button, select, input, label').map((one) => [one, one.getBoundingClientRect()]);
      return peakrl.all('div.plot').flatMap((plot) => {
        const area = plot.getBoundingClientRect();
        return boxes.filter(([one, box]) => box.width && box.bottom > area.top + 1 && box.top < area.bottom - 1
          && box.right > area.left + 1 && box.left < area.right - 1)
          .map(([one]) => `${plot.id}: ${one.outerHTML.slice(0, 80)}`);
      });
    }""")
    assert covering == []
    assert opened.page.locator(".modebar").count() == 0


def test_the_theme_follows_the_system_until_it_is_switched(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "report.html", color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = opened.page.evaluate(colour)
    axis = "document.querySelector('.plot.js-plotly-plot').layout.font.color"
    opened.page.wait_for_selector(".plot .main-svg")
    ink = opened.page.evaluate(axis)
    opened.page.click("#theme")
    assert opened.page.evaluate(colour) == "rgb(255, 255, 255)" != dark
    assert opened.page.evaluate(axis) != ink
    opened.context.close()


def test_a_phone_shows_the_page_without_scrolling_sideways(browser: Any, folder: Path) -> None:
    opened = Opened(
        browser, folder / "report.html", viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    opened.draw_all()
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = "peakrl.all('.scroll').filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.innerHTML)"
    assert opened.page.evaluate(inside) == []
    assert opened.complaints == []
    opened.context.close()


def test_numbers_below_a_map_are_not_turned_on_a_phone(browser: Any, tmp_path: Path) -> None:
    write_report(safe_set(systems.SYSTEMS["pendulum"][0](), cells=100), tmp_path / "page.html")
    opened = Opened(browser, tmp_path / "page.html", viewport={"width": 390, "height": 844})
    opened.draw_all()
    turns = "peakrl.all('.xtick text').map((text) => text.getAttribute('transform') || '')"
    assert [turn for turn in opened.page.evaluate(turns) if "rotate" in turn and "rotate(0" not in turn] == []
    assert opened.page.evaluate("peakrl.all('.xtick').length") > 1
    opened.context.close()


def test_the_tables_of_a_sweep_have_the_whole_width_and_become_cards_on_a_phone(browser: Any, tmp_path: Path) -> None:
    learners = [
        {"learner": "SafeQ"},
        {"learner": "ConstrainedQ", "preset": "published", "slack": 0.1, "name": "with a name of some length"},
    ]
    problem = {"name": "jobs", "kind": "scheduling_example", "number": 3}
    place = {"name": "small", "seeds": 2, "episodes": 200, "folder": str(tmp_path)}
    sweep({**place, "problems": [problem], "settings": learners}, workers=1)
    write_page(tmp_path)
    wide = "(id) => { const box = document.getElementById(id).parentElement; return box.scrollWidth > box.clientWidth }"
    tables = ["sweep-jobs-groups", "sweep-jobs-pairs"]
    for width in (1300, 360):
        opened = Opened(browser, tmp_path / "report.html", viewport={"width": width, "height": 740})
        opened.draw_all()
        assert [opened.page.evaluate(wide, table) for table in tables] == [False] * 2
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert opened.complaints == []
        opened.context.close()


def test_a_certified_run_shows_what_is_proved_beside_what_is_true(browser: Any, tmp_path: Path) -> None:
    run = learn(near_tie(), Certified(0.4, relative=True), episodes=100_000, seed=1)
    write_report(run, tmp_path / "certified.html")
    drawn = (
        "peakrl.all('div.plot').map((one) => one.data)"
        ".find((traces) => traces.some((one) => one.name == 'certified gap'))"
    )
    opened = Opened(browser, tmp_path / "certified.html", viewport={"width": 390, "height": 844})
    opened.draw_all()
    curves = opened.page.evaluate(f"Object.fromEntries({drawn}.map((one) => [one.name, Array.from(one.y)]))")
    proved, true = curves["certified gap"], curves["true gap of the candidate"]
    assert len(proved) == len(true) > 3
    assert all(high > low for high, low in zip(proved, true, strict=True))
    assert opened.complaints == []
    opened.context.close()


def test_the_first_key_leads_past_the_contents(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder / "report.html")
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "content"
    opened.context.close()
