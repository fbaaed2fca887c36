"""`python -m benchmarks [SECTION]...`: time kernels, planners, learners and the start of a process."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Annotated

import typer

from benchmarks.timing import Section, shown

#: {section: (module, function, what it shows)}
SECTIONS = {
    "kernels": ("learning", "kernel_rates", "Algorithm 1 against straightforward C, one core"),
    "history": ("learning", "history_costs", "what the exact learning curve costs"),
    "cores": ("learning", "core_rates", "`learn_many` on one core and on all"),
    "environments": ("environments", "environment_rates", "`learn(env)` against the bare loop"),
    "certificates": ("learning", "certificate_times", "from nothing to a certificate"),
    "solve": ("planning", "solve_rates", "`solve` on a million states: C and other planners"),
    "endless": ("endless", "endless_rates", "discounted values on a million states, and the safe set for ever"),
    "scaling": ("planning", "scaling_rates", "building, planning and learning as the model grows"),
    "compiling": ("planning", "compile_rates", "`compile_model`, pairs a second"),
    "continuous": ("continuous", "continuous_times", "safe sets and targets of continuous problems"),
    "start": ("start", "start_times", "from nothing to the first result"),
}


def run_section(name: str, *, repeats: int = 5, quick: bool = False) -> Section:
    """Run one section. `quick` makes everything smaller: to see that it works, not to quote."""
    module, function, title = SECTIONS[name]
    section = Section(name, title)
    getattr(importlib.import_module(f"benchmarks.{module}"), function)(section, repeats, quick)
    return section


def benchmarks(
    sections: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(SECTIONS)}. All if none is named.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller, to see that it works; not to quote.")] = False,
    repeats: Annotated[int, typer.Option(min=1, help="Of each measurement; the median counts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
) -> None:
    """Time kernels, planners, learners and cold start; every row is printed to stderr as soon as it is known."""
    from rich.console import Console
    from rich.table import Table

    for name in sections or []:
        if name not in SECTIONS:
            raise typer.BadParameter(f"there is no benchmark {name!r}; there are: {', '.join(SECTIONS)}")
    found = {}
    for name in dict.fromkeys(sections or SECTIONS):
        section = found[name] = run_section(name, repeats=repeats, quick=quick)
        if as_json:
            continue
        table = Table(
            *(section.rows[0] if section.rows else ()), title=f"{name}: {section.title}", title_justify="left"
        )
        for row in section.rows:
            table.add_row(*(str(shown(cell)) for cell in row.values()))
        Console(width=None if sys.stdout.isatty() else 200).print(table)
        print("".join(f"  {note}\n" for note in section.notes))
    if as_json:
        print(json.dumps({name: {"rows": each.rows, "notes": each.notes} for name, each in found.items()}, indent=2))


if __name__ == "__main__":
    typer.run(benchmarks)
