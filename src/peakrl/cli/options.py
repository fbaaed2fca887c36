"""Options that several commands share, and problem files whose code is run only with the user's consent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from peakrl.cli.output import say
from peakrl.errors import TrustError

if TYPE_CHECKING:
    from peakrl.specs.user_code import Trust
    from peakrl.training.spec_file import ProblemFile

Read = TypeVar("Read")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Trusted = Annotated[bool, typer.Option("--trust", help="Run the code that the file names.")]
Packages = Annotated[
    list[str] | None,
    typer.Option("--package", metavar="NAME", help="Run code of this installed package if the file names it."),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
]


def option(help: str, metavar: str | None = None) -> Any:
    """Return an option with its description and the name of its value."""
    return typer.Option(metavar=metavar, help=help)


def asking(read: Callable[[Trust], Read], trust: Trust | None) -> Read:
    """Return `read(trust)`; ask for confirmation if code in the file's own folder is not trusted yet."""
    trust = trust or False
    try:
        return read(trust)
    except TrustError as error:
        if not (error.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        say(f"peakrl: {error}", error=True)
        if not typer.confirm("Run it now?", err=True):
            raise typer.Exit(2) from None
    return read([*([] if isinstance(trust, bool) else trust), "."])


def read_problem(path: str | Path, trust: Trust | None) -> ProblemFile:
    """Return the content of a problem file whose code is trusted."""
    from peakrl.training.spec_file import read_problem_file

    return asking(lambda trust: read_problem_file(path, trust=trust), trust)
