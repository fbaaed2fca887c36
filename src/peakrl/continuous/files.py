"""Files of a safe set: our own format, CSV, and a C99 header for a controller.

    int NAME_safe(int32_t step, const double *x, int32_t choice)    1 if a choice is safe

The header holds edges, the distinct rows of safe choices, and the row of each cell. It looks up every cell that holds
x, as `GridSafeSet.mask` does; nothing is allocated and no library is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.continuous.grid import Grid
from peakrl.continuous.problem import ContinuousProblem
from peakrl.continuous.witnesses import Claim, first_unproved
from peakrl.errors import StorageError
from peakrl.policy.c_header import array, comment, identifier, listed
from peakrl.records import Field, FileKind, Record
from peakrl.storage import write_file
from peakrl.types import Ints, Longs
from peakrl.viability import FOREVER

if TYPE_CHECKING:
    from peakrl.continuous.safe_set import GridSafeSet

GRID_SAFE_SET = FileKind("grid_safe_set")


def description(problem: ContinuousProblem) -> dict[str, Any]:
    """Return what a file says of a problem, whose functions it cannot hold."""
    numbers = {name: getattr(problem, name).tolist() for name in ("low", "high", "noise_low", "noise_high")}
    plain = {"name": problem.name, "names": list(problem.names), "outside": list(problem.outside), **numbers}
    return plain | {"choices": len(problem.sequences), "block": problem.block, "slack": problem.slack}


def save_set(safe: GridSafeSet, path: str | Path) -> None:
    """Write a safe set."""
    plain = {"horizon": safe.horizon, "measured": safe.measured, "cells": list(safe.grid.cells)}
    kept = np.packbits(safe.kept, axis=1) if safe.horizon is None else safe.kept.astype(np.uint16)
    record = Record({"problem": description(safe.problem), **plain}, {"layer": safe.layer, "kept": kept})
    GRID_SAFE_SET.write(path, record)


def claim_of(grid: Grid, horizon: int | None, layer: Any, choice: Longs, steps: Longs) -> Claim:
    """Return what is claimed if `choice` [cell] is safe for `steps` [cell]; -1 where nothing is."""
    if horizon is None:
        return Claim(grid.edges, grid.error, choice, np.full(grid.size, 2), (layer == FOREVER).astype(np.int64))
    return Claim(grid.edges, grid.error, choice, steps, layer.astype(np.int64))


def read_set(path: str | Path, problem: Any) -> tuple[Grid, int | None, Ints, NDArray[Any], float]:
    """Return what a safe set consists of; one safe choice of each cell, drawn at random, is proved again."""
    if not isinstance(problem, ContinuousProblem):
        raise StorageError(f"{path} holds a safe set of continuous states, without its dynamics: pass the problem")
    with GRID_SAFE_SET.reading(path) as record:
        plain, own = record.plain, description(problem)
        differs = [name for name, value in own.items() if plain["problem"][name] != value and name != "name"]
        if differs:
            raise StorageError(
                f"{path} holds the safe set of another problem than {problem!r}: {', '.join(differs)} differ"
            )
        grid = Grid(problem, plain["cells"], plain["measured"])
        horizon, choices = plain["horizon"], len(problem.sequences)
        kind, width = (np.uint8, -(-choices // 8)) if horizon is None else (np.uint16, choices)
        fields = {
            "layer": Field(np.int32, "cell", low=0, high=int(FOREVER)),
            "kept": Field(kind, ("cell", width), high=255 if horizon is None else int(horizon)),
        }
        arrays = record.checked(fields, cell=grid.size)
        layer, kept = arrays["layer"].copy(), arrays["kept"].copy()
        if horizon is None:
            kept = np.unpackbits(kept, axis=1, count=choices)
        draws = np.random.default_rng().random(kept.shape, np.float32)
        choice = np.argmax(np.where(kept == kept.max(axis=1, keepdims=True), draws, -1), axis=1)
        claimed = layer == FOREVER if horizon is None else layer > 0
        steps = kept[np.arange(grid.size), choice].astype(np.int64)
        wanted = np.minimum(layer, 1 if horizon is None else int(horizon))
        if (steps[claimed] != wanted[claimed]).any() or kept[~claimed].any():
            raise ValueError("its choices do not keep what its cells claim")
        cell = first_unproved(problem, claim_of(grid, horizon, layer, np.where(claimed, choice, -1), steps))
        if cell is not None:
            where = problem.named(np.mean(grid.bounds(cell), axis=0))
            raise ValueError(f"it is not a safe set of {problem.name!r}: its choice near {where} is not proved")
        return grid, horizon, layer, kept, float(plain["measured"])


def columns(safe: GridSafeSet) -> tuple[str, ...]:
    """Return the columns of the CSV file."""
    ends = [f"{name} {end}" for name in safe.problem.names for end in ("low", "high")]
    return (*ends, *(str(choice) for choice in safe.choices))


def rows(safe: GridSafeSet) -> Iterator[list[Any]]:
    """Yield the bounds of each safe cell, and for how many steps each choice is safe (for ever: 1, else 0)."""
    for cell in np.flatnonzero(safe.cells):
        low, high = safe.grid.bounds(int(cell))
        yield [*np.stack([low, high], axis=1).reshape(-1).tolist(), *safe.kept[cell].astype(int).tolist()]


def header(safe: GridSafeSet, path: str | Path, name: str | None) -> str:
    """Write and return the C header."""
    name = identifier(name, path)
    problem, grid = safe.problem, safe.grid
    distinct, which = np.unique(safe.kept, axis=0, return_inverse=True)
    d, upper = problem.dimensions, name.upper()
    starts = np.cumsum([0, *map(len, grid.edges)])[:-1]
    edges = ",\n".join(value.hex() for edges in grid.edges for value in edges.tolist())
    frame = ",\n".join(value.hex() for row in grid.frame[:, [3, 4]].tolist() for value in row)
    length = "for ever" if safe.horizon is None else f"for {safe.horizon} steps"
    text = f"""/* A safe set {length} of {comment(problem.name)}, written by peakrl.

A state consists of {comment(", ".join(problem.names))}.
Choices by index:
{comment(listed(safe.choices))}
*/
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#define {upper}_STEPS {safe.horizon or 0}
#define {upper}_CHOICES {len(safe.choices)}

static const double {name}_edges[{sum(map(len, grid.edges))}] = {{
{edges}
}};
/* Period (0: none) and error of each coordinate. */
static const double {name}_frame[{2 * d}] = {{
{frame}
}};
{array(f"{name}_edge_start", starts)}{array(f"{name}_cells", grid.cells)}{array(f"{name}_kept", distinct)}{
        array(f"{name}_row", which)
    }
/* The cells that hold x; returns how many. */
static inline int32_t {name}_find(const double *x, int32_t *found)
{{
    int32_t count = 1, i, j;
    found[0] = 0;
    for (j = 0; j < {d}; j++) {{
        const double *edge = {name}_edges + {name}_edge_start[j];
        const double period = {name}_frame[2 * j], error = {name}_frame[2 * j + 1];
        int32_t cells = {name}_cells[j], low = 0, high = cells, twice;
        double value = x[j];
        if (period > 0 && !(value >= edge[0] && value <= edge[cells])) {{
            double turns = (value - edge[0]) / period, whole;
            if (!(turns >= -1e6 && turns <= 1e6)) return 0;
            whole = (double)(int32_t)turns;
            if (whole > turns) whole -= 1;
            value -= whole * period;
            if (value < edge[0]) value = edge[0];
            if (value > edge[cells]) value = edge[cells];
        }} else if (value < edge[0] && value >= edge[0] - error) value = edge[0];
        else if (value > edge[cells] && value <= edge[cells] + error) value = edge[cells];
        if (!(value >= edge[0] && value <= edge[cells])) return 0;
        while (high - low > 1) {{
            int32_t middle = low + (high - low) / 2;
            if (edge[middle] <= value) low = middle; else high = middle;
        }}
        twice = low > 0 && edge[low] == value;
        for (i = 0; i < count; i++) found[i] = found[i] * cells + low;
        if (twice) {{
            for (i = 0; i < count; i++) found[count + i] = found[i] - 1;
            count *= 2;
        }}
    }}
    return count;
}}

/* 1 if a choice is safe; 0 if not, or if x is outside of the box. */
static inline int {name}_safe(int32_t step, const double *x, int32_t choice)
{{
    int32_t found[{2**d}], count = {name}_find(x, found), i;
    const int32_t needed = {upper}_STEPS ? {upper}_STEPS - step : 1;
    if (choice < 0 || choice >= {upper}_CHOICES || needed < 1 || step < 0) return 0;
    for (i = 0; i < count; i++)
        if ({name}_kept[{name}_row[found[i]] * {upper}_CHOICES + choice] >= needed) return 1;
    return 0;
}}

#endif /* {upper}_H */
"""
    write_file(path, text.encode())
    return text
