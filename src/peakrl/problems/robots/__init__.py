"""`peakrl.problems.robots`: a robot on a slippery floor whose battery must never be empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["BatteryRobot", "Floor", "RobotState", "battery_robot", "return_in_time_policy", "sure_distances"]

if TYPE_CHECKING:
    from peakrl.problems.robots.baselines import return_in_time_policy, sure_distances
    from peakrl.problems.robots.floor import Floor
    from peakrl.problems.robots.problem import BatteryRobot, RobotState, battery_robot

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "baselines": ("return_in_time_policy", "sure_distances"),
        "floor": ("Floor",),
        "problem": ("BatteryRobot", "RobotState", "battery_robot"),
    },
)
