"""A policy as a C99 header for a controller: constant tables in the smallest integers, and lookup functions.

    int32_t NAME_action(int32_t step, int32_t s0, ...)                the index of the action to take
    int     NAME_safe(int32_t step, int32_t s0, ..., int32_t action)  1 if an action is safe; only with a safe set

A state is given by its components if it is an integer or a tuple of integers, else by its index in the problem's order
of states; the header's first comment lists both, and the actions. Unknown states give -1, or the action of the policy's
fallback, and are never safe. Nothing is allocated and no library is called.

The table of a step has one entry for each position, the position of a state among those of the step; steps with equal
tables share one. Positions are found by binary search in the sorted keys of the states. Masks are stored once each, as
bits, and referred to by index.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import PolicyError
from peakrl.labels import integer_table
from peakrl.space import StateSpace
from peakrl.storage import write_file
from peakrl.types import Longs

if TYPE_CHECKING:
    from peakrl.policy.tables import Policy
    from peakrl.safety.safe_set import SafeSet

#: The integers of C, smallest first.
INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, np.int32)
NOTHING = -1
#: Without an end every step below this has the same tables.
LAST = 2**31 - 1
LABELS_SHOWN, LINE = 200, 110


@dataclass(frozen=True)
class Positions:
    """The position of each state's entry: states in the order of their keys, for all steps or for each step."""

    #: [slot, part]: the components of each stored state.
    keys: Longs
    #: [step]: the slots of a step in the order of their keys.
    by_step: list[Longs]
    #: Whether all steps share one order.
    shared: bool
    #: The index of a step's tables in C: 0 if every step has the same.
    line: str

    @property
    def parts(self) -> int:
        """The number of components of a state."""
        return int(self.keys.shape[1])


def header_of(policy: Policy, safe: SafeSet | None, name: str) -> str:
    """Return the text of the header."""
    model, unmet, note = policy.model, *fallback_of(policy)
    if policy.fallback is not None and len(policy.fallback.rank) > 1 and unmet != NOTHING:
        positions, choice = chosen_everywhere(policy, policy.fallback.rank)
    else:
        positions = positions_of(model)
        choice = [chosen_at(policy, step, slots) for step, slots in enumerate(positions.by_step)]
    parts = [opening(model, positions, name, note), position_function(positions, name)]
    parts += decision(choice, positions, name, unmet)
    if safe is not None:
        parts += mask_functions(safe, positions, name)
    return "\n".join([*parts, f"#endif /* {name.upper()}_H */", ""])


def write_header(policy: Policy, path: str | Path, safe: SafeSet | None, name: str | None) -> str:
    """Write and return the header of a policy."""
    if safe is not None and safe.model is not policy.model and safe.model.digest != policy.model.digest:
        raise PolicyError(f"the safe set belongs to {safe.model!r}, the policy to {policy.model!r}")
    text = header_of(policy, safe, identifier(name, path))
    write_file(path, text.encode())
    return text


def identifier(name: str | None, path: str | Path) -> str:
    """Return the prefix of all names, by default the file's name."""
    if name is None:
        found = re.sub(r"\W+", "_", Path(path).stem, flags=re.ASCII).strip("_")
        return found if found and not found[0].isdigit() else f"policy_{found}".rstrip("_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise PolicyError(f"name is {name!r}; it must be an identifier of C: letters, digits and _, no digit first")
    return name


# Tables ----------------------------------------------------------------------------------------------------------


def positions_of(model: StateSpace) -> Positions:
    """Return the order of the entries of states."""
    keys = state_keys(model)[model.slot_state]
    by_step: list[Longs] = []
    for step, (first, last) in enumerate(model.step_slots.tolist()):
        if step and model.stationary:
            by_step.append(by_step[0])
            continue
        slots = np.flatnonzero(np.diff(model.row_start)[first:last] > 0) + first
        by_step.append(slots[np.lexsort(keys[slots].T[::-1])])
    return Positions(keys, by_step, model.stationary, line_of(model))


def line_of(model: StateSpace) -> str:
    """Return the index of a step's tables in C."""
    return "0" if model.steps is None else "step"


def fallback_of(policy: Policy) -> tuple[int, str]:
    """Return the action in states that are not in the tables, -1 if it is not known, and a comment on them."""
    model, fallback = policy.model, policy.fallback
    if fallback is None:
        return NOTHING, ""
    if fallback.limited:
        return NOTHING, "In other states the policy follows declared functions, which are not in this header."
    some = np.diff(model.row_start)
    if (some[some > 0] < len(model.action_labels)).any():
        own = '\nStates that were visited at another step have an order of their own: "states" in to_json().'
        return NOTHING, (
            f"In other states take the first of these actions that is available: {fallback.preferred()}"
            + own * (len(fallback.rank) > 1)
        )
    return int(np.argmin(fallback.rank[-1])), "States that were not visited have the action of the policy's fallback."


def chosen_everywhere(policy: Policy, rank: NDArray[np.int8]) -> tuple[Positions, list[Longs]]:
    """Return positions of all states at all steps, and [step][position] their actions, ranked if not visited there."""
    model = policy.model
    keys = state_keys(model)
    order, choice = np.lexsort(keys.T[::-1]), []
    for step, (first, last) in enumerate(model.step_slots.tolist()):
        here = np.argmin(rank[:-1], axis=1)
        nodes = step * model.node_stride + np.arange(first, last)
        here[model.slot_state[first:last]] = model.row_action[policy.rows[nodes]]
        choice.append(here[order])
    return Positions(keys, [order] * model.lines, True, line_of(model)), choice


def state_keys(model: StateSpace) -> Longs:
    """[state, part]: the integers by which a state is found."""
    table = parts_of(model)
    return (np.arange(model.num_states) if table is None else table).reshape(model.num_states, -1)


def parts_of(model: StateSpace) -> Longs | None:
    """[state, part]: the integers that states consist of; None if they do not, or need more than 32 bits."""
    table = integer_table(list(model.state_labels))
    if table is None or not table.size or not -(2**31) < table.min() <= table.max() < 2**31:
        return None
    return table


def chosen_at(policy: Policy, step: int, slots: Longs) -> Longs:
    """[position]: the index of the action that a policy takes at a step, -1 if the state is not reachable."""
    model = policy.model
    nodes = step * model.node_stride + slots
    return np.where(model.reachable[nodes], model.row_action[policy.rows[nodes]], NOTHING).astype(np.int64)


def masks_at(safe: SafeSet, step: int, slots: Longs) -> list[bytes]:
    """[position]: the bits of a mask, lowest first."""
    nodes = step * safe.model.node_stride + slots
    return [np.packbits(safe.mask_of(node), bitorder="little").tobytes() for node in nodes.tolist()]


def array(name: str, values: Any) -> str:
    """Return a constant table in the smallest integers that hold it."""
    flat: NDArray[Any] = np.asarray(values, np.int64).ravel()
    low, high = int(flat.min(initial=0)), int(flat.max(initial=0))
    kind = next(np.dtype(each) for each in INTEGERS if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    lines, line = [], ""
    for value in flat.tolist() or [0]:
        text = f"{value},"
        if len(line) + len(text) > LINE:
            lines.append(line)
            line = ""
        line += text
    body = "\n".join([*lines, line])
    return f"static const {kind.name}_t {name}[{max(len(flat), 1)}] = {{\n{body}\n}};\n"


def step_tables(name: str, tables: Sequence[Longs]) -> str:
    """Return the concatenated tables of all steps, equal ones once, and the start of each step's table."""
    start: dict[bytes, int] = {}
    distinct: list[Longs] = []
    for table in tables:
        if table.tobytes() not in start:
            start[table.tobytes()] = sum(map(len, distinct))
            distinct.append(table)
    starts = [start[table.tobytes()] for table in tables]
    return array(f"{name}_table", np.concatenate(distinct)) + array(f"{name}_start", starts)


# Text ------------------------------------------------------------------------------------------------------------


def opening(model: StateSpace, positions: Positions, name: str, note: str) -> str:
    """Return the comment, the include guard and the constants."""
    upper = name.upper()
    if parts_of(model) is None:
        states = f"States by index:\n{listed(model.state_labels)}"
    else:
        states = f"A state is given by its {positions.parts} integer(s)."
    states += f"\n{note}" if note else ""
    return (
        f"/* A policy for {comment(' '.join(model.name.split()))}, written by peakrl.\n\n"
        f"{comment(states)}\nActions by index:\n{comment(listed(model.action_labels))}\n*/\n"
        f"#ifndef {upper}_H\n#define {upper}_H\n\n#include <stdint.h>\n\n"
        f"#define {upper}_STEPS {model.steps or LAST}\n#define {upper}_ACTIONS {len(model.action_labels)}\n"
    )


def listed(labels: Sequence[Hashable]) -> str:
    """Return labels with their indices."""
    lines = [
        f"  {number}: {' '.join(repr(labels[number]).split())}" for number in range(min(len(labels), LABELS_SHOWN))
    ]
    more = [f"  ... {len(labels) - LABELS_SHOWN} more"] if len(labels) > LABELS_SHOWN else []
    return "\n".join([*lines, *more])


def comment(text: str) -> str:
    """Return text that is safe in a C comment, in ASCII."""
    return (
        text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").encode("ascii", "backslashreplace").decode()
    )


def arguments(positions: Positions, kind: str = "int32_t ") -> str:
    """Return the components of a state as C parameters; as arguments if `kind` is empty."""
    return ", ".join(f"{kind}s{part}" for part in range(positions.parts))


def position_function(positions: Positions, name: str) -> str:
    """Return the function that finds the position of a state in the sorted keys of a step, and the keys."""
    orders = positions.by_step[:1] if positions.shared else positions.by_step
    keys = array(f"{name}_key", positions.keys[np.concatenate(orders)])
    starts = array(f"{name}_key_start", np.cumsum([0, *map(len, orders)]))
    kind = keys.split("static const ")[1].split(" ")[0]
    step = "0" if positions.shared else "step"
    compare = "".join(
        f"        if (k[{part}] < s{part}) {{ low = middle + 1; continue; }}\n"
        f"        if (k[{part}] > s{part}) {{ high = middle; continue; }}\n"
        for part in range(positions.parts)
    )
    return (
        f"{keys}{starts}static inline int32_t {name}_position(int32_t step, {arguments(positions)})\n{{\n"
        f"    int32_t low, high;\n    if (step < 0 || step >= {name.upper()}_STEPS) return -1;\n"
        f"    low = {name}_key_start[{step}];\n    high = {name}_key_start[{step} + 1];\n    while (low < high) {{\n"
        f"        int32_t middle = low + (high - low) / 2;\n"
        f"        const {kind} *k = {name}_key + middle * {positions.parts};\n{compare}"
        f"        return middle - {name}_key_start[{step}];\n    }}\n    return -1;\n}}\n"
    )


def decision(choice: list[Longs], positions: Positions, name: str, unmet: int) -> list[str]:
    """Return the tables of actions and the function that reads them."""
    return [
        step_tables(f"{name}_choice", choice),
        f"/* The index of the action to take; {unmet} if the state is unknown at that step. */\n"
        f"static inline int32_t {name}_action(int32_t step, {arguments(positions)})\n{{\n"
        f"    int32_t position = {name}_position(step, {arguments(positions, '')});\n"
        f"    if (step < 0 || step >= {name.upper()}_STEPS) return -1;\n"
        f"    return position < 0 ? {unmet} : {name}_choice_table[{name}_choice_start[{positions.line}] + position];"
        "\n}\n",
    ]


def mask_functions(safe: SafeSet, positions: Positions, name: str) -> list[str]:
    """Return the distinct masks, the tables of their indices and the function that reads them."""
    masks: dict[bytes, int] = {}
    which = [
        np.array([masks.setdefault(mask, len(masks)) for mask in masks_at(safe, step, slots)], np.int64)
        for step, slots in enumerate(positions.by_step)
    ]
    width = (len(safe.model.action_labels) + 7) // 8
    bits = array(f"{name}_mask_bits", np.frombuffer(b"".join(masks), np.uint8))
    return [
        bits + step_tables(f"{name}_mask", which),
        f"/* 1 if the action, by index, is available and safe; 0 if not, or if the state is unknown. */\n"
        f"static inline int {name}_safe(int32_t step, {arguments(positions)}, int32_t action)\n{{\n"
        f"    int32_t position = {name}_position(step, {arguments(positions, '')}), mask;\n"
        f"    if (position < 0 || action < 0 || action >= {name.upper()}_ACTIONS) return 0;\n"
        f"    mask = {name}_mask_table[{name}_mask_start[{positions.line}] + position];\n"
        f"    return {name}_mask_bits[mask * {width} + action / 8] >> action % 8 & 1;\n}}\n",
    ]
