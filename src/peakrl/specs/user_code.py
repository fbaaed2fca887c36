"""The only module that imports and calls code named in files: "file.py:name" or "module:name".

Reading a file that names code runs that code. `permit` refuses this unless the user trusts the code (`trust=True`).
Modules of the standard library, such as `os:system`, are always refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, ProblemError, TrustError
from peakrl.storage import file_digest

#: Modules that were imported from users' folders; they are imported again for the next file.
_brought: set[str] = set()


def permit(file: str | Path, named: Iterable[tuple[str, Any]], trust: bool) -> None:
    """Raise unless the user permits `file` to run the code that it names, given as (key in the file, name) pairs."""
    code = [(place, name) for place, name in named if is_name(name)]
    for place, name in code:
        refuse_python(name, Path(file).parent, f"{file}: {place}")
    if code and trust is not True:
        places = ", ".join(f"{place} = {name!r}" for place, name in code)
        raise TrustError(f"{file} runs code ({places}): look at it first, then use --trust (in Python trust=True)")


def is_name(named: Any) -> bool:
    """Does a value name code?"""
    return isinstance(named, str) and ":" in named


def place_of(module: str, folder: Path) -> Path | None:
    """Return the file or package in `folder` that a module's name refers to; None if it is an installed module."""
    path = named_file(module, folder)
    if path is None and (package := folder / module.partition(".")[0]).is_dir():
        return package
    return path


def load_named(named: Any, folder: Path, what: str) -> Any:
    """Return the object of "file.py:name" (a file of `folder`) or "module:name"; `what` begins error messages."""
    if not isinstance(named, str):
        raise ProblemError(f'{what} is {named!r}; it must be "file.py:function" or "module:function"')
    module, colon, name = named.rpartition(":")
    if not (colon and module and name):
        raise ProblemError(f'{what} {named!r} must be "file.py:function" or "module:function"')
    refuse_python(named, folder, what)
    with running(f"{what} {named!r}"):
        home: Any = imported(module, folder, f"{what} {named!r}")
        found = home
        for part in name.split("."):
            found = getattr(found, part, None)
    if not callable(found):
        from difflib import get_close_matches

        near = get_close_matches(name, vars(home), 1)
        meant = f"; do you mean {near[0]}?" if near else ""
        raise ProblemError(f"{what} {named!r}: {module} has no function {name!r}{meant}")
    return found


@contextmanager
def having_imported(module: str, folder: Path, what: str) -> Iterator[None]:
    """Import a module for its side effects; within the context, imports also find files of `folder`."""
    refuse_python(f"{module}:", folder, what)
    with running(what), looking_in(folder) if place_of(module, folder) is not None else nullcontext():
        # By its own name, which its code may refer to.
        imported(module, folder, what) if module.endswith(".py") else importlib.import_module(module)
        yield


def refuse_python(named: str, folder: Path, what: str) -> None:
    """Raise for a module of the standard library."""
    module = named.rpartition(":")[0]
    if place_of(module, folder) is None and module.partition(".")[0] in sys.stdlib_module_names:
        raise ProblemError(f"{what} {named!r}: {module} is a part of Python; name a file of yours or a package")


def named_file(module: str, folder: Path) -> Path | None:
    """Return the file that a module's name refers to: "mine.py", or "mine" if the folder has such a file."""
    path = folder / (module if module.endswith(".py") else f"{module}.py")
    return path if module.endswith(".py") or path.is_file() else None


def imported(module: str, folder: Path, what: str) -> Any:
    """Import a file or package of `folder`, or else an installed module."""
    if place_of(module, folder) is None:
        return importlib.import_module(module)
    path = named_file(module, folder)
    if path is not None and not path.is_file():
        raise ProblemError(f"{what}: there is no file {path}")
    with looking_in(folder):
        return importlib.import_module(module) if path is None else run_file(path, what)


def run_file(path: Path, what: str) -> Any:
    """Run a file again: it may have been edited, and another folder may have one of the same name."""
    name = f"peakrl_user_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ProblemError(f"{what}: {path} cannot be imported")
    loaded = importlib.util.module_from_spec(specification)
    sys.modules[name] = loaded  # dataclasses look up their module
    specification.loader.exec_module(loaded)
    return loaded


@contextmanager
def looking_in(folder: Path) -> Iterator[None]:
    """Let imports look in a folder first; modules that came from an earlier folder are imported again."""
    for name in list(_brought):
        sys.modules.pop(name, None)
    _brought.clear()
    importlib.invalidate_caches()
    before, place = set(sys.modules), folder.resolve()
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin is not None and Path(origin).is_relative_to(place):
                _brought.add(name)


@contextmanager
def running(what: str) -> Iterator[None]:
    """Turn any error of the user's code into a ProblemError that names file and line."""
    try:
        yield
    except PeakError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ProblemError(f"{what} raised {described(error)}") from error


def described(error: BaseException) -> str:
    """Return an error as one line, with its file and line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"


def source_digest(named: Any, folder: Path, what: str) -> str | None:
    """Return the digest of the file that defines the named object, to recognise results of older versions."""
    path = source_file(named, folder, what)
    return None if path is None else file_digest(path)


def source_file(named: Any, folder: Path, what: str) -> Path | None:
    """Return the file that defines the named object, or None."""
    if isinstance(named, str) and (path := named_file(named.rpartition(":")[0], folder)) is not None:
        return path
    try:
        found = inspect.getsourcefile(inspect.unwrap(load_named(named, folder, what)))
    except TypeError:
        return None
    return None if found is None else Path(found)
