"""`peakrl bench`: how fast it is here."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from peakrl.benchmark import CASES, chosen_cases, run_case
from peakrl.benchmark.sections import shown


def bench(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CASE]...", help=f"Which: {', '.join(CASES)}. All where none is named."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, to see that it works; not to quote.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement; the median counts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Time kernels, runs, planning and cold start, against straightforward C where a compiler is found."""
    from peakrl.cli.output import print_json, print_table

    sections = []
    for name in chosen_cases(cases or []):
        # On the way, so that nobody waits in silence and what is stopped has told what it had.
        section = run_case(name, repeats=repeats, quick=quick, tell=partial(tell, name))
        sections.append(section)
        if as_json:
            continue
        if section.rows:
            rows = [[shown(cell) for cell in row.values()] for row in section.rows]
            print_table(f"{name}: {section.title}", list(section.rows[0]), rows)
        else:
            print(f"{name}: {section.title}")
        for note in section.notes:
            print(f"  {note}")
        print()
    if as_json:
        print_json({section.name: section.as_dict() for section in sections})


def tell(name: str, what: str) -> None:
    """Print what a case has come to."""
    print(f"{name}: {what}", file=sys.stderr, flush=True)
