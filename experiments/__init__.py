"""The paper's experiments: settings are data, results are records on disk, a figure is drawn from records only.

An experiment is known by the name of its figure. Its module is imported when it runs, so that listing the names costs
nothing. `peakrl.report` holds the drawings under the same names.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.paper.records import FigureRecord, Request


@dataclass(frozen=True)
class Experiment:
    """Where an experiment is written: "module:function", a function from a `Request` to a `FigureRecord`."""

    title: str
    function: str
    #: Can it run on a user's recorded arrivals?
    takes_arrivals: bool = False


#: For `sweeps.local_workers`: loads what the figures' runs need, while whoever starts the workers is still busy itself.
WARM_UP = "peakrl.paper.energy_tasks:warm_up"

EXPERIMENTS: dict[str, Experiment] = {
    "figure-2": Experiment("Energy harvesting: learning curves", "peakrl.paper.convergence:figure_2", True),
    "figure-3": Experiment("Energy harvesting: comparison", "peakrl.paper.comparison:figure_3", True),
    "figure-4": Experiment("Scheduling: Example 1", "peakrl.paper.scheduling:figure_4"),
    "figure-5": Experiment("Scheduling: Example 2", "peakrl.paper.scheduling:figure_5"),
    "figure-6": Experiment("Scheduling: Example 3", "peakrl.paper.scheduling:figure_6"),
    "neighbours": Experiment("Ways to deal with constraints, side by side", "peakrl.paper.neighbours:neighbours"),
    "efficiency": Experiment("Episodes that our learners save", "peakrl.paper.efficiency:efficiency"),
    "theory": Experiment("Theorems 1 and 2, and the conjecture", "peakrl.paper.theory_experiment:theory"),
    "robustness": Experiment("How reliably learners come to the optimum", "peakrl.paper.robustness:robustness"),
    "certificates": Experiment("Episodes until a certificate", "peakrl.paper.certificates:certificates"),
    "knowledge": Experiment("What knowing is worth", "peakrl.paper.knowledge:knowledge"),
}


def find_experiment(name: str) -> Experiment:
    """Return the experiment of a name, or raise."""
    if name not in EXPERIMENTS:
        raise SettingsError(f"{name!r} is no figure; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def check_arrivals(name: str) -> None:
    """Raise unless the experiment can run on recorded arrivals."""
    if not find_experiment(name).takes_arrivals:
        takers = ", ".join(known for known, entry in EXPERIMENTS.items() if entry.takes_arrivals)
        raise SettingsError(f"{name} has no energy arrivals; recorded arrivals are for {takers}")


def run_experiment(name: str, request: Request) -> FigureRecord:
    """Run what is missing of an experiment, and write its table and settings into the request's folder."""
    if request.arrivals is not None:
        check_arrivals(name)
    module, _, function = find_experiment(name).function.partition(":")
    run: Any = getattr(importlib.import_module(module), function)
    record: FigureRecord = run(request)
    record.write(request.folder)
    return record
