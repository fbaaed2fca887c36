"""`--trust` and `--package`: code that a file names is run only with the user's consent."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from peakrl.cli.output import say
from peakrl.errors import TrustError

if TYPE_CHECKING:
    from peakrl.specs.user_code import Trust
    from peakrl.training.spec_file import ProblemFile

Read = TypeVar("Read")
_given: ContextVar[Trust] = ContextVar("_given", default=False)

OPTIONS = {
    "trust": Annotated[bool, typer.Option("--trust", help="Run the code that the file names.")],
    "package": Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run code of this installed package if the file names it."),
    ],
}


def trusting(command: Callable[..., None]) -> Callable[..., None]:
    """Add the two options to a command; `asking` reads them."""

    @wraps(command)
    def with_options(*, trust: bool = False, package: list[str] | None = None, **given: Any) -> None:
        before = _given.set(trust or package or False)
        try:
            command(**given)
        finally:
            _given.reset(before)

    own = inspect.signature(command).parameters
    hints = get_type_hints(command, include_extras=True) | OPTIONS
    defaults = {name: parameter.default for name, parameter in own.items()} | {"trust": False, "package": None}
    vars(with_options)["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
            for name, default in defaults.items()
        ]
    )
    with_options.__annotations__ = hints
    return with_options


def asking(read: Callable[[Trust], Read]) -> Read:
    """Return `read(trust)`; ask for confirmation if code in the file's own folder is not trusted yet."""
    trust = _given.get()
    try:
        return read(trust)
    except TrustError as error:
        if not (error.may_ask and sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        say(f"peakrl: {error}", error=True)
        if not typer.confirm("Run it now?", err=True):
            raise typer.Exit(2) from None
    return read([*([] if isinstance(trust, bool) else trust), "."])


def read_problem(path: str | Path) -> ProblemFile:
    """Return the content of a problem file whose code is trusted."""
    from peakrl.training.spec_file import read_problem_file

    return asking(lambda trust: read_problem_file(path, trust=trust))
