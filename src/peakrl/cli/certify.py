"""`peakrl certify`: what is known of a policy, exactly or from fresh episodes; `peakrl verify`: check what was kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate


@trusting
def certify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
    ],
    policy: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A policy of `peakrl solve --policy`, or a run of `peakrl train --out`."),
    ],
    epsilon: Annotated[
        float | None,
        typer.Option(help="Ask for a value within this of the best safe policy, and at most this much violation."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Draw up to N fresh episodes, in place of exact figures."),
    ] = None,
    failure_probability: Annotated[float, typer.Option(help="Of bounds from episodes, all together.")] = 0.05,
    seed: Annotated[int | None, typer.Option(help="Of the episodes; by default fresh ones.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the certificate here, for `peakrl verify`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Certify a policy on a problem. Exit code 1 where the certificate does not hold."""
    from peakrl.storage import ready

    ready(out)
    certificate = examined(
        file, policy, epsilon=epsilon, failure_probability=failure_probability, episodes=episodes, seed=seed
    )
    if out is not None:
        certificate.save(out)
    show(certificate, as_json=as_json, kept=out)
    raise typer.Exit(0 if certificate.holds else 1)


def examined(file: Path, policy: Path, **asked: Any) -> Certificate:
    """Return the certificate of a stored policy: of an environment by its table, or from episodes where there is none.

    Of an environment the certificate is of the policy with what it does in states that learning never met.
    """
    from peakrl.certificates.certify import certify as examine
    from peakrl.report.environment_analysis import certified_on_table

    target = read_problem(file).target(progress=True)
    if not target.is_environment:
        return examine(target.subject, stored_policy(policy, target.subject), **asked)
    chosen = stored_policy(policy, None)
    if target.table is not None and asked["episodes"] is None:
        return certified_on_table(target.table, chosen, asked["epsilon"])
    declared = {name: given for name, given in target.declared.items() if name != "states"}
    return examine(target.subject, chosen, unknown="random", **asked, **declared)


def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate of `peakrl certify --out`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Check a certificate by its own numbers, with other code than made it. Exit code 1 where it does not hold."""
    from peakrl.certificates.verify import verify as check

    certificate = check(file)
    show(certificate, as_json=as_json)
    raise typer.Exit(0 if certificate.holds else 1)


def stored_policy(path: Path, model: Any) -> Any:
    """Return the policy of a policy file, or the last one of a run's."""
    from peakrl.policy.export import KIND
    from peakrl.policy.files import load_policy
    from peakrl.storage import kind_of
    from peakrl.training.run_file import load_run

    if kind_of(path) == KIND:
        return load_policy(path, model)
    return load_run(path, model=model).policy


def show(certificate: Certificate, *, as_json: bool, kept: Path | None = None) -> None:
    """Print a certificate."""
    from peakrl.cli.output import print_json

    if as_json:
        print_json(certificate.as_dict() | ({} if kept is None else {"file": str(kept)}))
        return
    say(certificate)
    if kept is not None:
        say(f"kept in {kept}; `peakrl verify {kept}` checks it")
