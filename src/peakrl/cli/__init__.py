"""The command `peakrl`: parse, call, print. Each command has its module here and imports what is heavy when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from peakrl.cli.certify import certify as certify_command
from peakrl.cli.certify import evaluate as evaluate_command
from peakrl.cli.certify import verify as verify_command
from peakrl.cli.init import init as init_command
from peakrl.cli.output import say
from peakrl.cli.report import report as report_command
from peakrl.cli.solve import shield as shield_command
from peakrl.cli.solve import solve as solve_command
from peakrl.cli.sweep import summarize as summarize_command
from peakrl.cli.sweep import sweep as sweep_command
from peakrl.cli.theory import audit as audit_command
from peakrl.cli.theory import plan as plan_command
from peakrl.cli.train import train as train_command
from peakrl.errors import PeakError

app = typer.Typer(
    name="peakrl",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: In the order of use: `peakrl --help` shows them so.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "A problem": {
        "init": init_command,
        "solve": solve_command,
        "train": train_command,
        "evaluate": evaluate_command,
        "certify": certify_command,
        "verify": verify_command,
        "shield": shield_command,
        "report": report_command,
        "audit": audit_command,
        "plan": plan_command,
    },
    "Many runs": {"sweep": sweep_command, "summarize": summarize_command},
}
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        # What `solve` does not know as an option of its own is a parameter of the problem.
        settings = {"ignore_unknown_options": True} if command is solve_command else {}
        app.command(name, rich_help_panel=panel, context_settings=settings)(command)


def print_version(wanted: bool) -> None:
    """Print the version and leave."""
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
    """Decision problems whose constraints must hold at every step: learn, solve, certify."""


def main() -> None:
    """Run the command line; exit codes: 0 fine, 1 infeasible or a check failed, 2 bad input, 130 interrupted."""
    try:
        app()
    except PeakError as error:
        say(f"peakrl: {error}", error=True)
        sys.exit(2)
    except SystemExit as leaving:
        # Typer turns Ctrl-C into an exit; a command that has told about it leaves with an exit of its own.
        if isinstance(getattr(leaving.__context__, "__cause__", None), KeyboardInterrupt):
            print("peakrl: interrupted; what was finished is kept", file=sys.stderr)
        raise
