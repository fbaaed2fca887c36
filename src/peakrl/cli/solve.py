"""`peakrl solve`: the exact optimum of a problem; `peakrl shield`: its safe set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peakrl.cli.output import say
from peakrl.cli.trusting import read_problem, trusting
from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.policy.tables import Policy, StochasticPolicy
    from peakrl.problem import Problem
    from peakrl.problems.scheduling import MachineScheduling
    from peakrl.safety.safe_set import SafeSet
    from peakrl.tabular import TabularModel


@trusting
def solve(
    problem: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROBLEM] [--PARAMETER VALUE]...",
            help="A problem file (.toml, .json) or a built-in problem (energy-harvesting, scheduling-1, ...), with "
            "parameters to override: --peak-power 15, --horizon 10.",
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="Solve a table of jobs: columns processing, due, deadline, weight, name, release."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the Gantt chart (jobs with fixed times only).")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Save the optimal policy: .csv, .json, or any other name for `peakrl evaluate`."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="FORM=LIMIT",
            help="Limit expected violations instead of forbidding them: total=3.5, per_constraint=0.1, "
            "per_step=0.1, chance=0.05 (of any violation) or union_chance=0.05.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the optimal policy that never violates a constraint. Exit code 1 if there is none."""
    from peakrl.problems.scheduling import MachineScheduling
    from peakrl.storage import ready

    ready(policy, plot)
    wanted = wanted_problem(problem or [], jobs)
    answer: dict[str, Any]
    best: Policy | StochasticPolicy
    if budget is not None:
        refuse_plot(plot, "the optimal policy of a limit on expected violations may be stochastic")
        answer, best = solve_limited(wanted, budget)
    elif isinstance(wanted, MachineScheduling):
        answer, best = solve_jobs(wanted)
        if plot is not None:
            draw_order(wanted, answer, plot)
    else:
        refuse_plot(plot, f"it draws jobs on a machine, and {wanted.name} is not a scheduling problem")
        answer, best = solve_any(wanted)
    if policy is not None:
        keep_policy(best, policy)
    show_solution(answer, as_json=as_json)
    raise typer.Exit(0 if answer["feasible"] else 1)


def refuse_plot(plot: Path | None, why: str) -> None:
    """Raise if a chart is requested that does not exist."""
    if plot is not None:
        raise SettingsError(f"--plot: {why}")


def wanted_problem(words: list[str], jobs: Path | None) -> Problem | TabularModel:
    """Return the problem of a command line, with overridden parameters."""
    from peakrl.specs.problem_file import naming
    from peakrl.specs.registry import command_names
    from peakrl.specs.spec import ProblemSpec, located

    names, parameters = split_words(words)
    if len(names) + (jobs is not None) != 1:
        listed = ", ".join(command_names())
        raise SettingsError(f"name one problem ({listed}, or a file), or pass --jobs FILE.csv")
    if jobs is not None:
        with located("--jobs"):
            return ProblemSpec("machine_scheduling", {"jobs": str(jobs), **parameters}).build()
    described = read_problem(names[0])
    with naming(names[0]), located("problem"):
        spec = described.spec.with_parameters(parameters)
    return replace(described, spec=spec).build()


def split_words(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Return positional words, and the parameters `--name value` and `--name=value`."""
    names: list[str] = []
    parameters: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            names.append(word)
            continue
        option, equals, value = word.partition("=")
        value = value if equals else next(rest, "")
        if not value or value.startswith("--"):
            raise SettingsError(f"{option} needs a value")
        parameters[option[2:].replace("-", "_")] = as_value(value)
    return names, parameters


def as_value(text: str) -> Any:
    """Return a word parsed as JSON if possible, else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def keep_policy(policy: Policy | StochasticPolicy, path: Path) -> None:
    """Write a policy in the format of the file's suffix."""
    write = {".csv": policy.to_csv, ".json": policy.to_json}.get(path.suffix, policy.save)
    write(path)


def solve_any(problem: Problem | TabularModel) -> tuple[dict[str, Any], Policy]:
    """Return the optimum of a problem, and its policy."""
    from peakrl.compile import compile_model
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


def solve_limited(problem: Problem | TabularModel, budget: str) -> tuple[dict[str, Any], Policy | StochasticPolicy]:
    """Return the optimum under a limit on expected violations, and its policy."""
    from peakrl.compile import compile_model
    from peakrl.planning import solve_cmdp
    from peakrl.planning.cmdp import FORMS

    form, _, limit = budget.partition("=")
    if form not in FORMS:
        raise SettingsError(f"--budget is {budget!r}; it must be FORM=LIMIT with one of {', '.join(FORMS)}")
    model = compile_model(problem)
    limits: dict[str, Any] = {form: as_value(limit)}
    best = solve_cmdp(model, **limits)
    return {
        "problem": model.name,
        "feasible": best.feasible,
        "reason": best.reason,
        "value": best.value,
        "violation": best.violation,
        "states": model.num_states,
        "pairs": model.num_pairs,
        "budget": limits,
        "consumption": None if best.consumption is None else best.consumption.tolist(),
        "multipliers": None if best.multipliers is None else best.multipliers.tolist(),
        "stochastic": not best.policy.deterministic,
    }, best.policy


def solve_jobs(problem: MachineScheduling) -> tuple[dict[str, Any], Policy]:
    """Return the optimum of a scheduling problem, with its order if times are fixed, and its policy."""
    from peakrl.compile import compile_model
    from peakrl.planning import solve as plan
    from peakrl.problems.scheduling import evaluate_order, infeasible_reason, order_of

    model = compile_model(problem)
    best = plan(model)
    answer = {
        "problem": problem.name,
        "objective": problem.objective,
        "feasible": best.feasible,
        # In terms of jobs instead of states and steps.
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


def draw_order(problem: MachineScheduling, answer: dict[str, Any], path: Path) -> None:
    """Write the Gantt chart of the optimal order."""
    from peakrl.problems.scheduling import gantt
    from peakrl.report.figures import draw_gantt
    from peakrl.report.style import house_style, save

    if "order" not in answer:
        raise SettingsError(
            "--plot draws one order, but with random processing times the optimal policy has no single order"
        )
    title = f"Optimal order: {problem.objective.replace('_', ' ')} {answer['objective_value']:g}"
    with house_style():
        save(draw_gantt(gantt(problem.jobs, answer["order"]), title), path)


def show_solution(answer: dict[str, Any], *, as_json: bool) -> None:
    """Print the result."""
    from peakrl.cli.output import print_json, print_table

    if as_json:
        print_json(answer)
        return
    say(f"{answer['problem']}: {answer['states']:,} states, {answer['pairs']:,} state-action pairs")
    if not answer["feasible"]:
        say(f"Infeasible: {answer['reason']}")
        say("The following solution minimises the violation.")
    expected = "expected " if "schedule" not in answer else ""
    if "objective" in answer:
        say(f"{expected}{answer['objective'].replace('_', ' ')}: {answer['objective_value']:g}")
    else:
        say(f"{expected}value: {answer['value']:.6f}")
    say(f"{expected}violation: {answer['violation']:.6g}")
    if answer.get("multipliers") is not None:
        say(f"consumption of the limit: {shown(answer['consumption'])}")
        say(f"multipliers (value per unit of the limit): {shown(answer['multipliers'])}")
        if answer["stochastic"]:
            say("The policy is stochastic.")
    if "schedule" in answer:
        say(f"order: {', '.join(map(str, answer['order']))}")
        print_table("", list(answer["schedule"][0]), [list(row.values()) for row in answer["schedule"]])


def shown(found: Any) -> str:
    """Return a number or nested numbers with six digits."""
    if isinstance(found, list):
        return f"[{', '.join(map(shown, found))}]"
    return f"{found:.6g}"


# peakrl shield ----------------------------------------------------------------------------------------------------

COLUMNS = ["step", "states", "safe states", "actions", "safe actions"]


@trusting
def shield(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A problem file, or a built-in problem as for `peakrl solve`.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the safe set: .csv, .json, or any other name for `peakrl.load`."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the safe share by step (.png, .pdf, .svg).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the states and actions from which every constraint can be satisfied. Exit code 1 if it is infeasible."""
    from peakrl.cli.output import print_json
    from peakrl.safety.safe_set import SafeSet
    from peakrl.storage import ready

    ready(out, plot)
    safe = SafeSet(read_problem(file).model(progress=True))
    if out is not None:
        keep_safe_set(safe, out)
    if plot is not None:
        draw_safe_set(safe, plot)
    answer = answer_of(safe)
    if as_json:
        print_json(answer)
    else:
        show_safe_set(answer)
    raise typer.Exit(0 if safe.feasible else 1)


def answer_of(safe: SafeSet) -> dict[str, Any]:
    """Return a safe set as plain values."""
    return {
        "problem": safe.model.name,
        "feasible": safe.feasible,
        "reason": None if safe.feasible else first_reason(safe),
        "steps": [dict(zip(COLUMNS, count, strict=True)) for count in safe.counts],
    }


def first_reason(safe: SafeSet) -> str:
    """Return why the first action of an unsafe initial state is unsafe."""
    slot = next(slot for slot in safe.model.first_slot.tolist() if not safe.nodes[slot])
    action = safe.model.action_of_row(safe.model.rows_of_slot(slot)[0])
    return str(safe.reason(0, safe.model.state_of_slot(slot), action))


def keep_safe_set(safe: SafeSet, path: Path) -> None:
    """Write a safe set in the format of the file's suffix."""
    if path.suffix == ".csv":
        safe.to_csv(path)
    elif path.suffix == ".json":
        safe.to_json(path)
    else:
        safe.save(path, with_model=True)


def draw_safe_set(safe: SafeSet, path: Path) -> None:
    """Draw the safe share by step."""
    from peakrl.report.figures import draw_counts
    from peakrl.report.style import house_style, save

    with house_style():
        save(draw_counts(safe.counts, f"Safe set of {safe.model.name}"), path)


def show_safe_set(answer: dict[str, Any]) -> None:
    """Print the result."""
    from peakrl.cli.output import print_table

    print_table(
        f"{answer['problem']}: safe states and actions by step",
        COLUMNS,
        [list(row.values()) for row in answer["steps"]],
    )
    if answer["feasible"]:
        say("Feasible: every initial state is safe. A policy that takes only safe actions never violates a constraint.")
    else:
        say(f"Infeasible: {answer['reason']}")
