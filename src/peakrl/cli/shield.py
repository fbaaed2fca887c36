"""`peakrl shield`: the safe set of a problem, its size step by step, kept in a file, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting

if TYPE_CHECKING:
    from peakrl.safety.safe_set import SafeSet

COLUMNS = ["step", "states", "safe states", "actions", "safe actions"]


@trusting
def shield(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the safe set: .csv or .json, else for `peakrl.load_safe_set`."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw how much is safe at each step (.png, .pdf, .svg).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Work out from where, and by which actions, every constraint can be kept. Exit code 1 where no policy can."""
    from peakrl.cli.output import print_json
    from peakrl.safety.safe_set import SafeSet
    from peakrl.storage import ready

    ready(out, plot)
    safe = SafeSet(read_problem(file).model(progress=True))
    if out is not None:
        keep(safe, out)
    if plot is not None:
        draw(safe, plot)
    answer = answer_of(safe)
    if as_json:
        print_json(answer)
    else:
        show(answer)
    raise typer.Exit(0 if safe.feasible else 1)


def answer_of(safe: SafeSet) -> dict[str, Any]:
    """Return what is told of a safe set."""
    return {
        "problem": safe.model.name,
        "feasible": safe.feasible,
        "reason": None if safe.feasible else first_reason(safe),
        "steps": [dict(zip(COLUMNS, count, strict=True)) for count in safe.counts],
    }


def first_reason(safe: SafeSet) -> str:
    """Return why the first action of a first state that is not safe is not."""
    slot = next(slot for slot in safe.model.first_slot.tolist() if not safe.nodes[slot])
    action = safe.model.action_of_row(safe.model.rows_of_slot(slot)[0])
    return str(safe.reason(0, safe.model.state_of_slot(slot), action))


def keep(safe: SafeSet, path: Path) -> None:
    """Write a safe set in the form that the file's name asks for."""
    if path.suffix == ".csv":
        safe.to_csv(path)
    elif path.suffix == ".json":
        safe.to_json(path)
    else:
        safe.save(path, with_model=True)


def draw(safe: SafeSet, path: Path) -> None:
    """Write the picture of how much is safe at each step."""
    from peakrl.report.safety import draw_counts
    from peakrl.report.style import house_style, save

    with house_style():
        save(draw_counts(safe.counts, f"Safe set of {safe.model.name}"), path)


def show(answer: dict[str, Any]) -> None:
    """Print an answer."""
    from peakrl.cli.output import print_table

    print_table(f"{answer['problem']}: what is safe", COLUMNS, [list(row.values()) for row in answer["steps"]])
    if answer["feasible"]:
        say("Every first state is safe: a policy that takes safe actions only never violates anything.")
    else:
        say(f"No policy keeps every constraint: {answer['reason']}")
