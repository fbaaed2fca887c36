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
from peakrl.specs.registry import check_names, problem
from peakrl.specs.user_code import load_named, running, source_file
from peakrl.tabular import TabularModel


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

    def bound() -> Any:
        return function(**arguments)

    bound.__name__ = named
    return {"function": bound}


def source_of(parameters: dict[str, Any], folder: Path) -> Path | None:
    """Return the file that defines the function."""
    return source_file(parameters["function"], folder, "function")


@problem(
    "python",
    reader=with_function,
    source=source_of,
    runs_code=True,
    template=True,
    example={"function": "{name}.py:make", "arguments": {"capacity": 5}},
)
def own_problem(
    function: str | Callable[[], Any], arguments: Mapping[str, Any] | None = None, **more: Any
) -> Problem | TabularModel:
    """Return the problem of a function of your own.

    Parameters
    ----------
    function
        Code that peakrl runs after confirmation or with --trust: a file beside this one, or "package.module:function".
    arguments
        Arguments of the function.
    """
    what = f"function {getattr(function, '__name__', function)!r}"
    with running(what):
        made: Any = function()  # type: ignore[operator]  # bound by `with_function`
    if isinstance(made, TabularModel) or all(hasattr(made, part) for part in ("initial", "actions", "outcomes")):
        return made  # type: ignore[no-any-return]  # a Problem, or something with a problem's methods
    raise ProblemError(f"{what} returned {made!r}; it must return a Problem or a TabularModel")
