"""Planning with a known model: the paper's three problems, solved exactly."""

from peakrl.planning.exact import Solution, solve, solve_modified
from peakrl.planning.relaxed import solve_relaxed

__all__ = ["Solution", "solve", "solve_modified", "solve_relaxed"]
