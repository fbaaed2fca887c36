"""`ProblemSpec`: a problem as data, a kind and its parameters in plain JSON.

    {"kind": "energy_harvesting", "peak_power": 8}

Problem files, sweeps, the command line, `gymnasium.make` and run files use this form. `peakrl.specs.registry` lists the
kinds; the parameters are those of the function that creates the problem. `budget` and `monitor`, lists of tables, are
possible for every kind, and so is `discount`, for `peakrl.solve`, in place of `horizon`. In a file, .toml or .json, it
is table `problem`, with [[budget]] and [[monitor]] beside it.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from peakrl.checks import check_fraction
from peakrl.compile import compile_model
from peakrl.errors import PeakError, ProblemError, StorageError, TrustError
from peakrl.problem import Problem
from peakrl.specs.registry import additions, check_names, command_names, kind_named, kinds
from peakrl.specs.user_code import permit, running
from peakrl.storage import file_digest, from_json, read_file
from peakrl.tabular import TabularModel

Made = TypeVar("Made", bound=Problem)


@dataclass(frozen=True)
class ProblemSpec:
    """A problem as data. Names of parameters are checked at once, values when the problem is built."""

    #: A kind of `peakrl.specs.registry`.
    kind: str
    #: Parameters by name; plain JSON.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind_named(self.kind)
        if not isinstance(self.parameters, Mapping):
            raise ProblemError(f"parameters is {self.parameters!r}; it must be a table of values by name")
        given = as_plain(self.parameters, "")
        if "discount" in given:  # in place of a horizon
            check_fraction(given["discount"], "discount", error=ProblemError)
            if "horizon" in kind_named(self.kind).parameters:
                given.setdefault("horizon", None)
        object.__setattr__(self, "parameters", given)
        check_names(kind_named(self.kind).parameters, self._own)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ProblemSpec:
        """Return the specification of {"kind": ..., parameters}."""
        if not isinstance(values, Mapping):
            raise ProblemError(f"a problem is {values!r}; it must be a table with kind and parameters")
        if "kind" not in values:
            raise ProblemError(f"kind is missing; it must be one of {', '.join(kinds())}")
        kind, rest = values["kind"], {name: value for name, value in values.items() if name != "kind"}
        if isinstance(kind, str) and ":" in kind:  # a function of the user
            return cls("python", {"function": kind, **rest})
        return cls(kind, rest)

    def as_dict(self) -> dict[str, Any]:
        """Return {"kind": ..., parameters}, which `from_dict` reads."""
        return {"kind": self.kind, **self.parameters}

    def with_parameters(self, changes: Mapping[str, Any]) -> ProblemSpec:
        """Return the same kind of problem with some parameters changed."""
        return ProblemSpec(self.kind, {**self.parameters, **changes})

    @property
    def _own(self) -> dict[str, Any]:
        """The parameters of the kind itself."""
        return {name: value for name, value in self.parameters.items() if name not in (*additions(), "discount")}

    @property
    def runs_code(self) -> bool:
        """Does building it run code that it names?"""
        return kind_named(self.kind).runs_code

    def code(self, where: str) -> list[tuple[str, Any]]:
        """Return the code that building it runs, as (key, name) pairs; `where` is the table of this problem."""
        return [(f"{where}.function", self.parameters["function"])] if self.runs_code else []

    def build(self, folder: str | Path = ".") -> Problem | TabularModel:
        """Return the problem, or the model if the kind yields one; paths are relative to `folder`."""
        built: Problem | TabularModel = kind_named(self.kind).build(self._own, Path(folder))
        for name, add in additions().items():
            built = add(built, self.parameters[name]) if name in self.parameters else built
        return built

    def compile(self, folder: str | Path = ".", *, progress: bool = False) -> TabularModel:
        """Return the compiled model, with this specification."""
        built = self.build(folder)
        with running(f"{self.kind}: its problem") if self.runs_code else nullcontext():
            model = compile_model(built, progress=progress)
        return model if model.spec is not None else replace(model, spec=self.as_dict())

    def source_digest(self, folder: str | Path = ".") -> str | None:
        """Return the digest of the file that the problem depends on but does not hold, or None."""
        source = kind_named(self.kind).source
        path = None if source is None else source(dict(self.parameters), Path(folder))
        return None if path is None else file_digest(path)

    def __hash__(self) -> int:
        return hash(json.dumps(self.as_dict(), sort_keys=True))


def remember(problem: Made, kind: str, given: Mapping[str, Any]) -> Made:
    """Set `spec` of a problem to its kind and parameters, without those at their default, and return the problem."""
    defaults = kind_named(kind).parameters
    plain = {name: as_plain(value, name) for name, value in given.items()}
    # Not a constructor argument: a copy with other fields (`dataclasses.replace`) must not have the old parameters.
    changed = {name: value for name, value in plain.items() if value != plain_default(defaults[name])}
    object.__setattr__(problem, "spec", {"kind": kind, **changed})
    return problem


def plain_default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter in JSON form (a tuple as a list), or `Parameter.empty`."""
    default = parameter.default
    return default if default is parameter.empty else as_plain(default, parameter.name)


def as_plain(value: Any, what: str) -> Any:
    """Return a value as plain JSON, or raise with the name of the part that is not."""
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if what == "horizon" and value == math.inf:
        return None
    if isinstance(value, float):
        raise ProblemError(f"{what} is {value}; it must be finite")
    try:
        if isinstance(value, list | tuple):
            return [as_plain(item, f"{what}[{place}]") for place, item in enumerate(value)]
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return {name: as_plain(item, f"{what}.{name}".lstrip(".")) for name, item in value.items()}
    except RecursionError:
        raise ProblemError(f"{what.partition('[')[0]}: lists are nested too deeply") from None
    raise ProblemError(
        f"{what or 'a problem'} is {value!r}; it must be plain: text, numbers, true, false, lists and tables"
    )


@contextmanager
def located(where: str) -> Iterator[None]:
    """Begin the message of an error about parameters with their location: "{where}.horizon is ..."."""
    try:
        yield
    except StorageError:
        raise  # its message names a file already
    except PeakError as error:
        names = "|".join(["kind", *(name for kind in kinds().values() for name in kind.parameters)])
        named = re.match(rf"({names})\b|[\w.]+ is ", str(error))
        raise ProblemError(f"{where}{'.' if named else ': '}{error}") from error


# Problem files ------------------------------------------------------------------------------------------------------


def read_spec(path: str | Path, *, trust: bool = False) -> ProblemSpec:
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
    for kind in kinds().values():
        if kind.suffix is not None and Path(path).suffix == kind.suffix:
            return {"problem": {"kind": kind.name, kind.files[0]: Path(path).name}}
    values = parsed(Path(path), "problem file") if named is None else {"problem": dict(named)}
    if isinstance(values, dict) and isinstance(values.get("problem"), dict):
        values["problem"] |= {name: values.pop(name) for name in additions() if name in values}
    return values


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
