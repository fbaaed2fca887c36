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


def distribution_fault(lists):
    """The first member that is no finite number of at least 0; or the first list that does not sum to 1, its sum, and
    how many members are 0: (member, list, sum, zeros), -1 where there is none."""
    members = [number for each in lists for number in each]
    for place, number in enumerate(members):
        if not (number >= 0.0 and number < float("inf")):
            return place, -1, 0.0, 0
    for place, each in enumerate(lists):
        if abs(sum(each) - 1.0) > 1e-9:
            return -1, place, sum(each), members.count(0.0)
    return -1, -1, 1.0, members.count(0.0)


def repeated_member(lists):
    """The first place, counted through all lists, whose member stands before it in its own list; -1: there is none."""
    before = 0
    for each in lists:
        for place, member in enumerate(each):
            if member in each[:place]:
                return before + place
        before += len(each)
    return -1
