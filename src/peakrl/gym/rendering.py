"""Charts of an episode as pixels [y, x, 3], drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
BLUE, ORANGE, GREEN, RED = "#568cc8", "#eba546", "#5aaa6e", "#cd463c"


def new_canvas(width: float) -> tuple[Any, Any]:
    """Return a canvas of 480 by 240 pixels and its axes, x from 0 to `width`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure((4.8, 2.4), dpi=100))
    axes = canvas.figure.add_subplot()
    axes.set_xlim(0, width)
    return canvas, axes


def pixels(canvas: Any) -> Pixels:
    """Return what is drawn on a canvas."""
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def step_chart(
    left: Mapping[str, Sequence[float]], right: Sequence[float], bad: Sequence[bool], limit: float, horizon: int
) -> Pixels:
    """Draw for each step the stacked numbers of `left` by colour, and `right`, red if bad, else green."""
    (canvas, axes), height = new_canvas(horizon), np.zeros(1)
    for colour, values in left.items():
        axes.bar(np.arange(len(values)) + 0.25, values, 0.5, height, color=colour)
        height = height + np.array(values)
    axes.bar(np.arange(len(right)) + 0.75, right, 0.5, color=[RED if wrong else GREEN for wrong in bad])
    axes.axhline(limit, color=RED, linestyle="--")
    return pixels(canvas)


def gantt_chart(bars: Sequence[tuple[str, float, float, float]], deadlines: dict[str, float], end: float) -> Pixels:
    """Draw jobs (name, start, end, margin) over time: red if the margin is negative; deadlines are dark marks."""
    (canvas, axes), names = new_canvas(max(end, *deadlines.values(), 1)), list(deadlines)
    axes.eventplot([[deadline] for deadline in deadlines.values()], colors="black", linelengths=0.8)
    for name, begin, over, margin in bars:
        axes.barh(names.index(name), over - begin, 0.5, begin, color=RED if margin < 0 else GREEN)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return pixels(canvas)
