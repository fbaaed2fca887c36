"""How many episodes our learners save, against Algorithm 1 with its best constants and a model-based planner.

Random arrivals, in nats, many seeds: the gap of the returned policy to the causal optimum in per cent, over episodes,
as median and quartiles; from which episode on it stays within 1 % and free of violation. Scheduling: when the last
violation happens, and how close an infeasible example comes to the least violation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import log_axes, places
from experiments.energy import transmitter
from experiments.records import VERSION, Check, FigureRecord, Floats, Request, Row, at_most, numbers
from experiments.scheduling import example_problem
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, new_figure
from peakrl import Assumptions, TabularModel, evaluate, learn, solve
from peakrl.learners import UCBVI, ConstrainedQ, PosteriorSampling, SafeQ, learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.specs import ProblemSpec
from peakrl.sweeps import Result, Task
from peakrl.training import learn_in_stages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASKS = "experiments.efficiency"
GAP, AVERAGED, EPISODES = ("gap", "%"), ("averaged gap", "%"), ("settled", "episodes")
#: A policy counts as good when it is this close to the optimum (share of it) and violates nothing.
CLOSE = 0.01
POSTERIOR, PRACTICAL, DECLARED = "PosteriorSampling", "SafeQ", "SafeQ, structure declared"
PLANNER = "model-based planner"
#: Algorithm 1 has no better constants known on this problem than no bonus, a stepwise start and a small penalty:
#: Theorem 2's form with rewards as they are (eta = (KH)^phi, about 7), the largest slack and Slater constant that still
#: deter a violation of 1 (eta = 44), and what the published curves use (eta = 800).
_PLAIN: dict[str, Any] = {"bonus": "none", "start": "stepwise", "unit_rewards": True}
ALGORITHM_ONE = {
    "Algorithm 1, phi 0.1": ConstrainedQ(slack=0.0, exponent=0.1, **_PLAIN),
    "Algorithm 1, slack 0.9": ConstrainedQ(slack=0.9, slater=0.9, **_PLAIN),
    "Algorithm 1, slack 0.1": ConstrainedQ.published(0.1),
}
#: Limits: gap of the returned policy and of the average of all that were followed, by peak (%), episodes saved, last
#: violation of the scheduling examples, episodes to the proof, excess over the least violation (%), violations in all.
LAST, MEAN, SAVED = {8: 0.2, 15: 0.7}, {8: 3.0, 15: 3.5}, 25.0
SCHEDULES, PROOF, EXCESS, LIFETIME = {1: 150, 2: 6_000}, 2_000, 5.0, 32


@dataclass(frozen=True)
class Efficiency:
    """Settings of the experiment."""

    peaks: tuple[float, ...] = (8, 15)
    seeds: int = 20
    episodes: int = 50_000
    #: Planning takes longer: fewer seeds. The default is settled long before the end: fewer episodes.
    sampling_episodes: int = 10_000
    sampling_seeds: int = 8
    #: Number of episodes, evenly on a log scale, after which the policy is evaluated.
    places: int = 90
    #: Bonus of the planner, in standard deviations.
    bonus: float = 0.5
    #: Algorithm 1: episodes and seeds.
    long_episodes: int = 5_000_000
    long_seeds: int = 5
    #: Example and episodes.
    schedules: tuple[tuple[int, int], ...] = ((1, 1_000), (2, 10_000))
    infeasible_episodes: int = 20_000


FULL = Efficiency()
QUICK = replace(
    FULL, seeds=2, episodes=4_000, sampling_episodes=1_000, sampling_seeds=2, long_episodes=200_000, places=12,
    long_seeds=1, schedules=((1, 300),), infeasible_episodes=4_000,
)  # fmt: skip


def our_learners(peak: float) -> dict[str, dict[str, Any]]:
    """Return the default, and SafeQ as it comes and with everything that can be declared."""
    known = Assumptions(constraint_depends_on="action", max_reward=math.log(1 + peak))
    return {
        POSTERIOR: configured(PosteriorSampling()),
        PRACTICAL: configured(SafeQ()),
        DECLARED: configured(SafeQ(), known),
    }


def configured(learner: LearnerSettings, assumptions: Assumptions | None = None) -> dict[str, Any]:
    """Return a learner and what is declared to it, as plain values."""
    return {"learner": learner.as_dict(), "assumptions": (assumptions or Assumptions()).as_dict()}


def efficiency(request: Request) -> FigureRecord:
    """Return curves, tables and checks of the experiment."""
    return measure(request, request.choose(QUICK, FULL))


def measure(request: Request, settings: Efficiency) -> FigureRecord:
    """Return the experiment for given settings."""
    parts = [part(request, settings) for part in (harvesting, schedules)]
    rows = tuple(row for rows, _ in parts for row in rows)
    checks = tuple(request.judged(check for _, checks in parts for check in checks))
    learners = {name: learner.as_dict() for name, learner in ALGORITHM_ONE.items()}
    for peak in settings.peaks:
        learners |= {f"{name}, peak {peak:g}": own for name, own in our_learners(peak).items()}
    values = {**asdict(settings), "quick": request.quick, "learners": learners}
    return FigureRecord(
        "efficiency", "Episodes that our learners save, and where they end", "episode", values, rows, checks
    )


# Random arrivals -------------------------------------------------------------------------------------------------


def harvesting(request: Request, settings: Efficiency) -> tuple[list[Row], list[Check]]:
    """Return curves and comparisons on random arrivals."""
    tasks = {(peak, name): batch for peak in settings.peaks for name, batch in harvesting_tasks(settings, peak).items()}
    found = request.run_groups(tasks, "efficiency, random arrivals")
    rows: list[Row] = []
    checks: list[Check] = []
    for (peak, name), runs in found.items():
        variant = f"peak {peak:g}"
        for array, measured in {"gap": GAP, "violation": ("violation", "power units")}.items():
            values = np.stack([run.arrays[array] for run in runs])
            for place, episode in enumerate(runs[0].arrays["episode"].tolist()):
                rows += numbers(variant, name, measured, values[:, place], episode)
        rows += numbers(variant, name, GAP, [float(run.arrays["gap"][-1]) for run in runs])
        if "averaged_gap" in runs[0].values:
            rows += numbers(variant, name, AVERAGED, [float(run.values["averaged_gap"]) for run in runs])
        rows += numbers(variant, name, EPISODES, [settled(run) for run in runs])
        rows += numbers(variant, name, ("violating episodes", ""), [run.values["violations"] for run in runs])
    for peak in settings.peaks:
        checks += harvesting_checks(settings, peak, {name: runs for (p, name), runs in found.items() if p == peak})
    return rows, checks


def harvesting_tasks(settings: Efficiency, peak: float) -> dict[str, list[Task]]:
    """Return the runs of every learner at a peak, one a seed."""
    problem = transmitter(peak_power=peak, log_base=math.e).as_dict()
    learners = our_learners(peak) | {PLANNER: configured(UCBVI(bonus=settings.bonus))}
    learners |= {name: configured(learner) for name, learner in ALGORITHM_ONE.items()}
    tasks: dict[str, list[Task]] = {}
    for name, learner in learners.items():
        episodes, seeds = settings.episodes, settings.seeds
        if name in ALGORITHM_ONE:
            episodes, seeds = settings.long_episodes, settings.long_seeds
        elif name in (POSTERIOR, PLANNER):
            seeds = settings.sampling_seeds
            episodes = settings.sampling_episodes if name == POSTERIOR else episodes
        at = np.unique(np.geomspace(min(100, episodes), episodes, settings.places).round().astype(int)).tolist()
        config = {"version": VERSION, "problem": problem, **learner, "places": at}
        config["averaged"] = name in (PRACTICAL, DECLARED)
        tasks[name] = [Task(f"{TASKS}:learn_transmitter", {**config, "seed": seed}) for seed in range(seeds)]
    return tasks


def settled(run: Result) -> float:
    """Return from when on a run's policy stays good; infinity if it never does."""
    return math.inf if run.values["settled"] is None else float(run.values["settled"])


def harvesting_checks(settings: Efficiency, peak: float, found: Mapping[str, Sequence[Result]]) -> list[Check]:
    """Compare with the limits."""
    checks: list[Check] = []
    label = f"peak {peak:g}"
    for name in our_learners(peak):
        last = max(float(run.arrays["gap"][-1]) for run in found[name])
        violation = max(float(run.arrays["violation"][-1]) for run in found[name])
        checks += [
            at_most(f"{label}, {name}: worst gap of the last policy (%)", last, LAST.get(int(peak))),
            at_most(f"{label}, {name}: its worst violation", violation, 0.0),
        ]
        if "averaged_gap" in found[name][0].values:
            averaged = max(abs(float(run.values["averaged_gap"])) for run in found[name])
            what = f"{label}, {name}: worst gap of the averaged policy (%)"
            checks.append(at_most(what, averaged, MEAN.get(int(peak))))
    most = max(int(run.values["violations"]) for run in found[DECLARED])
    checks.append(at_most(f"{label}, {DECLARED}: most violating episodes", most, LIFETIME))
    # A run that never settles needs at least as many episodes as it has: it counts with those.
    best = min(
        float(np.median([min(settled(run), settings.long_episodes) for run in found[name]])) for name in ALGORITHM_ONE
    )
    checks.append(Check(f"{label}: episodes that Algorithm 1 needs, best constants", "shown", None, best, None))
    for name in our_learners(peak):
        needs = float(np.median([settled(run) for run in found[name]]))
        if math.isfinite(needs):
            checks.append(Check(f"{label}, {name}: episodes needed, median", "shown", None, needs, None))
            checks.append(at_most(f"{label}, {name}: share of Algorithm 1's episodes", needs / best, 1 / SAVED))
    return checks


# Scheduling ------------------------------------------------------------------------------------------------------


def schedules(request: Request, settings: Efficiency) -> tuple[list[Row], list[Check]]:
    """Return the last violations of the feasible examples, proof and remaining violation of the infeasible one."""
    learner = SafeQ(trials=False).as_dict()  # nothing is random here
    sizes = {**dict(settings.schedules), 3: settings.infeasible_episodes}
    groups = {
        number: [
            Task(f"{TASKS}:{'learn_infeasible' if number == 3 else 'learn_schedule'}", {
                "version": VERSION, "learner": learner, "problem": example_problem(number), "episodes": episodes,
                "seed": seed,
            })
            for seed in range(settings.seeds)
        ]
        for number, episodes in sizes.items()
    }  # fmt: skip
    found = request.run_groups(groups, "efficiency, scheduling")
    rows: list[Row] = []
    checks: list[Check] = []
    for number, _ in settings.schedules:
        for key, what in (("last_violation", "last violation"), ("last_wrong", "last policy that is not optimal")):
            values = [float(run.values[key]) for run in found[number]]
            rows += numbers(f"example {number}", PRACTICAL, (what, "episode"), values)
            checks.append(at_most(f"example {number}: {what}, worst seed", max(values), SCHEDULES[number]))
    proved = [math.inf if run.values["proved"] is None else float(run.values["proved"]) for run in found[3]]
    excess = [float(run.values["excess"]) for run in found[3]]
    rows += numbers("example 3", PRACTICAL, ("proof of infeasibility", "episode"), proved)
    rows += numbers("example 3", PRACTICAL, ("excess over the least violation", "%"), excess)
    checks.append(at_most("example 3: episodes to the proof, worst seed", min(max(proved), 1e9), PROOF))
    checks.append(at_most("example 3: excess over the least violation (%), worst seed", max(excess), EXCESS))
    return rows, checks


# Tasks, in a worker process --------------------------------------------------------------------------------------


def learn_transmitter(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn random arrivals; the policies at given episodes and, if asked for, the average of all followed."""
    model, at = ProblemSpec.from_dict(config["problem"]).compile(), config["places"]
    found = []
    for run in learn_in_stages(
        model, learner_from(config["learner"]), stages=at, seed=config["seed"],
        assumptions=Assumptions.from_dict(config["assumptions"]), history=at[-1] if config["averaged"] else "none",
    ):  # fmt: skip
        policy = evaluate(model, run.policy)
        found.append((policy.value, policy.violation))
    value, violation = np.array(found).T
    curves = gaps(model, np.array(at, float), value, violation)
    if config["averaged"]:
        curves["averaged_gap"] = 100 * (1 - float(run.history.averaged_value[-1]) / solve(model).value)
    return curves | {"violations": run.violations, "last_violation": run.last_violation_episode or 0}


def gaps(model: TabularModel, episode: Floats, value: Floats, violation: Floats) -> dict[str, Any]:
    """Return gaps in per cent of the optimum, and from when on the policy stays close to it without violation."""
    gap = 100 * (1 - value / solve(model).value)
    bad = np.flatnonzero((np.abs(gap) > 100 * CLOSE) | (violation > 0))
    start = int(bad[-1]) + 1 if bad.size else 0
    good = float(episode[start]) if start < len(episode) else None
    return {"episode": episode, "gap": gap, "violation": violation, "settled": good}


def learn_schedule(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn a feasible scheduling example: the last violation and the last policy that was not optimal."""
    model, settings = ProblemSpec.from_dict(config["problem"]).compile(), learner_from(config["learner"])
    run = learn(model, settings, episodes=config["episodes"], seed=config["seed"], history=1, average=False)
    wrong = (run.history.value < solve(model).value - 1e-9) | (run.history.violation > 0)
    return {
        "violations": run.violations,
        "last_violation": run.last_violation_episode or 0,
        "last_wrong": int(run.history.episode[wrong][-1]) if wrong.any() else 0,
    }


def learn_infeasible(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn the infeasible scheduling example: when that is proved, and what violation is left."""
    model, settings = ProblemSpec.from_dict(config["problem"]).compile(), learner_from(config["learner"])
    run = learn(model, settings, episodes=config["episodes"], seed=config["seed"], history="none", average=False)
    violation = evaluate(model, run.behavior_policy).violation
    excess = 100 * (violation / solve(model).violation - 1)
    return {"proved": run.proof_episode, "violation": violation, "excess": excess}


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = {POSTERIOR: SKY, PRACTICAL: BLUE, DECLARED: GREEN, PLANNER: BLACK}
COLOURS |= dict(zip(ALGORITHM_ONE, (ORANGE, YELLOW, PURPLE), strict=True))
#: Lower end of a logarithmic axis: smaller gaps and violations are drawn there.
FLOOR = {"gap": 0.01, "violation": 1e-5}


def draw_efficiency(record: FigureRecord) -> Figure:
    """Draw gap and violation of the returned policy over episodes, with bands from quartile to quartile."""
    variants = [variant for variant in record.variants if variant.startswith("peak")]
    figure, grid = new_figure(len(variants), 2)
    for variant, panels in zip(variants, grid, strict=True):
        for axes, quantity in zip(panels, FLOOR, strict=True):
            draw_quartiles(record, variant, quantity, axes)
        panels[0].axhline(1.0, color="#999999", linewidth=0.8, linestyle=":")
        panels[0].set_title(f"{variant.capitalize()}: gap to the causal optimum (%)", loc="left")
        panels[1].set_title("Violation (power units an episode)", loc="left")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    return figure


def draw_quartiles(record: FigureRecord, variant: str, quantity: str, axes: Axes) -> None:
    """Draw the median of every learner, and the band between its quartiles."""
    floor = FLOOR[quantity]
    curves = [record.curves(variant, f"{word} {quantity}") for word in ("lower", "median", "upper")]
    for name, rows in curves[1].items():
        low, middle, high = ([max(r.mean, floor) for r in part[name] if r.x is not None] for part in curves)
        axes.plot(places(rows), middle, color=COLOURS[name], label=name)
        axes.fill_between(places(rows), low, high, color=COLOURS[name], alpha=0.15, linewidth=0)
    log_axes(axes)
    axes.set_ylim(bottom=floor)
    axes.set_xlabel("episode")
    axes.set_ylabel(f"{quantity} of the returned policy")
