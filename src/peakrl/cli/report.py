"""`peakrl report`: one self-contained page of runs or a sweep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting


@trusting
def report(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A run file, a sweep's folder, or a folder of runs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Where it goes; by default into the folder, or beside the run."),
    ] = None,
    problem: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The problem file, of a run without its model or on an environment.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Write what was run, what came out and how far it is from the optimum into one HTML file; no network needed."""
    from peakrl.cli.output import print_json
    from peakrl.report.page import write_page
    from peakrl.storage import ready

    if out is not None and not os.path.isdir(out) and os.path.isdir(out.parent):
        ready(out)  # a folder that is not there yet is made
    target = None if problem is None else read_problem(problem).target(progress=True)
    known = {} if target is None else {"table" if target.is_environment else "model": target.table}
    place, page = write_page(source, out, **known)
    size = place.stat().st_size
    if as_json:
        sections = [{"id": part.id, "title": part.title, "verdict": part.badge[1] or None} for part in page.sections]
        print_json({"file": str(place), "bytes": size, "sections": sections})
        return
    for part in page.sections:
        say(f"  {part.title}" + (f" ({part.badge[1]})" if part.badge[1] else ""))
    say(f"{place}: {size / 1e6:.1f} MB; open it in any browser")
