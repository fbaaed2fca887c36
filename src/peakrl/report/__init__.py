"""Figures and pages, drawn from records only.

`DRAWINGS` says which function draws which figure: "module:function", from a `FigureRecord` to a matplotlib figure. The
experiments of the same names are in `peakrl.paper`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from peakrl.errors import SettingsError

DRAWINGS: dict[str, str] = {
    "figure-2": "peakrl.report.energy:draw_figure_2",
    "figure-3": "peakrl.report.energy:draw_figure_3",
    "figure-4": "peakrl.report.scheduling:draw_fixed_times",
    "figure-5": "peakrl.report.scheduling:draw_fixed_times",
    "figure-6": "peakrl.report.scheduling:draw_figure_6",
    "efficiency": "peakrl.report.efficiency:draw_efficiency",
    "neighbours": "peakrl.report.neighbours:draw_neighbours",
    "theory": "peakrl.report.theory:draw_theory",
    "robustness": "peakrl.report.robustness:draw_robustness",
    "certificates": "peakrl.report.certificates:draw_certificates",
    "knowledge": "peakrl.report.knowledge:draw_knowledge",
}


def draw_figure(name: str, folder: str | Path) -> list[Path]:
    """Draw a figure from the record in `folder` into `<name>.png` and `<name>.pdf` beside it; return the two."""
    from peakrl.paper.records import read_figure
    from peakrl.report.style import house_style, save

    if name not in DRAWINGS:
        raise SettingsError(f"{name!r} has no drawing; there are {', '.join(DRAWINGS)}")
    module, _, function = DRAWINGS[name].partition(":")
    draw: Any = getattr(importlib.import_module(module), function)
    with house_style():
        figure = draw(read_figure(folder, name))
        return [save(figure, Path(folder) / f"{name}.{kind}") for kind in ("png", "pdf")]
