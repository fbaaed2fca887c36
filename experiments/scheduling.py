"""Figures 4, 5 and 6: one machine, jobs with due times and deadlines, the largest tardiness to be minimised.

Examples 1 and 2 have fixed processing times: DT is optimal, and one run of the learner is enough. Example 3 draws them,
which can be read in two ways, and both are run in many independent tests:

    anew   every episode draws its times. No policy can then meet every deadline for certain (the longest times end at
           40, the latest deadline is 35), so the least expected violation is the floor of every curve. DT knows the
           drawn times beforehand: it is no policy but a yardstick, and may even stay below the floor.
    once   a test draws its times once and replays them: a problem with fixed times. Some draws are infeasible;
           the floor is the mean over the tests of the least possible violation.

In `anew` the curves are exact expectations and their spread is that between runs; the measures "... of one episode" are
those of a single drawn episode at the end of training, which is what DT and EDD are spread over as well. Objectives are
positive (minus the value of a policy), in time units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, label
from experiments.records import VERSION, Check, FigureRecord, Request, Row, curve_rows, exact, spread, stacked
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, SKY, count_episodes, new_figure, plain_numbers
from peakrl import LearningRun, Policy, TabularModel, compile_model, evaluate, learn, solve
from peakrl.learners import ConstrainedQ, learner_from
from peakrl.problems import Job, machine_scheduling
from peakrl.problems.scheduling import (
    MachineScheduling,
    draw_jobs,
    dt_order_or_least_late,
    earliest_deadline_order,
    evaluate_order,
    order_rule,
    with_time,
)
from peakrl.specs import ProblemSpec
from peakrl.sweeps import Result, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASKS = "experiments.scheduling"
#: The two measures, and the arrays of a run that hold them.
OBJECTIVE, VIOLATION = ("max tardiness", "time units"), ("violation", "time units")
MEASURES = {"objective": OBJECTIVE, "violation": VIOLATION}
EACH, AVERAGED, LEARNER = "Algorithm 1, each episode", "Algorithm 1, averaged policy", "Algorithm 1"
RULES = ("DT", "EDD")
#: Exact. Largest tardiness in Examples 1 and 2: the optimum (which DT reaches) and EDD. Example 3 with times drawn at
#: each start: the least expected violation, and the largest tardiness at it.
EXAMPLE_OPTIMUM, EXAMPLE_EDD = {1: 1.0, 2: 22.0}, {1: 5.0, 2: 26.0}
EXAMPLE_3_VIOLATION, EXAMPLE_3_TARDINESS = 0.2662, 7.0


@dataclass(frozen=True)
class FixedTimes:
    """Settings of figures 4 and 5."""

    example: int
    episodes: int
    every: int
    slack: float = 0.1


@dataclass(frozen=True)
class RandomTimes:
    """Settings of figure 6."""

    example: int = 3
    tests: int = 100
    episodes: int = 100_000
    every: int = 200
    slack: float = 0.1
    #: Tests of one task.
    block: int = 10
    #: How close the mean violation of the last policies must have come to the floor.
    approach: float = 0.02


FIGURE_4 = FixedTimes(example=1, episodes=1_000, every=1)
FIGURE_5 = FixedTimes(example=2, episodes=20_000, every=20)
FIGURE_6 = RandomTimes()
FIGURE_6_QUICK = replace(FIGURE_6, tests=10, episodes=20_000)


def example_problem(number: int) -> dict[str, Any]:
    """Return an example of the paper, as data."""
    return ProblemSpec("scheduling_example", {"number": number}).as_dict()


def task_config(settings: FixedTimes | RandomTimes) -> dict[str, Any]:
    """Return what the tasks of a figure share: Algorithm 1 without bonus and with the stepwise start."""
    return {
        "version": VERSION, "problem": example_problem(settings.example),
        "learner": ConstrainedQ.published(settings.slack).as_dict(),
        "episodes": settings.episodes, "every": settings.every,
    }  # fmt: skip


def described(request: Request, settings: FixedTimes | RandomTimes) -> dict[str, Any]:
    """Return the settings that are written beside the table."""
    return {**asdict(settings), "learner": task_config(settings)["learner"], "quick": request.quick}


# Figures 4 and 5 -------------------------------------------------------------------------------------------------


def figure_4(request: Request) -> FigureRecord:
    """Return the learning curves of Example 1."""
    return fixed_times(request, "figure-4", FIGURE_4)


def figure_5(request: Request) -> FigureRecord:
    """Return the learning curves of Example 2."""
    return fixed_times(request, "figure-5", FIGURE_5)


def fixed_times(request: Request, name: str, settings: FixedTimes) -> FigureRecord:
    """Return objective and violation of the learner against DT and EDD."""
    (found,) = request.run([Task(f"{TASKS}:learn_example", task_config(settings))], name.replace("-", " "))
    episode = found.arrays["episode"]
    rows: list[Row] = []
    for who, prefix in ((EACH, ""), (AVERAGED, "averaged ")):
        for key, measure in MEASURES.items():
            rows += curve_rows("fixed times", who, measure, episode, found.arrays[prefix + key][None])
    rows += level_rows("fixed times", found)
    title = f"Scheduling, Example {settings.example}: largest tardiness and missed deadlines"
    checks = tuple(example_checks(settings.example, found))
    return FigureRecord(name, title, "episode", described(request, settings), tuple(rows), checks)


def level_rows(variant: str, found: Result) -> list[Row]:
    """Return the exact levels of DT and EDD."""
    return [
        exact(variant, rule, measure, None, found.values[f"{rule} {key}"])
        for rule in RULES
        for key, measure in MEASURES.items()
    ]


def example_checks(example: int, found: Result) -> list[Check]:
    """Compare with the known optimum and with EDD."""
    best = EXAMPLE_OPTIMUM[example]
    numbers = {
        "optimum": (best, found.values["optimum"]),
        "DT": (best, found.values["DT objective"]),
        "EDD": (EXAMPLE_EDD[example], found.values["EDD objective"]),
        "last policy of Algorithm 1": (best, found.arrays["objective"][-1]),
        "violation of DT": (0.0, found.values["DT violation"]),
        "violation of the last policy": (0.0, found.arrays["violation"][-1]),
    }
    judged = [
        Check(f"Example {example}, {what}", "exact value", expected, float(ours), 0.0)
        for what, (expected, ours) in numbers.items()
    ]
    last = float(found.values["last violation"])
    return [*judged, Check(f"Example {example}, last episode that violated", "none", None, last, None)]


# Figure 6 --------------------------------------------------------------------------------------------------------


def figure_6(request: Request) -> FigureRecord:
    """Return Example 3 in both readings."""
    return random_times(request, request.choose(FIGURE_6_QUICK, FIGURE_6))


def random_times(request: Request, settings: RandomTimes) -> FigureRecord:
    """Return figure 6 for given settings."""
    config, tests = task_config(settings), range(settings.tests)
    blocks = [list(tests[first : first + settings.block]) for first in range(0, settings.tests, settings.block)]
    groups = {
        name: [Task(f"{TASKS}:learn_{name}", {**config, "tests": block}) for block in blocks]
        for name in ("anew", "once")
    }
    exact_task = Task(f"{TASKS}:random_example", {"version": VERSION, "problem": example_problem(settings.example)})
    found = request.run_groups({**groups, "known": [exact_task]}, "figure 6")
    anew, once, (known,) = found["anew"], found["once"], found["known"]
    rows = test_rows("anew", anew)
    for key, measure in (("objective at least violation", OBJECTIVE), ("least violation", VIOLATION)):
        rows.append(exact("anew", "least violation", measure, None, known.values[key]))
    rows += [*level_rows("anew", known), *test_rows("once", once)]
    levels = {"least violation": ("objective at least violation", "least violation")}
    levels |= {rule: (f"{rule} objective", f"{rule} violation") for rule in RULES}
    for who, keys in levels.items():
        rows += [
            spread("once", who, m, None, stacked(once, key)) for m, key in zip(MEASURES.values(), keys, strict=True)
        ]
    checks = (*anew_checks(anew, known, settings), *once_checks(once))
    title = "Scheduling, Example 3: random processing times"
    return FigureRecord("figure-6", title, "episode", described(request, settings), tuple(rows), checks)


def test_rows(variant: str, found: list[Result]) -> list[Row]:
    """Return the learner's curves over tests, and the values of single episodes at the end."""
    rows: list[Row] = []
    for key, measure in MEASURES.items():
        values = stacked(found, f"averaged {key}")
        rows += curve_rows(variant, LEARNER, measure, found[0].arrays["episode"], values)
    for key, (name, unit) in MEASURES.items():
        single = f"{name} of one episode", unit
        rows.append(spread(variant, LEARNER, single, None, stacked(found, f"learner single {key}")))
        rows += [spread(variant, rule, single, None, stacked(found, f"{rule} {key}")) for rule in RULES]
    return rows


def anew_checks(found: list[Result], known: Result, settings: RandomTimes) -> list[Check]:
    """Compare with the least expected violation, and see whether learning comes near it."""
    floor, best = (float(known.values[key]) for key in ("least violation", "objective at least violation"))
    last, averaged, objective = (
        float(stacked(found, key)[:, -1].mean()) for key in ("violation", "averaged violation", "objective")
    )
    return [
        Check("drawn anew, least expected violation", "exact value", EXAMPLE_3_VIOLATION, floor, 0.00005),
        Check("drawn anew, max tardiness at it", "exact value", EXAMPLE_3_TARDINESS, best, 0.00005),
        Check("drawn anew, violation of the last policies", "least expected violation", floor, last, settings.approach),
        Check("drawn anew, violation of the averaged policies", "least expected violation", floor, averaged, None),
        Check("drawn anew, max tardiness of the last policies", "at the least violation", best, objective, None),
    ]


def once_checks(found: list[Result]) -> list[Check]:
    """Compare the learner with the least violation of the same drawn times."""
    floor = stacked(found, "least violation")
    best, violation, objective = (
        float(stacked(found, key).mean())
        for key in ("objective at least violation", "learner single violation", "learner single objective")
    )
    same, last = "least violation of the same times", "drawn once, max tardiness of the last policies"
    return [
        Check("drawn once, violation of the last policies", same, float(floor.mean()), violation, 0.02),
        Check(last, "at the least violation", best, objective, None),
        Check("drawn once, share of infeasible draws", "none", None, float((floor > 0).mean()), None),
    ]


# Tasks, in a worker process --------------------------------------------------------------------------------------


def learn_example(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn one of the examples with fixed times; nothing is random, so one run is enough."""
    problem = example_of(config)
    model = compile_model(problem)
    best = solve(model)
    run = run_on(model, config, seed=0)
    rules = {name: float(values[0]) for name, values in rules_on([problem.jobs]).items()}
    last = run.last_violation_episode or 0
    return {**curves(run), "last violation": last, "optimum": -best.value, "least violation": best.violation, **rules}


def learn_anew(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run tests in which every episode draws its processing times: [test, place] curves, exact in each test."""
    problem = example_of(config)
    model = compile_model(problem)
    runs = [run_on(model, config, seed) for seed in config["tests"]]
    # One more draw of the times for each test: what DT (which sees them all) and EDD make of a single episode.
    drawn = [draw_jobs(problem.jobs, seed) for seed in config["tests"]]
    single = {
        "learner single objective": np.array([-run.history.episode_reward[-1] for run in runs]),
        "learner single violation": np.array([run.history.episode_violation[-1] for run in runs]),
    }
    return {**joined(runs), **single, **rules_on(drawn)}


def learn_once(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run tests that draw their processing times once and replay them: [test, place] curves."""
    problem = example_of(config)
    drawn = [draw_jobs(problem.jobs, seed) for seed in config["tests"]]
    models = [compile_model(machine_scheduling(jobs)) for jobs in drawn]
    runs = [run_on(model, config, seed) for model, seed in zip(models, config["tests"], strict=True)]
    best = [solve(model) for model in models]
    single = {
        "learner single objective": np.array([-run.history.value[-1] for run in runs]),
        "learner single violation": np.array([run.history.violation[-1] for run in runs]),
        "least violation": np.array([solution.violation for solution in best]),
        "objective at least violation": np.array([-solution.value for solution in best]),
    }
    return {**joined(runs), **single, **rules_on(drawn)}


def random_example(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the exact yardsticks of an example with random times: least expected violation, EDD, and DT."""
    problem = example_of(config)
    model = compile_model(problem)
    best = solve(model)
    rule = evaluate(model, Policy.from_rule(model, order_rule(earliest_deadline_order(problem.jobs))))
    objective, violation = expected_dt(problem)
    return {
        "least violation": best.violation, "objective at least violation": -best.value,
        "EDD objective": -rule.value, "EDD violation": rule.violation,
        "DT objective": objective, "DT violation": violation,
    }  # fmt: skip


def expected_dt(problem: MachineScheduling) -> tuple[float, float]:
    """Return DT's expected largest tardiness and violation if each episode's times are known beforehand."""
    objective = violation = 0.0
    for times in product(*(job.pairs for job in problem.jobs)):
        jobs = tuple(with_time(job, time) for job, (_, time) in zip(problem.jobs, times, strict=True))
        schedule = evaluate_order(jobs, dt_order_or_least_late(jobs))
        probability = math.prod(chance for chance, _ in times)
        objective += probability * schedule.max_tardiness
        violation += probability * schedule.violation
    return objective, violation


def example_of(config: Mapping[str, Any]) -> MachineScheduling:
    """Return the example of a task's configuration."""
    built = ProblemSpec.from_dict(config["problem"]).build()
    assert isinstance(built, MachineScheduling), config
    return built


def run_on(model: TabularModel, config: Mapping[str, Any], seed: int) -> LearningRun:
    """Return one run of the configured learner."""
    settings = learner_from(config["learner"])
    return learn(model, settings, episodes=config["episodes"], seed=seed, history=config["every"], average=False)


def curves(run: LearningRun) -> dict[str, Any]:
    """Return what is kept of a run: pi^k and the averaged policy of the first k episodes."""
    history = run.history
    return {
        "episode": history.episode, "objective": -history.value, "violation": history.violation,
        "averaged objective": -history.averaged_value, "averaged violation": history.averaged_violation,
    }  # fmt: skip


def joined(runs: list[LearningRun]) -> dict[str, Any]:
    """Return the curves of several runs, [test, place]."""
    columns = [curves(run) for run in runs]
    return {
        name: first if name == "episode" else np.stack([c[name] for c in columns]) for name, first in columns[0].items()
    }


def rules_on(drawn: list[tuple[Job, ...]]) -> dict[str, Any]:
    """Return DT and EDD on drawn times, [test] each; DT sees all times beforehand, EDD needs none."""
    arrays: dict[str, Any] = {}
    for name, order in zip(RULES, (dt_order_or_least_late, earliest_deadline_order), strict=True):
        schedules = [evaluate_order(jobs, order(jobs)) for jobs in drawn]
        arrays[f"{name} objective"] = np.array([float(schedule.max_tardiness) for schedule in schedules])
        arrays[f"{name} violation"] = np.array([float(schedule.violation) for schedule in schedules])
    return arrays


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = {EACH: SKY, AVERAGED: BLUE, LEARNER: BLUE, "DT": BLACK, "EDD": ORANGE, "least violation": GREEN}
STYLES: dict[str, Any] = {
    EACH: {"linewidth": 0.6}, "DT": {"linestyle": "--"}, "EDD": {"linestyle": "-."},
    "least violation": {"linestyle": ":", "linewidth": 1.8},
}  # fmt: skip
NAMES = {"DT": "DT (knows the times)", "least violation": "least-violation optimum"}


def draw_fixed_times(record: FigureRecord) -> Figure:
    """Draw objective and violation against the episode."""
    figure, ((objective, violation),) = new_figure(1, 2)
    for axes, (measure, _) in zip((objective, violation), MEASURES.values(), strict=True):
        found = record.curves("fixed times", measure)
        for name, rows in found.items():
            curve(axes, rows, name, COLOURS[name], **STYLES.get(name, {}))
        label(axes, measure.capitalize(), "episode", next(iter(found.values())))
        count_episodes(axes)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    objective.legend(loc="upper right")
    return figure


def draw_figure_6(record: FigureRecord) -> Figure:
    """Draw for each reading the curves of objective and violation, and single episodes at the end of training."""
    figure, grid = new_figure(2, 3, width=10.5)
    for variant, (objective, violation, ends) in zip(record.variants, grid, strict=True):
        for axes, (measure, _) in zip((objective, violation), MEASURES.values(), strict=True):
            found = record.curves(variant, measure)
            for name, rows in found.items():
                curve(axes, rows, NAMES.get(name, name), COLOURS[name], **STYLES.get(name, {}))
            title = f"{measure.capitalize()}, times drawn {variant}"
            label(axes, title, "episode", next(iter(found.values())))
            axes.set_xscale("log")
            plain_numbers(axes.xaxis)
        objective.set_ylim(bottom=0)
        # Shade what no policy can reach.
        floor = record.curves(variant, "violation")["least violation"][0].mean
        violation.set_yscale("log")
        violation.set_ylim(0.1, 60)
        violation.axhspan(0.1, floor, color=COLOURS["least violation"], alpha=0.15, linewidth=0)
        plain_numbers(violation.yaxis)
        violation.legend(loc="upper right")
        draw_ends(record, variant, ends)
    return figure


def draw_ends(record: FigureRecord, variant: str, axes: Axes) -> None:
    """Draw mean and standard deviation over tests of one episode at the end of training."""
    names = [LEARNER, *RULES]
    for offset, (measure, _), marker in zip((-0.12, 0.12), MEASURES.values(), "os", strict=True):
        found = record.curves(variant, f"{measure} of one episode")
        for place, name in enumerate(names):
            row = found[name][0]
            std = row.std or 0.0
            axes.errorbar(
                place + offset, row.mean, yerr=[[min(std, row.mean)], [std]], color=COLOURS[name],
                marker=marker, capsize=3, markerfacecolor="white" if marker == "s" else COLOURS[name],
            )  # fmt: skip
        # The colour stands for the rule, the marker for the measure.
        face = "white" if marker == "s" else GREY
        axes.plot([], [], color=GREY, marker=marker, markerfacecolor=face, label=f"{measure} of one episode")
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(-0.2, axes.get_ylim()[1] * 1.3)
    axes.set_ylabel("time units")
    axes.set_title("Last episode of each test, mean and sd", loc="left")
    axes.legend(loc="upper right")
