"""Safe sets and targets of continuous problems, by process time of one core: two systems of SCOTS, and CartPole.

The converter is compared with plain numpy: as many passes over its pairs as its safe set takes sweeps, a cumulative sum
along both coordinates and four gathers each.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from scipy.linalg import expm

import peakrl
from benchmarks.timing import Section, in_turns
from peakrl import ContinuousProblem, safe_set, solve

#: Sweeps of the converter's safe set on its published grid.
SWEEPS = 58


def converter(
    low: tuple[float, float] = (1.15, 5.45), high: tuple[float, float] = (1.55, 5.85), **options: Any
) -> ContinuousProblem:
    """The DC-DC converter of SCOTS: two linear modes, sampled exactly; the voltage is scaled by 5."""
    x_c, x_l, r_c, r_l, r_o = 70.0, 3.0, 0.005, 0.05, 1.0
    total = r_o + r_c
    first = [[-r_l / x_l, 0.0], [0.0, -1 / (x_c * total)]]
    second = [
        [-(r_l + r_o * r_c / total) / x_l, -r_o / (5 * total * x_l)],
        [5 * r_o / (total * x_c), -1 / (x_c * total)],
    ]
    maps = []
    for mode in (first, second):
        generator = np.zeros((3, 3))
        generator[:2, :2], generator[0, 2] = mode, 1 / x_l
        maps.append(expm(0.5 * generator)[:2].tolist())

    def step(x: Any, a: Any, w: Any) -> list[Any]:
        return [row[0] * x[0] + row[1] * x[1] + row[2] for row in maps[a]]

    box = {"current": (low[0], high[0]), "voltage": (low[1], high[1])}
    return ContinuousProblem(step, box=box, actions=[0, 1], slack=1e-13, name="converter", **options)


WALLS = (
    (1, 1.2, 0, 9), (2.2, 2.4, 0, 5), (2.2, 2.4, 6, 10), (3.4, 3.6, 0, 9), (4.6, 4.8, 1, 10), (5.8, 6, 0, 6),
    (5.8, 6, 7, 10), (7, 7.2, 1, 10), (8.2, 8.4, 0, 8.5), (8.4, 9.3, 8.3, 8.5), (9.3, 10, 7.1, 7.3),
    (8.4, 9.3, 5.9, 6.1), (9.3, 10, 4.7, 4.9), (8.4, 9.3, 3.5, 3.7), (9.3, 10, 2.3, 2.5),
)  # fmt: skip


def vehicle(growth_bound: bool = False) -> ContinuousProblem:
    """The vehicle of SCOTS among walls, whose heading turns at a constant rate; by intervals or its growth bound."""

    def step(x: Any, a: Any, w: Any) -> list[Any]:
        (east, north, heading), (speed, steering) = x, a
        slip = float(np.arctan(np.tan(steering) / 2))
        fast, turn = 0.3 * speed / float(np.cos(slip)), 0.3 * speed * float(np.tan(steering))
        chord = fast if abs(turn) < 1e-12 else fast * 2 * float(np.sin(turn / 2)) / turn
        mean = heading + (slip + turn / 2)
        return [east + chord * np.cos(mean), north + chord * np.sin(mean), heading + turn]

    def clear(x: Any, a: Any) -> list[Any]:
        return [
            np.maximum(np.abs(x[0] - (p + q) / 2) - (q - p) / 2, np.abs(x[1] - (r + s) / 2) - (s - r) / 2) - 1e-9
            for p, q, r, s in WALLS
        ]

    def image(low: Any, high: Any, a: Any, w_low: Any, w_high: Any) -> tuple[Any, Any]:
        radius = [(q - p) / 2 for p, q in zip(low, high, strict=True)]
        centre = step([(p + q) / 2 for p, q in zip(low, high, strict=True)], a, [])
        further = 0.3 * abs(a[0]) * np.sqrt(np.tan(a[1]) ** 2 / 4 + 1) * radius[2]
        wide = [radius[0] + further, radius[1] + further, radius[2]]
        return [c - r for c, r in zip(centre, wide, strict=True)], [c + r for c, r in zip(centre, wide, strict=True)]

    values = [round(0.3 * k, 1) for k in range(-3, 4)]
    return ContinuousProblem(
        step, image=image if growth_bound else None, constraints=clear,
        box={"east": (-0.1, 10.1), "north": (-0.1, 10.1), "heading": (-3.5, 3.5)},
        actions=list(itertools.product(values, values)), slack=1e-13, name="vehicle",
    )  # fmt: skip


TARGET = {"east": (9 - 1e-9, 9.5 + 1e-9), "north": (-1e-9, 0.5 + 1e-9)}


def plain_passes(problem: ContinuousProblem, cells: tuple[int, int]) -> Callable[[], Any]:
    """Return one pass over the pairs of a problem of two coordinates in plain numpy."""
    rng, pairs = np.random.default_rng(0), len(problem.actions) * cells[0] * cells[1]
    near = np.indices(cells).reshape(2, -1).repeat(len(problem.actions), axis=1)
    first = np.clip(near + rng.integers(-2, 3, (2, pairs)), 0, np.array(cells)[:, None] - 1)
    last, kept = np.minimum(first + 2, np.array(cells)[:, None]), np.ones((cells[0] + 1, cells[1] + 1), np.bool_)

    def one() -> Any:
        sums = kept.cumsum(0).cumsum(1)
        return sums[last[0], last[1]] - sums[first[0], last[1]] - sums[last[0], first[1]] + sums[first[0], first[1]]

    return one


def continuous_times(section: Section, repeats: int, quick: bool) -> None:
    """Time the converter beside plain numpy, the vehicle, CartPole, and a look-up."""
    share = 0.1 if quick else 1.0

    def scaled(*cells: int) -> tuple[int, ...]:
        return tuple(max(4, round(share * n)) for n in cells)

    low, width = (1.1505 - 0.00025, 5.4505 - 0.00025), 0.0005
    dcdc, cells = converter(low, (low[0] + 800 * width, low[1] + 799 * width)), scaled(800, 799)
    seconds, one = in_turns([lambda: safe_set(dcdc, cells=cells), plain_passes(dcdc, (cells[0], cells[1]))], repeats)
    safe = safe_set(dcdc, cells=cells)
    section.add(system="converter", cells=safe.grid.size, s=seconds, found=int(safe.cells.sum()))
    section.notes.append(f"converter: {seconds / (SWEEPS * one):.2f} of {SWEEPS} plain numpy passes")
    car, cells = vehicle(growth_bound=True), scaled(51, 51, 35)
    (seconds,) = in_turns([lambda: solve(car, cells=cells, reach=TARGET)], repeats)
    found = solve(car, cells=cells, reach=TARGET)
    section.add(system="vehicle", cells=found.grid.size, s=seconds, found=int((found.layer > 0).sum()))
    pole, cells = peakrl.problems.cartpole(block=5), scaled(48, 40, 42, 40)
    begun = time.process_time()
    safe = safe_set(pole, cells=cells)
    seconds = time.process_time() - begun
    section.add(system="CartPole, blocks of 5", cells=safe.grid.size, s=seconds, found=int(safe.cells.sum()))
    x, taken = np.array([0.011, 0.021, 0.012, 0.031]), []
    for _ in range(7):
        begun = time.process_time()
        for _ in range(10_000):
            safe.mask(x)
        taken.append(100 * (time.process_time() - begun))
    section.notes.append(f"a mask of CartPole: {median(taken):.2f} microseconds")
