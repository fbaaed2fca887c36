"""Lists that kernels number and check."""

from __future__ import annotations


def number_lists(lists):
    """Number lists by first occurrence, equal ones alike: the number of each, and the first list of each number."""
    numbers, firsts = {}, []
    for place, members in enumerate(lists):
        if tuple(members) not in numbers:
            numbers[tuple(members)] = len(firsts)
            firsts.append(place)
    return [numbers[tuple(members)] for members in lists], firsts


def change_fault(rows_of, changes):
    """What is wrong with a list of (episode, node, row), by its first bad entry; rows_of[node] are the node's rows."""
    before = 1
    for episode, node, row in changes:
        if episode < before:
            return "unordered"
        if node not in rows_of:
            return "no node"
        if row not in rows_of[node]:
            return "no row"
        before = episode
    return "no fault"
