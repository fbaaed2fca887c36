"""The paper's experiments (`python -m experiments`, or `make reproduce`), and those beyond it (`make experiments`).

A figure is one file (figures 4 to 6 share one): its settings are data, its tasks run in worker processes, its results
are records on disk, and it is drawn from records only. Only public names of peakrl are used here
(tests/experiments/test_imports.py). A module is imported when its figure runs.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from experiments.records import FigureRecord, Request


class Experiment(NamedTuple):
    """A module, its function from a `Request` to a `FigureRecord`, and the one that draws the record."""

    module: str
    run: str
    draw: str
    #: Can it run on a user's recorded arrivals?
    takes_arrivals: bool = False


#: Names that stand for several experiments on the command line.
PAPER_FIGURES = ("figure-2", "figure-3", "figure-4", "figure-5", "figure-6")
BEYOND = ("neighbours", "efficiency", "theory", "robustness", "certificates", "assumptions", "logs")

EXPERIMENTS = {
    "figure-2": Experiment("figure_2", "figure_2", "draw_figure_2", True),
    "figure-3": Experiment("figure_3", "figure_3", "draw_figure_3", True),
    "figure-4": Experiment("scheduling", "figure_4", "draw_fixed_times"),
    "figure-5": Experiment("scheduling", "figure_5", "draw_fixed_times"),
    "figure-6": Experiment("scheduling", "figure_6", "draw_figure_6"),
    **{name: Experiment(name, name, f"draw_{name}") for name in BEYOND},
}


def find_experiment(name: str, *, recorded: bool = False) -> Experiment:
    """Return the experiment of a name, or raise; with `recorded`, one that runs on recorded arrivals."""
    if name not in EXPERIMENTS:
        raise SettingsError(f"{name!r} is no figure; there are {', '.join(EXPERIMENTS)}")
    if recorded and not EXPERIMENTS[name].takes_arrivals:
        takers = ", ".join(known for known, entry in EXPERIMENTS.items() if entry.takes_arrivals)
        raise SettingsError(f"{name} has no energy arrivals; recorded arrivals are for {takers}")
    return EXPERIMENTS[name]


def run_experiment(name: str, request: Request) -> FigureRecord:
    """Run what is missing of an experiment, and write its table and settings into the request's folder."""
    entry = find_experiment(name, recorded=request.arrivals is not None)
    run: Any = getattr(importlib.import_module(f"experiments.{entry.module}"), entry.run)
    record: FigureRecord = run(request)
    record.write(request.folder)
    return record


def draw_figure(name: str, folder: str | Path) -> list[Path]:
    """Draw a figure from the record in `folder` into `<name>.png` and `<name>.pdf` beside it; return the two."""
    from experiments.records import read_figure
    from experiments.style import house_style, save

    entry = find_experiment(name)
    draw: Any = getattr(importlib.import_module(f"experiments.{entry.module}"), entry.draw)
    with house_style():
        figure = draw(read_figure(folder, name))
        return [save(figure, Path(folder) / f"{name}.{kind}") for kind in ("png", "pdf")]
