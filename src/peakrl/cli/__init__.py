"""The command `peakrl`. Commands import heavy modules when they run, so that `peakrl --help` is fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from peakrl.cli import certify, init, report, solve, sweep, theory, train
from peakrl.cli.command import Answer
from peakrl.cli.command import command as command_of
from peakrl.cli.output import say
from peakrl.errors import PeakError

app = typer.Typer(
    name="peakrl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: By panel of `peakrl --help`, in its order.
COMMANDS: dict[str, tuple[Callable[..., Answer], ...]] = {
    "One problem": (
        init.init, solve.solve, train.train, certify.evaluate, certify.certify, certify.verify, solve.shield,
        report.report, theory.audit, theory.plan,
    ),
    "Many runs": (sweep.sweep, sweep.summarize),
}  # fmt: skip
for panel, commands in COMMANDS.items():
    for command in commands:
        # Unknown options of `solve` are parameters of the problem.
        settings = {"ignore_unknown_options": True} if command is solve.solve else {}
        app.command(rich_help_panel=panel, context_settings=settings)(command_of(command))


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        from peakrl.version import __version__

        print(f"peakrl {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Learn, solve, certify: decision problems whose constraints must hold at every step."""


def main() -> None:
    """Run the command line; exit codes: 0 success, 1 infeasible or check failed, 2 invalid input, 130 interrupted."""
    try:
        app()
    except PeakError as error:
        say("\n".join([f"peakrl: {error}", *getattr(error, "__notes__", ())]), error=True)
        sys.exit(2)
    except SystemExit as leaving:
        # Typer turns Ctrl-C into an exit; a command that reports it raises an exit of its own.
        if isinstance(getattr(leaving.__context__, "__cause__", None), KeyboardInterrupt):
            print("peakrl: interrupted; finished results are kept", file=sys.stderr)
        raise
