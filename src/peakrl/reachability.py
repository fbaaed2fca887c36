"""Which states can be reached, and at which step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel
from peakrl.types import Ints, Layout


@kernel
def reachable_nodes(layout: Layout, nodes: int, first_slot: Ints) -> NDArray[np.bool_]:
    """Return [node]: can some policy reach that state at that step?"""
    reached = np.zeros(nodes, np.bool_)
    for slot in first_slot:
        reached[slot] = True
    distributions = layout.outcome_start.shape[0] - 1
    marked = np.zeros(distributions, np.bool_)
    for step in range(layout.horizon):
        here, there = step * layout.node_stride, (step + 1) * layout.node_stride
        first, last = layout.step_distributions[step]
        marked[first:last] = False
        for slot in range(layout.step_slots[step, 0], layout.step_slots[step, 1]):
            if reached[here + slot]:
                for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
                    marked[layout.row_distribution[row]] = True
        for d in range(first, last):
            if marked[d]:
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    reached[there + layout.outcome_next[o]] = True
    return reached


@kernel
def reachable_slots(layout: Layout, first_slot: Ints) -> NDArray[np.bool_]:
    """Return [slot]: can some policy ever reach that state? The horizon is ignored."""
    reached = np.zeros(layout.row_start.shape[0] - 1, np.bool_)
    seen = np.zeros(layout.outcome_start.shape[0] - 1, np.bool_)
    queue, last = np.empty(reached.shape[0], np.int32), 0
    for slot in first_slot:
        reached[slot], queue[last], last = True, slot, last + 1
    done = 0
    while done < last:
        slot, done = queue[done], done + 1
        for row in range(layout.row_start[slot], layout.row_start[slot + 1]):
            d = layout.row_distribution[row]
            if not seen[d]:
                seen[d] = True
                for o in range(layout.outcome_start[d], layout.outcome_start[d + 1]):
                    following = layout.outcome_next[o]
                    if not reached[following]:
                        reached[following], queue[last], last = True, following, last + 1
    return reached
