"""Problems created by a user's function that returns a `Problem` or a `TabularModel`, named "file.py:function".

    {"kind": "python", "function": "mine.py:make", "capacity": 5}    calls make(capacity=5)

All other keys are passed on as arguments, and so is the content of `arguments` (for arguments named kind or function).
**Building such a problem runs the code of the function**: only use files that you trust.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peakrl.errors import ProblemError
from peakrl.problem import Problem
from peakrl.specs.registry import check_names
from peakrl.specs.user_code import load_named, running, source_file
from peakrl.tabular import TabularModel


def own_problem(
    function: str | Callable[[], Any], arguments: Mapping[str, Any] | None = None, **more: Any
) -> Problem | TabularModel:
    """Return what the user's function returns; `with_function` has bound its arguments."""
    what = f"function {getattr(function, 'named', function)!r}"
    with running(what):
        made: Any = function()  # type: ignore[operator]  # bound by `with_function`
    if isinstance(made, TabularModel) or all(hasattr(made, part) for part in ("initial", "actions", "outcomes")):
        return made  # type: ignore[no-any-return]  # a Problem, or something with a problem's methods
    raise ProblemError(f"{what} returned {made!r}; it must return a Problem or a TabularModel")


class Bound:
    """A function with its arguments and its name."""

    def __init__(self, named: str, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        self.named, self.function, self.arguments = named, function, arguments

    def __call__(self) -> Any:
        """Call it."""
        return self.function(**self.arguments)


def with_function(parameters: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the function with its arguments bound by name."""
    named, inner = parameters.pop("function"), parameters.pop("arguments", None) or {}
    if not isinstance(inner, Mapping):
        raise ProblemError(f"arguments is {inner!r}; it must be a table of values by name")
    function = load_named(named, folder, "function")
    for name in inner:
        if name in parameters:
            raise ProblemError(f"{name} is given twice, once in arguments")
    arguments = {**inner, **parameters}
    try:
        takes = inspect.signature(function).parameters
    except (TypeError, ValueError):  # built-in functions may have no signature
        takes = None
    if takes is not None:
        check_names(takes, arguments)
    return {"function": Bound(named, function, arguments)}


def source_of(parameters: dict[str, Any], folder: Path) -> Path | None:
    """Return the file that defines the function."""
    return source_file(parameters["function"], folder, "function")
