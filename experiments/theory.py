"""What Theorems 1 and 2 promise, beside what comes out; and the conjecture that follows them.

* Theorem 2's trade-off: Algorithm 1 with slack 0 and a penalty of T^phi, T = K H, has regret O(T^(1/2+phi)) and
  violation O(T^(1-phi)). The penalty belongs to T, so each length is a run of its own; slopes are fitted to the
  logarithms of the mean over seeds, with a bootstrap interval over seeds. The exponents bound the worst problem.
* Theorem 1's averaged policy beside the last one, for a slack: gap and violation of either after K episodes.
* The conjecture that a deterministic policy cannot have the optimal rate, T^(1/2) of both. At each length the hardest
  gap between two doors is sought among several, so that what is fitted grows as the worst case does.

Regret is the sum of V* - V(pi^k) over the episodes, exact; a policy that violates may earn more than V*, so the sum of
the positive parts is recorded as well. The problems:

    tiny harvesting    of `neighbours`: a violation of one unit of power is worth at most 0.22 nats
    fork               one of two ways: 1/2 without a violation, 1 with a violation of 0.05: a unit is worth 20 spans
    doors(gap)         two safe doors lead to a reward of 1 with probability 1/2 and 1/2 + gap; a third one always does,
                       and violates. No learner can distinguish the doors before about 1/gap^2 episodes
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, places
from experiments.neighbours import tiny_harvesting
from experiments.records import VERSION, Check, FigureRecord, Floats, Request, Row, at_most, curve_rows
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, new_figure
from peakrl import TabularModel, compile_model, learn, solve
from peakrl.learners import SUCBVI, ConstrainedQ, PosteriorSampling, learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.sweeps import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUMS, POLICIES = "experiments.theory:sum_regret", "experiments.theory:last_and_averaged"
TRADE_OFF = {"tiny harvesting": "Theorem 2 on tiny harvesting", "fork": "Theorem 2 on the fork"}
AVERAGES, CONJECTURE = "Theorem 1 on tiny harvesting", "Two doors, the hardest gap"
RESAMPLES = 1000
#: Steps of an episode.
HORIZONS = {"tiny harvesting": 6, "fork": 4, "doors": 2}
REGRET, POSITIVE, VIOLATION = ("regret", "reward"), ("positive regret", "reward"), ("violation", "constraint")
GAP = ("gap", "reward")
Part = tuple[list[Row], list[Check]]


@dataclass(frozen=True)
class Theory:
    """Settings of the experiment."""

    phis: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)
    #: c1 and c2 of the bonus: what the paper's curves can be met with, and the theory's.
    constants: tuple[float, ...] = (0.001, 1.0)
    episodes: tuple[int, ...] = (1_000, 3_162, 10_000, 31_623, 100_000)
    seeds: int = 10
    slacks: tuple[float, ...] = (0.5, 0.1)
    average_episodes: int = 100_000
    average_seeds: int = 10
    #: Of the doors: gaps in units of 1/sqrt(K), and seeds for each of them.
    door_episodes: tuple[int, ...] = (64, 256, 1_024, 4_096)
    gaps: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    door_seeds: int = 1_000
    door_phi: float = 0.25


DEFAULT = Theory()
FULL = replace(
    DEFAULT, episodes=(*DEFAULT.episodes, 316_228, 1_000_000), seeds=20,
    door_episodes=(*DEFAULT.door_episodes, 16_384),
)  # fmt: skip
QUICK = replace(
    DEFAULT, phis=(0.1, 0.4), episodes=(300, 1_000, 3_000), seeds=3, average_episodes=3_000, average_seeds=3,
    door_episodes=(64, 256, 1_024), gaps=(1.0, 4.0), door_seeds=10,
)  # fmt: skip


def theory(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def measure(request: Request, settings: Theory) -> FigureRecord:
    """Return the experiment for given settings."""
    parts = [part(request, settings) for part in (trade_off, averages, conjecture)]
    rows, checks = (tuple(entry for part in parts for entry in part[which]) for which in (0, 1))
    title = "Theorem 2's trade-off, Theorem 1's averaged policy, and the conjecture on deterministic policies"
    values = {**asdict(settings), "quick": request.quick}
    return FigureRecord("theory", title, "T", values, rows, checks)  # type: ignore[arg-type]


def deterministic(phi: float, constant: float) -> LearnerSettings:
    """Return Theorem 2's learner."""
    return ConstrainedQ.deterministic(phi, c1=constant, c2=constant)


# Slopes ----------------------------------------------------------------------------------------------------------


def slopes(lengths: Floats, means: Floats) -> Floats:
    """[..]: the least-squares slope of log means over log T, of means [.., length] above 0."""
    x = np.log(lengths) - np.log(lengths).mean()
    found: Floats = np.log(means) @ x / (x @ x)
    return found


def slope_interval(lengths: Floats, sums: Floats) -> tuple[float, float]:
    """Return the percentile bootstrap interval, 95 %, of the slope of the mean of sums [seed, length], over seeds."""
    picks = np.random.default_rng(0).integers(len(sums), size=(RESAMPLES, len(sums)))
    means = sums[picks].mean(axis=1)
    low, high = np.quantile(slopes(lengths, means[(means > 0).all(axis=1)]), (0.025, 0.975))
    return float(low), float(high)


def slope_rows(
    variant: str, curve: str, measure: str, lengths: Floats, sums: Floats, exponent: float
) -> tuple[list[Row], list[Check]]:
    """Return the slope with its interval, beside the exponent of a bound."""
    means = sums.mean(axis=0)
    if (means <= 0).any():
        return [], []  # a sum of 0, or below, has no logarithm
    fitted = float(slopes(lengths, means))
    low, high = slope_interval(lengths, sums)
    samples = len(sums)
    rows = [
        Row(variant, curve, f"{part}slope of the {measure}", "exponent", None, value, None, samples)
        for part, value in (("", fitted), ("least ", low), ("most ", high))
    ]
    rows.append(Row(variant, curve, f"bound on the slope of the {measure}", "exponent", None, exponent, None, 1))
    what = f"{variant}, {curve}: slope of the {measure} [{low:.2f}, {high:.2f}]"
    return rows, [Check(what, "exponent of the bound", exponent, fitted, None)]


# The three parts -------------------------------------------------------------------------------------------------


def trade_off(request: Request, settings: Theory) -> Part:
    """Theorem 2 for several phi and lengths."""
    common = {"version": VERSION, "first_seed": 0, "seeds": settings.seeds}
    tasks = {
        (name, phi, constant): [
            Task(SUMS, {
                **common, "problem": name, "learner": deterministic(phi, constant).as_dict(), "episodes": episodes,
            })
            for episodes in settings.episodes
        ]
        for name in TRADE_OFF
        for constant in settings.constants
        for phi in settings.phis
    }  # fmt: skip
    rows: list[Row] = []
    checks: list[Check] = []
    for (name, phi, constant), own in request.run_groups(tasks, "Theorem 2").items():
        lengths = np.array(settings.episodes, np.float64) * HORIZONS[name]
        variant, who = TRADE_OFF[name], f"phi {phi:g}, c = {constant:g}"
        for measured, key, exponent in (
            (REGRET, "regret", 0.5 + phi), (POSITIVE, "positive", 0.5 + phi), (VIOLATION, "violation", 1.0 - phi)
        ):  # fmt: skip
            sums = np.stack([result.arrays[key] for result in own], axis=1)
            more, shown = slope_rows(variant, who, measured[0], lengths, sums, exponent)
            rows += curve_rows(variant, who, measured, lengths, sums) + more
            checks += shown if measured != POSITIVE else []
    return rows, checks


def averages(request: Request, settings: Theory) -> Part:
    """Theorem 1's averaged policy beside the last one."""
    last = settings.average_episodes
    points = np.unique(np.geomspace(min(100, last), last, 25).astype(int)).tolist()
    common = {"version": VERSION, "problem": "tiny harvesting", "points": points, "seeds": settings.average_seeds}
    learners = [ConstrainedQ.published(slack).as_dict() for slack in settings.slacks]
    tasks = [Task(POLICIES, {**common, "learner": learner}) for learner in learners]
    at = np.array(points, np.float64) * HORIZONS["tiny harvesting"]
    rows: list[Row] = []
    checks: list[Check] = []
    for slack, result in zip(settings.slacks, request.run(tasks, "Theorem 1"), strict=True):
        for key in ("last", "averaged"):
            who = f"{key} policy, slack {slack:g}"
            for name, measured in ((key, GAP), (f"{key}_violation", VIOLATION)):
                values = result.arrays[name]
                rows += curve_rows(AVERAGES, who, measured, at, values)
                what = f"{measured[0]} of the {who} after {last:,} episodes"
                checks.append(Check(what, "shown", None, float(values[:, -1].mean()), None))
    return rows, checks


def conjecture(request: Request, settings: Theory) -> Part:
    """Regret and violation of deterministic policies at the hardest gap of each length."""
    phi = settings.door_phi
    learners = {
        f"Theorem 2, phi {phi:g}, c = 0.001": deterministic(phi, 0.001),
        f"Theorem 2, phi {phi:g}, c = 1": deterministic(phi, 1.0),
        "fixed penalty, no bonus": ConstrainedQ(slack=0.0, penalty=2.0, start="tight"),
        "SUCBVI": SUCBVI(),
        "PosteriorSampling": PosteriorSampling(),
    }
    tasks = {
        (name, episodes): [
            Task(SUMS, {
                "version": VERSION, "problem": "doors", "gap": min(0.5, gap / math.sqrt(episodes)),
                "learner": learner.as_dict(), "episodes": episodes, "first_seed": 1_000 * place,
                "seeds": settings.door_seeds,
            })
            for place, gap in enumerate(settings.gaps)
        ]
        for name, learner in learners.items()
        for episodes in settings.door_episodes
    }  # fmt: skip
    found = request.run_groups(tasks, "two doors")
    rows: list[Row] = []
    checks: list[Check] = []
    lengths = np.array(settings.door_episodes, np.float64) * HORIZONS["doors"]
    for name in learners:
        for measured, key, exponent in ((POSITIVE, "positive", 0.5), (VIOLATION, "violation", 0.0)):
            # [seed, length]: at each length the gap whose mean is largest.
            groups = [[result.arrays[key] for result in found[name, length]] for length in settings.door_episodes]
            sums = np.stack([max(group, key=lambda each: float(each.mean())) for group in groups], axis=1)
            more, shown = slope_rows(CONJECTURE, name, measured[0], lengths, sums, exponent)
            rows += curve_rows(CONJECTURE, name, measured, lengths, sums) + more
            checks += [replace(check, against="optimal rate" if exponent else "bounded") for check in shown]
    most = max(float(run.arrays["violation"].max()) for k in settings.door_episodes for run in found["SUCBVI", k])
    # Each of the H S A entries is ruled out once, and one violation is of size 1.
    checks.append(at_most("violating episodes of SUCBVI in any run (at most H S A)", most, 2.0 * 3 * 3))
    return rows, checks


# Tasks, in a worker process --------------------------------------------------------------------------------------

FORK_VIOLATION = 0.05


def fork() -> TabularModel:
    """Return the problem with an expensive constraint."""
    return TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.5, 1.0]], [[[0.0, -FORK_VIOLATION]]], 4, name="fork")


def doors(gap: float) -> TabularModel:
    """Return the problem with two doors that are hard to distinguish."""
    transitions = np.zeros((3, 3, 3))
    for door, chance in enumerate((0.5, 0.5 + gap, 1.0)):
        transitions[0, door] = 0.0, chance, 1.0 - chance
    transitions[1, :, 1] = transitions[2, :, 2] = 1.0
    rewards = np.zeros((3, 3))
    rewards[1] = 1.0
    constraints = np.zeros((1, 3, 3))
    constraints[0, 0, 2] = -1.0
    return TabularModel.from_arrays(transitions, rewards, constraints, 2, name="doors")


def exact_histories(
    config: Mapping[str, Any], episodes: int, first: int = 0
) -> tuple[float, list[tuple[Floats, Floats]]]:
    """Return the optimum, and for each seed value and violation of pi^k for every episode k."""
    name = config["problem"]
    model = doors(config["gap"]) if name == "doors" else fork() if name == "fork" else compile_model(tiny_harvesting())
    settings, found = learner_from(config["learner"]), []
    for seed in range(first, first + config["seeds"]):
        history = learn(model, settings, episodes=episodes, seed=seed, history=1, average=False).history
        found.append((history.value, history.violation))
    return solve(model).value, found


def sum_regret(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run seeds for K episodes: the sums of V* - V(pi^k), signed and of its positive parts, and of the violation."""
    best, found = exact_histories(config, config["episodes"], config["first_seed"])
    rows = [[(best - value).sum(), np.maximum(best - value, 0.0).sum(), violation.sum()] for value, violation in found]
    return dict(zip(("regret", "positive", "violation"), np.array(rows).T, strict=True))


def last_and_averaged(config: Mapping[str, Any]) -> dict[str, Any]:
    """Run seeds for K episodes: [seed, point] gap and violation of pi^k and of the mixture of pi^1 .. pi^k."""
    points = np.array(config["points"])
    best, runs = exact_histories(config, int(points[-1]))
    numbers = np.arange(1, int(points[-1]) + 1)
    return {
        "last": np.array([(best - value)[points - 1] for value, _ in runs]),
        "averaged": np.array([(best - np.cumsum(value) / numbers)[points - 1] for value, _ in runs]),
        "last_violation": np.array([violation[points - 1] for _, violation in runs]),
        "averaged_violation": np.array([(np.cumsum(violation) / numbers)[points - 1] for _, violation in runs]),
    }


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = (BLUE, GREEN, ORANGE, PURPLE, SKY, BLACK)
#: Which measures the two panels of a row show.
PANELS = {
    TRADE_OFF["tiny harvesting"]: ("regret", "violation"),
    TRADE_OFF["fork"]: ("positive regret", "violation"),
    AVERAGES: ("gap", "violation"),
    CONJECTURE: ("positive regret", "violation"),
}


def draw_theory(record: FigureRecord) -> Figure:
    """Draw regret or gap on the left and violation on the right, a row for each part."""
    figure, grid = new_figure(len(record.variants), 2, width=12.5, height=3.0)
    for variant, panels in zip(record.variants, grid, strict=True):
        for axes, measured in zip(panels, PANELS[variant], strict=True):
            draw_panel(axes, record, variant, measured)
    return figure


def draw_panel(axes: Axes, record: FigureRecord, variant: str, measured: str) -> None:
    """Draw every curve of a measure as far as it is above 0, or all of it if none is; its slope is in the legend."""
    from matplotlib.ticker import NullFormatter

    # A run on the fork passes a threshold: no slope describes that.
    slopes = {} if variant == TRADE_OFF["fork"] else record.curves(variant, f"slope of the {measured}")
    curves = record.curves(variant, measured)
    positive = any(row.mean > 0 for rows in curves.values() for row in rows)
    for colour, (name, rows) in zip(colours(record, variant), curves.items(), strict=False):
        above = [row for row in rows if row.mean > 0 or not positive]
        if not above:
            continue
        label = f"{name}: {slopes[name][0].mean:.2f}" if name in slopes else name
        dashed = name.endswith("c = 1") or name.startswith("last")
        curve(axes, above, label, colour, band=False, linestyle="--" if dashed else "-", marker="o", markersize=2.5)
    axes.set_xscale("log")
    if positive:
        axes.set_yscale("log")
    else:
        axes.text(0.5, 0.65, "0 throughout: what violates earns more", ha="center", transform=axes.transAxes)
    axes.xaxis.set_minor_formatter(NullFormatter())
    if measured == "positive regret" and variant == CONJECTURE:
        # The optimal rate, through the least of the last points.
        every = [row for rows in curves.values() for row in rows]
        lengths = sorted(set(places(every)))
        least = min(row.mean for row in every if row.x == lengths[-1] and row.mean > 0)
        rate = [least * (x / lengths[-1]) ** 0.5 for x in lengths]
        axes.plot(lengths, rate, color=GREY, linestyle=":", linewidth=1.2, label="square root of T")
    axes.set_xlabel("T, steps in all")
    what = "expected, an episode" if variant == AVERAGES else "summed over the episodes"
    axes.set_ylabel(f"{measured}, {what}")
    axes.set_title(f"{variant}: {measured}", loc="left")
    title = "fitted slope behind the colon" if slopes else None
    axes.legend(
        fontsize=6.5, title=title, title_fontsize=6.5, handlelength=3, loc="center left", bbox_to_anchor=(1.01, 0.5)
    )


def colours(record: FigureRecord, variant: str) -> list[str]:
    """Return a colour for each curve of a variant: the same for two that differ in a constant or in the policy only."""
    names = list(dict.fromkeys(row.curve for row in record.rows if row.variant == variant))
    heads = [name.split(", c = ")[0] if name.startswith("phi") else name.split("policy, ")[-1] for name in names]
    order = list(dict.fromkeys(heads))
    return [COLOURS[order.index(head) % len(COLOURS)] for head in heads]
