"""`peakrl audit`: the paper's assumptions on a problem; `peakrl plan`: the episodes of Theorem 1."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from peakrl.cli.command import Answer, read_problem
from peakrl.cli.output import print_table, say
from peakrl.errors import SettingsError


def audit(
    file: Path,
    *,
    slack: float | None = None,
    penalty: float | None = None,
    failure_probability: float = 0.05,
    constant: float = 1.0,
    relaxed: bool | None = None,
    trust: bool = False,
) -> Answer:
    """Check the paper's assumptions on a problem. Exit code 1 if one of them, or feasibility, does not hold.

    Parameters
    ----------
    file : FILE
        A problem file, or a built-in problem as for `peakrl solve`.
    slack
        In the unit of the constraints; default: that of the settings in the file.
    penalty
        eta; default: that of the file, or 2 H I (hi - lo) / (slack / 2).
    failure_probability
        p of Theorem 1.
    constant
        c of Theorem 1 (unspecified there).
    relaxed
        Also solve the relaxed problem, a linear program; default: if it is small.
    """
    from peakrl.theory import audit_slack

    described = read_problem(file, trust)
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
    return Answer(answer.as_dict() | {"all_hold": holds}, lambda: say(answer), holds)


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
    *,
    epsilon: float,
    problem: Path | None = None,
    states: int | None = None,
    actions: int | None = None,
    horizon: int | None = None,
    constraints: int | None = None,
    failure_probability: float = 0.05,
    constant: float = 1.0,
    trust: bool = False,
) -> Answer:
    """Compute the number of episodes, slack and penalty of Theorem 1.

    Parameters
    ----------
    epsilon
        Accuracy of value and violation, for rewards in [0, 1].
    problem : FILE
        Take the sizes from this problem file.
    states
        S, the largest number of states at a step.
    actions
        A, the largest number of actions in a state.
    horizon
        H, the steps of an episode.
    constraints
        I, the number of constraints; default: 1.
    failure_probability
        p, the failure probability.
    constant
        c of Theorem 1 (unspecified there).
    """
    from peakrl.theory import pac_plan

    sizes = {"states": states, "actions": actions, "horizon": horizon, "constraints": constraints}
    known = {"constraints": 1}
    if problem is not None:
        model = read_problem(problem, trust).model(progress=True)
        known = {"states": model.max_states, "actions": model.max_actions, "horizon": model.horizon}
        known["constraints"] = max(model.num_constraints, 1)
    merged = known | {name: size for name, size in sizes.items() if size is not None}
    missing = [f"--{name}" for name in sizes if name not in merged]
    if missing:
        raise SettingsError(f"{', '.join(missing)} missing: pass every size, or a problem file with --problem")
    given: dict[str, Any] = {"epsilon": epsilon, "failure_probability": failure_probability, "constant": constant}
    answer = asdict(pac_plan(**given, **merged))
    title = f"Theorem 1 for S = {merged['states']:,}, A = {merged['actions']:,}, H = {merged['horizon']:,}, "
    title += f"I = {merged['constraints']:,}, epsilon = {epsilon:g}, p = {failure_probability:g}, c = {constant:g}"
    rows = [(LABELS[name], value) for name, value in answer.items()]
    return Answer(given | merged | answer, lambda: print_table(title, ("quantity", "value"), rows))
