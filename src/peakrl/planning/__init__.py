"""Planning with a known model: the paper's three problems, and limits on what is expected, solved exactly."""

from peakrl.planning.cmdp import solve_cmdp
from peakrl.planning.grid import GridPolicy, GridReach, GridSolution, solve_on_grid
from peakrl.planning.solution import Solution, solve

__all__ = ["GridPolicy", "GridReach", "GridSolution", "Solution", "solve", "solve_cmdp", "solve_on_grid"]
