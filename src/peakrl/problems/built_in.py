"""The built-in problems: importing this module registers their kinds, and its names are those of `peakrl.problems`."""

from __future__ import annotations

from peakrl.formats import umb as _umb  # noqa: F401  # for problem files only
from peakrl.problems import continuous_systems as continuous_systems
from peakrl.problems import harvesting as harvesting
from peakrl.problems import heating as heating
from peakrl.problems import python as _python  # noqa: F401  # for problem files only
from peakrl.problems import queues as queues
from peakrl.problems import robots as robots
from peakrl.problems import scheduling as scheduling
from peakrl.problems import tables as _tables  # noqa: F401  # for problem files only
from peakrl.problems.continuous_systems import cartpole as cartpole
from peakrl.problems.continuous_systems import continuous_harvesting as continuous_harvesting
from peakrl.problems.continuous_systems import room_temperature as room_temperature
from peakrl.problems.harvesting import energy_harvesting as energy_harvesting
from peakrl.problems.harvesting import fading_channel as fading_channel
from peakrl.problems.heating import thermostat as thermostat
from peakrl.problems.queues import queue as queue
from peakrl.problems.robots import battery_robot as battery_robot
from peakrl.problems.scheduling import Job as Job
from peakrl.problems.scheduling import machine_scheduling as machine_scheduling
from peakrl.problems.scheduling import scheduling_example as scheduling_example
