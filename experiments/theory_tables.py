"""Theorem 1's arithmetic for the paper's own problems, and what the slacks of figure 2 leave, as rows of numbers."""

from __future__ import annotations

from peakrl.auditing import audit
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.problem import scheduling_example
from peakrl.theory import pac_plan

#: The accuracies (rewards in [0, 1]) and the failure probability that Theorem 1 is asked about.
EPSILONS, FAILURE = (1.0, 0.1), 0.05
#: Of figure 2.
SLACKS = (0.1, 0.01, 0.001)
PLAN_COLUMNS = (
    "problem", "S", "A", "H", "I", "ε", "slack ξ", "Slater γ", "penalty η", "log term",
    "episodes, as printed", "episodes, for the regret bound", "episodes, nothing hidden",
)  # fmt: skip
SLACK_COLUMNS = (
    "slack ξ", "penalty η", "optimum V*", "modified optimum W*", "free violation", "value won",
    "is the optimum", "least deterred violation", "smallest violation there is",
)  # fmt: skip
Cell = str | int | float | bool | None


def paper_models() -> list[tuple[str, TabularModel]]:
    """Return the compiled problems of the paper, energy harvesting first."""
    models = [("energy harvesting, peak 8", compile_model(energy_harvesting(peak_power=8)))]
    models += [(f"scheduling example {number}", compile_model(scheduling_example(number))) for number in (1, 2, 3)]
    return models


def plan_rows(models: list[tuple[str, TabularModel]]) -> list[tuple[Cell, ...]]:
    """Return `pac_plan` for each problem and accuracy."""
    rows: list[tuple[Cell, ...]] = []
    for name, model in models:
        sizes = (model.max_states, model.max_actions, model.horizon, model.num_constraints)
        for epsilon in EPSILONS:
            plan = pac_plan(
                epsilon=epsilon, failure_probability=FAILURE,
                states=sizes[0], actions=sizes[1], horizon=sizes[2], constraints=sizes[3],
            )  # fmt: skip
            counts = (float(plan.episodes), float(plan.regret_episodes), float(plan.strict_episodes))
            rows.append((name, *sizes, epsilon, plan.slack, plan.slater, plan.penalty, plan.log_term, *counts))
    return rows


def slack_rows(model: TabularModel) -> list[tuple[Cell, ...]]:
    """Return what figure 2's slacks leave on a model."""
    rows: list[tuple[Cell, ...]] = []
    for slack in SLACKS:
        found = audit(model, slack, relaxed=False)
        rows.append((
            slack, found.penalty, found.optimum.value, found.modified.value, found.free_violation, found.value_won,
            found.exact, found.deterred_violation, found.smallest_violation,
        ))  # fmt: skip
    return rows
