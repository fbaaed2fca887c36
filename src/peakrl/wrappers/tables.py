"""Budgets and monitors as tables of problem files, [[budget]] and [[monitor]].

{"name": "peaks", "limit": 3, "cost": {"7": 1, "8": 1}}
{"pattern": "never_twice_within", "steps": 3, "event": {"action": [7, 8]}}
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

from peakrl.errors import ProblemError
from peakrl.specs.registry import addition, check_names

#: Ready-made monitors, methods of `Monitor`.
PATTERNS = ("at_most", "before", "never_followed_by", "never_twice_within")


@addition("budget")
def add_budgets(target: Any, given: Any) -> Any:
    """Return the problem with the budgets of a file."""
    from peakrl.wrappers.budgets import Budget, with_budget

    budgets = []
    for where, table in tables(given, "budget"):
        check_names(inspect.signature(Budget).parameters, table, where)
        amounts = {name: amount_of(table[name], where + name) for name in ("cost", "refill") if name in table}
        budgets.append(Budget(**table | amounts))
    return with_budget(target, *budgets)


@addition("monitor")
def add_monitors(target: Any, given: Any) -> Any:
    """Return the problem with the monitors of a file."""
    from peakrl.wrappers.monitors import Monitor, with_monitor

    monitors = []
    for where, table in tables(given, "monitor"):
        named = table.pop("pattern", None)
        if named not in PATTERNS:
            raise ProblemError(f"{where}pattern must be one of {', '.join(PATTERNS)}")
        pattern = getattr(Monitor, named)
        check_names(inspect.signature(pattern).parameters, table, where)
        events = {name: event_of(value) for name, value in table.items() if name in ("event", "first", "second")}
        monitors.append(pattern(**table | events))
    return with_monitor(target, *monitors)


def tables(given: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the location and a copy of each table of a list."""
    if not isinstance(given, list) or not all(isinstance(table, Mapping) for table in given):
        raise ProblemError(f"{name} is {given!r}; it must be a list of tables, [[{name}]] in a file")
    for place, table in enumerate(given):
        yield f"{name}[{place}].", dict(table)


def amount_of(given: Any, where: str) -> Any:
    """Return a cost or refill: a number, "full", or a table of these by action."""
    if isinstance(given, Mapping):
        return {action: amount_of(value, f"{where}.{action}") for action, value in given.items()}
    if given == "full":
        return math.inf
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ProblemError(f"{where} is {given!r}; it must be a number, or a table of numbers by action")
    return given


def event_of(given: Any) -> Any:
    """Return an event whose states and actions are labels: the lists within a list of values are tuples."""
    if not isinstance(given, Mapping):
        return given
    return {part: [label_of(one) for one in values] if isinstance(values, list) else values
            for part, values in given.items()}  # fmt: skip


def label_of(value: Any) -> Any:
    """Return a label from JSON."""
    return tuple(map(label_of, value)) if isinstance(value, list) else value
