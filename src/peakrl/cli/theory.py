"""`peakrl audit`: the paper's assumptions on a problem; `peakrl plan`: the episodes of Theorem 1."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from peakrl.cli.options import File, Json, Packages, Trusted, option, read_problem
from peakrl.cli.output import print_json, print_table, say
from peakrl.errors import SettingsError


def audit(
    file: File,
    slack: Annotated[
        float | None, option("In the unit of the constraints; default: that of the settings in the file.")
    ] = None,
    penalty: Annotated[
        float | None, option("eta; default: that of the file, or 2 H I (hi - lo) / (slack / 2).")
    ] = None,
    failure_probability: Annotated[float, option("p of Theorem 1.")] = 0.05,
    constant: Annotated[float, option("c of Theorem 1 (unspecified there).")] = 1.0,
    relaxed: Annotated[
        bool | None, option("Also solve the relaxed problem, a linear program; default: if it is small.")
    ] = None,
    as_json: Json = False,
    trust: Trusted = False,
    package: Packages = None,
) -> None:
    """Check the paper's assumptions on a problem. Exit code 1 if one of them, or feasibility, does not hold."""
    from peakrl.theory import audit_slack

    described = read_problem(file, trust or package)
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


def plan(
    epsilon: Annotated[float, option("Accuracy of value and violation, for rewards in [0, 1].")],
    problem: Annotated[Path | None, option("Take the sizes from this problem file.", "FILE")] = None,
    states: Annotated[int | None, option("S, the largest number of states at a step.")] = None,
    actions: Annotated[int | None, option("A, the largest number of actions in a state.")] = None,
    horizon: Annotated[int | None, option("H, the steps of an episode.")] = None,
    constraints: Annotated[int | None, option("I, the number of constraints; default: 1.")] = None,
    failure_probability: Annotated[float, option("p, the failure probability.")] = 0.05,
    constant: Annotated[float, option("c of Theorem 1 (unspecified there).")] = 1.0,
    as_json: Json = False,
    trust: Trusted = False,
    package: Packages = None,
) -> None:
    """Compute the number of episodes, slack and penalty of Theorem 1."""
    from peakrl.theory import pac_plan

    sizes = {"states": states, "actions": actions, "horizon": horizon, "constraints": constraints}
    known = {"constraints": 1}
    if problem is not None:
        model = read_problem(problem, trust or package).model(progress=True)
        known = {"states": model.max_states, "actions": model.max_actions, "horizon": model.horizon}
        known["constraints"] = max(model.num_constraints, 1)
    merged = known | {name: size for name, size in sizes.items() if size is not None}
    missing = [f"--{name}" for name in sizes if name not in merged]
    if missing:
        raise SettingsError(f"{', '.join(missing)} missing: pass every size, or a problem file with --problem")
    given: dict[str, Any] = {"epsilon": epsilon, "failure_probability": failure_probability, "constant": constant}
    answer = asdict(pac_plan(**given, **merged))
    if as_json:
        print_json(given | merged | answer)
        return
    title = f"Theorem 1 for S = {merged['states']:,}, A = {merged['actions']:,}, H = {merged['horizon']:,}, "
    title += f"I = {merged['constraints']:,}, epsilon = {epsilon:g}, p = {failure_probability:g}, c = {constant:g}"
    print_table(title, ("quantity", "value"), [(LABELS[name], value) for name, value in answer.items()])
