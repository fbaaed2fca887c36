"""`peakrl reproduce`: run the paper's experiments, draw their figures, compare with the published numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.paper import EXPERIMENTS, WARM_UP, check_arrivals, find_experiment

if TYPE_CHECKING:
    from peakrl.paper.records import FigureRecord

FOLDER = Path("results")
COLUMNS = ("quantity", "compared with", "there", "ours", "difference", "tolerance", "within")
#: Not judged: shown for the reader.
WITHIN = {True: "yes", False: "NO", None: "-"}


def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIGURE]...", help=f"Which: {', '.join(EXPERIMENTS)}. All where none is named."),
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
    """Rerun the paper's figures: records, tables and pictures; what is on disk already is not computed again."""
    from peakrl.cli.output import print_json
    from peakrl.paper import run_experiment
    from peakrl.paper.records import Request
    from peakrl.report import draw_figure
    from peakrl.runs import local_workers

    quick = size is True
    names = chosen_figures(figures or [], recorded=arrivals is not None)
    request = Request(
        folder=out or default_folder(quick, recorded=arrivals is not None),
        quick=quick,
        full=size is False,
        workers=workers,
        progress=not as_json,
        arrivals=None if arrivals is None else load_arrivals(arrivals),
    )
    shown = []
    try:
        with local_workers(workers, prepare=WARM_UP) as engine:
            for name in names:
                record = run_experiment(name, replace(request, engine=engine))
                files = draw_figure(name, request.folder)
                shown.append(described(record, request.folder, files))
                if not as_json:
                    print_checks(record, shown[-1]["files"])
    except KeyboardInterrupt:
        # Typer would end without a word.
        typer.echo(
            f"peakrl: interrupted; {request.folder} keeps what is done, the same command goes on there", err=True
        )
        raise typer.Exit(130) from None
    passed = all(entry["passed"] for entry in shown)
    if as_json:
        print_json({"passed": passed, "folder": str(request.folder), "figures": shown})
    raise typer.Exit(0 if passed else 1)


def chosen_figures(names: list[str], *, recorded: bool) -> list[str]:
    """Return the named figures, each once; without names all that apply."""
    for name in names:
        find_experiment(name)
        if recorded:
            check_arrivals(name)
    applying = [name for name, entry in EXPERIMENTS.items() if entry.takes_arrivals or not recorded]
    return list(dict.fromkeys(names)) or applying


def default_folder(quick: bool, recorded: bool) -> Path:
    """Small and recorded versions stay apart, so that they never replace the full results."""
    if recorded:
        return FOLDER / "recorded"
    return FOLDER / "quick" if quick else FOLDER


def load_arrivals(path: Path) -> Any:
    """Return the arrivals of a file, [sequence, slot], or raise naming the file and the position."""
    from peakrl.paper.recordings import load_recordings

    return load_recordings(path)


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
    from peakrl.cli.output import print_table

    rows = [
        (check.what, check.against, check.expected, check.ours, check.difference, check.tolerance, WITHIN[check.within])
        for check in record.checks
    ]
    print_table(f"{record.name}: {record.title}", COLUMNS, [[legible(cell) for cell in row] for row in rows])
    judged = [check.within for check in record.checks if check.within is not None]
    print(f"{record.name}: {sum(judged)} of {len(judged)} judged comparisons are within tolerance")
    for file in files:
        print(f"  {file}")
    print()


def legible(cell: Any) -> Any:
    """Return a number of a comparison with four places behind the point; where that would be 0, its first digits."""
    if not isinstance(cell, float):
        return cell
    short = round(cell, 4)
    return short if short or not cell else float(f"{cell:.2g}")
