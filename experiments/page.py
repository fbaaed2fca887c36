"""One page of all figures in a folder: published numbers beside ours, and what the paper's theory asks for."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from experiments import EXPERIMENTS, PAPER_FIGURES
from experiments.efficiency import FLOOR
from experiments.records import PAPER, Check, FigureRecord, Row, read_figure
from peakrl import TabularModel, compile_model
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.report import Block, Chart, Page, Section, Series, Table, Text, settings_table, slug
from peakrl.theory import audit_slack, pac_plan

CHECK_COLUMNS = ("quantity", "compared with", "there", "ours", "difference", "tolerance", "within")
#: Colour and dash of curves that have the same meaning in several figures.
STYLES = {
    "slack 0.1": ("blue", "solid"),
    "slack 0.01": ("orange", "dash"),
    "slack 0.001": ("green", "dot"),
    "Algorithm 1 as printed": ("orange", "solid"),
    "stepwise start, no bonus": ("purple", "solid"),
    "SafeQ": ("blue", "solid"),
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


TITLE = "Peak constraints: the figures of Bai, Aggarwal and Gattami (2023), reproduced"
LEAD = (
    "Q. Bai, V. Aggarwal, A. Gattami: Provably Sample-Efficient Model-Free Algorithm for MDPs with Peak Constraints, "
    "Journal of Machine Learning Research 24, 2023. Each row compares a figure with numbers read off the published one "
    "or with exact values; the sections below draw our curves with the paper's points."
)


def write_page(folder: Path) -> Path:
    """Write `report.html` with a section for each figure on record and one for the theory; return the file."""
    records = [read_figure(folder, name) for name in figure_names(folder)]
    sections = [figure_section(record) for record in records]
    paper = [record for record in records if record.name in PAPER_FIGURES]
    if paper:
        sections = [summary_section(paper), *sections, theory_section()]
    title = TITLE if paper else "Experiments beyond the paper"
    return Page(title, folder.name, sections).write(folder / "report.html")


def summary_section(records: list[FigureRecord]) -> Section:
    """Return one line for each figure of the paper: how many comparisons hold, and the one that is furthest off."""
    rows = []
    for record in records:
        judged = [check for check in record.checks if check.within is not None]
        row: tuple[str | float | None, ...] = (
            display_name(record),
            record.title,
            f"{sum(bool(check.within) for check in judged)} of {len(judged)}",
        )
        worst = max(judged, key=lambda check: abs(check.difference or 0.0), default=None)
        row += ("", None, None, None) if worst is None else (worst.what, worst.expected, worst.ours, worst.difference)
        rows.append(row)
    columns = ("figure", "shows", "within tolerance", "largest difference in", "there", "ours", "difference")
    return Section(
        "summary", "The paper's figures", LEAD, [Table("summary-figures", "Paper and reproduction", columns, rows)]
    )


def display_name(record: FigureRecord) -> str:
    """Return "Figure 2" for "figure-2"."""
    return record.name.replace("-", " ").capitalize()


def figure_names(folder: Path) -> list[str]:
    """Return the figures that a folder holds records of, the paper's first."""
    return [name for name in EXPERIMENTS if (folder / f"{name}.json").exists()]


def figure_section(record: FigureRecord) -> Section:
    """Return the charts of a figure, its comparison and its settings."""
    judged = [check.within for check in record.checks if check.within is not None]
    quick = " This is the small version: comparisons that need the full size are shown, not judged."
    lead = f"{sum(judged)} of {len(judged)} judged comparisons are within tolerance." if judged else ""
    if record.settings.get("quick"):
        lead += quick
    badge = ("", "") if not judged else ("good", "within tolerance") if all(judged) else ("bad", "off tolerance")
    charts = [chart for variant in record.variants for chart in variant_charts(record, variant)]
    tables = [check_table(record), *order_tables(record)]
    settings = settings_table(f"{record.name}-settings", "Settings", record.settings)
    return Section(record.name, f"{display_name(record)}: {record.title}", lead, [*charts, *tables, settings], badge)


def check_table(record: FigureRecord) -> Table:
    """Return published number, ours, difference and verdict."""
    rows = [check_cells(check) for check in record.checks]
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


def check_cells(check: Check) -> tuple[str | float | None, ...]:
    """Return the cells of a comparison, in the order of `CHECK_COLUMNS`."""
    verdict = {None: "not judged", True: "yes", False: "NO"}[check.within]
    return check.what, check.against, check.expected, check.ours, check.difference, check.tolerance, verdict


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
            series.append(Series(name, x, y, colour, low=band[0], high=band[1]))
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
                Series(name, ends, [rows[0].mean] * 2, colour, dash if dash != "solid" else "dash", level=True)
            )
            continue
        x, y = [float(row.x or 0) for row in rows], [row.mean for row in rows]
        std = [row.std for row in rows] if all(row.std is not None for row in rows) else None
        read_off = name.startswith(PAPER)
        mode = "markers" if read_off else "lines+markers" if len(rows) < 10 else "lines"
        found.append(Series(name, x, y, colour, dash, mode, std=std))
    return found


def single(name: str, row: Row) -> Series:
    """Return a point with its spread, for charts that compare who, not when."""
    colour = STYLES.get(name, ("blue", "solid"))[0]
    return Series(name, [name], [row.mean], colour, mode="markers", std=None if row.std is None else [row.std])


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


# Theory -----------------------------------------------------------------------------------------------------------

#: The accuracies (rewards in [0, 1]) and the failure probability that Theorem 1 is asked about.
EPSILONS, FAILURE = (1.0, 0.1), 0.05
#: Of figure 2.
SLACKS = (0.1, 0.01, 0.001)
PLAN_COLUMNS = (
    "problem", "S", "A", "H", "I", "ε", "slack ξ", "Slater γ", "penalty η", "log term",
    "episodes, as printed", "episodes, for the regret bound", "episodes, nothing hidden",
)  # fmt: skip
SLACK_COLUMNS = (
    "slack ξ", "penalty η", "optimum V*", "modified optimum W*", "free violation", "value won",
    "is the optimum", "least deterred violation", "smallest violation there is",
)  # fmt: skip
Cell = str | int | float | bool | None


def paper_models() -> list[tuple[str, TabularModel]]:
    """Return the compiled problems of the paper, energy harvesting first."""
    models = [("energy harvesting, peak 8", compile_model(energy_harvesting(peak_power=8)))]
    models += [(f"scheduling example {number}", compile_model(scheduling_example(number))) for number in (1, 2, 3)]
    return models


def plan_rows(models: list[tuple[str, TabularModel]]) -> list[tuple[Cell, ...]]:
    """Return `pac_plan` for each problem and accuracy."""
    rows: list[tuple[Cell, ...]] = []
    for name, model in models:
        sizes = (model.max_states, model.max_actions, model.horizon, model.num_constraints)
        for epsilon in EPSILONS:
            plan = pac_plan(
                epsilon=epsilon, failure_probability=FAILURE,
                states=sizes[0], actions=sizes[1], horizon=sizes[2], constraints=sizes[3],
            )  # fmt: skip
            counts = (float(plan.episodes), float(plan.regret_episodes), float(plan.strict_episodes))
            rows.append((name, *sizes, epsilon, plan.slack, plan.slater, plan.penalty, plan.log_term, *counts))
    return rows


def slack_rows(model: TabularModel) -> list[tuple[Cell, ...]]:
    """Return what figure 2's slacks leave on a model."""
    rows: list[tuple[Cell, ...]] = []
    for slack in SLACKS:
        found = audit_slack(model, slack, relaxed=False)
        rows.append((
            slack, found.penalty, found.optimum.value, found.modified.value, found.free_violation, found.value_won,
            found.exact, found.deterred_violation, found.smallest_violation,
        ))  # fmt: skip
    return rows


def theory_section() -> Section:
    """Return what Theorem 1 asks for on the paper's problems, and what the slacks leave."""
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
