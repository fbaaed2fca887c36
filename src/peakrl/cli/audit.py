"""`peakrl audit`: the paper's assumptions on a problem, and what a slack leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting


@trusting
def audit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
    ],
    slack: Annotated[
        float | None, typer.Option(help="In the constraints' own unit; by default that of the file's settings.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="eta; by default 2 H I (hi - lo) / (slack / 2), or the file's.")
    ] = None,
    failure_probability: Annotated[float, typer.Option(help="p of Theorem 1.")] = 0.05,
    constant: Annotated[float, typer.Option(help="c of Theorem 1, which it leaves open.")] = 1.0,
    relaxed: Annotated[
        bool | None, typer.Option(help="Solve the relaxed problem too, a linear programme; by default if it is small.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Check the paper's assumptions one by one. Exit code 1 where one does not hold, feasibility included."""
    from peakrl.cli.output import print_json
    from peakrl.errors import SettingsError
    from peakrl.theory import audit_slack

    described = read_problem(file)
    if slack is None:
        slack, own_penalty = described.settings.tolerated()
        if slack == 0 and penalty is None:
            raise SettingsError(f"--slack is missing, and the settings of {file} have none: say how much to audit")
        penalty = own_penalty if penalty is None else penalty
    model = described.model(progress=True)
    answer = audit_slack(
        model, slack, penalty, failure_probability=failure_probability, constant=constant, relaxed=relaxed
    )
    holds = all(check.holds for check in answer.checks)
    if as_json:
        print_json(answer.as_dict() | {"all_hold": holds})
    else:
        say(answer)
    raise typer.Exit(0 if holds else 1)
