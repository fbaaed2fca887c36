"""Planning with a known model: the paper's three problems, and limits on what is expected, solved exactly."""

from peakrl.planning.cmdp import solve_cmdp
from peakrl.planning.solution import Solution, solve

__all__ = ["Solution", "solve", "solve_cmdp"]
