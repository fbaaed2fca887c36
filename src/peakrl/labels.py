"""Labels of states and actions, and state spaces, as records.

A sequence of labels is stored in the first of these forms that fits: a range; the bit masks of a scheduling model;
integers, or tuples of equally many integers, as a table; anything else made of None, bool, int, float, str, bytes,
tuple and frozenset as JSON, in which a list stands for a tuple, and {"set": [...]}, {"float": "inf"}, {"bytes": "00ff"}
for what JSON lacks. Labels that are read are equal to the stored ones and have the same hash; a named tuple becomes a
tuple, a numpy number a Python number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import shown
from peakrl.errors import StorageError
from peakrl.records import Field, Record
from peakrl.schedule_labels import ScheduleStates
from peakrl.space import StateSpace
from peakrl.storage import from_json, refuse_surrogates

#: States and actions are 32-bit indices.
MOST_LABELS = 2**31 - 1
#: The arrays of a state space.
SPACE_FIELDS = {
    "stage_start": Field(np.int64, "stage end"),
    "slot_state": Field(np.int32, "slot", below="state"),
    "row_start": Field(np.int64, "slot", splits="row"),
    "row_action": Field(np.int32, "row", below="action"),
}
#: The masks of scheduling states.
SCHEDULE_FIELDS = {"done": Field(np.uint64, "state"), "clock": Field(np.uint64, "state")}


class UnstorableLabel(Exception):
    """A label is of a type that a file cannot hold; the message shows it."""


def store_space(space: StateSpace) -> Record:
    """Return the states and actions of a space as a record; raise UnstorableLabel if a file cannot hold a label."""
    plain = {
        "name": space.name,
        "horizon": space.steps,
        "stationary": bool(space.stationary),
        "constraint_names": list(space.constraint_names),
        "constraint_bounds": [float(bound) for bound in space.constraint_bounds],
        "reward_range": [float(end) for end in space.reward_range],
    }
    record = Record(plain, {name: getattr(space, name) for name in SPACE_FIELDS})
    record.add("states", store_labels(space.state_labels))
    record.add("actions", store_labels(space.action_labels))
    return record


def store_labels(labels: Sequence[Hashable]) -> Record:
    """Return a record from which `load_labels` builds equal labels."""
    if isinstance(labels, range):
        return Record({"form": "range", "range": [labels.start, labels.stop, labels.step]})
    if isinstance(labels, ScheduleStates):
        parts, arrays = labels.parts()
        return Record({"form": "schedule", **parts}, dict(arrays))
    table = integer_table(labels)
    if table is not None:
        return Record({"form": "table"}, {"table": table})
    try:
        plain = [encoded(label) for label in labels]
        text = json.dumps(plain, allow_nan=False)
        refuse_surrogates(text, plain)
    except RecursionError:
        raise UnstorableLabel("a label whose tuples are nested too deeply") from None
    except UnicodeEncodeError as error:
        raise UnstorableLabel(f"a text with a lone surrogate, {error.object[error.start : error.end]!r}") from None
    return Record({"form": "json"}, {"json": np.frombuffer(text.encode(), np.uint8)})


def load_labels(record: Record, *, distinct: bool = True) -> Sequence[Hashable]:
    """Return labels, distinct ones if `distinct`; wrong fields raise errors that `FileKind.reading` translates."""
    form = record.plain["form"]
    if form == "range":
        return number_range(record.plain["range"])
    if form == "schedule":
        return schedule_states(record.plain, **record.checked(SCHEDULE_FIELDS))
    if form == "table":
        labels = table_rows(record.arrays["table"])
    elif form == "json":
        labels = [decoded(value) for value in from_json(record.arrays["json"].tobytes())]
    else:
        raise StorageError(f"labels are stored as {form!r}, a form that this peakrl does not know")
    if distinct and len(set(labels)) < len(labels):
        raise ValueError("two labels are equal")
    return labels


def number_range(ends: Any) -> range:
    """Return labels that are a range of integers."""
    numbers = range(*ends)
    if len(numbers) > MOST_LABELS:
        raise ValueError(f"{len(numbers):,} labels are more than the {MOST_LABELS:,} that a model can have")
    return numbers


def schedule_states(plain: Mapping[str, Any], done: NDArray[Any], clock: NDArray[Any]) -> ScheduleStates:
    """Return the states of a scheduling model."""
    names = plain["names"]
    if len(names) > 64 or len(set(names)) < len(names) or not all(isinstance(name, int | str) for name in names):
        raise ValueError("the jobs of scheduling states are not up to 64 different names")
    if done.size and int(done.max()) >> len(names):
        raise ValueError("a scheduling state has a job done that has no name")
    states = ScheduleStates(names, done, clock, timed=bool(plain["timed"]), worst=bool(plain["worst"]))
    if states.repeat():
        raise ValueError("two labels are equal")
    return states


def table_rows(table: NDArray[Any]) -> list[Hashable]:
    """Return labels that are integers or tuples of integers."""
    if table.dtype != np.int64 or table.ndim not in (1, 2):
        raise ValueError(f"a table of labels is {table.dtype} of shape {table.shape}")
    return table.tolist() if table.ndim == 1 else list(map(tuple, table.tolist()))


def integer_table(labels: Sequence[Hashable]) -> NDArray[np.int64] | None:
    """Return labels as a table if they are 64-bit integers or tuples of equally many of them, else None."""
    first = labels[0]
    width = len(first) if isinstance(first, tuple) else None
    for label in labels:
        if width is None:
            if type(label) is not int:
                return None
        elif not isinstance(label, tuple) or len(label) != width or any(type(part) is not int for part in label):
            return None
    try:
        return np.array(labels, np.int64)
    except OverflowError:
        return None


def encoded(label: Any) -> Any:
    """Return a label as JSON values."""
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, bool):
        return label
    # Enumerations of numbers and strings are equal to their plain values and have the same hash.
    if isinstance(label, int):
        return int(label)
    if isinstance(label, str):
        return str.__str__(label)
    if isinstance(label, float):
        return float(label) if math.isfinite(label) else {"float": repr(float(label))}
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, tuple):
        return [encoded(part) for part in label]
    if isinstance(label, frozenset):
        return {"set": [encoded(part) for part in label]}
    raise UnstorableLabel(shown(label))


def decoded(value: Any) -> Hashable:
    """Return the label that `encoded` turned into JSON values."""
    if isinstance(value, list):
        return tuple(decoded(part) for part in value)
    if isinstance(value, dict):
        ((tag, inner),) = value.items()
        if tag == "set":
            return frozenset(decoded(part) for part in inner)
        if tag == "bytes":
            return bytes.fromhex(inner)
        return {"float": float}[tag](inner)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} is not a label")
