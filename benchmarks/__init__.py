"""How fast peakrl is here: cases that time, and a straightforward C version to measure against.

Light to import: what a case needs is imported when it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from peakrl.benchmark.sections import Section
from peakrl.errors import SettingsError

#: {case: (module, function, what it shows)}
CASES = {
    "kernels": ("peakrl.benchmark.kernels", "kernel_rates", "Algorithm 1 against straightforward C, one core"),
    "practical": ("peakrl.benchmark.kernels", "practical_rates", "the practical learner, by updated entry"),
    "history": ("peakrl.benchmark.runs", "history_costs", "what the exact learning curve costs"),
    "overhead": ("peakrl.benchmark.runs", "run_overheads", "short runs: `learn` against its kernel"),
    "cores": ("peakrl.benchmark.runs", "core_rates", "`learn_many` on one core and on all"),
    "environments": ("peakrl.benchmark.environments", "environment_rates", "`learn(env)` against the bare loop"),
    "figure-2": ("peakrl.benchmark.figure", "figure_rates", "a figure's runs against their kernel on every core"),
    "scaling": ("peakrl.benchmark.scaling", "scaling_rates", "learning and planning as the model grows"),
    "solve": ("peakrl.benchmark.planning", "planning_rates", "`solve` on a million states: C and other planners"),
    "compiling": ("peakrl.benchmark.scaling", "compile_rates", "`compile_model`, pairs a second"),
    "safety": ("peakrl.benchmark.safety", "safety_rates", "the safe set, its masks, and what a shield costs"),
    "start": ("peakrl.benchmark.start", "start_times", "from nothing to the first result"),
    "peers": ("peakrl.benchmark.peers", "peer_rates", "optimistic Q-learning in other packages"),
}


def chosen_cases(names: Sequence[str]) -> list[str]:
    """Return the cases named, all where none is; an unknown name is an error."""
    for name in names:
        if name not in CASES:
            raise SettingsError(f"there is no benchmark {name!r}; there are: {', '.join(CASES)}")
    return list(dict.fromkeys(names)) or list(CASES)


def run_case(name: str, *, repeats: int = 5, quick: bool = False, tell: Callable[[str], None] | None = None) -> Section:
    """Run one case. `quick` makes everything smaller: to see that it works, not to quote. `tell` hears on the way."""
    module, function, title = CASES[name]
    case: Callable[[Section, int, bool], None] = getattr(importlib.import_module(module), function)
    section = Section(name, title, tell=tell)
    case(section, repeats, quick)
    return section
