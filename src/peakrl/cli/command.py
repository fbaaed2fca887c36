"""How a function becomes a command, and what the commands share.

    def shield(file: Path, *, out: Path | None = None, trust: bool = False) -> Answer:
        '''Compute the safe states and actions.

        Parameters
        ----------
        file : FILE
            A problem file.
        out : FILE
            Save the safe set here.
        '''

Positional parameters become arguments and keyword-only ones options, each with its description and, after the colon,
the name of its value. Every command has the option `--json`; a parameter `trust` stands for `--trust`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from peakrl.cli.output import print_json, say
from peakrl.errors import TrustError

if TYPE_CHECKING:
    from peakrl.training.spec_file import ProblemFile

Read = TypeVar("Read")
KEYWORD = inspect.Parameter.KEYWORD_ONLY
#: Type and option of the shared parameters.
JSON: Any = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TRUST: Any = Annotated[bool, typer.Option("--trust", help="Run the code that the file names.")]


class Answer(NamedTuple):
    """What a command found."""

    #: Printed with `--json`.
    values: dict[str, Any]
    #: Prints it otherwise.
    show: Callable[[], None]
    #: False: exit code 1.
    good: bool = True


def command(function: Callable[..., Answer]) -> Callable[..., None]:
    """Return the command of a function."""
    own, described = inspect.signature(function, eval_str=True).parameters, descriptions(function)
    parameters = {
        name: one.replace(annotation=Annotated[one.annotation, declared(one, *described[name])])
        for name, one in own.items()
        if name != "trust"
    }
    shared = {"as_json": JSON} | ({"trust": TRUST} if "trust" in own else {})
    for name, annotation in shared.items():
        parameters[name] = inspect.Parameter(name, KEYWORD, default=False, annotation=annotation)

    @wraps(function)
    def run(*, as_json: bool, **given: Any) -> None:
        answer = function(**given)
        if as_json:
            print_json(answer.values)
        else:
            answer.show()
        raise typer.Exit(0 if answer.good else 1)

    vars(run)["__signature__"] = inspect.Signature(list(parameters.values()))
    run.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    run.__doc__ = (inspect.getdoc(function) or "").partition("\n\nParameters\n")[0]
    return run


def declared(parameter: inspect.Parameter, metavar: str, text: str) -> Any:
    """Return the argument or option of a parameter; a flag has no negation unless it may be None."""
    if parameter.kind is not KEYWORD:
        return typer.Argument(metavar=metavar or None, help=text)
    names = [f"--{parameter.name.replace('_', '-')}"] if parameter.annotation is bool else []
    return typer.Option(*names, metavar=metavar or None, help=text)


def descriptions(function: Callable[..., Any]) -> dict[str, tuple[str, str]]:
    """Return {parameter: (text after its colon, description)} of the section Parameters of a docstring.

    A description of several parameters is that of the first.
    """
    section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
    found = re.findall(r"^(\w+)(?:, [\w, ]+)?(?: : (.+))?\n((?:    .*(?:\n|$))+)", section, re.MULTILINE)
    return {name: (after, " ".join(text.split())) for name, after, text in found}


def asking(read: Callable[[bool], Read], trust: bool) -> Read:
    """Return `read(trust)`; at a terminal ask for confirmation if code is not trusted yet."""
    try:
        return read(trust)
    except TrustError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        say(f"peakrl: {error}", error=True)
        if not typer.confirm("Run it now?", err=True):
            raise typer.Exit(2) from None
    return read(True)


def read_problem(path: str | Path, trust: bool, discount: float | None = None) -> ProblemFile:
    """Return the content of a problem file whose code is trusted; a given discount replaces its own."""
    from peakrl.training.spec_file import read_problem_file

    described = asking(lambda trust: read_problem_file(path, trust=trust), trust)
    if discount is None:
        return described
    return replace(described, spec=described.spec.with_parameters({"discount": discount}))
