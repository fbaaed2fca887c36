"""`peakrl solve`: the exact optimum of a user's jobs, of a problem file or of a built-in problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.model.problem import Problem
    from peakrl.model.tabular import TabularModel
    from peakrl.policy.tables import Policy
    from peakrl.problems.scheduling.problem import MachineScheduling

EXAMPLES = {"scheduling-1": 1, "scheduling-2": 2, "scheduling-3": 3}
PROBLEMS = ("energy-harvesting", *EXAMPLES)


def solve(
    problem: Annotated[
        str | None,
        typer.Argument(metavar="[PROBLEM]", help=f"A problem file (.toml, .json), or {', '.join(PROBLEMS)}."),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Jobs of one machine: columns processing, due, deadline, weight, name."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="For jobs: max_tardiness, total_tardiness or weighted_late_work.")
    ] = "max_tardiness",
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="For jobs with fixed times: write the Gantt chart.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the best policy: .csv or .json, else for `peakrl evaluate`."),
    ] = None,
    peak_power: Annotated[float, typer.Option(help="energy-harvesting: the largest power allowed.")] = 8.0,
    mean: Annotated[float, typer.Option(help="energy-harvesting: mean arrival.")] = 10.0,
    std: Annotated[float, typer.Option(help="energy-harvesting: standard deviation of the arrivals.")] = 5.0,
    horizon: Annotated[int, typer.Option(help="energy-harvesting: steps.")] = 20,
    battery: Annotated[int, typer.Option(help="energy-harvesting: capacity.")] = 20,
    max_arrival: Annotated[int, typer.Option(help="energy-harvesting: the largest arrival.")] = 20,
    arrivals: Annotated[
        str, typer.Option(help='energy-harvesting: "random", or "frozen" (one sequence, drawn from the seed).')
    ] = "random",
    log_base: Annotated[float, typer.Option(help="energy-harvesting: 2 for bits.")] = 2.0,
    seed: Annotated[int, typer.Option(help="energy-harvesting: of the frozen sequence.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
) -> None:
    """Solve a problem exactly: the best value without any violation. Exit code 1 where that is impossible."""
    from peakrl.problems.scheduling.problem import MachineScheduling

    if (problem is None) == (jobs is None):
        raise SettingsError(
            f"name a problem ({', '.join(PROBLEMS)}, or a file) or give --jobs FILE.csv, one of the two"
        )
    transmitter = {
        "horizon": horizon, "battery": battery, "peak_power": peak_power, "max_arrival": max_arrival, "mean": mean,
        "std": std, "arrivals": arrivals, "log_base": log_base, "seed": seed,
    }  # fmt: skip
    wanted = jobs_problem(jobs, objective) if jobs is not None else named_problem(str(problem), transmitter, objective)
    if isinstance(wanted, MachineScheduling):
        answer, best = solve_jobs(wanted)
        if plot is not None:
            draw(wanted, answer, plot)
    elif plot is not None:
        raise SettingsError(f"--plot draws jobs on a machine, and {wanted.name} has none")
    else:
        answer, best = solve_any(wanted)
    if policy is not None:
        keep(best, policy)
    show(answer, as_json=as_json)
    raise typer.Exit(0 if answer["feasible"] else 1)


def jobs_problem(path: Path, objective: str) -> MachineScheduling:
    """Return the scheduling problem of a file of jobs."""
    from peakrl.problems.scheduling.job_files import read_jobs
    from peakrl.problems.scheduling.problem import machine_scheduling

    return machine_scheduling(read_jobs(path), objective=objective)


def named_problem(name: str, transmitter: dict[str, Any], objective: str) -> Problem | TabularModel:
    """Return a built-in problem or that of a problem file."""
    from peakrl.problem_files import read_problem_file
    from peakrl.problems.harvesting.problem import energy_harvesting
    from peakrl.problems.scheduling.problem import scheduling_example

    if name == "energy-harvesting":
        return energy_harvesting(**transmitter)
    if name in EXAMPLES:
        return scheduling_example(EXAMPLES[name], objective=objective)
    if Path(name).suffix in (".toml", ".json"):
        return read_problem_file(name).build()
    raise SettingsError(f"{name!r} is no built-in problem and no .toml or .json file; there are {', '.join(PROBLEMS)}")


def keep(policy: Policy, path: Path) -> None:
    """Write a policy in the form that the file's name asks for."""
    write = {".csv": policy.to_csv, ".json": policy.to_json}.get(path.suffix, policy.save)
    write(path)


def solve_any(problem: Problem | TabularModel) -> tuple[dict[str, Any], Policy]:
    """Return the optimum of a problem, and its policy."""
    from peakrl.model.explore import compile_model
    from peakrl.planning import solve as plan

    model = compile_model(problem)
    best = plan(model)
    return {
        "problem": model.name,
        "feasible": best.feasible,
        "reason": best.reason,
        "value": best.value,
        "violation": best.violation,
        "states": model.num_states,
        "pairs": model.num_pairs,
    }, best.policy


def solve_jobs(problem: MachineScheduling) -> tuple[dict[str, Any], Policy]:
    """Return the optimum of jobs, with fixed times the order, with random ones expectations; and its policy."""
    from peakrl.model.explore import compile_model
    from peakrl.planning import solve as plan
    from peakrl.problems.scheduling.baselines import evaluate_order, infeasible_reason
    from peakrl.problems.scheduling.problem import order_of

    model = compile_model(problem)
    best = plan(model)
    answer = {
        "problem": problem.name,
        "objective": problem.objective,
        "feasible": best.feasible,
        # In terms of jobs, where the general planner speaks of states and steps.
        "reason": None if best.feasible else infeasible_reason(problem.jobs) or best.reason,
        "objective_value": 0.0 - best.value,
        "violation": best.violation,
        "states": model.num_states,
        "pairs": model.num_pairs,
    }
    if not problem.fixed_times:
        return answer, best.policy
    schedule = evaluate_order(problem.jobs, order_of(best.policy))
    rows = [
        {"job": bar.job, "start": bar.start, "end": bar.end, "due": bar.due, "tardiness": bar.tardiness,
         "deadline": bar.deadline, "slack": bar.slack}
        for bar in schedule.bars
    ]  # fmt: skip
    return {**answer, "order": list(schedule.order), "schedule": rows}, best.policy


def draw(problem: MachineScheduling, answer: dict[str, Any], path: Path) -> None:
    """Write the Gantt chart of the optimal order."""
    from peakrl.problems.scheduling.baselines import gantt
    from peakrl.report.gantt import draw_gantt
    from peakrl.report.style import house_style, save

    if "order" not in answer:
        raise SettingsError(
            "--plot draws one order, and with random processing times the best policy has no single one"
        )
    title = f"Best order: {problem.objective.replace('_', ' ')} {answer['objective_value']:g}"
    with house_style():
        save(draw_gantt(gantt(problem.jobs, answer["order"]), title), path)


def show(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print an answer."""
    from peakrl.cli.output import print_json, print_table

    if as_json:
        print_json(answer)
        return
    print(f"{answer['problem']}: {answer['states']:,} states, {answer['pairs']:,} pairs")
    if not answer["feasible"]:
        print(f"Infeasible: {answer['reason']}")
        print("What follows violates as little as possible.")
    expected = "expected " if "schedule" not in answer else ""
    if "objective" in answer:
        print(f"{expected}{answer['objective'].replace('_', ' ')}: {answer['objective_value']:g}")
    else:
        print(f"{expected}value: {answer['value']:.6f}")
    print(f"{expected}violation: {answer['violation']:.6g}")
    if "schedule" in answer:
        print(f"order: {', '.join(map(str, answer['order']))}")
        print_table("", list(answer["schedule"][0]), [list(row.values()) for row in answer["schedule"]])
