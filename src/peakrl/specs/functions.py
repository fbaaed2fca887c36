"""Descriptions of a user's functions with which a file recognises that the same ones are passed again."""

from __future__ import annotations

import dis
import hashlib
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

#: Bytecode of other versions cannot be compared.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
VALUES = bool, int, float, complex, str, bytes


def described(function: Any) -> dict[str, str]:
    """Return the name of a function, and a digest of its code and of the constants that it refers to.

    Constants are numbers, strings and tuples of them: defaults, closures and globals that it does not assign itself.
    Functions that it calls and objects are not included.
    """
    called = getattr(function, "__func__", function)
    name, code = getattr(function, "__qualname__", type(function).__qualname__), getattr(called, "__code__", None)
    if code is None:
        return {"function": name}
    known = dict(called.__globals__) | {f"default {n}": one for n, one in enumerate(called.__defaults__ or ())}
    known |= called.__kwdefaults__ or {}
    for free, cell in zip(code.co_freevars, called.__closure__ or (), strict=True):
        known[free] = cell.cell_contents
    digest = hashlib.blake2b("\n".join(parts(code, known)).encode(), digest_size=16).hexdigest()
    return {"function": name, "python": PYTHON, "code": digest}


def parts(code: CodeType, known: dict[str, Any]) -> Iterator[str]:
    """Yield what a piece of code does, and the constants among the names that it knows."""
    assigned = {each.argval for each in dis.get_instructions(code) if each.opname.startswith("STORE")}
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from parts(constant, known)
        else:
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
    defaults = [name for name in known if name.startswith("default ")]
    for name in (*defaults, *sorted({*code.co_names, *code.co_freevars} - assigned)):
        if name in known and is_constant(known[name]):
            yield f"{name} = {known[name]!r}"


def is_constant(value: Any) -> bool:
    """Is it a number, a string or a tuple of them?"""
    return isinstance(value, VALUES) or (isinstance(value, tuple) and all(map(is_constant, value)))


def same(one: Any, other: Any) -> bool:
    """Compare two descriptions; code is compared only if one version of Python compiled both."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return bool(one == other)
    apart = one.get("python") != other.get("python")
    names = one.keys() | other.keys()
    return all(same(one.get(name), other.get(name)) for name in names - ({"python", "code"} if apart else set()))
