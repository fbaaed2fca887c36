"""`peakrl audit`: the paper's assumptions on a problem; `peakrl plan`: the episodes of Theorem 1."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting
from peakrl.errors import SettingsError


@trusting
def audit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
    ],
    slack: Annotated[
        float | None, typer.Option(help="In the unit of the constraints; default: that of the settings in the file.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="eta; default: that of the file, or 2 H I (hi - lo) / (slack / 2).")
    ] = None,
    failure_probability: Annotated[float, typer.Option(help="p of Theorem 1.")] = 0.05,
    constant: Annotated[float, typer.Option(help="c of Theorem 1 (unspecified there).")] = 1.0,
    relaxed: Annotated[
        bool | None, typer.Option(help="Also solve the relaxed problem, a linear program; default: if it is small.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the paper's assumptions on a problem. Exit code 1 if one of them, or feasibility, does not hold."""
    from peakrl.cli.output import print_json
    from peakrl.errors import SettingsError
    from peakrl.theory import audit_slack

    described = read_problem(file)
    if slack is None:
        slack, own_penalty = described.settings.tolerated()
        if slack == 0 and penalty is None:
            raise SettingsError(f"--slack is missing, and the settings of {file} have no slack: pass --slack")
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


LABELS = {
    "slack": "slack xi",
    "slater": "Slater constant gamma",
    "penalty": "penalty eta",
    "log_term": "log term l",
    "episodes": "episodes K, as printed in the paper",
    "steps": "steps K * H",
    "regret_episodes": "episodes for the regret bound to hold",
    "strict_episodes": "episodes with all constants explicit",
}


@trusting
def plan(
    epsilon: Annotated[float, typer.Option(help="Accuracy of value and violation, for rewards in [0, 1].")],
    problem: Annotated[Path | None, typer.Option(metavar="FILE", help="Take the sizes from this problem file.")] = None,
    states: Annotated[int | None, typer.Option(help="S, the largest number of states at a step.")] = None,
    actions: Annotated[int | None, typer.Option(help="A, the largest number of actions in a state.")] = None,
    horizon: Annotated[int | None, typer.Option(help="H, the steps of an episode.")] = None,
    constraints: Annotated[int | None, typer.Option(help="I, the number of constraints; default: 1.")] = None,
    failure_probability: Annotated[float, typer.Option(help="p, the failure probability.")] = 0.05,
    constant: Annotated[float, typer.Option(help="c of Theorem 1 (unspecified there).")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the number of episodes, slack and penalty of Theorem 1."""
    from peakrl.cli.output import print_json, print_table
    from peakrl.theory import pac_plan

    sizes = {"states": states, "actions": actions, "horizon": horizon, "constraints": constraints}
    known = sizes_of(problem) if problem is not None else {"constraints": 1}
    merged = known | {name: size for name, size in sizes.items() if size is not None}
    missing = [f"--{name}" for name in sizes if name not in merged]
    if missing:
        raise SettingsError(f"{', '.join(missing)} missing: pass every size, or a problem file with --problem")
    answer = pac_plan(
        epsilon=epsilon, failure_probability=failure_probability, constant=constant,
        states=merged["states"], actions=merged["actions"],
        horizon=merged["horizon"], constraints=merged["constraints"],
    )  # fmt: skip
    if as_json:
        inputs = {"epsilon": epsilon, "failure_probability": failure_probability, "constant": constant, **merged}
        print_json(inputs | asdict(answer))
        return
    title = f"Theorem 1 for S = {merged['states']:,}, A = {merged['actions']:,}, H = {merged['horizon']:,}, "
    title += f"I = {merged['constraints']:,}, epsilon = {epsilon:g}, p = {failure_probability:g}, c = {constant:g}"
    print_table(title, ("quantity", "value"), [(LABELS[name], value) for name, value in asdict(answer).items()])


def sizes_of(path: Path) -> dict[str, int]:
    """Return the sizes of a problem file's model."""
    model = read_problem(path).model(progress=True)
    return {
        "states": model.max_states,
        "actions": model.max_actions,
        "horizon": model.horizon,
        "constraints": max(model.num_constraints, 1),
    }
