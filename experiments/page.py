"""The paper's part of the page: every figure with the published numbers beside ours, and what its theory asks for."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from peakrl.errors import StorageError
from peakrl.paper import EXPERIMENTS
from peakrl.paper.records import PAPER, FigureRecord, Row, read_figure
from peakrl.report.blocks import Block, Chart, Section, Series, Settings, Table, Text, slug
from peakrl.report.efficiency import FLOOR
from peakrl.storage import from_json, read_file

CHECK_COLUMNS = ("quantity", "compared with", "there", "ours", "difference", "tolerance", "within")
#: Colour and dash of curves that have the same meaning in several figures.
STYLES = {
    "slack 0.1": ("blue", "solid"),
    "slack 0.01": ("orange", "dash"),
    "slack 0.001": ("green", "dot"),
    "Algorithm 1 as printed": ("orange", "solid"),
    "stepwise start, no bonus": ("purple", "solid"),
    "practical learner": ("blue", "solid"),
    "greedy": ("yellow", "solid"),
    "balanced": ("green", "solid"),
    "balanced (non-causal)": ("green", "solid"),
    "learner": ("blue", "solid"),
    "integer optimum": ("grey", "dot"),
    "causal optimum": ("grey", "dash"),
    "convex bound": ("ink", "dash"),
    "convex bound (non-causal)": ("ink", "dash"),
    "Algorithm 1, each episode": ("sky", "solid"),
    "Algorithm 1, averaged policy": ("blue", "solid"),
    "Algorithm 1": ("blue", "solid"),
    "DT": ("ink", "dash"),
    "EDD": ("orange", "dashdot"),
    "least violation": ("green", "dot"),
}
CYCLE = ("blue", "orange", "green", "purple", "sky", "yellow")
VARIANTS = {
    "frozen": "arrivals frozen in each trial",
    "random": "fresh arrivals in every episode",
    "anew": "times drawn anew in every episode",
    "once": "times drawn once in each test",
}
#: Where curves lie close together: also drawn as distances to this one.
BOUNDS = {("figure-3", "frozen"): "convex bound", ("figure-3", "random"): "causal optimum"}
LOG_X = {"figure-6"}
#: Measures that begin so belong together: as a curve and its band, or as one line of a table.
ORDERS = ("lower ", "median ", "upper ", "largest ")


def figure_names(folder: Path) -> list[str]:
    """Return the figures that a folder holds records of: the paper's first, in their order, then any others."""
    found = [
        path.stem for path in sorted(folder.glob("*.json")) if path.with_suffix(".csv").exists() and is_record(path)
    ]
    known = [name for name in EXPERIMENTS if name in found]
    return known + [name for name in found if name not in known]


def is_record(path: Path) -> bool:
    """Does a JSON file say that it describes a figure?"""
    try:
        head = from_json(read_file(path))
    except (StorageError, ValueError, RecursionError):
        return path.stem in EXPERIMENTS  # a damaged record of ours must be told of, not passed over
    return isinstance(head, dict) and "figure" in head and "checks" in head


def paper_sections(folder: Path) -> list[Section]:
    """Return a section for each figure on record, then the theory where there is any."""
    sections = [figure_section(read_figure(folder, name)) for name in figure_names(folder)]
    return [*sections, theory_section()] if sections else []


def figure_section(record: FigureRecord) -> Section:
    """Return the charts of a figure, its comparison and its settings."""
    judged = [check.within for check in record.checks if check.within is not None]
    quick = " This is the small version: comparisons that need the full size are shown, not judged."
    lead = f"{sum(judged)} of {len(judged)} judged comparisons are within tolerance." if judged else ""
    if record.settings.get("quick"):
        lead += quick
    badge = ("", "") if not judged else ("good", "within tolerance") if all(judged) else ("bad", "off tolerance")
    charts = [chart for variant in record.variants for chart in variant_charts(record, variant)]
    aside: list[Block] = [check_table(record), *order_tables(record)]
    settings = Settings(f"{record.name}-settings", "Settings", record.settings)
    name = record.name.replace("-", " ").capitalize()
    return Section(record.name, f"{name}: {record.title}", lead, charts, [*aside, settings], badge)


def check_table(record: FigureRecord) -> Table:
    """Return published number, ours, difference and verdict."""
    rows = [
        (check.what, check.against, check.expected, check.ours, check.difference, check.tolerance, within(check.within))
        for check in record.checks
    ]
    title = f"{record.name}: the published or exact number (there), ours, and the difference"
    return Table(f"{record.name}-checks", title, CHECK_COLUMNS, rows, filter_column=1)


def order_tables(record: FigureRecord) -> list[Table]:
    """Return quartiles and the largest of quantities that are one number a run; nothing where there are none."""
    lines: dict[tuple[str, ...], dict[str, float]] = {}
    for row in record.rows:
        word = next((word for word in ORDERS if row.measure.startswith(word)), None)
        if word is not None and row.x is None:
            key = (row.variant, row.curve, row.measure.removeprefix(word), row.unit)
            lines.setdefault(key, {})[word] = row.mean
    rows = [(*key, *(found.get(word) for word in ORDERS)) for key, found in lines.items()]
    columns = ("problem", "learner", "quantity", "unit", *(word.strip() for word in ORDERS))
    return [Table(f"{record.name}-orders", "Over seeds: quartiles and the largest", columns, rows, 2)] if rows else []


def within(verdict: bool | None) -> str:
    """Say a verdict in a word."""
    return "not judged" if verdict is None else "yes" if verdict else "NO"


def variant_charts(record: FigureRecord, variant: str) -> list[Chart]:
    """Return one chart for each measure of a variant."""
    measures = dict.fromkeys(row.measure for row in record.rows if row.variant == variant)
    charts = []
    for measure in measures:
        curves = record.curves(variant, measure)
        if measure.startswith("median ") and any(row.x is not None for rows in curves.values() for row in rows):
            charts.append(quartile_chart(record, variant, measure.removeprefix("median ")))
        if measure.startswith(ORDERS):
            continue
        words = VARIANTS.get(variant, variant)
        title = f"{measure.capitalize()}, {words}"
        unit = next(iter(curves.values()))[0].unit
        axis = f"{measure} ({unit})"
        place = f"{record.name}-{slug(variant)}-{slug(measure)}"
        log_x = record.name in LOG_X and any(rows[0].x is not None for rows in curves.values())
        charts.append(Chart(place, title, record.x, axis, curve_series(curves), log_x=log_x))
        bound = BOUNDS.get((record.name, variant))
        if bound in curves and measure == "sum rate":
            title = f"Distance to the {bound}, {words}"
            axis = f"sum rate minus {bound} ({unit})"
            charts.append(Chart(f"{place}-distance", title, record.x, axis, distance_series(curves, str(bound))))
    return charts


def quartile_chart(record: FigureRecord, variant: str, quantity: str) -> Chart:
    """Return the medians of a quantity, with bands from quartile to quartile where known, on logarithmic axes."""
    lower, median, upper = (record.curves(variant, word + quantity) for word in ORDERS[:3])
    banded, series = bool(lower and upper), []
    for place, (name, rows) in enumerate(median.items()):
        x = [row.x for row in rows if row.x is not None]
        low, y, high = (
            [row.mean for row in curves.get(name, []) if row.x is not None] for curves in (lower, median, upper)
        )
        if x:
            colour, band = (*CYCLE, "ink", "grey")[place % 8], (low, high) if banded else (None, None)
            series.append(Series(name, x, y, None, colour, low=band[0], high=band[1]))
    floor = FLOOR.get(quantity.removeprefix("averaged "))
    ends = f"; log axis from {floor:g}" if floor else ""
    middle = "median and quartiles over seeds" if banded else "median over runs"
    title = f"{quantity.capitalize()}, {variant}: {middle}{ends}"
    axis = f"{quantity} ({next(iter(median.values()))[0].unit})"
    place_of = f"{record.name}-{slug(variant)}-{slug(quantity)}"
    return Chart(place_of, title, record.x, axis, series, log_x=True, log_y=True, floor=floor)


def curve_series(curves: dict[str, list[Row]]) -> list[Series]:
    """Return the series of a chart; levels reach over the places of the others."""
    places = [row.x for rows in curves.values() for row in rows if row.x is not None]
    if not places:
        return [single(name, rows[0]) for name, rows in curves.items()]
    spare = cycle(CYCLE)
    found = []
    for name, rows in curves.items():
        key = name.removeprefix(PAPER)
        colour, dash = STYLES[key] if key in STYLES else (next(spare), "solid")
        if rows[0].x is None:
            ends = [min(places), max(places)]
            found.append(
                Series(name, ends, [rows[0].mean] * 2, None, colour, dash if dash != "solid" else "dash", level=True)
            )
            continue
        x, y = [float(row.x or 0) for row in rows], [row.mean for row in rows]
        std = [row.std for row in rows] if all(row.std is not None for row in rows) else None
        read_off = name.startswith(PAPER)
        mode = "markers" if read_off else "lines+markers" if len(rows) < 10 else "lines"
        found.append(Series(name, x, y, std, colour, dash, mode))
    return found


def single(name: str, row: Row) -> Series:
    """Return a point with its spread, for charts that compare who, not when."""
    colour = STYLES.get(name, ("blue", "solid"))[0]
    return Series(name, [name], [row.mean], None if row.std is None else [row.std], colour, mode="markers")


def distance_series(curves: dict[str, list[Row]], bound: str) -> list[Series]:
    """Return each curve minus the bound of the same sequences; the paper's minus the paper's."""
    top = {row.x: row.mean for row in curves[bound]}
    theirs = {row.x: row.mean for row in curves.get(PAPER + bound, [])} or top
    apart = {}
    for name, rows in curves.items():
        base = theirs if name.startswith(PAPER) else top
        if name.removeprefix(PAPER) != bound and all(row.x in base for row in rows):
            apart[name] = [row._replace(mean=row.mean - base[row.x], std=None) for row in rows]
    return curve_series(apart)


# Theory ----------------------------------------------------------------------------------------------------------


def theory_section() -> Section:
    """Return what Theorem 1 asks for on the paper's problems, and what the slacks leave."""
    from peakrl.paper.theory_tables import FAILURE, PLAN_COLUMNS, SLACK_COLUMNS, paper_models, plan_rows, slack_rows

    models = paper_models()
    lead = (
        "Theorem 1's arithmetic for the paper's own problems: how many episodes it asks for, with which slack and "
        f"penalty, for accuracy ε (rewards in [0, 1], |f| ≤ 1), failure probability {FAILURE:g} and constant c = 1; "
        "and what a slack really leaves, found by solving the modified problem exactly."
    )
    plan = "Episodes that Theorem 1 asks for (S and A: the most of any step)"
    slack = "What a slack leaves, energy harvesting, peak 8, fresh arrivals (bits)"
    blocks: list[Block] = [
        Table("theory-plan", plan, PLAN_COLUMNS, plan_rows(models)),
        Table("theory-slack", slack, SLACK_COLUMNS, slack_rows(models[0][1])),
        Text(
            "Read the counts as orders of magnitude. The regret bound that the proof rests on holds only from the "
            "episodes in the last column but one; the last keeps the 1/γ that the printed proof hides in its constant."
        ),
    ]
    return Section("theory", "Theory: what Theorem 1 asks for", lead, blocks)
