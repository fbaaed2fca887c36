"""The section of a safe set of continuous states: what it rests on, and a map of its cells with slices.

Two coordinates are the axes and the others are sliced. Of a large grid every second cell of the longest coordinate is
left out, again and again, until the page can hold the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from peakrl.continuous import GridSafeSet
from peakrl.report.blocks import Drawn, Section, packed, run_lengths
from peakrl.report.policy_blocks import LONGEST_FIELD, MOST_NAMED, amounts

#: Most cells of a map.
MOST_CELLS = 200_000


def safe_set_section(safe: GridSafeSet) -> Section:
    """Return the section of a safe set."""
    lead = (
        f"{repr(safe)[1:-1]}. Proved for every real number in these cells, if the dynamics are those of the problem, "
        "disturbances stay in their ranges, and the states that are looked up are the true ones"
        + (f" within {safe.measured:g}." if safe.measured else ".")
    )
    badge = ("good" if safe.share else "bad", f"{safe.share:.1%} of the box is safe")
    return Section("safe-set", safe.problem.name, lead, [map_of(safe)], badge)


def map_of(safe: GridSafeSet) -> Drawn:
    """Return the map of the safe choices."""
    names, grid = safe.problem.names, safe.grid
    apart = [1] * len(names)
    while np.prod(counts := [-(-n // k) for n, k in zip(grid.cells, apart, strict=True)]) > MOST_CELLS or (
        max(counts) > LONGEST_FIELD
    ):
        apart[int(np.argmax(counts))] *= 2
    index = [np.arange(0, n, k) for n, k in zip(grid.cells, apart, strict=True)]
    centres = [(edges[:-1] + edges[1:])[own] / 2 for edges, own in zip(grid.edges, index, strict=True)]
    shown = safe.kept.reshape(*grid.cells, -1)[np.ix_(*index)].reshape(-1, len(safe.choices)) >= (safe.horizon or 1)
    quarter = [(edges[1] - edges[0]) / 4 for edges in grid.edges]
    fields: list[dict[str, Any]] = [
        {"name": name, "values": rounded(own, error), "down": False}
        for name, own, error in zip(names, centres, quarter, strict=True)
    ]
    at = np.indices(counts).reshape(len(names), -1)
    if len(names) == 1:  # a map of one row
        fields, at = [*fields, {"name": "", "values": [""], "down": False}], np.stack([at[0], np.zeros_like(at[0])])
    note = "Every point of a cell is safe, not only its centre."
    if max(apart) > 1:
        sample = ", ".join(f"{k} of {name}" for name, k in zip(names, apart, strict=True) if k > 1)
        note += f" The map shows one cell in {sample}."
    content: dict[str, Any] = {
        "fields": fields, "at": [packed(row, "<u2") for row in at], "nodes": len(shown), "x": 0, "y": 1,
        "slices": [len(field["values"]) // 2 for field in fields], "layers": [choices(safe, shown)],
        "labels": [], "state": packed(np.zeros(0), "<i4"), "never": [],
    }  # fmt: skip
    return Drawn("safe-set-map", "Safe choices by cell", "map", content, note)


def rounded(numbers: Any, error: float) -> list[str]:
    """Return numbers as texts with as few digits as this error allows."""
    texts = ([f"{x:.{digits}g}" for x in numbers] for digits in range(2, 18))
    return next(each for each in texts if np.abs(np.array(each, np.float64) - numbers).max() <= error)


def choices(safe: GridSafeSet, shown: Any) -> dict[str, Any]:
    """Return a layer of which choices are safe, or of how many."""
    rows, which = np.unique(shown, axis=0, return_inverse=True)
    if len(rows) > MOST_NAMED:
        return amounts("number of safe choices", shown.sum(axis=1), "safe choices")
    labels = [", ".join(str(safe.choices[k]) for k in np.flatnonzero(row)) or "none: not proved safe" for row in rows]
    return {"name": "safe choices", "labels": labels, "runs": run_lengths(which)}
