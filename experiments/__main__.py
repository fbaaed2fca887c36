"""`python -m experiments`: run the experiments, draw their figures and page, compare with the published numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments import BEYOND, EXPERIMENTS, PAPER_FIGURES, draw_figure, find_experiment, run_experiment
from experiments.energy import WARM_UP, load_recordings
from experiments.page import CHECK_COLUMNS, check_cells, write_page
from experiments.records import FigureRecord, Request
from peakrl import PeakError
from peakrl.sweeps import local_workers

FOLDER = Path("results")


def experiments(
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIGURE]...",
            help=f"Which: {', '.join(EXPERIMENTS)}; beyond: all that are not in the paper. By default the paper's.",
        ),
    ] = None,
    size: Annotated[
        bool | None,
        typer.Option(
            "--quick/--full",
            help="A small version, by default in results/quick; or all seeds of experiments that take long.",
        ),
    ] = None,
    arrivals: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npy", help="Recorded arrivals, sequences x slots, for figures 2 and 3."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for records and figures.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes side by side; one a core by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Run figures: records, tables, pictures and one page of all; what is on disk already is not computed again."""
    recorded, quick = arrivals is not None, size is True
    paper = [name for name in PAPER_FIGURES if EXPERIMENTS[name].takes_arrivals or not recorded]
    names = [each for name in figures or paper for each in (BEYOND if name == "beyond" else (name,))]
    for name in names:
        find_experiment(name, recorded=recorded)
    # Small and recorded versions have folders of their own, so that they never replace the full results.
    folder = out or (FOLDER / "recorded" if recorded else FOLDER / "quick" if quick else FOLDER)
    request = Request(
        folder, quick=quick, full=size is False, workers=workers, progress=not as_json,
        arrivals=None if arrivals is None else load_recordings(arrivals),
    )  # fmt: skip
    shown = []
    try:
        with local_workers(workers, prepare=WARM_UP) as engine:
            for name in dict.fromkeys(names):
                record = run_experiment(name, replace(request, engine=engine))
                shown.append(described(record, folder, draw_figure(name, folder)))
                if not as_json:
                    print_checks(record, shown[-1]["files"])
    except KeyboardInterrupt:
        typer.echo(f"interrupted; {folder} keeps what is done, the same command goes on there", err=True)
        raise typer.Exit(130) from None
    page, passed = write_page(folder), all(entry["passed"] for entry in shown)
    if as_json:
        print(json.dumps({"passed": passed, "folder": str(folder), "page": str(page), "figures": shown}, indent=2))
    else:
        print(f"{page}: open it in any browser")
    raise typer.Exit(0 if passed else 1)


def described(record: FigureRecord, folder: Path, files: list[Path]) -> dict[str, Any]:
    """Return what the JSON says of a figure."""
    return {
        "figure": record.name,
        "title": record.title,
        "passed": record.passed,
        "checks": [check.as_dict() for check in record.checks],
        "settings": dict(record.settings),
        "files": [str(folder / f"{record.name}.{kind}") for kind in ("csv", "json")] + [str(file) for file in files],
    }


def print_checks(record: FigureRecord, files: list[str]) -> None:
    """Print the comparison of a figure and where its files are."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*CHECK_COLUMNS, title=f"{record.name}: {record.title}", title_justify="left")
    for check in record.checks:
        table.add_row(*(legible(cell) for cell in check_cells(check)))
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    judged = [check.within for check in record.checks if check.within is not None]
    print(f"{record.name}: {sum(judged)} of {len(judged)} judged comparisons are within tolerance")
    print("\n".join(f"  {file}" for file in files), end="\n\n")


def legible(cell: str | float | None) -> str:
    """Return a number with four places behind the point; if that would be 0, its first digits."""
    if not isinstance(cell, float):
        return "" if cell is None else str(cell)
    short = round(cell, 4)
    return f"{short if short or not cell else float(f'{cell:.2g}'):,.6g}"


def main() -> None:
    """Run the command line; exit codes: 0 fine, 1 a check failed, 2 bad input, 130 interrupted."""
    try:
        typer.run(experiments)
    except PeakError as error:
        print(f"experiments: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
