"""A policy as a C99 header for a controller: constant tables in the smallest integers, and lookup functions.

    int32_t NAME_action(int32_t step, int32_t s0, ...)                the index of the action to take
    int     NAME_safe(int32_t step, int32_t s0, ..., int32_t action)  1 if an action is safe; only with a safe set

A state is given by its components if it is an integer or a tuple of integers, else by its index in the problem's order
of states; the header's first comment lists both, and the actions. Unknown states give -1, or the action of the policy's
fallback, and are never safe. Nothing is allocated and no library is called.

The table of a step has one entry for each position, the position of a state in the order of its components; steps with
equal tables share one. Positions are found by binary search. Masks are stored once each, as bits, and referred to by
index.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
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


def header_of(policy: Policy, safe: SafeSet | None, name: str) -> str:
    """Return the text of the header."""
    model, (unmet, note) = policy.model, fallback_of(policy)
    table = parts_of(model)
    keys = (np.arange(model.num_states) if table is None else table).reshape(model.num_states, -1)
    order, steps, width = np.lexsort(keys.T[::-1]), range(model.lines), keys.shape[1]
    #: Without an end every step has the same tables.
    line = "0" if model.steps is None else "step"
    parts = [opening(model, None if table is None else width, name, note), position_function(keys[order], name)]
    parts += decision([actions_at(policy, step, unmet)[order] for step in steps], line, width, name, unmet)
    if safe is not None:
        parts += mask_functions([masks_at(safe, step)[order] for step in steps], line, width, name)
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


def parts_of(model: StateSpace) -> Longs | None:
    """[state, part]: the integers that states consist of; None if they do not, or need more than 32 bits."""
    table = integer_table(list(model.state_labels))
    if table is None or not table.size or not -(2**31) < table.min() <= table.max() < 2**31:
        return None
    return table


def actions_at(policy: Policy, step: int, unmet: int) -> Longs:
    """[state]: the index of the action that a policy takes at a step, -1 if it takes none."""
    model, fallback = policy.model, policy.fallback
    chosen = np.full(model.num_states, NOTHING, np.int64)
    if unmet != NOTHING:  # states that were visited at another step have ranks of their own
        chosen[:] = unmet if fallback is None or len(fallback.rank) == 1 else np.argmin(fallback.rank[:-1], axis=1)
    slots = model.decision_slots(step)
    chosen[model.slot_state[slots]] = model.row_action[policy.rows[step * model.node_stride + slots]]
    return chosen


def masks_at(safe: SafeSet, step: int) -> NDArray[np.uint8]:
    """[state, byte]: the bits of a mask, lowest first."""
    model = safe.model
    first, last = model.step_slots[step].tolist()
    states = np.repeat(model.slot_state[first:last], np.diff(model.row_start[first : last + 1]))
    rows = slice(int(model.row_start[first]), int(model.row_start[last]))
    masks = np.zeros((model.num_states, len(model.action_labels)), np.bool_)
    masks[states, model.row_action[rows]] = safe.steps.rows(step, rows)
    return np.packbits(masks, axis=1, bitorder="little")


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


def opening(model: StateSpace, width: int | None, name: str, note: str) -> str:
    """Return the comment, the include guard and the constants; states have `width` components, None: an index."""
    upper = name.upper()
    if width is None:
        states = f"States by index:\n{listed(model.state_labels)}"
    else:
        states = f"A state is given by its {width} integer(s)."
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


def arguments(width: int, kind: str = "int32_t ") -> str:
    """Return the components of a state as C parameters; as arguments if `kind` is empty."""
    return ", ".join(f"{kind}s{part}" for part in range(width))


def position_function(keys: Longs, name: str) -> str:
    """Return the sorted keys [position, part], and the function that finds the position of a state."""
    table, width = array(f"{name}_key", keys), keys.shape[1]
    kind = table.split("static const ")[1].split(" ")[0]
    compare = "".join(
        f"        if (k[{part}] < s{part}) {{ low = middle + 1; continue; }}\n"
        f"        if (k[{part}] > s{part}) {{ high = middle; continue; }}\n"
        for part in range(width)
    )
    return (
        f"{table}static inline int32_t {name}_position(int32_t step, {arguments(width)})\n{{\n"
        f"    int32_t low = 0, high = {len(keys)};\n    if (step < 0 || step >= {name.upper()}_STEPS) return -1;\n"
        f"    while (low < high) {{\n        int32_t middle = low + (high - low) / 2;\n"
        f"        const {kind} *k = {name}_key + middle * {width};\n{compare}"
        f"        return middle;\n    }}\n    return -1;\n}}\n"
    )


def decision(choice: list[Longs], line: str, width: int, name: str, unmet: int) -> list[str]:
    """Return the tables of actions and the function that reads them."""
    return [
        step_tables(f"{name}_choice", choice),
        f"/* The index of the action to take; {unmet} if the state is unknown at that step. */\n"
        f"static inline int32_t {name}_action(int32_t step, {arguments(width)})\n{{\n"
        f"    int32_t position = {name}_position(step, {arguments(width, '')});\n"
        f"    if (step < 0 || step >= {name.upper()}_STEPS) return -1;\n"
        f"    return position < 0 ? {unmet} : {name}_choice_table[{name}_choice_start[{line}] + position];"
        "\n}\n",
    ]


def mask_functions(tables: list[NDArray[np.uint8]], line: str, width: int, name: str) -> list[str]:
    """Return the distinct masks, the tables of their indices and the function that reads them."""
    masks: dict[bytes, int] = {}
    which = [np.array([masks.setdefault(mask.tobytes(), len(masks)) for mask in table], np.int64) for table in tables]
    bits = array(f"{name}_mask_bits", np.frombuffer(b"".join(masks), np.uint8))
    return [
        bits + step_tables(f"{name}_mask", which),
        f"/* 1 if the action, by index, is available and safe; 0 if not, or if the state is unknown. */\n"
        f"static inline int {name}_safe(int32_t step, {arguments(width)}, int32_t action)\n{{\n"
        f"    int32_t position = {name}_position(step, {arguments(width, '')}), mask;\n"
        f"    if (position < 0 || action < 0 || action >= {name.upper()}_ACTIONS) return 0;\n"
        f"    mask = {name}_mask_table[{name}_mask_start[{line}] + position];\n"
        f"    return {name}_mask_bits[mask * {tables[0].shape[1]} + action / 8] >> action % 8 & 1;\n}}\n",
    ]
