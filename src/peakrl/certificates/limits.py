"""What is too large to compute without being asked: the one place that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peakrl.policy.mixture import AveragedPolicy
    from peakrl.tabular import TabularModel

#: The optimum takes about a second for so many outcomes, all steps together; an averaged policy some seconds for so
#: many changes times nodes, and a moment for so many.
MOST_OUTCOMES, MOST_CHANGES, FEW_CHANGES = 5e8, 5e9, 5e7
#: The policy explorer has tables of this many nodes at most.
MOST_NODES = 50_000_000


def can_solve(model: TabularModel) -> bool:
    """Is the optimum quick to compute?"""
    return model.num_outcomes + model.num_entries <= MOST_OUTCOMES


def can_average(policy: AveragedPolicy, *, at_once: bool = False) -> bool:
    """Is an averaged policy quick to evaluate; with `at_once`, so quick that a live page can wait for it?"""
    return policy.num_changes * policy.model.num_nodes <= (FEW_CHANGES if at_once else MOST_CHANGES)


def can_explore(model: TabularModel) -> bool:
    """Are tables of what follows each action small enough to make for a page?"""
    return model.num_nodes <= MOST_NODES
