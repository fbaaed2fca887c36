"""How many episodes a certificate takes, beside what Theorem 1 asks for, and whether any is false.

One run passes 5, 2 and 1 % of the best safe value in turn, p = 0.05; every certificate is compared with the exact
optimum. Theorem 1: `pac_plan` with constant 1, in the theorem's units (epsilon over the width of the rewards).

Beside the paper's problems there are random ones. An instance is a number, drawn from a generator of its own;
infeasible draws are made again. How many episodes they should take was set on the "first" draws; none of the others had
a part in any setting.

    random    5 to 20 states, 2 to 5 actions, 5 to 10 steps, one or two constraints; a fifth of the pairs violates; two
              or three next states for even numbers, all of them for odd ones
    grid      4 x 4 to 6 x 6 cells, 10 to 20 steps; a move slips to either side with probability 0.1, an eighth of the
              cells are holes, in which everything violates; each step at the goal earns 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import log_axes, places
from experiments.energy import transmitter
from experiments.records import ROUNDING, VERSION, Check, FigureRecord, Request, Row, at_most, numbers
from experiments.scheduling import example_problem
from experiments.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    new_figure,
    plain_numbers,
)
from peakrl import Assumptions, LearningRun, TabularModel, learn, solve
from peakrl.learners import Certified
from peakrl.specs import ProblemSpec
from peakrl.sweeps import Result, Task
from peakrl.theory import pac_plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Generator = np.random.Generator
TASK = "experiments.certificates:learn_certified"
NOTHING = "nothing declared"
#: What is declared of energy harvesting, by the names of `DECLARATIONS`.
ENERGY = {
    NOTHING: (),
    "groups": ("groups",),
    "action": ("action",),
    "rewards": ("rewards",),
    "most reward": ("most reward",),
    "outcome map": ("outcome map",),
    "groups, action, rewards": ("groups", "action", "rewards"),
    "map, action, rewards": ("outcome map", "action", "rewards"),
}
SCHEDULING = {NOTHING: (), "deterministic": ("deterministic",)}
VARIANTS = {
    "random": "random problems",
    "grid": "slippery grids",
    "first random": "random problems, first draws",
    "first grid": "slippery grids, first draws",
}
#: Runs of each of the first draws, at least.
FIRST_SEEDS = 3
#: Most episodes of every run, by share.
LIMITS: dict[tuple[str, str], dict[float, float]] = {
    ("energy, peak 15", NOTHING): {0.05: 110_000, 0.02: 500_000, 0.01: 1_500_000},
    ("energy, peak 15", "groups, action, rewards"): {0.05: 2_000, 0.02: 9_000, 0.01: 32_000},
    ("energy, peak 15", "map, action, rewards"): {0.01: 10_000},
    ("energy, peak 8", NOTHING): {0.01: 55_000},
    ("energy, peak 8", "groups, action, rewards"): {0.01: 6_000},
    ("scheduling 1", NOTHING): {0.01: 100_000},
    ("scheduling 2", NOTHING): {0.01: 260_000},
    ("scheduling 1", "deterministic"): {0.01: 60},
    ("scheduling 2", "deterministic"): {0.01: 3_500},
    (VARIANTS["random"], NOTHING): {0.01: 110_000},
    (VARIANTS["first random"], NOTHING): {0.01: 110_000},
}
#: Aims that are not all met: shown, not judged. Of random problems the median, of grids all but one; on the first
#: draws, which these numbers were set on, both are judged.
AIMS: dict[tuple[str, str], dict[float, float]] = {
    ("energy, peak 15", NOTHING): {0.01: 1_000_000},
    ("energy, peak 15", "outcome map"): {0.01: 10_000},
}
MEDIAN_RANDOM, MOST_GRID = 12_000, 1_100_000


@dataclass(frozen=True)
class Certificates:
    """Settings of the experiment."""

    shares: tuple[float, ...] = (0.05, 0.02, 0.01)
    failure_probability: float = 0.05
    seeds: int = 1
    episodes: int = 2_000_000
    peaks: tuple[float, ...] = (8, 15)
    examples: tuple[int, ...] = (1, 2)
    random_problems: int = 20
    grids: int = 5


DEFAULT = Certificates()
FULL = replace(DEFAULT, seeds=20, episodes=10_000_000)
QUICK = replace(
    DEFAULT, shares=(0.1, 0.05), episodes=100_000, peaks=(8,), examples=(1,), random_problems=2, grids=1
)  # fmt: skip


def certificates(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def cases(settings: Certificates) -> Iterator[tuple[str, str, dict[str, Any], tuple[str, ...], int]]:
    """Yield (variant, curve, problem as data, declarations, seeds) of every problem and everything declared of it."""
    seeds = settings.seeds
    for peak in settings.peaks:
        problem = transmitter(peak_power=peak, log_base=math.e).as_dict()
        for name, names in ENERGY.items():
            yield f"energy, peak {peak:g}", name, problem, names, seeds
    for number in settings.examples:
        for name, names in SCHEDULING.items():
            yield f"scheduling {number}", name, example_problem(number), names, seeds
    counts = {"random": settings.random_problems, "grid": settings.grids}
    for family, variant in VARIANTS.items():
        for number in range(counts[family.removeprefix("first ")]):
            runs = max(seeds, FIRST_SEEDS) if family.startswith("first") else seeds
            yield variant, NOTHING, {"family": family, "number": number}, (), runs


def measure(request: Request, settings: Certificates) -> FigureRecord:
    """Return the experiment for given settings."""
    common = {
        "version": VERSION + 2, "shares": list(settings.shares), "episodes": settings.episodes,
        "failure_probability": settings.failure_probability,
    }  # fmt: skip
    tasks: dict[tuple[str, str], list[Task]] = {}
    for variant, name, problem, names, seeds in cases(settings):
        tasks.setdefault((variant, name), []).extend(
            Task(TASK, {**common, "problem": problem, "declared": list(names), "seed": seed}) for seed in range(seeds)
        )
    runs = request.run_groups(tasks, "certificates")
    rows = tuple(row for (variant, name), own in runs.items() for row in table(settings, variant, name, own))
    found = false_ones(settings, runs) + ([] if request.quick else limits(settings, runs))
    values = {**asdict(settings), "quick": request.quick}
    title = "Episodes until a certificate, and whether it is true"
    return FigureRecord("certificates", title, "gap (%)", values, rows, tuple(found))


def table(settings: Certificates, variant: str, name: str, runs: list[Result]) -> list[Row]:
    """Return quartiles of the episodes to each share over runs, and Theorem 1's number."""
    rows: list[Row] = []
    for place, share in enumerate(settings.shares):
        to_share, episodes = (f"episodes to {100 * share:g} %", "episodes"), taken(settings, runs, share)
        rows += numbers(variant, name, to_share, episodes)
        rows += numbers(variant, name, ("episodes to a certificate", "episodes"), episodes, 100 * share)
        if name == NOTHING:
            rows += numbers(variant, "Theorem 1", to_share, [float(run.arrays["theorem"][place]) for run in runs])
    return rows


def taken(settings: Certificates, runs: list[Result], share: float) -> list[float]:
    """Return the episodes that each run took to a share; infinity if it did not reach it."""
    place = settings.shares.index(share)
    return [float(run.arrays["episodes"][place]) for run in runs]


def false_ones(settings: Certificates, runs: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return how many certificates were issued, and that none is false."""
    every = [run for own in runs.values() for run in own]
    issued, false = (sum(int(run.values[key]) for run in every) for key in ("issued", "false"))
    share = sum(int(run.values["false"]) > 0 for run in every) / max(len(every), 1)
    asked = len(every) * len(settings.shares)
    return [
        Check("certificates issued", "asked for", float(asked), float(issued), None),
        at_most("certificates that are false", float(false), 0.0),
        at_most("share of runs with a false one", share, settings.failure_probability),
    ]


def limits(settings: Certificates, runs: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return whether each run took as few episodes as it should, and how far the others are from their aims."""
    found = []
    for limited, judged in ((LIMITS, True), (AIMS, False)):
        for key, by_share in limited.items():
            for share, limit in by_share.items():
                if key in runs and share in settings.shares:
                    what = f"{key[0]}, {key[1]}: most episodes to {100 * share:g} %"
                    found.append(limit_check(what, max(taken(settings, runs[key], share)), limit, judged))
    last = settings.shares[-1]
    for family, variant in VARIANTS.items():
        own, first = runs.get((variant, NOTHING), []), family.startswith("first")
        each = np.array(taken(settings, own, last))
        if own and family.endswith("random"):
            what = f"{variant}: median episodes to {100 * last:g} %"
            found.append(limit_check(what, float(np.median(each)), MEDIAN_RANDOM, first))
        elif own:
            seeds = max(settings.seeds, FIRST_SEEDS) if first else settings.seeds
            slower = int((np.median(each.reshape(-1, seeds), axis=1) > MOST_GRID).sum())
            what = f"{variant}: not certified to {100 * last:g} % within {MOST_GRID:,}"
            found.append(limit_check(what, float(slower), 1.0, first))
    return found


def limit_check(what: str, ours: float, limit: float, judged: bool) -> Check:
    """Return the check of a limit, or a number beside an aim that it should not exceed."""
    return at_most(what, ours, limit) if judged else Check(what, "aim: at most", limit, ours, None)


# Random problems -------------------------------------------------------------------------------------------------

#: Sides and steps of the grids.
GRIDS = ((4, 10), (4, 15), (5, 15), (5, 20), (6, 20))
SLIP = 0.1
#: Rows and columns of a move up, right, down, left.
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def drawn(family: str, number: int) -> TabularModel:
    """Return an instance of a family."""
    make, seed = FAMILIES[family]
    generator = np.random.default_rng(seed + number if family.startswith("first") else [seed, number])
    while True:
        model = make(generator, number)
        best = solve(model)
        if best.feasible and best.value > 0.5:
            return model


def random_problem(generator: Generator, number: int, *, first: bool = False) -> TabularModel:
    """Return a random problem; of the `first` draws rewards come before constraints, and all states are in order."""
    states, actions, horizon = (int(generator.integers(*between)) for between in ((5, 21), (2, 6), (5, 11)))
    constraints = int(generator.integers(1, 3))
    transitions = np.zeros((states, actions, states))
    for state in range(states):
        for action in range(actions):
            size = int(generator.integers(2, 4)) if number % 2 == 0 else states
            every = first and size == states
            chosen = np.arange(states) if every else generator.choice(states, size, replace=False)
            transitions[state, action, chosen] = generator.dirichlet(np.ones(size))
    shape = constraints, states, actions
    rewards = generator.random((states, actions)) if first else None
    margins = np.where(generator.random(shape) < 0.2 / constraints, -generator.random(shape), generator.random(shape))
    return TabularModel.from_arrays(
        transitions, generator.random((states, actions)) if rewards is None else rewards, margins, horizon,
        reward_range=(0.0, 1.0), constraint_bounds=[1.0] * constraints, name=f"random {number}",
    )  # fmt: skip


def grid(generator: Generator, number: int) -> TabularModel:
    """Return a slippery grid."""
    side, horizon = GRIDS[number % len(GRIDS)]
    cells = side * side
    goal, holes = cells - 1, set(generator.choice(np.arange(1, cells - 1), cells // 8, replace=False).tolist())
    transitions, rewards, margins = np.zeros((cells, 4, cells)), np.zeros((cells, 4)), np.ones((1, cells, 4))
    for cell in range(cells):
        for action in range(4):
            if cell == goal or cell in holes:
                transitions[cell, action, cell] = 1.0
                continue
            for turn, chance in ((0, 1 - 2 * SLIP), (1, SLIP), (-1, SLIP)):
                down, right = MOVES[(action + turn) % 4]
                row, column = cell // side + down, cell % side + right
                row, column = min(max(row, 0), side - 1), min(max(column, 0), side - 1)
                transitions[cell, action, row * side + column] += chance
    rewards[goal] = 1.0
    margins[0, sorted(holes)] = -1.0
    return TabularModel.from_arrays(
        transitions, rewards, margins, horizon, reward_range=(0.0, 1.0), constraint_bounds=[1.0], name=f"grid {number}"
    )


#: How each is drawn, and the seed of the family.
FAMILIES: dict[str, tuple[Callable[[Generator, int], TabularModel], int]] = {
    "random": (random_problem, 71),
    "grid": (grid, 72),
    "first random": (partial(random_problem, first=True), 1000),
    "first grid": (grid, 2000),
}


# Tasks, in a worker process --------------------------------------------------------------------------------------


def learn_certified(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn until the smallest share is certified; the episodes that each took, and how many certificates are false."""
    problem, p = config["problem"], config["failure_probability"]
    model = drawn(**problem) if "family" in problem else ProblemSpec.from_dict(problem).compile()
    best = solve(model).value
    epsilons = [share * abs(best) for share in config["shares"]]
    run = learn(
        model, Certified(epsilon=tuple(epsilons), failure_probability=p), episodes=config["episodes"],
        seed=config["seed"], history="none", average=False, assumptions=declared(config["declared"], model),
    )  # fmt: skip
    theorem = [asked(model, epsilon, p) for epsilon in epsilons]
    return {**judge(run, best, len(epsilons)), "theorem": np.array(theorem), "violations": run.violations}


def judge(run: LearningRun, best: float, epsilons: int) -> dict[str, Any]:
    """Return the episodes of every certificate of a run, how many there are and how many are false."""
    proved = run.proof_history
    assert proved is not None, "the learner certifies nothing"
    false = 0
    for line in run.issued:
        at = int(np.searchsorted(proved.episode, line["episodes"]))
        value, violation = proved.value[at], proved.true_violation[at]
        wrong = best - value > line["gap"] + ROUNDING or violation > line["violation_high"] + ROUNDING
        false += int(wrong)
    episodes = [line["episodes"] for line in run.issued] + [math.inf] * (epsilons - len(run.issued))
    return {"episodes": np.array(episodes), "issued": len(run.issued), "false": false}


def declared(names: list[str], model: TabularModel) -> Assumptions:
    """Return what is declared, by name."""
    return Assumptions(**{key: value for name in names for key, value in DECLARATIONS[name](model).items()})


def energy_map(model: TabularModel) -> dict[str, Any]:
    """Energy harvesting: what is left in the battery follows from the action, the next arrival is the noise."""
    states: Any = model.state_labels
    battery, arrivals = max(state[0] for state in states), sorted({state[1] for state in states})

    def after(state: tuple[int, int], action: int, arrival: int) -> tuple[int, int]:
        return min(battery, sum(state) - action), arrival

    return {"dynamics": (after, tuple(arrivals))}


#: What can be declared of a model, by the name that a configuration gives it.
DECLARATIONS: dict[str, Callable[[TabularModel], dict[str, Any]]] = {
    "groups": lambda model: {"shared_transitions": True},
    "action": lambda model: {"constraint_depends_on": "action"},
    "rewards": lambda model: {"rewards": True},
    "deterministic": lambda model: {"deterministic": True},
    "most reward": lambda model: {"max_reward": float(model.row_reward[model.keeps].max())},  # of safe pairs
    "outcome map": energy_map,
}


def asked(model: TabularModel, epsilon: float, failure_probability: float) -> float:
    """Return the episodes that Theorem 1 asks for, with constant 1."""
    low, high = model.reward_range
    plan = pac_plan(
        epsilon=epsilon / (high - low), failure_probability=failure_probability, states=model.max_states,
        actions=model.max_actions, horizon=model.horizon, constraints=max(1, model.num_constraints),
    )  # fmt: skip
    return float(plan.episodes)


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = dict(zip(ENERGY, (BLUE, GREEN, PURPLE, SKY, GREY, YELLOW, ORANGE, BLACK), strict=True))
COLOURS["deterministic"] = PURPLE
COLUMNS = 2


def draw_certificates(record: FigureRecord) -> Figure:
    """Draw the median of the episodes over the gap that is certified, a panel for each problem; quartiles as a band."""
    figure, grid = new_figure(-(-len(record.variants) // COLUMNS), COLUMNS, height=2.4)
    panels = [axes for line in grid for axes in line]
    for variant, axes in zip(record.variants, panels, strict=False):
        draw_problem(axes, record, variant)
    for axes in panels[len(record.variants) :]:
        axes.set_visible(False)
    shown = {name: line for axes in panels for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(shown.values()), list(shown), loc="outside upper center", ncols=3)
    return figure


def draw_problem(axes: Axes, record: FigureRecord, variant: str) -> None:
    """Draw what each declaration takes on one problem, and write what Theorem 1 asks for."""
    from matplotlib.ticker import LogLocator, NullFormatter

    bands = [record.curves(variant, f"{word} episodes to a certificate") for word in ("lower", "median", "upper")]
    shares: set[float] = set()
    for name in bands[1]:
        x, colour = places(bands[1][name]), COLOURS[name]
        low, median, high = ([row.mean for row in band[name]] for band in bands)
        axes.plot(x, median, color=colour, marker="o", linestyle="--" if name == "deterministic" else "-", label=name)
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        shares.update(x)
    log_axes(axes)
    axes.invert_xaxis()
    axes.set_xticks(sorted(shares), minor=False)
    axes.xaxis.minorticks_off()
    for axis in (axes.xaxis, axes.yaxis):
        plain_numbers(axis)
    # Number 1, 2 and 5 of each power of ten if there are less than two of them, otherwise the powers.
    low_end, high_end = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high_end < 100 * low_end else (1.0,)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    theorem = [
        row.mean
        for share in sorted(shares, reverse=True)
        for row in record.curves(variant, f"median episodes to {share:g} %").get("Theorem 1", [])
    ]
    note = f"\nTheorem 1 asks for {theorem[0]:.0e} to {theorem[-1]:.0e}" if theorem else ""
    axes.set_xlabel(f"certified gap (%){note}")
    axes.set_ylabel("episodes")
    axes.set_title(variant.capitalize(), loc="left")
