"""Problems with continuous states: dynamics in numpy, sound safe sets on a grid."""

from __future__ import annotations

from peakrl.continuous.finite import to_problem as to_problem
from peakrl.continuous.problem import ContinuousProblem as ContinuousProblem
from peakrl.continuous.safe_set import GridSafeSet as GridSafeSet
from peakrl.continuous.safe_set import grid_safe_set as grid_safe_set
from peakrl.continuous.shield import GridGuard as GridGuard

__all__ = ["ContinuousProblem", "GridGuard", "GridSafeSet", "grid_safe_set", "to_problem"]
