"""What Theorems 1 and 2 promise, beside what comes out; and the conjecture that follows them.

* Theorem 2's trade-off: Algorithm 1 with slack 0 and a penalty of T^phi, T = K H, has regret O(T^(1/2+phi)) and
  violation O(T^(1-phi)). The penalty belongs to T, so each length is a run of its own; slopes are fitted to the
  logarithms of the mean over seeds, with a bootstrap interval over seeds. The exponents bound the worst problem.
* Theorem 1's averaged policy beside the last one, for a slack: gap and violation of either after K episodes.
* The conjecture that a deterministic policy cannot have the optimal rate, T^(1/2) of both. At each length the hardest
  gap between two doors is sought among several, so that what is fitted grows as the worst case does.

Regret is the sum of V* - V(pi^k) over the episodes, exact; a policy that violates may earn more than V*, so the sum of
the positive parts is recorded as well.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from peakrl.kernels.arrays import Floats
from peakrl.learning.algorithm_one import AlgorithmOne
from peakrl.learning.posterior import Posterior
from peakrl.learning.settings import LearnerSettings
from peakrl.learning.ucbvi import SUCBVI
from peakrl.paper.efficiency import at_most
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row, curve_rows
from peakrl.runs import Result, Task

SUMS = "peakrl.paper.theory_tasks:sum_regret"
POLICIES = "peakrl.paper.theory_tasks:last_and_averaged"
TRADE_OFF = {"tiny harvesting": "Theorem 2 on tiny harvesting", "fork": "Theorem 2 on the fork"}
AVERAGES, CONJECTURE = "Theorem 1 on tiny harvesting", "Two doors, the hardest gap"
RESAMPLES = 1000
#: Steps of an episode.
HORIZONS = {"tiny harvesting": 6, "fork": 4, "doors": 2}
REGRET, POSITIVE, VIOLATION = ("regret", "reward"), ("positive regret", "reward"), ("violation", "constraint")
GAP = ("gap", "reward")


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
#: Of those that take long.
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
    return measure(request, QUICK if request.quick else FULL if request.full else DEFAULT)


def measure(request: Request, settings: Theory) -> FigureRecord:
    """Return the experiment for given settings."""
    rows: list[Row] = []
    checks: list[Check] = []
    for part in (trade_off, averages, conjecture):
        new, judged = part(request, settings)
        rows += new
        checks += judged
    title = "Theorem 2's trade-off, Theorem 1's averaged policy, and the conjecture on deterministic policies"
    values = {**asdict(settings), "quick": request.quick}
    return FigureRecord("theory", title, "T", values, tuple(rows), tuple(checks))


def deterministic(phi: float, constant: float) -> LearnerSettings:
    """Return Theorem 2's learner."""
    return LearnerSettings.deterministic(phi, c1=constant, c2=constant)


def name_of(phi: float, constant: float) -> str:
    """Return the name of a curve."""
    return f"phi {phi:g}, c = {constant:g}"


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


def trade_off(request: Request, settings: Theory) -> tuple[list[Row], list[Check]]:
    """Theorem 2 for several phi and lengths."""
    cells = [(name, phi, constant) for name in TRADE_OFF for constant in settings.constants for phi in settings.phis]
    tasks = [
        Task(SUMS, {
            "version": VERSION, "problem": name, "learner": deterministic(phi, constant).as_dict(),
            "episodes": episodes, "first_seed": 0, "seeds": settings.seeds,
        })
        for name, phi, constant in cells
        for episodes in settings.episodes
    ]  # fmt: skip
    results = iter(request.run(tasks, "Theorem 2"))
    rows: list[Row] = []
    checks: list[Check] = []
    for name, phi, constant in cells:
        own = [next(results) for _ in settings.episodes]
        lengths = np.array(settings.episodes, np.float64) * HORIZONS[name]
        variant, curve = TRADE_OFF[name], name_of(phi, constant)
        for measure, key, exponent in (
            (REGRET, "regret", 0.5 + phi), (POSITIVE, "positive", 0.5 + phi), (VIOLATION, "violation", 1.0 - phi)
        ):  # fmt: skip
            sums = np.stack([result.arrays[key] for result in own], axis=1)
            rows += curve_rows(variant, curve, measure, lengths, sums)
            more, shown = slope_rows(variant, curve, measure[0], lengths, sums, exponent)
            rows += more
            checks += shown if measure != POSITIVE else []
    return rows, checks


def averages(request: Request, settings: Theory) -> tuple[list[Row], list[Check]]:
    """Theorem 1's averaged policy beside the last one."""
    last = settings.average_episodes
    points = np.unique(np.geomspace(min(100, last), last, 25).astype(int)).tolist()
    tasks = [
        Task(POLICIES, {
            "version": VERSION, "problem": "tiny harvesting", "learner": LearnerSettings.published(slack).as_dict(),
            "points": points, "seeds": settings.average_seeds,
        })
        for slack in settings.slacks
    ]  # fmt: skip
    places = np.array(points, np.float64) * HORIZONS["tiny harvesting"]
    rows: list[Row] = []
    checks: list[Check] = []
    for slack, result in zip(settings.slacks, request.run(tasks, "Theorem 1"), strict=True):
        for key in ("last", "averaged"):
            curve = f"{key} policy, slack {slack:g}"
            for name, measure in ((key, GAP), (f"{key}_violation", VIOLATION)):
                values = result.arrays[name]
                rows += curve_rows(AVERAGES, curve, measure, places, values)
                what = f"{measure[0]} of the {curve} after {last:,} episodes"
                checks.append(Check(what, "shown", None, float(values[:, -1].mean()), None))
    return rows, checks


def door_learners(settings: Theory) -> dict[str, LearnerSettings]:
    """Return the learners of the last part: each of their policies is deterministic."""
    return {
        f"Theorem 2, phi {settings.door_phi:g}, c = 0.001": deterministic(settings.door_phi, 0.001),
        f"Theorem 2, phi {settings.door_phi:g}, c = 1": deterministic(settings.door_phi, 1.0),
        "fixed penalty, no bonus": AlgorithmOne(slack=0.0, penalty=2.0, start="tight"),
        "SUCBVI": SUCBVI(),
        "posterior sampling": Posterior(),
    }


def conjecture(request: Request, settings: Theory) -> tuple[list[Row], list[Check]]:
    """Regret and violation of deterministic policies at the hardest gap of each length."""
    learners = door_learners(settings)
    cells = [(name, episodes, gap) for name in learners for episodes in settings.door_episodes for gap in settings.gaps]
    tasks = [
        Task(SUMS, {
            "version": VERSION, "problem": "doors", "gap": min(0.5, gap / math.sqrt(episodes)),
            "learner": learners[name].as_dict(), "episodes": episodes, "first_seed": 1_000 * place,
            "seeds": settings.door_seeds,
        })
        for name in learners
        for episodes in settings.door_episodes
        for place, gap in enumerate(settings.gaps)
    ]  # fmt: skip
    found = dict(zip(cells, request.run(tasks, "two doors"), strict=True))
    rows: list[Row] = []
    checks: list[Check] = []
    lengths = np.array(settings.door_episodes, np.float64) * HORIZONS["doors"]
    for name in learners:
        for measure, key, exponent in ((POSITIVE, "positive", 0.5), (VIOLATION, "violation", 0.0)):
            worst = [hardest(found, name, episodes, settings.gaps, key) for episodes in settings.door_episodes]
            sums = np.stack(worst, axis=1)
            rows += curve_rows(CONJECTURE, name, measure, lengths, sums)
            more, shown = slope_rows(CONJECTURE, name, measure[0], lengths, sums, exponent)
            rows += more
            checks += [replace(check, against="optimal rate" if exponent else "bounded") for check in shown]
    most = max(float(found["SUCBVI", k, gap].arrays["violation"].max()) for _, k, gap in cells)
    # Each of the H S A entries is ruled out once, and one violation is of size 1.
    checks.append(at_most("violating episodes of SUCBVI in any run (at most H S A)", most, 2.0 * 3 * 3))
    return rows, checks


def hardest(
    found: dict[tuple[str, int, float], Result], name: str, episodes: int, gaps: tuple[float, ...], key: str
) -> Floats:
    """Return the sums [seed] at the gap whose mean is largest."""
    candidates: list[Any] = [found[name, episodes, gap].arrays[key] for gap in gaps]
    worst: Floats = max(candidates, key=lambda sums: float(sums.mean()))
    return worst
