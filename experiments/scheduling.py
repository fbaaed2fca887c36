"""Figures 4, 5 and 6: one machine, jobs with due times and deadlines, the largest tardiness to be minimised.

Examples 1 and 2 have fixed processing times: DT is optimal, and one run of the learner says all. Example 3 draws them,
which can be read in two ways, and both are run in many independent tests:

    anew   every episode draws its times. No policy can then meet every deadline for certain (the longest times end at
           40, the latest deadline is 35), so the least expected violation is the floor of every curve. DT knows the
           drawn times beforehand: it is no policy but a yardstick, and may even stay below the floor.
    once   a test draws its times once and replays them: a problem with fixed times. Some draws are infeasible;
           the floor is the mean over the tests of the least possible violation.

In `anew` the curves are exact expectations and their spread is that between runs; the measures "... of one episode" are
those of a single drawn episode at the end of training, which is what DT and EDD are spread over as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from peakrl.learning.settings import LearnerSettings
from peakrl.paper import paper_values as paper
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row, curve_rows, exact, spread, stacked
from peakrl.problems.spec import ProblemSpec
from peakrl.runs import Result, Task

TASKS = "peakrl.paper.scheduling_tasks"
OBJECTIVE, VIOLATION = ("max tardiness", "time units"), ("violation", "time units")
SINGLE_OBJECTIVE, SINGLE_VIOLATION = (
    ("max tardiness of one episode", "time units"),
    ("violation of one episode", "time units"),
)
EACH, AVERAGED = "Algorithm 1, each episode", "Algorithm 1, averaged policy"
LEARNER = "Algorithm 1"


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
    rows = example_rows(found)
    checks = example_checks(settings.example, found)
    title = f"Scheduling, Example {settings.example}: largest tardiness and missed deadlines"
    described = {**asdict(settings), "learner": learner_of(settings).as_dict(), "quick": request.quick}
    return FigureRecord(name, title, "episode", described, tuple(rows), tuple(checks))


def example_rows(found: Result) -> list[Row]:
    """Return the table of a run on fixed times."""
    episode, rows = found.arrays["episode"], []
    for curve, prefix in ((EACH, ""), (AVERAGED, "averaged ")):
        for measure, key in ((OBJECTIVE, "objective"), (VIOLATION, "violation")):
            rows += curve_rows("fixed times", curve, measure, episode, found.arrays[prefix + key][None])
    for rule in ("DT", "EDD"):
        rows.append(exact("fixed times", rule, OBJECTIVE, None, found.values[f"{rule} objective"]))
        rows.append(exact("fixed times", rule, VIOLATION, None, found.values[f"{rule} violation"]))
    return rows


def example_checks(example: int, found: Result) -> list[Check]:
    """Compare with the known optimum and with EDD."""
    best = paper.EXAMPLE_OPTIMUM[example]
    numbers = {
        "optimum": (best, found.values["optimum"]),
        "DT": (best, found.values["DT objective"]),
        "EDD": (paper.EXAMPLE_EDD[example], found.values["EDD objective"]),
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
    return random_times(request, FIGURE_6_QUICK if request.quick else FIGURE_6)


def random_times(request: Request, settings: RandomTimes) -> FigureRecord:
    """Return figure 6 for given settings."""
    common = task_config(settings)
    groups = [
        list(range(first, min(first + settings.block, settings.tests)))
        for first in range(0, settings.tests, settings.block)
    ]
    tasks = [
        Task(f"{TASKS}:{name}", {**common, "tests": group}) for name in ("learn_anew", "learn_once") for group in groups
    ]
    known = Task(f"{TASKS}:random_example", {"version": VERSION, "problem": example_problem(settings.example)})
    *results, yardsticks = request.run([*tasks, known], "figure 6")
    anew, once = results[: len(groups)], results[len(groups) :]
    rows = [*test_rows("anew", anew), *anew_rows(yardsticks), *test_rows("once", once), *once_rows(once)]
    checks = [*anew_checks(anew, yardsticks, settings), *once_checks(once)]
    described = {**asdict(settings), "learner": learner_of(settings).as_dict(), "quick": request.quick}
    title = "Scheduling, Example 3: random processing times"
    return FigureRecord("figure-6", title, "episode", described, tuple(rows), tuple(checks))


def test_rows(variant: str, found: list[Result]) -> list[Row]:
    """Return the learner's curves over tests, and what single episodes at the end came to."""
    episode, rows = found[0].arrays["episode"], []
    for measure, key in ((OBJECTIVE, "averaged objective"), (VIOLATION, "averaged violation")):
        rows += curve_rows(variant, LEARNER, measure, episode, stacked(found, key))
    for measure, key in ((SINGLE_OBJECTIVE, "objective"), (SINGLE_VIOLATION, "violation")):
        rows.append(spread(variant, LEARNER, measure, None, stacked(found, f"learner single {key}")))
        for rule in ("DT", "EDD"):
            rows.append(spread(variant, rule, measure, None, stacked(found, f"{rule} {key}")))
    return rows


def anew_rows(yardsticks: Result) -> list[Row]:
    """Return the levels to compare with where every episode draws its times: exact expectations."""
    values = yardsticks.values
    rows = [
        exact("anew", "least violation", OBJECTIVE, None, values["objective at least violation"]),
        exact("anew", "least violation", VIOLATION, None, values["least violation"]),
    ]
    for rule in ("DT", "EDD"):
        rows.append(exact("anew", rule, OBJECTIVE, None, values[f"{rule} objective"]))
        rows.append(exact("anew", rule, VIOLATION, None, values[f"{rule} violation"]))
    return rows


def once_rows(found: list[Result]) -> list[Row]:
    """Return the levels to compare with where a test draws its times once."""
    pairs = (
        ("least violation", "objective at least violation", "least violation"),
        ("DT", "DT objective", "DT violation"),
        ("EDD", "EDD objective", "EDD violation"),
    )
    rows = []
    for curve, objective, violation in pairs:
        rows.append(spread("once", curve, OBJECTIVE, None, stacked(found, objective)))
        rows.append(spread("once", curve, VIOLATION, None, stacked(found, violation)))
    return rows


def anew_checks(found: list[Result], yardsticks: Result, settings: RandomTimes) -> list[Check]:
    """Compare with the least expected violation, and see whether learning comes near it."""
    floor = float(yardsticks.values["least violation"])
    objective = float(yardsticks.values["objective at least violation"])
    last = float(stacked(found, "violation")[:, -1].mean())
    averaged = float(stacked(found, "averaged violation")[:, -1].mean())
    rate = float(stacked(found, "objective")[:, -1].mean())
    return [
        Check("drawn anew, least expected violation", "exact value", paper.EXAMPLE_3_VIOLATION, floor, 0.00005),
        Check("drawn anew, max tardiness at it", "exact value", paper.EXAMPLE_3_TARDINESS, objective, 0.00005),
        Check("drawn anew, violation of the last policies", "least expected violation", floor, last, settings.approach),
        Check("drawn anew, violation of the averaged policies", "least expected violation", floor, averaged, None),
        Check("drawn anew, max tardiness of the last policies", "at the least violation", objective, rate, None),
    ]


def once_checks(found: list[Result]) -> list[Check]:
    """Compare the learner with the least violation of the same drawn times."""
    floor, best = stacked(found, "least violation"), stacked(found, "objective at least violation")
    violation, objective = stacked(found, "learner single violation"), stacked(found, "learner single objective")
    return [
        Check(
            "drawn once, violation of the last policies",
            "least violation of the same times",
            float(floor.mean()),
            float(violation.mean()),
            0.02,
        ),
        Check(
            "drawn once, max tardiness of the last policies",
            "at the least violation",
            float(best.mean()),
            float(objective.mean()),
            None,
        ),
        Check("drawn once, share of infeasible draws", "none", None, float((floor > 0).mean()), None),
    ]


# Shared ----------------------------------------------------------------------------------------------------------


def learner_of(settings: FixedTimes | RandomTimes) -> LearnerSettings:
    """Algorithm 1 without bonus and with the stepwise start."""
    return LearnerSettings.published(settings.slack)


def example_problem(number: int) -> dict[str, Any]:
    """Return an example of the paper, as data."""
    return ProblemSpec("scheduling_example", {"number": number}).as_dict()


def task_config(settings: FixedTimes | RandomTimes) -> dict[str, Any]:
    """Return what the tasks of a figure share."""
    return {
        "version": VERSION,
        "problem": example_problem(settings.example),
        "learner": learner_of(settings).as_dict(),
        "episodes": settings.episodes,
        "every": settings.every,
    }
