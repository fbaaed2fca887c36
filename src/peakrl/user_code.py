"""The one place where code that a file names is imported and called: "file.py:name" or "module:name".

Whoever reads a file that names code runs that code, so nothing else of peakrl imports what it was not shipped with.
A file may name code of its own folder and of installed packages, but neither files elsewhere nor Python's own library:
`os:system` makes no problem.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, ProblemError
from peakrl.storage import file_digest


def load_named(named: Any, folder: Path, what: str) -> Any:
    """Return what "file.py:name" (a file of `folder`) or "module:name" stands for; `what` begins the messages."""
    if not isinstance(named, str):
        raise ProblemError(f'{what} is {named!r}; it must be "file.py:function" or "module:function"')
    module, colon, name = named.rpartition(":")
    if not (colon and module and name):
        raise ProblemError(f'{what} {named!r} must be "file.py:function" or "module:function"')
    refuse_elsewhere(module, folder, f"{what} {named!r}")
    with running(f"{what} {named!r}"):
        found: Any = imported(module, folder, f"{what} {named!r}")
        for part in name.split("."):
            found = getattr(found, part, None)
    if not callable(found):
        raise ProblemError(f"{what} {named!r}: {module} has no function {name!r}")
    return found


def refuse_elsewhere(module: str, folder: Path, what: str) -> None:
    """Raise for code that no problem or learner is made of: a file outside of the folder, or a part of Python."""
    path = named_file(module, folder)
    if path is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise ProblemError(f"{what}: {path} lies outside of the file's own folder; put it there, or install it")
    if path is None and module.partition(".")[0] in sys.stdlib_module_names:
        raise ProblemError(f"{what}: {module} is a part of Python; name a file of yours or an installed package")


def named_file(module: str, folder: Path) -> Path | None:
    """Return the file that a module's name stands for: "mine.py", or "mine" where the folder has such a file."""
    path = folder / (module if module.endswith(".py") else f"{module}.py")
    return path if module.endswith(".py") or path.is_file() else None


def imported(module: str, folder: Path, what: str) -> Any:
    """Import a file of `folder`, or a module that Python or that folder knows."""
    path = named_file(module, folder)
    sys.path.insert(0, str(folder.resolve()))
    try:
        # A file is run anew each time: it may have been edited, and another folder may have one of the same name.
        if path is None:
            return importlib.import_module(module)
        if not path.is_file():
            raise ProblemError(f"{what}: there is no file {path}")
        name = f"peakrl_user_{path.stem}"
        specification = importlib.util.spec_from_file_location(name, path)
        if specification is None or specification.loader is None:
            raise ProblemError(f"{what}: {path} cannot be imported")
        loaded = importlib.util.module_from_spec(specification)
        sys.modules[name] = loaded  # dataclasses look their module up
        specification.loader.exec_module(loaded)
        return loaded
    finally:
        sys.path.pop(0)


@contextmanager
def running(what: str) -> Iterator[None]:
    """Turn whatever the user's code raises into an error that says where."""
    try:
        yield
    except PeakError:
        raise
    except Exception as error:  # it is not our code: anything may come
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f" ({Path(frame.filename).name}, line {frame.lineno})"
        raise ProblemError(f"{what} raised {type(error).__name__}: {error}{place}") from error


def source_digest(named: Any, folder: Path, what: str) -> str | None:
    """Return the digest of the file that holds what a name stands for: results of an older version are told apart."""
    path = source_file(named, folder, what)
    return None if path is None else file_digest(path)


def source_file(named: Any, folder: Path, what: str) -> Path | None:
    """Return the file that holds what "file.py:name" or "module:name" stands for, if there is one."""
    if isinstance(named, str) and (path := named_file(named.rpartition(":")[0], folder)) is not None:
        return path
    try:
        found = inspect.getsourcefile(inspect.unwrap(load_named(named, folder, what)))
    except TypeError:
        return None
    return None if found is None else Path(found)
