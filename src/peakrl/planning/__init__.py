"""Planning with a known model: the paper's three problems, and limits on what is expected, solved exactly."""

from peakrl.planning.cmdp import solve_budget
from peakrl.planning.relaxed import solve_relaxed
from peakrl.planning.solution import Solution, solve, solve_modified

__all__ = ["Solution", "solve", "solve_budget", "solve_modified", "solve_relaxed"]
