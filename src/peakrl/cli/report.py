"""`peakrl report`: one self-contained HTML page of runs or a sweep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from peakrl.cli.options import Json, Packages, Trusted, option, read_problem
from peakrl.cli.output import print_json, say


def report(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A run file, a sweep folder, or a folder of runs.")],
    out: Annotated[
        Path | None, option("File of the page; default: inside of the folder, or next to the run.", "FILE.html")
    ] = None,
    problem: Annotated[
        Path | None, option("The problem file; for a run without its model or on an environment.", "FILE")
    ] = None,
    as_json: Json = False,
    trust: Trusted = False,
    package: Packages = None,
) -> None:
    """Write one self-contained HTML page: results, learning curves, policy and certificates."""
    from peakrl.report.page import write_page
    from peakrl.storage import ready

    if out is not None and not os.path.isdir(out) and os.path.isdir(out.parent):
        ready(out)  # a missing folder is created
    target = None if problem is None else read_problem(problem, trust or package).target(progress=True)
    known = {} if target is None else {"table" if target.is_environment else "model": target.table}
    place, page = write_page(source, out, **known)
    size = place.stat().st_size
    if as_json:
        sections = [{"id": part.id, "title": part.title, "verdict": part.badge[1] or None} for part in page.sections]
        print_json({"file": str(place), "bytes": size, "sections": sections})
        return
    for part in page.sections:
        say(f"  {part.title}" + (f" ({part.badge[1]})" if part.badge[1] else ""))
    say(f"{place}: {size / 1e6:.1f} MB; open it in a browser")
