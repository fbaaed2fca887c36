"""Planning with a known model: the paper's three problems, and limits on what is expected, solved exactly."""

from peakrl.planning.budgets import solve_budget
from peakrl.planning.exact import Solution, solve, solve_modified
from peakrl.planning.relaxed import solve_relaxed

__all__ = ["Solution", "solve", "solve_budget", "solve_modified", "solve_relaxed"]
