"""Registry of the kinds of problems that can be created from data: problem files, sweeps, the command line, Gymnasium.

A package of problems registers its kinds when it is imported; `peakrl.problems` does so for the built-in ones. A
kind has a name, the function that creates a problem (the function's parameters are the kind's parameters), its names on
the command line and in Gymnasium, and the template that `peakrl init` writes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peakrl.errors import ProblemError

#: The registered kinds by name, in order of registration.
_KINDS: dict[str, Kind] = {}


@dataclass(frozen=True)
class Template:
    """The files that `peakrl init --kind NAME` writes."""

    name: str
    #: The problem's part of the .toml file; {name} is replaced by the name of the file.
    text: str
    episodes: int
    #: Further files, by suffix.
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of problem. Functions are given as "module:function", so that registration imports nothing."""

    name: str
    #: Creates the problem; its parameters are those of the kind.
    function: str
    #: (parameters, folder) -> arguments of `function`, from plain values and files.
    reader: str | None = None
    #: (parameters, folder) -> the file on whose content the problem depends, if the problem does not hold it.
    source: str | None = None
    #: Gymnasium id.
    environment: str | None = None
    #: Its names on the command line, each with parameters.
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    template: Template | None = None
    #: Parameters that may name a file.
    files: tuple[str, ...] = ()
    #: Does creating it run code that its parameters name?
    runs_code: bool = False
    #: Names of the parts of a state, for reports and messages; empty if a state is not a tuple.
    parts: tuple[str, ...] = ()

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters by name."""
        return inspect.signature(loaded(self.function)).parameters

    def build(self, parameters: Mapping[str, Any], folder: Path) -> Any:
        """Return the problem; paths among its parameters are relative to `folder`."""
        check_names(self.parameters, parameters)
        arguments = parameters if self.reader is None else loaded(self.reader)(dict(parameters), folder)
        return loaded(self.function)(**arguments)


def loaded(function: str) -> Callable[..., Any]:
    """Return the function that "module:function" names."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def register(*kinds: Kind) -> None:
    """Add kinds of problems to those that files, sweeps, the command line and Gymnasium know."""
    _KINDS.update({kind.name: kind for kind in kinds})


def kinds() -> Mapping[str, Kind]:
    """Return the registered kinds by name."""
    return _KINDS


def kind_named(name: Any) -> Kind:
    """Return a kind, or raise with the names of all kinds."""
    if not isinstance(name, str) or name not in kinds():
        raise ProblemError(f"kind is {name!r}; it must be one of {', '.join(kinds())}")
    return kinds()[name]


def command_names() -> Mapping[str, Mapping[str, Any]]:
    """Return the problems that have a name on the command line, by that name."""
    return {
        name: {"kind": kind.name, **parameters}
        for kind in kinds().values()
        for name, parameters in kind.commands.items()
    }


def part_names(spec: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of the parts of a state of a problem; empty if unknown."""
    kind = None if spec is None else kinds().get(str(spec.get("kind")))
    return () if kind is None else kind.parts


def check_names(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise for an unknown name, and for a missing required one."""
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    for name in given:
        if name not in known and not free:
            raise ProblemError(unknown_key(name if name.isidentifier() else repr(name), name, known))
    for name in known:
        if parameters[name].default is inspect.Parameter.empty and name not in given:
            raise ProblemError(f"{name} is missing")


def unknown_key(key: str, name: str, known: list[str]) -> str:
    """Return the message about an unknown key, with the most similar known one."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    meant = f"; do you mean {near[0]}?" if near else ""
    return f"{key} is not a key here{meant} (there are {', '.join(known)})"
