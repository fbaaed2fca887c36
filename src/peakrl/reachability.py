"""Reachable nodes, and the check of a change list against a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from peakrl.jit import kernel
from peakrl.types import Ints, Layout, Longs


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


#: Results of `change_fault`.
NO_FAULT, UNORDERED, NO_NODE, NO_ROW = 0, 1, 2, 3


@kernel
def change_fault(row_start: Longs, node_slot: Ints, change_episode: Ints, change_node: Ints, change_row: Ints) -> int:
    """Return what is wrong with a change list: its order, or an unknown node or row; `node_slot` is [node]."""
    before = 1
    for i in range(change_episode.shape[0]):
        if change_episode[i] < before:
            return UNORDERED
        before = change_episode[i]
        node = change_node[i]
        if not 0 <= node < node_slot.shape[0]:
            return NO_NODE
        slot = node_slot[node]
        if not row_start[slot] <= change_row[i] < row_start[slot + 1]:
            return NO_ROW
    return NO_FAULT
