"""`peakrl evaluate`: what a learned policy earns and violates, exactly and in simulated episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.policy import AnyPolicy

POLICIES = ("last", "averaged")


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run file, written by `peakrl train --out`.")],
    policy: Annotated[
        str, typer.Option(help="last (of the final episode) or averaged (Theorem 1's mixture of all).")
    ] = "last",
    simulate: Annotated[
        int | None, typer.Option(metavar="N", min=2, help="Also follow it for N episodes, at least 2.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated episodes.")] = 0,
    problem: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The problem file, where a run file could not hold its model.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if the policy may violate a constraint.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of a table.")] = False,
) -> None:
    """Evaluate the policy of a run exactly, and simulate it if asked to."""
    from peakrl.cli.output import print_json, print_table
    from peakrl.learning.checkpoint import load_run
    from peakrl.problem_files import read_problem_file

    if policy not in POLICIES:
        raise SettingsError(f"--policy is {policy!r}; it must be {' or '.join(POLICIES)}")
    if run.suffix in (".toml", ".json"):
        raise SettingsError(f"{run} is a problem file; train it first: peakrl train {run} --out {run.stem}.run")
    loaded = load_run(run, model=None if problem is None else read_problem_file(problem).model(progress=True))
    chosen = loaded.policy if policy == "last" else loaded.averaged_policy
    answer = figures(loaded, policy, chosen)
    if simulate is not None:
        answer["simulation"] = simulated(loaded, chosen, simulate, seed)
    if as_json:
        print_json(answer)
    else:
        title = f"{answer['problem']}: {policy} policy after {answer['episodes']:,} episodes"
        print_table(title, *table_of(answer))
        margins = [(name, margin, margin >= 0) for name, margin in answer["worst_margin"].items()]
        print_table("Constraints", ("constraint", "least value that can come up", "always met"), margins)
    raise typer.Exit(1 if check and answer["violation_probability"] > 0 else 0)


def figures(run: LearningRun, which: str, policy: AnyPolicy) -> dict[str, Any]:
    """Return the exact figures of a policy."""
    from peakrl.evaluation import evaluate as exact

    found = exact(run.model, policy)
    return {
        "problem": run.model.name,
        "policy": which,
        "episodes": run.episodes,
        "value": found.value,
        "violation": found.violation,
        "violation_probability": found.violation_probability,
        "worst_margin": dict(zip(run.model.constraint_names, found.worst_margin.tolist(), strict=True)),
        "step_rewards": found.step_rewards,
        "step_violations": found.step_violations,
    }


def simulated(run: LearningRun, policy: AnyPolicy, episodes: int, seed: int) -> dict[str, Any]:
    """Return what was seen in simulated episodes."""
    from peakrl.evaluation import simulate

    seen = simulate(run.model, policy, episodes=episodes, seed=seed)
    return {
        "episodes": episodes,
        "seed": seed,
        "confidence": seen.confidence,
        "value": seen.value,
        "value_interval": list(seen.value_interval),
        "violation": seen.violation,
        "violation_interval": list(seen.violation_interval),
        "violation_probability": seen.violation_frequency,
        "violation_probability_interval": list(seen.violation_frequency_interval),
    }


def table_of(answer: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return columns and a row for each quantity: exact, and simulated with its interval where that was asked for."""
    seen = answer.get("simulation")
    columns: tuple[str, ...] = ("quantity", "exact")
    if seen is not None:
        columns += (f"in {seen['episodes']:,} episodes", f"{seen['confidence']:.0%} interval")
    rows: list[tuple[Any, ...]] = []
    for name in ("value", "violation", "violation_probability"):
        row: tuple[Any, ...] = (name.replace("_", " "), answer[name])
        if seen is not None:
            low, high = seen[f"{name}_interval"]
            row += (seen[name], f"{low:,.6g} to {high:,.6g}")
        rows.append(row)
    return columns, rows
