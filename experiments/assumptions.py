"""What knowing is worth: violating episodes, and episodes to 1 %, as more is declared.

    nothing                        what breaks a constraint is found out by breaking it
    constraint depends on action   one violation stands for all that share it; if that is true
    constraint function            what violates at once is never tried; dead ends are learned
    support                        what can happen, though not how likely: nothing violates
    support, groups                and which pairs share the distribution of the next state
    everything                     the model: `solve` needs no episode

The default learner, posterior sampling; at episodes spread evenly on a log scale the policy that would be returned is
evaluated exactly. "Episodes to 1 %" is the first of them from which on it stays within 1 % of the best safe value and
violates nothing. The problems:

    energy harvesting   the paper's transmitter, peak power 8, random arrivals; the constraint depends on the action
    scheduling 2        the paper's second example
    slippery grid       four moves on 5 x 6 cells with pits; a move slips to either side; never into a pit
    thermostat          heat a house for a day at the least cost; its temperature must stay in a band by the hour, and
                        the weather is random (`peakrl.problems.heating`)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import log_axes, places
from experiments.records import VERSION, Check, FigureRecord, Request, Row, at_most, numbers
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, new_figure, plain_numbers
from peakrl import Assumptions, Outcome, Problem, TabularModel, compile_model, evaluate, solve
from peakrl.learners import PosteriorSampling, learner_from
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.problems.heating import thermostat
from peakrl.problems.robots import Floor
from peakrl.sweeps import Result, Task
from peakrl.training import learn_in_stages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASK = "experiments.assumptions:learn_knowing"
NOTHING, DEPENDS, FUNCTION, SUPPORT, GROUPS = RUNGS = (
    "nothing", "constraint depends on action", "constraint function", "support", "support, groups",
)  # fmt: skip
EVERYTHING = "everything"
#: A policy counts as good when it is this close to the optimum (share of it) and violates nothing.
CLOSE = 0.01
VIOLATING, SETTLED = ("violating episodes", "episodes"), (f"episodes to {100 * CLOSE:g} %", "episodes")


class SlipperyGrid(Problem):
    """From the lower left to the goal, past pits that a slip must not lead into."""

    name = "slippery grid"
    horizon = 20
    constraint_names = ("no pit",)
    stationary = True
    #: S start, G goal, o pit.
    floor = Floor(("......", "..o...", "....o.", ".o....", "S....G"))
    slip = 0.1

    def initial(self) -> list[tuple[float, Any]]:
        """At S."""
        return [(1.0, next(iter(self.floor.cells("S"))))]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Four moves; one into the border leaves the walker in its cell."""
        return ("up", "right", "down", "left")

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Move, or slip to one of the sides."""
        right, left = self.floor.sides(action)
        chances: dict[Any, float] = {}
        for way, chance in ((action, 1.0 - 2 * self.slip), (right, self.slip), (left, self.slip)):
            after = self.floor.beside(state, way)
            chances[after] = chances.get(after, 0.0) + chance
        pits, goals = self.floor.cells("o"), self.floor.cells("G")
        return [
            Outcome(chance, cell, 1.0 if cell in goals else 0.0, (-1.0 if cell in pits else 1.0,))
            for cell, chance in chances.items()
        ]


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "energy harvesting": lambda: energy_harvesting(peak_power=8),
    "scheduling 2": lambda: scheduling_example(2),
    "slippery grid": SlipperyGrid,
    "thermostat": thermostat,
}
#: What the constraints depend on, if that is less than the pair at its step.
DEPENDS_ON = {"energy harvesting": "action"}


@dataclass(frozen=True)
class Ladder:
    """Settings of the experiment."""

    #: Problem and episodes.
    episodes: tuple[tuple[str, int], ...] = (
        ("energy harvesting", 2_000), ("scheduling 2", 2_500), ("slippery grid", 10_000), ("thermostat", 10_000),
    )  # fmt: skip
    seeds: int = 3
    #: Number of episodes after which the policy is evaluated.
    places: int = 60


DEFAULT = Ladder()
FULL = replace(DEFAULT, seeds=20)
QUICK = replace(DEFAULT, episodes=tuple((name, 400) for name in PROBLEMS), seeds=1, places=12)


def assumptions(request: Request) -> FigureRecord:
    """Return tables, curves and checks of the experiment."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def rungs_of(problem: str) -> list[str]:
    """Return the rungs whose declaration is true of a problem."""
    return [rung for rung in RUNGS if rung != DEPENDS or problem in DEPENDS_ON]


def measure(request: Request, settings: Ladder) -> FigureRecord:
    """Return the experiment for given settings."""
    learner = PosteriorSampling().as_dict()
    looks = {
        name: sorted({round(place) for place in np.geomspace(1, episodes, settings.places).tolist()})
        for name, episodes in settings.episodes
    }
    common = {"version": VERSION, "learner": learner}
    tasks = {
        (name, rung): [
            Task(TASK, {**common, "problem": name, "rung": rung, "seed": seed, "places": looks[name]})
            for seed in range(settings.seeds)
        ]
        for name in looks
        for rung in rungs_of(name)
    }
    found = request.run_groups(tasks, "assumptions")
    rows: list[Row] = []
    for (name, rung), runs in found.items():
        rows += rung_rows(name, rung, looks[name], runs)
        if rung == GROUPS:
            measures = (VIOLATING, SETTLED)
            rows += [Row(name, EVERYTHING, f"median {what}", unit, None, 0.0, None, 1) for what, unit in measures]
    values = {**asdict(settings), "quick": request.quick, "learner": learner}
    title = "What knowing is worth: violating episodes and episodes to 1 %"
    return FigureRecord("assumptions", title, "episode", values, tuple(rows), tuple(checks(found)))


def rung_rows(problem: str, rung: str, looks: list[int], runs: list[Result]) -> list[Row]:
    """Return quartiles over seeds of the two results, and of the gap over episodes: none if a policy violates."""
    settled = [run.values["settled"] for run in runs]
    rows = numbers(problem, rung, VIOLATING, [float(run.values["violations"]) for run in runs])
    rows += numbers(problem, rung, SETTLED, [math.inf if episode is None else float(episode) for episode in settled])
    # A policy that violates earns more than is allowed: it does not count, however small its gap looks.
    gaps = np.stack([np.where(run.arrays["violation"] > 0, math.inf, run.arrays["gap"]) for run in runs])
    for column, place in enumerate(looks):
        rows += numbers(problem, rung, ("gap", "%"), gaps[:, column], float(place))
    return rows


def checks(found: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return that nothing violates with a declared support, neither while learning nor the returned policy."""
    safe = [run for (_, rung), runs in found.items() if rung in (SUPPORT, GROUPS) for run in runs]
    violating = sum(int(run.values["violations"]) for run in safe)
    unsafe = sum(int((run.arrays["violation"] > 0).any()) for run in safe)
    means = {key: float(np.mean([int(run.values["violations"]) for run in runs])) for key, runs in found.items()}
    return [
        at_most("violating episodes with a declared support", float(violating), 0),
        at_most("runs with a declared support that would hand out what violates", float(unsafe), 0),
        *(Check(f"{name}, {rung}: {VIOLATING[0]}, mean", "shown", None, m, None) for (name, rung), m in means.items()),
    ]


# Tasks, in a worker process --------------------------------------------------------------------------------------


def learn_knowing(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn with what a rung declares; the policy that would be returned at given episodes, and all violations."""
    model, looks = compile_model(PROBLEMS[config["problem"]]()), config["places"]
    best = solve(model).value
    gap, violation = [], []
    for run in learn_in_stages(
        model, learner_from(config["learner"]), stages=looks, seed=config["seed"],
        assumptions=declared(model, config["problem"], config["rung"]),
    ):  # fmt: skip
        found = evaluate(model, run.policy)
        gap.append(100 * (best - found.value) / abs(best))
        violation.append(found.violation)
    bad = np.flatnonzero((np.array(gap) > 100 * CLOSE) | (np.array(violation) > 0))
    start = int(bad[-1]) + 1 if bad.size else 0
    settled = float(looks[start]) if start < len(gap) else None
    return {"gap": np.array(gap), "violation": np.array(violation), "violations": run.violations, "settled": settled}


def declared(model: TabularModel, problem: str, rung: str) -> Assumptions:
    """Return what is declared on a rung; all of it is true."""
    if rung == DEPENDS:
        return Assumptions(constraint_depends_on=DEPENDS_ON[problem])
    if rung == FUNCTION:
        return Assumptions(constraints=constraint_function(model))
    if rung == SUPPORT:
        return Assumptions(support=model)
    return Assumptions(support=model, shared_transitions=True) if rung == GROUPS else Assumptions()


def constraint_function(model: TabularModel) -> Any:
    """Return the least value of the constraints, as a function of step, state and action."""
    least = model.row_margin.min(axis=1)
    known = {
        (step, model.state_of_slot(slot), model.action_of_row(row)): float(least[row])
        for step, (first, last) in enumerate(model.layout.step_slots.tolist())
        for slot in range(first, last)
        for row in model.rows_of_slot(slot)
    }
    return lambda step, state, action: known[step, state, action]


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = dict(zip((*RUNGS, EVERYTHING), (BLUE, PURPLE, SKY, GREEN, ORANGE, BLACK), strict=True))
#: Gaps below this, in per cent, are drawn there: a logarithmic axis has no 0.
LEAST_GAP = 1e-3


def draw_assumptions(record: FigureRecord) -> Figure:
    """Draw for each problem the violating episodes by what is known, and the gap over episodes in the same colours."""
    figure, grid = new_figure(len(record.variants), 2, height=2.3)
    for variant, (left, right) in zip(record.variants, grid, strict=True):
        draw_bars(left, record, variant)
        draw_gaps(right, record, variant)
        left.set_title(variant.capitalize(), loc="left")
    shown = {name: line for _, axes in grid for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    note = f"declared; gaps below {LEAST_GAP:g} % are drawn there"
    figure.legend(list(shown.values()), list(shown), title=note, loc="outside upper center", ncols=3)
    return figure


def draw_bars(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw the median of the violating episodes, and write the episodes to 1 % beside it."""
    violating = record.curves(variant, f"median {VIOLATING[0]}")
    settled = record.curves(variant, f"median {SETTLED[0]}")
    names = list(violating)
    counts = [violating[name][0].mean for name in names]
    axes.barh(names, counts, color=[COLOURS[name] for name in names], height=0.6)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(0, 40 * max(*counts, 10))
    for place, name in enumerate(names):
        episodes = settled[name][0].mean
        reached = f"1 % after {episodes:,.0f}" if math.isfinite(episodes) else "1 % not reached"
        axes.text(max(counts[place], 0.02) * 1.15, place, f" {counts[place]:,.0f};  {reached}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0, labelsize=7.5)
    axes.grid(visible=False, axis="y")
    plain_numbers(axes.xaxis)
    axes.set_xlabel("violating episodes, median over seeds")


def draw_gaps(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw the median gap of the policy that would be returned, wherever that violates nothing."""
    for name, rows in record.curves(variant, "median gap").items():
        heights = [max(row.mean, LEAST_GAP) if math.isfinite(row.mean) else math.nan for row in rows]
        axes.plot(places(rows), heights, color=COLOURS[name], label=name)
    axes.axhline(1.0, color=BLACK, linestyle=":", linewidth=1)
    log_axes(axes)
    plain_numbers(axes.xaxis)
    axes.set_xlabel("episode")
    axes.set_ylabel("below the optimum (%),\nwhere nothing violates")
