"""The approximated problem: E|f_i^-| within a slack at each step, for each constraint (`planning.cmdp`)."""

from __future__ import annotations

from peakrl.checks import check_number
from peakrl.compile import Target
from peakrl.planning.cmdp import AnySolution, solve_budget


def solve_relaxed(model: Target, slack: float) -> AnySolution:
    """Solve the approximated problem: E|f_i^-| may reach `slack` at each step, for each constraint.

    The same as `solve_budget(model, per_step=slack)`. Where even the relaxed constraints cannot be met, the answer is
    `solve`'s policy of least violation with feasible=False, and `reason` names the least slack that can be kept.
    """
    return solve_budget(model, per_step=check_number(slack, "slack", least=0))
