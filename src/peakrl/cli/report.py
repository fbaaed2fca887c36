"""`peakrl report`: one self-contained HTML page of runs or a sweep."""

from __future__ import annotations

import os
from pathlib import Path

from peakrl.cli.command import Answer, read_problem
from peakrl.cli.output import say


def report(source: Path, *, out: Path | None = None, problem: Path | None = None, trust: bool = False) -> Answer:
    """Write one self-contained HTML page: results, learning curves, policy and certificates.

    Parameters
    ----------
    source : SOURCE
        A run file, a sweep folder, or a folder of runs.
    out : FILE.html
        File of the page; default: inside of the folder, or next to the run.
    problem : FILE
        The problem file; for a run without its model or on an environment.
    """
    from peakrl.records import kind_of
    from peakrl.report.page import write_page
    from peakrl.storage import ready
    from peakrl.training.run_file import ENVIRONMENT_RUN

    if out is not None and not os.path.isdir(out) and os.path.isdir(out.parent):
        ready(out)  # a missing folder is created
    target = None if problem is None else read_problem(problem, trust).target(progress=True)
    known = {}
    if target is not None:
        visited = target.is_environment or (source.is_file() and kind_of(source) == ENVIRONMENT_RUN.name)
        known = {"table" if visited else "model": target.table}
    place, page = write_page(source, out, **known)
    size = place.stat().st_size

    def show() -> None:
        for part in page.sections:
            say(f"  {part.title}" + (f" ({part.badge[1]})" if part.badge[1] else ""))
        say(f"{place}: {size / 1e6:.1f} MB; open it in a browser")

    sections = [{"id": part.id, "title": part.title, "verdict": part.badge[1] or None} for part in page.sections]
    return Answer({"file": str(place), "bytes": size, "sections": sections}, show)
