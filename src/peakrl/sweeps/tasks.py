"""A task, a function with its configuration, and its result.

    key    = BLAKE2b(canonical JSON of function, configuration, result-schema version, kernel-source digest)
    digest = BLAKE2b(canonical JSON of the scalars, then name, type, shape and bytes of every array)

Equal keys mean the same task, equal digests the same result; the run time is part of neither.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.errors import SweepError

#: Increase this when the meaning of stored results changes.
RESULT_SCHEMA = 1

Scalar = bool | int | float | str | None


@dataclass(frozen=True, eq=False)
class Task:
    """A call of `function` ("module:name") with `config`, which is plain JSON."""

    function: str
    config: Mapping[str, Any]
    #: Name for messages; not part of the key.
    name: str = ""

    def __post_init__(self) -> None:
        module, colon, name = str(self.function).partition(":")
        if not (module and colon and name):
            raise SweepError(f'function is {self.function!r}; it must be given as "module:name"')
        if not isinstance(self.config, Mapping):
            raise SweepError(f"config is {self.config!r}; it must be a mapping of plain JSON values")
        # Normalised (tuples become lists): the function gets what the key was computed from.
        object.__setattr__(self, "config", json.loads(canonical(self.config, f"config of {self.function}")))

    @cached_property
    def key(self) -> str:
        """The digest that identifies the task."""
        named = {
            "config": self.config,
            "function": self.function,
            "kernels": kernel_digest(),
            "schema": RESULT_SCHEMA,
        }
        return digest_of(canonical(named, "task").encode())

    def __str__(self) -> str:
        return self.name or f"{self.function} {self.key[:10]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a task: scalars and arrays by name."""

    task: Task
    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(repr=False)
    #: Wall time; not part of the digest.
    seconds: float = 0.0

    @cached_property
    def digest(self) -> str:
        """The digest of the result."""
        parts = [canonical(packed(self.values), "values").encode()]
        for name, array in sorted(self.arrays.items()):
            parts.append(f"{name} {array.dtype.str} {array.shape}".encode())
            parts.append(np.ascontiguousarray(array).tobytes())
        return digest_of(*parts)


@cache
def kernel_digest() -> str:
    """Return the digest of the kernel sources, read once per process."""
    from peakrl.jit import source_digest

    return source_digest()


def digest_of(*parts: bytes) -> str:
    """Return a digest of byte strings and their lengths."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def canonical(value: Any, what: str) -> str:
    """Return JSON with sorted keys and no spaces, the same for equal values."""
    check_plain(value, what)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def check_plain(value: Any, what: str) -> None:
    """Raise, with the name of the entry, unless `value` is plain JSON."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SweepError(f"{what}: the key {key!r} is not a string")
            check_plain(item, f"{what}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_plain(item, f"{what}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SweepError(f"{what} is {value}; it must be finite")
    elif not (value is None or isinstance(value, bool | int | float | str)) or isinstance(value, np.generic):
        raise SweepError(
            f"{what} is {value!r} ({type(value).__name__}); it must be plain JSON: text, numbers, true, false, "
            "null, lists and tables"
        )


def split_result(returned: Any, function: str) -> tuple[dict[str, Scalar], dict[str, NDArray[Any]]]:
    """Return the scalars and arrays of a returned mapping."""
    if not isinstance(returned, Mapping):
        raise SweepError(f"{function} returned {type(returned).__name__}; it must return a dict")
    values: dict[str, Scalar] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, item in returned.items():
        if isinstance(item, np.ndarray) and item.ndim:
            arrays[str(name)] = item
        elif isinstance(item, np.ndarray | np.generic):
            values[str(name)] = item.item()
        elif item is None or isinstance(item, bool | int | float | str):
            values[str(name)] = item
        else:
            raise SweepError(
                f"{function} returned {name!r} as {type(item).__name__}; it must be a number, text, None or an array"
            )
    return values, arrays


def packed(values: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return scalars as strict JSON, which has no NaN and no infinities."""
    return {
        name: {"not finite": repr(item)} if isinstance(item, float) and not math.isfinite(item) else item
        for name, item in values.items()
    }


def unpacked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `packed`."""
    return {name: float(item["not finite"]) if isinstance(item, dict) else item for name, item in values.items()}
