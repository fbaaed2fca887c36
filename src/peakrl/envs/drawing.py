"""Small pictures of an episode, as text and as pixels, with nothing but numpy.

A picture is an array [y, x, 3] of 8-bit colours, y from the top. Numbers are set in a font of 3 by 5 dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Colour = tuple[int, int, int]

WIDTH, HEIGHT, MARGIN = 480, 240, 30
WHITE: Colour = (255, 255, 255)
INK: Colour = (60, 60, 60)
FAINT: Colour = (225, 225, 225)
BLUE: Colour = (86, 140, 200)
GREEN: Colour = (90, 170, 110)
RED: Colour = (205, 70, 60)
ORANGE: Colour = (235, 165, 70)
#: Five rows of three dots, read as bits.
DOTS = {
    "0": (7, 5, 5, 5, 7), "1": (2, 6, 2, 2, 7), "2": (7, 1, 7, 4, 7), "3": (7, 1, 7, 1, 7), "4": (5, 5, 7, 1, 1),
    "5": (7, 4, 7, 1, 7), "6": (7, 4, 7, 5, 7), "7": (7, 1, 1, 1, 1), "8": (7, 5, 7, 5, 7), "9": (7, 5, 7, 1, 7),
    "-": (0, 0, 7, 0, 0), ".": (0, 0, 0, 0, 2),
}  # fmt: skip


class Bar(NamedTuple):
    """One job of a Gantt chart."""

    name: str
    start: float
    end: float
    #: Below 0: the deadline was missed by this much.
    margin: float


class Canvas:
    """Pixels with a frame and a scale: x and y in the chart's own units, y upwards."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        self.pixels: Pixels = np.full((HEIGHT, WIDTH, 3), WHITE, np.uint8)
        self.x, self.y = x, (y[0], max(y[1], y[0] + 1e-9))

    def column(self, x: float) -> int:
        """Return the pixel column of x."""
        share = (x - self.x[0]) / (self.x[1] - self.x[0])
        return round(MARGIN + min(max(share, 0.0), 1.0) * (WIDTH - 2 * MARGIN))

    def line(self, y: float) -> int:
        """Return the pixel row of y."""
        share = (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(HEIGHT - MARGIN - min(max(share, 0.0), 1.0) * (HEIGHT - 2 * MARGIN))

    def block(self, x: tuple[float, float], y: tuple[float, float], colour: Colour) -> None:
        """Fill a rectangle; even an empty one shows as a line."""
        left, right = self.column(x[0]) + 1, max(self.column(x[1]) - 1, self.column(x[0]) + 2)
        top, bottom = self.line(max(y)), self.line(min(y))
        self.pixels[min(top, bottom - 1) : bottom, left:right] = colour

    def across(self, y: float, colour: Colour, dashed: bool = False) -> None:
        """Draw a horizontal line."""
        row = self.line(y)
        columns = np.arange(MARGIN, WIDTH - MARGIN)
        self.pixels[row, columns[columns % 8 < 5] if dashed else columns] = colour

    def upright(self, x: float, y: tuple[float, float], colour: Colour) -> None:
        """Draw a vertical line two pixels wide."""
        column = self.column(x)
        self.pixels[self.line(max(y)) : self.line(min(y)) + 1, column : column + 2] = colour

    def frame(self, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
        """Draw the axes and their numbers."""
        for y in y_ticks:
            self.across(y, FAINT)
            self.write(f"{y:g}", MARGIN - 5, self.line(y) - 5, align="right")
        self.across(self.y[0], INK)
        for x in x_ticks:
            column = self.column(x)
            self.pixels[HEIGHT - MARGIN : HEIGHT - MARGIN + 4, column] = INK
            self.write(f"{x:g}", column, HEIGHT - MARGIN + 8, align="centre")

    def write(self, text: str, x: int, y: int, *, align: str = "left", colour: Colour = INK, size: int = 2) -> None:
        """Set digits, minus and point at pixel (x, y), the upper left corner; other signs are left out."""
        signs = [sign for sign in text if sign in DOTS]
        width = len(signs) * 4 * size - size
        left = {"left": x, "centre": x - width // 2, "right": x - width}[align]
        for place, sign in enumerate(signs):
            dots = np.array([[bits >> shift & 1 for shift in (2, 1, 0)] for bits in DOTS[sign]], np.bool_)
            large = dots.repeat(size, axis=0).repeat(size, axis=1)
            across, down = max(left + place * 4 * size, 0), max(y, 0)
            here = self.pixels[down : down + 5 * size, across : across + 3 * size]
            here[large[: here.shape[0], : here.shape[1]]] = colour


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers from low to high, about `count` of them."""
    rough = max(high - low, 1e-9) / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min((factor for factor in (1, 2, 5, 10) if factor * power >= rough), default=10)
    return [float(value) for value in np.arange(np.ceil(low / step) * step, high + step / 1e6, step)]


def battery_chart(
    levels: Sequence[int], arrivals: Sequence[int], powers: Sequence[int], peak: float, size: int, horizon: int
) -> Pixels:
    """Draw the battery before each step (blue), the arrival on it (orange), the power (green; red above the peak)."""
    most = max(size, peak, *(level + arrival for level, arrival in zip(levels, arrivals, strict=True)), 1)
    canvas = Canvas((0, horizon), (0, most))
    canvas.frame(ticks(0, horizon), ticks(0, most))
    for step, (level, arrival) in enumerate(zip(levels, arrivals, strict=True)):
        if step < horizon:
            canvas.block((step, step + 0.5), (0, level), BLUE)
            canvas.block((step, step + 0.5), (level, level + arrival), ORANGE)
    for step, power in enumerate(powers):
        canvas.block((step + 0.5, step + 1), (0, power), RED if power > peak else GREEN)
    canvas.across(peak, RED, dashed=True)
    return canvas.pixels


def gantt_chart(bars: Sequence[Bar], deadlines: dict[str, float], end: float) -> Pixels:
    """Draw jobs over time, one line each: green in time, red past the deadline, which is the dark mark."""
    names = list(deadlines)
    canvas = Canvas((0, max(end, *deadlines.values(), 1)), (0, max(len(names), 1)))
    canvas.frame(ticks(0, canvas.x[1]), [])
    for line, name in enumerate(names):
        bottom = len(names) - 1 - line
        canvas.write(str(line + 1), MARGIN - 8, canvas.line(bottom + 0.5) - 5, align="right")
        canvas.upright(deadlines[name], (bottom + 0.1, bottom + 0.9), INK)
    for bar in bars:
        bottom = len(names) - 1 - names.index(bar.name)
        canvas.block((bar.start, bar.end), (bottom + 0.25, bottom + 0.75), RED if bar.margin < 0 else GREEN)
    return canvas.pixels


def episode_chart(rewards: Sequence[float], margins: Sequence[Any], horizon: int) -> Pixels:
    """Draw the reward of each step (blue) and the least constraint value (green, red where it is violated)."""
    least = [min(values, default=0.0) for values in margins]
    shown = [*rewards, *least, 0.0, 1.0]
    canvas = Canvas((0, horizon), (min(shown), max(shown)))
    canvas.frame(ticks(0, horizon), ticks(*canvas.y))
    for step, (reward, margin) in enumerate(zip(rewards, least, strict=True)):
        canvas.block((step, step + 0.5), (0, reward), BLUE)
        canvas.block((step + 0.5, step + 1), (0, margin), RED if margin < 0 else GREEN)
    canvas.across(0, INK)
    return canvas.pixels


def battery_text(level: int, arrival: int, size: int, peak: float) -> str:
    """Return a line such as `battery [####....]  4/8  +3`."""
    width = min(max(size, 1), 40)
    full = round(width * level / max(size, 1))
    return f"battery [{'#' * full}{'.' * (width - full)}] {level}/{size}  arrival {arrival}  peak {peak:g}"


def gantt_text(bars: Sequence[Bar], deadlines: dict[str, float]) -> str:
    """Return one line for each job: when it ran and whether its deadline was met."""
    ran = {bar.name: bar for bar in bars}
    lines = []
    for name, deadline in deadlines.items():
        bar = ran.get(name)
        when = "waiting" if bar is None else f"{bar.start:g}-{bar.end:g}"
        late = "" if bar is None or bar.margin >= 0 else f"  missed by {-bar.margin:g}"
        lines.append(f"job {name:<8} deadline {deadline:>6g}  {when}{late}")
    return "\n".join(lines)
