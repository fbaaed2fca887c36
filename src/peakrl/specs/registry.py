"""Registry of the kinds of problems that can be created from data: problem files, sweeps, the command line, Gymnasium.

A function that creates a problem is registered by a decorator; its parameters are those of the kind:

    @problem("thermostat", template=True, parts=("half degrees", "weather"))
    def thermostat(*, horizon: int = 24, ...) -> Thermostat: ...

The built-in problems are imported, and so registered, when the kinds are first needed (`import_when_needed`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from peakrl.errors import ProblemError

Function = TypeVar("Function", bound=Callable[..., Any])
#: The registered kinds by name.
_KINDS: dict[str, Kind] = {}
#: What a problem of any kind may be given besides its parameters, by name: (problem, list of tables) -> problem.
_ADDITIONS: dict[str, Callable[[Any, Any], Any]] = {}
#: Functions that import modules with further kinds.
_IMPORTS: list[Callable[[], object]] = []


@dataclass(frozen=True)
class Kind:
    """A kind of problem."""

    name: str
    #: Creates the problem.
    function: Callable[..., Any]
    #: Names on the command line, each with parameters; by default its own name unless a parameter is required.
    commands: Mapping[str, Mapping[str, Any]] | None = None
    #: Names of the parts of a state, for reports and messages; empty if a state is not a tuple.
    parts: tuple[str, ...] = ()
    #: Does `peakrl init --kind` write a file with the parameters, their defaults and descriptions?
    template: bool = False
    #: Values in that file in place of defaults ({name}: name of the file), and episodes.
    example: Mapping[str, Any] = field(default_factory=dict)
    episodes: int = 20_000
    #: (parameters, folder) -> arguments of `function`, from plain values and files; by default the path of `source` in
    #: place of the file's name.
    reader: Callable[[dict[str, Any], Path], dict[str, Any]] | None = None
    #: (parameters, folder) -> the file on whose content the problem depends, if the problem does not hold it.
    source: Callable[[dict[str, Any], Path], Path | None] | None = None
    #: Parameters that may name a file.
    files: tuple[str, ...] = ()
    #: Suffix of files that are such a problem themselves, as the first of `files`.
    suffix: str | None = None
    #: Does creating it run code that its parameters name?
    runs_code: bool = False

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters by name."""
        return inspect.signature(self.function).parameters

    @property
    def command_names(self) -> Mapping[str, Mapping[str, Any]]:
        """Its names on the command line, each with parameters."""
        if self.commands is not None:
            return self.commands
        required = any(one.default is one.empty for one in self.parameters.values())
        return {} if required else {self.name.replace("_", "-"): {}}

    def build(self, parameters: Mapping[str, Any], folder: Path) -> Any:
        """Return the problem; paths among its parameters are relative to `folder`."""
        check_names(self.parameters, parameters)
        given = dict(parameters)
        if self.reader is not None:
            given = self.reader(given, folder)
        elif self.source is not None:
            given[self.files[0]] = self.source(given, folder)
        return self.function(**given)


def problem(name: str, **facts: Any) -> Callable[[Function], Function]:
    """Register the decorated function as a kind of problem; `facts` are further fields of `Kind`."""

    def register(function: Function) -> Function:
        _KINDS[name] = Kind(name, function, **facts)
        return function

    return register


def addition(name: str) -> Callable[[Function], Function]:
    """Register the decorated function (problem, list of tables) -> problem for the tables [[name]] of problem files."""

    def register(function: Function) -> Function:
        _ADDITIONS[name] = function
        return function

    return register


def additions() -> Mapping[str, Callable[[Any, Any], Any]]:
    """Return the registered additions by name."""
    return _ADDITIONS


def import_when_needed(modules: Callable[[], object]) -> None:
    """Call `modules`, which imports modules with further kinds, when the kinds are first needed."""
    _IMPORTS.append(modules)


def kinds() -> Mapping[str, Kind]:
    """Return the registered kinds by name."""
    while _IMPORTS:
        _IMPORTS.pop()()
    return dict(sorted(_KINDS.items()))  # in the order in which messages list them


def kind_named(name: Any) -> Kind:
    """Return a kind, or raise with the names of all kinds."""
    if not isinstance(name, str) or name not in kinds():
        raise ProblemError(f"kind is {name!r}; it must be one of {', '.join(kinds())}")
    return kinds()[name]


def command_names() -> Mapping[str, Mapping[str, Any]]:
    """Return the problems that have a name on the command line, by that name."""
    named = ((kind, *item) for kind in kinds().values() for item in kind.command_names.items())
    return {name: {"kind": kind.name, **parameters} for kind, name, parameters in named}


def part_names(spec: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of the parts of a state of a problem; empty if unknown."""
    kind = None if spec is None else kinds().get(str(spec.get("kind")))
    return () if kind is None else kind.parts


def check_names(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any], where: str = "") -> None:
    """Raise for an unknown name, and for a missing required one; `where` precedes the name in the message."""
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    for name in map(str, given):
        if name not in known and not free:
            raise ProblemError(unknown_key(where + (name if name.isidentifier() else repr(name)), name, known))
    for name in known:
        if parameters[name].default is inspect.Parameter.empty and name not in given:
            raise ProblemError(f"{where}{name} is missing")


def unknown_key(key: str, name: str, known: list[str]) -> str:
    """Return the message about an unknown key, with the most similar known one."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    meant = f"; do you mean {near[0]}?" if near else ""
    return f"{key} is not a key here{meant} (there are {', '.join(known)})"
