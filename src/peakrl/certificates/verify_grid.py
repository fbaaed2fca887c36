"""Check a policy on the cells of a continuous problem: every first state is kept, and every choice leads to kept cells.

A cell is kept if the file has a choice for it. The check shares interval arithmetic with what made the policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.continuous.witnesses import Claim, first_unproved
from peakrl.records import Field, Record

#: What a file says of the problem.
NUMBERS, TEXTS = ("low", "high", "noise_low", "noise_high"), ("names", "outside")
#: Reduction by a period is good to this share of it.
WRAP_ERROR = 1e-9


def check_grid(problem: Any, plain: Mapping[str, Any], arrays: Mapping[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Return why a policy is not proved never to violate (None if it is), and what the proof rests on."""
    stored, cells = plain["problem"], tuple(plain["cells"])
    own = {name: np.asarray(getattr(problem, name)).tolist() for name in NUMBERS}
    own |= {name: list(getattr(problem, name)) for name in TEXTS}
    own |= {"block": problem.block, "slack": problem.slack, "choices": len(problem.sequences)}
    differs = [name for name, value in own.items() if stored[name] != value]
    if differs:
        return f"the policy belongs to another problem: {', '.join(differs)} differ", ()
    if len(cells) != len(problem.low) or not all(type(count) is int and count > 0 for count in cells):
        raise ValueError("cells holds no numbers of cells")
    fields = {"choice": Field(np.int32, "cell", low=-1, high=own["choices"] - 1)}
    choice = Record({}, dict(arrays)).checked(fields, cell=int(np.prod(cells)))["choice"].astype(np.int64)
    ends = zip(problem.low, problem.high, cells, strict=True)
    edges = [np.linspace(low, high, count + 1) for low, high, count in ends]
    period = np.where([rule == "wrap" for rule in problem.outside], problem.high - problem.low, 0.0)
    kept = choice >= 0
    claim = Claim(edges, WRAP_ERROR * period, choice, np.full(len(choice), 2), kept.astype(np.int64))
    rests_on = (
        f"the system moves as the function of {problem.name!r} says, from states that are known exactly",
        "the disturbance stays in its declared range, whatever its distribution",
        "numpy's elementary functions err by at most 8 units in the last place",
        *(("image= of the problem encloses its next states: not checked",) if problem.image is not None else ()),
    )
    if not isinstance(problem.start, tuple):
        return "the start of the problem is not a point or a box", rests_on
    first = []
    for edge, low, high in zip(edges, *problem.start, strict=True):
        touched = (edge[1:] >= low) & (edge[:-1] <= high)
        first.append(touched)
    started = np.ix_(*first)
    if not kept.reshape(cells)[started].all():
        return "the policy has no choice in a cell that touches the start", rests_on
    cell = first_unproved(problem, claim)
    if cell is None:
        return None, rests_on
    index = np.unravel_index(cell, cells)
    middle = [(edge[k] + edge[k + 1]) / 2 for edge, k in zip(edges, index, strict=True)]
    return f"the choice near {problem.named(np.array(middle))} is not proved to be safe", rests_on
