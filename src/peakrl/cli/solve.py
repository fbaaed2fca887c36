"""`peakrl solve`: the exact optimum of a problem; `peakrl shield`: its safe set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.cli.command import Answer, read_problem
from peakrl.cli.output import print_table, say
from peakrl.errors import SettingsError

if TYPE_CHECKING:
    from peakrl.problem import Problem
    from peakrl.tabular import TabularModel


def solve(
    problem: list[str] | None = None,
    *,
    jobs: Path | None = None,
    policy: Path | None = None,
    limit: str | None = None,
    average: bool = False,
    trust: bool = False,
) -> Answer:
    """Compute the optimal policy that never violates a constraint. Exit code 1 if there is none.

    Parameters
    ----------
    problem : [PROBLEM] [--PARAMETER VALUE]...
        A problem file (.toml, .json) or a built-in problem (energy-harvesting, scheduling-1, ...), with parameters to
        override: --peak-power 15, --horizon 10. With --discount 0.95, also in the file, there is no end.
    jobs : FILE.csv
        Solve a table of jobs: columns processing, due, deadline, weight, name, release.
    policy : FILE
        Save the optimal policy: .csv, .json, or any other name for `peakrl evaluate`.
    limit : FORM=LIMIT
        Limit expected violations instead of forbidding them: total=3.5, per_constraint=0.1, per_step=0.1, chance=0.05
        (of any violation) or union_chance=0.05.
    average
        Maximise the average reward of a step, without an end.
    """
    from peakrl.compile import compile_model
    from peakrl.planning import solve as plan
    from peakrl.planning import solve_cmdp
    from peakrl.problems.scheduling import MachineScheduling
    from peakrl.storage import ready

    ready(policy)
    wanted, discount = wanted_with_discount(problem or [], jobs, trust, average=average)
    limits = None if limit is None else limits_of(limit)
    model = compile_model(wanted)
    if limits is not None and (average or discount is not None):
        raise SettingsError("--limit: limits on expected violations need a horizon")
    if limits is None:
        best: Any = plan(model, discount=discount, average=average)
    else:
        best = solve_cmdp(model, **limits)
    answer = {
        "problem": model.name,
        "feasible": best.feasible,
        "reason": best.reason,
        "value": best.value,
        "violation": best.violation,
        "states": model.num_states,
        "pairs": model.num_pairs,
    }
    budgets = [axis.name for axis in model.memory if axis.unit is not None] if limits is None else []
    if budgets:
        answer["value_by_budget"] = {name: best.value_by_budget(name) for name in budgets}
    if best.criterion is not None:
        names = ("criterion", "value_low", "value_high", "safe_steps")
        answer |= {name: getattr(best, name) for name in names}
    if limits is not None:
        answer |= {"limit": limits, "consumption": best.consumption, "multipliers": best.multipliers}
        answer["stochastic"] = not best.policy.deterministic
    elif isinstance(wanted, MachineScheduling):
        answer |= on_jobs(wanted, best)
    if policy is not None:
        write = {".csv": best.policy.to_csv, ".json": best.policy.to_json}.get(policy.suffix, best.policy.save)
        write(policy)
    return Answer(answer, lambda: show_solution(answer), best.feasible)


def wanted_with_discount(
    words: list[str], jobs: Path | None, trust: bool = False, *, average: bool = False
) -> tuple[Problem | TabularModel, float | None]:
    """Return the problem of a command line, and the discount if there is one."""
    from peakrl.specs.registry import command_names, kind_named
    from peakrl.specs.spec import ProblemSpec, located, naming

    names, parameters = split_words(words)
    if len(names) + (jobs is not None) != 1:
        listed = ", ".join(command_names())
        raise SettingsError(f"name one problem ({listed}, or a file), or pass --jobs FILE.csv")
    if jobs is not None:
        with located("--jobs"):
            return ProblemSpec("machine_scheduling", {"jobs": str(jobs), **parameters}).build(), None
    described = read_problem(names[0], trust)
    kind = described.spec.kind
    if average and (kind == "gymnasium" or "horizon" in kind_named(kind).parameters):
        parameters.setdefault("horizon", None)
    with naming(names[0]), located("problem"):
        spec = described.spec.with_parameters(parameters)
    return replace(described, spec=spec).build(), spec.parameters.get("discount")


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


def limits_of(given: str) -> dict[str, Any]:
    """Return the limit of an option FORM=LIMIT as an argument of `solve_cmdp`."""
    from peakrl.planning.cmdp import FORMS

    form, _, limit = given.partition("=")
    if form not in FORMS:
        raise SettingsError(f"--limit is {given!r}; it must be FORM=LIMIT with one of {', '.join(FORMS)}")
    return {form: as_value(limit)}


def on_jobs(problem: Any, best: Any) -> dict[str, Any]:
    """Return the solution of a scheduling problem in terms of jobs, with its order if times are fixed."""
    from peakrl.problems.scheduling import evaluate_order, infeasible_reason, order_of

    answer = {"objective": problem.objective, "objective_value": 0.0 - best.value}
    if not best.feasible:
        answer["reason"] = infeasible_reason(problem.jobs) or best.reason
    if not problem.fixed_times:
        return answer
    schedule = evaluate_order(problem.jobs, order_of(best.policy))
    names = ("job", "start", "end", "due", "tardiness", "deadline", "slack")
    rows = [{name: getattr(bar, name) for name in names} for bar in schedule.bars]
    return {**answer, "order": schedule.order, "schedule": rows}


def show_solution(answer: dict[str, Any]) -> None:
    """Print the result."""
    say(f"{answer['problem']}: {answer['states']:,} states, {answer['pairs']:,} state-action pairs")
    if not answer["feasible"]:
        say(f"Infeasible: {answer['reason']}")
        if answer.get("safe_steps") is not None:
            say(f"Safety can be kept with certainty for {answer['safe_steps']:,} steps at most.")
        say("The following solution minimises the violation.")
    expected = "expected " if "schedule" not in answer else ""
    if "objective" in answer:
        say(f"{expected}{answer['objective'].replace('_', ' ')}: {answer['objective_value']:g}")
    else:
        say(f"{expected}value: {answer['value']:.6f}" + (f" ({answer['criterion']})" if "criterion" in answer else ""))
    say(f"{expected}violation: {answer['violation']:.6g}")
    for name, curve in answer.get("value_by_budget", {}).items():
        print_table("", [f"budget {name}", "value"], [[shown(budget), f"{v:.6f}"] for budget, v in curve.items()])
    if answer.get("multipliers") is not None:
        say(f"consumption of the limit: {shown(answer['consumption'].tolist())}")
        say(f"multipliers (value per unit of the limit): {shown(answer['multipliers'].tolist())}")
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


def shield(file: Path, *, out: Path | None = None, trust: bool = False) -> Answer:
    """Compute the states and actions from which every constraint can be satisfied. Exit code 1 if it is infeasible.

    Parameters
    ----------
    file : FILE
        A problem file, or a built-in problem as for `peakrl solve`.
    out : FILE
        Save the safe set: .csv, .json, or any other name for `peakrl.load`.
    """
    from peakrl.safety.safe_set import SafeSet
    from peakrl.storage import ready

    ready(out)
    safe = SafeSet(read_problem(file, trust).model(progress=True))
    if out is not None and out.suffix in (".csv", ".json"):
        (safe.to_csv if out.suffix == ".csv" else safe.to_json)(out)
    elif out is not None:
        safe.save(out, with_model=True)
    name, reason = safe.model.name, safe.infeasible_reason

    def show() -> None:
        if safe.model.steps is None:
            print_table(f"{name}: safe states and actions, for ever", COLUMNS[1:], [count[1:] for count in safe.counts])
        else:
            print_table(f"{name}: safe states and actions by step", COLUMNS, safe.counts)
        safe_words = "every initial state is safe. A policy that takes only safe actions never violates a constraint."
        say(f"Feasible: {safe_words}" if reason is None else f"Infeasible: {reason}")

    steps = [dict(zip(COLUMNS, count, strict=True)) for count in safe.counts]
    answer = {"problem": name, "feasible": safe.feasible, "reason": reason, "steps": steps}
    return Answer(answer, show, safe.feasible)
