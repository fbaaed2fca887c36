"""`peakrl.problems`: the built-in problems, and what belongs to each of them.

`problems.energy_harvesting(peak_power=8)` creates a problem; `problems.harvesting` has its classes, baselines and
readers. Importing this package registers the kinds of all its folders with `peakrl.specs.registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.lazy import lazy_names
from peakrl.problems.charging.kinds import KINDS as CHARGING
from peakrl.problems.flow_shops.kinds import KINDS as FLOW_SHOPS
from peakrl.problems.harvesting.kinds import KINDS as HARVESTING
from peakrl.problems.heating.kinds import KINDS as HEATING
from peakrl.problems.python.kinds import KINDS as PYTHON
from peakrl.problems.robots.kinds import KINDS as ROBOTS
from peakrl.problems.scheduling.kinds import KINDS as SCHEDULING
from peakrl.problems.tables.kinds import KINDS as TABLES
from peakrl.specs.registry import register

#: Packages of built-in problems with names of their own: `problems.harvesting.greedy_policy`.
NAMESPACES = ("charging", "flow_shops", "harvesting", "heating", "robots", "scheduling")

__all__ = [
    "Job",
    "battery_robot",
    "charging",
    "energy_harvesting",
    "fading_channel",
    "flow_shop",
    "flow_shops",
    "harvesting",
    "heating",
    "machine_scheduling",
    "robots",
    "scheduling",
    "scheduling_example",
    "solar_transmitter",
    "thermostat",
    "vehicle_charging",
]

if TYPE_CHECKING:
    from peakrl.problems import charging, flow_shops, harvesting, heating, robots, scheduling
    from peakrl.problems.charging import vehicle_charging
    from peakrl.problems.flow_shops import flow_shop
    from peakrl.problems.harvesting import energy_harvesting, fading_channel, solar_transmitter
    from peakrl.problems.heating import thermostat
    from peakrl.problems.robots import battery_robot
    from peakrl.problems.scheduling import Job, machine_scheduling, scheduling_example

__getattr__, _ = lazy_names(
    __name__,
    {
        "charging": ("vehicle_charging",),
        "flow_shops": ("flow_shop",),
        "harvesting": ("energy_harvesting", "fading_channel", "solar_transmitter"),
        "heating": ("thermostat",),
        "robots": ("battery_robot",),
        "scheduling": ("Job", "machine_scheduling", "scheduling_example"),
    },
)


def __dir__() -> list[str]:
    return __all__


# In the order in which error messages and `peakrl init --help` list them.
register(*HARVESTING, *SCHEDULING, *HEATING, *CHARGING, *ROBOTS, *FLOW_SHOPS, *TABLES, *PYTHON)
