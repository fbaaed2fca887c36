"""Registration of built-in problems with Gymnasium: `gymnasium.make("peakrl/EnergyHarvesting-v0")`.

`import peakrl` does not import Gymnasium. If Gymnasium is not imported yet, an import hook registers the environments
after it is.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def register_environments() -> None:
    """Register the environments of peakrl; idempotent."""
    import gymnasium

    from peakrl.specs.registry import kinds

    environments: dict[str, tuple[str, dict[str, str]]] = {
        kind.env: ("make_built_in", {"kind": kind.name}) for kind in kinds().values() if kind.env is not None
    }
    for name, (function, arguments) in (environments | {"Problem-v0": ("make_environment", {})}).items():
        if f"peakrl/{name}" not in gymnasium.registry:
            entry = f"peakrl.gym.export:{function}"
            gymnasium.register(id=f"peakrl/{name}", entry_point=entry, kwargs=arguments)


def register_with_gymnasium() -> None:
    """Register the environments now, or when Gymnasium is imported."""
    if "gymnasium" in sys.modules:
        register_environments()
    elif not any(isinstance(finder, Hook) for finder in sys.meta_path):
        sys.meta_path.insert(0, Hook())


class Hook(MetaPathFinder):
    """Import hook that registers the environments when Gymnasium is imported, then removes itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return Gymnasium's own spec with a loader that registers the environments after it."""
        if fullname != "gymnasium":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = RegisteringLoader(spec.loader)
        return spec


class RegisteringLoader(Loader):
    """Wraps a loader and registers the environments after the module is loaded."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Delegate to Gymnasium's loader."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then register."""
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        register_environments()
