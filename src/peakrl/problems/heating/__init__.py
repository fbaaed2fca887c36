"""`peakrl.problems.heating`: a house whose temperature must stay in a band while the price of heating changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names

__all__ = ["HouseState", "Thermostat", "set_point_policy", "thermostat"]

if TYPE_CHECKING:
    from peakrl.problems.heating.baselines import set_point_policy
    from peakrl.problems.heating.problem import HouseState, Thermostat, thermostat

__getattr__, __dir__ = lazy_names(
    __name__,
    {"baselines": ("set_point_policy",), "problem": ("HouseState", "Thermostat", "thermostat")},
)
