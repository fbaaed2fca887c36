"""Registration of built-in problems with Gymnasium: `gymnasium.make("peakrl/EnergyHarvesting-v0")`.

`import peakrl` does not import Gymnasium. If Gymnasium is not imported yet, an import hook registers the environments
after it is.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: {environment: its kind of problem}: a list, since problems cannot be imported while Gymnasium is.
ENVIRONMENTS: dict[str, str | None] = {
    "BatteryRobot-v0": "battery_robot",
    "EnergyHarvesting-v0": "energy_harvesting",
    "FadingChannel-v0": "fading_channel",
    "MachineScheduling-v0": "machine_scheduling",
    "Problem-v0": None,
    "Queue-v0": "queue",
    "SchedulingExample-v0": "scheduling_example",
    "Thermostat-v0": "thermostat",
}


def register_environments() -> None:
    """Register the environments of peakrl; idempotent."""
    import gymnasium

    for name, kind in ENVIRONMENTS.items():
        if f"peakrl/{name}" not in gymnasium.registry:
            entry = f"peakrl.gym.export:{'make_environment' if kind is None else 'make_built_in'}"
            gymnasium.register(f"peakrl/{name}", entry, kwargs={} if kind is None else {"kind": kind})


def register_with_gymnasium() -> None:
    """Register the environments now, or when Gymnasium is imported."""
    if "gymnasium" in sys.modules:
        register_environments()
    elif not any(isinstance(finder, Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, Hook())


class Hook(MetaPathFinder):
    """Import hook that registers the environments when Gymnasium is imported, then removes itself."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return Gymnasium's own spec, whose loader registers the environments after it."""
        if fullname != "gymnasium":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register_environments()

            vars(spec.loader)["exec_module"] = load_and_register
        return spec
