"""`peakrl.problems.charging`: electric cars that share a grid connection with a household."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["Car", "VehicleCharging", "as_late_policy", "at_once_policy", "vehicle_charging"]

if TYPE_CHECKING:
    from peakrl.problems.charging.baselines import as_late_policy, at_once_policy
    from peakrl.problems.charging.problem import Car, VehicleCharging, vehicle_charging

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "baselines": ("as_late_policy", "at_once_policy"),
        "problem": ("Car", "VehicleCharging", "vehicle_charging"),
    },
)
