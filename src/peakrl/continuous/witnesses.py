"""Check a safe set without tables and kernels: one safe choice for each cell, all of its images inside of the set.

The rules at the sides of the box are applied to bounds here, where `ContinuousProblem` runs them as operations of
`step`; cells are found by binary search, and inclusion is counted on cumulative sums of numpy. Interval arithmetic
itself is shared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from peakrl.continuous.intervals import Interval, enclosure, interval, paths, truth
from peakrl.types import Bools, Floats, Longs

#: Cells that are checked at once.
PORTION = 1 << 16


class Claim(NamedTuple):
    """What is claimed of a grid."""

    #: [coordinate][edge]
    edges: Sequence[Floats]
    #: [coordinate]: the error of the states that are looked up, that of wrapped coordinates included.
    error: Floats
    #: [cell]: a safe choice, -1 if none is claimed.
    choice: Longs
    #: [cell]: for how many steps it is claimed to be safe; cells that are reached must be for one step less. For ever:
    #: `target` is [cell] 1 if it is safe, and `steps` is 2 in these cells.
    steps: Longs
    target: Longs


def first_unproved(problem: Any, claim: Claim) -> int | None:
    """Return the first cell whose choice is not proved to be safe; None if all are."""
    cells = tuple(len(edges) - 1 for edges in claim.edges)
    for level in np.unique(claim.steps[claim.choice >= 0]):
        members = np.zeros([n + 1 for n in cells], np.int64)
        members[(slice(1, None),) * len(cells)] = (claim.target >= level - 1).reshape(cells)
        for axis in range(len(cells)):
            np.cumsum(members, axis=axis, out=members)
        for choice in range(len(problem.sequences)):
            wanted = np.flatnonzero((claim.choice == choice) & (claim.steps == level))
            for first in range(0, len(wanted), PORTION):
                part = wanted[first : first + PORTION]
                if not (good := proved(problem, claim, members, part, choice)).all():
                    return int(part[np.argmin(good)])
    return None


def proved(problem: Any, claim: Claim, members: Longs, cells: Longs, choice: int) -> Bools:
    """Return [cell]: is every constraint satisfied, and every next cell a member?"""
    index = np.unravel_index(cells, [len(edges) - 1 for edges in claim.edges])
    low = [edges[k] for edges, k in zip(claim.edges, index, strict=True)]
    high = [edges[k + 1] for edges, k in zip(claim.edges, index, strict=True)]
    for j, error in enumerate(claim.error):
        if error:
            low[j], high[j] = np.nextafter(low[j] - error, -np.inf), np.nextafter(high[j] + error, np.inf)
            if problem.outside[j] != "wrap":
                low[j], high[j] = np.maximum(low[j], problem.low[j]), np.minimum(high[j], problem.high[j])
    good = np.ones(len(cells), np.bool_)
    actions = [problem.actions[k] for k in problem.sequences[choice]]
    for parts in itertools.product(range(len(problem.weights)), repeat=problem.block):
        for image, holds, alive in followed(problem, claim, low, high, actions, parts):
            good &= ~alive | (holds & covered(problem, claim, members, image))
    return good


def followed(
    problem: Any, claim: Claim, low: Any, high: Any, actions: Sequence[Any], parts: Sequence[int]
) -> Iterator[tuple[list[tuple[Any, Any]], Bools, Bools]]:
    """Yield (image, constraints satisfied, alive) for each path through the conditions and turns of all actions."""
    shape = np.shape(low[0])
    noise = [Interval(*ends) for ends in zip(problem.noise_low[parts[0]], problem.noise_high[parts[0]], strict=True)]
    states = [Interval(*ends) for ends in zip(low, high, strict=True)]

    def run() -> tuple[Any, list[Interval]]:
        holds: Any = np.ones(shape, np.bool_)
        for value in [] if problem.constraints is None else problem.constraints(states, actions[0]):
            holds = holds & (interval(value).low >= 0)
        if problem.available is not None:
            holds = holds & ~truth(problem.available(states, actions[0])).false
        if problem.image is not None:
            ends = problem.image(low, high, actions[0], problem.noise_low[parts[0]], problem.noise_high[parts[0]])
            return holds, [enclosure(*each) for each in zip(*ends, strict=True)]
        return holds, [interval(value) for value in problem.step(states, actions[0], noise)]

    for (holds, image), alive in paths(run):
        ends = [(np.broadcast_to(value.low, shape), np.broadcast_to(value.high, shape)) for value in image]
        for pieces in itertools.product(*(ruled(problem, claim, j, *each) for j, each in enumerate(ends))):
            here = np.broadcast_to(alive, shape)
            image_here, inside = [], holds
            for first, last, possible, stays in pieces:
                here, inside = here & possible, inside & stays
                image_here.append((first, last))
            if len(actions) == 1 or not here.any():
                yield image_here, inside, here
                continue
            follow = [clipped(problem, j, *each) for j, each in enumerate(image_here)]
            lows, highs = ([each[side] for each in follow] for side in (0, 1))
            for last_image, good, some in followed(problem, claim, lows, highs, actions[1:], parts[1:]):
                yield last_image, inside & good, here & some


def ruled(problem: Any, claim: Claim, j: int, low: Any, high: Any) -> list[tuple[Any, Any, Any, Any]]:
    """Return (low, high, may occur, stays in the box) of a coordinate after its rule; one for each turn of a wrap."""
    least, most = problem.low[j], problem.high[j]
    period, rule = most - least, problem.outside[j]
    wider = problem.slack * period + (claim.error[j] if rule == "wrap" else 0.0)
    if wider:
        low, high = np.nextafter(low - wider, -np.inf), np.nextafter(high + wider, np.inf)
    if rule == "violation":
        return [(low, high, True, (low >= least) & (high <= most))]
    if rule == "wrap":
        near = (low >= least - period) & (high <= most + period)
        turned = [
            (np.nextafter(low + k * period, -np.inf), np.nextafter(high + k * period, np.inf)) for k in (-1, 0, 1)
        ]
        return [(*clipped(problem, j, a, b), ~near | ~((b < least) | (a > most)), near) for a, b in turned]
    if rule == "clip":
        low, high = clipped(problem, j, low, high)
    return [(low, high, True, low <= high)]


def clipped(problem: Any, j: int, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the bounds of a coordinate inside of its range; NaN stays."""
    return np.clip(low, problem.low[j], problem.high[j]), np.clip(high, problem.low[j], problem.high[j])


def covered(problem: Any, claim: Claim, members: Longs, image: list[tuple[Any, Any]]) -> Bools:
    """Return [cell]: are all cells that cover an image members, or does the image certainly exit?"""
    first, last, gone = [], [], np.zeros(np.shape(image[0][0]), np.bool_)
    for j, (low, high) in enumerate(image):
        edges, rule = claim.edges[j], problem.outside[j]
        if rule == "exit":
            gone |= (high < edges[0]) | (low > edges[-1])
        if claim.error[j] and rule != "wrap":
            low, high = low - claim.error[j], high + claim.error[j]
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        low, high = clipped(problem, j, low, high)
        begin = np.clip(np.searchsorted(edges, low, "right") - 1, 0, len(edges) - 2)
        end = np.clip(np.searchsorted(edges, high, "left") - 1, begin, len(edges) - 2)
        first.append(begin)
        last.append(end + 1)
    total, volume = np.zeros(gone.shape, np.int64), np.ones(gone.shape, np.int64)
    for corner in itertools.product((0, 1), repeat=len(image)):
        at = tuple(last[j] if upper else first[j] for j, upper in enumerate(corner))
        total += (-1) ** (len(image) - sum(corner)) * members[at]
    for begin, end in zip(first, last, strict=True):
        volume *= end - begin
    known = np.all([low <= high for low, high in image], axis=0)
    found: Bools = known & (gone | (total == volume))
    return found
