"""The command `peakrl`. Commands import heavy modules when they run, so that `peakrl --help` is fast."""

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
#: By panel of `peakrl --help`, in its order.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "One problem": {
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
        # Unknown options of `solve` are parameters of the problem.
        settings = {"ignore_unknown_options": True} if command is solve_command else {}
        app.command(name, rich_help_panel=panel, context_settings=settings)(command)


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
        say(f"peakrl: {error}", error=True)
        sys.exit(2)
    except SystemExit as leaving:
        # Typer turns Ctrl-C into an exit; a command that reports it raises an exit of its own.
        if isinstance(getattr(leaving.__context__, "__cause__", None), KeyboardInterrupt):
            print("peakrl: interrupted; finished results are kept", file=sys.stderr)
        raise
