"""Problem files: the table `problem` of a .toml or .json file, or the name of a built-in problem."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peakrl.errors import PeakError, ProblemError, StorageError, TrustError
from peakrl.specs.registry import command_names
from peakrl.specs.spec import ProblemSpec, located
from peakrl.specs.user_code import Trust, permit
from peakrl.storage import from_json, read_file


def read_spec(path: str | Path, *, trust: Trust = False) -> ProblemSpec:
    """Return the problem of a file, or the built-in one of this name; paths in a file are relative to it."""
    values = described(path)
    with naming(path):
        with located("problem"):
            spec = ProblemSpec.from_dict(values["problem"] if isinstance(values, dict) and "problem" in values else {})
        permit(path, spec.code("problem"), trust)
        return spec


def described(path: str | Path) -> Any:
    """Return the unchecked content of a problem file."""
    named = command_names().get(str(path))
    return parsed(Path(path), "problem file") if named is None else {"problem": dict(named)}


def parsed(path: Path, what: str) -> Any:
    """Return the content of a TOML or JSON file."""
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: byte {error.start} is not UTF-8 text") from None
    except StorageError as error:
        names = ", ".join(command_names())
        hint = "" if path.suffix else f" (and no built-in problem has that name; there are {names})"
        raise StorageError(f"{error}{hint}") from error
    if path.suffix not in (".toml", ".json"):
        raise ProblemError(f"{path}: a {what} is TOML or JSON, so its name must end in .toml or .json")
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else from_json(text)
    except RecursionError:
        raise ProblemError(f"{path}: lists are nested too deeply") from None
    except ValueError as error:
        place = re.search(r"line (\d+)", str(error))
        lines = text.splitlines()
        shown = f": {lines[int(place[1]) - 1].strip()}" if place and int(place[1]) <= len(lines) else ""
        raise ProblemError(f"{path} is not valid {path.suffix[1:].upper()}: {error}{shown}") from None


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Begin the message of an error with the file's name."""
    try:
        yield
    except (StorageError, TrustError):
        raise  # its message names a file already
    except PeakError as error:
        if str(path) in str(error):
            raise
        raise ProblemError(f"{path}: {error}") from error
