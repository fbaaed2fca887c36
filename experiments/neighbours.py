"""One table of all ways to deal with constraints: what each must know, what it earns, what it violates, what it costs.

Five common problems, many seeds. Of every policy pi^k that was followed, value and violation are exact. With d the
limit (0 for a peak constraint), v_k the expected violation of pi^k:

    value, violation          of the returned policy
    averaged value, violation of the mean over all episodes
    positive sum              sum_k [v_k - d]+ / K        no episode pays for another
    signed sum                sum_k (v_k - d) / K         opposite errors cancel: what primal-dual bounds are about
    violating policies        the share of pi^k with v_k > d
    violating episodes        in which some constraint was violated; a cost is always above 0
    price, averaged price     of a unit of violation, at the end and on average over the run, if a method has one
    proved gap                to the best safe policy, as far as it is proved at the end (certified learner)
    seconds, numbers stored   of the processor, exact history of every episode included; in the learner's tables

The problems are small enough for exact answers:

    inventory          stock s, order a <= room - s, then a random demand d; expected cost within a limit
                       cost    (4 + 2a if a > 0) + s + a, over the most that it can be
                       reward  sum of 0.08 d P(s' | s, a) over the demands d <= s + a, over the most that it can be
    grid               four moves on a walled square, a share of them at random; every step on an obstacle costs 1
                       reward  100 on the goal, elsewhere how much nearer it is than the corner (18, 1)
    tiny harvesting    the paper's transmitter with battery 4, peak 3 and 6 slots; a peak constraint
    transmitter        the paper's, at its full size with peak 15 and random arrivals, in nats
    scheduling         the paper's Example 2

The first two have limits on an expected cost, as constrained MDPs do. The cost is written as a constraint of value
-cost, so that the violation of an episode is its cost: `solve_cmdp(problem, total=limit)` is the benchmark's problem.
Inventory and grid are those of the public experiments with DOPE and with Triple-Q, rebuilt from their definitions; in
the inventory's reward P(s' | s, a) is the probability of everything that leads to s', as it is there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.certificates import declared
from experiments.records import ROUNDING, VERSION, Check, FigureRecord, Request, Row, at_most, numbers
from experiments.style import BLACK, BLUE, GREEN, ORANGE, PURPLE
from peakrl import (
    Assumptions,
    LearningRun,
    Outcome,
    Policy,
    Problem,
    TabularModel,
    compile_model,
    evaluate,
    learn,
    solve,
    solve_cmdp,
)
from peakrl.errors import SettingsError
from peakrl.learners import (
    DOPE,
    RLSVI,
    SUCBVI,
    UCBVI,
    Certified,
    ConstrainedQ,
    MaskedQ,
    MaximinQ,
    OptCMDP,
    OptDual,
    OptPessLP,
    OptPrimalDual,
    PosteriorSampling,
    SafeQ,
    TripleQ,
    WeiMDP,
    learner_from,
)
from peakrl.learners.base import LearnerSettings
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.sweeps import Result, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASK = "experiments.neighbours:learn_neighbour"
#: By the name of a run's number: the measure and its unit.
MEASURES = {
    "value": ("value", "reward"),
    "violation": ("violation", "violation"),
    "averaged_value": ("averaged value", "reward"),
    "averaged_violation": ("averaged violation", "violation"),
    "positive_sum": ("positive sum", "violation an episode"),
    "signed_sum": ("signed sum", "violation an episode"),
    "violating": ("violating policies", "share"),
    "violations": ("violating episodes", ""),
    "price": ("price", "reward for a unit of violation"),
    "averaged_price": ("averaged price", "reward for a unit of violation"),
    "proved_gap": ("proved gap", "reward"),
    "seconds": ("seconds", "s"),
    "stored": ("numbers stored", ""),
}
#: The limit above 0 of learners for expected limits on problems whose limit is 0.
ALLOWANCE = 0.01
MODEL_KNOWN = "model known"
#: Problems of many thousand (step, state, action), and methods that look at all of them in every episode.
LARGE = ("grid", "transmitter", "scheduling")
EVERY_EPISODE = ("regularised", "NPG-PD", "SUCBVI")

# Problems --------------------------------------------------------------------------------------------------------

#: Of the inventory: how likely a demand of 0, 1, ... is.
DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)
#: Of the grid: its side, walls included, the seed of its map and the share of inner cells that are obstacles.
SIDE, MAP_SEED, OBSTACLES = 20, 1234, 0.4
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
Cell = tuple[int, int]


class Inventory(Problem):
    """Orders before the demand is known, at an expected cost."""

    name = "inventory"
    horizon = 7
    constraint_names = ("cost",)
    stationary = True
    room = len(DEMAND) - 1

    def initial(self) -> list[tuple[float, int]]:
        """The stock is empty at first."""
        return [(1.0, 0)]

    def actions(self, step: int, state: Any) -> range:
        """No more than there is room for."""
        return range(self.room - state + 1)

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Sell the demand, as far as the stock goes."""
        reward = self._sales(state + action) / self._most_sales
        cost = self._cost(state, action) / self._most_cost
        return [Outcome(chance, after, reward, (-cost,)) for after, chance in self._chances(state + action).items()]

    def _chances(self, held: int) -> dict[int, float]:
        chances: dict[int, float] = {}
        for demand, chance in enumerate(DEMAND):
            after = max(held - demand, 0)
            chances[after] = chances.get(after, 0.0) + chance
        return chances

    def _sales(self, held: int) -> float:
        chances = self._chances(held)
        return sum(chances[held - demand] * 0.08 * demand for demand in range(held + 1))

    def _cost(self, held: int, order: int) -> float:
        return (4.0 + 2.0 * order if order else 0.0) + held + order

    @cached_property
    def _most_sales(self) -> float:
        return max(map(self._sales, range(self.room + 1)))

    @cached_property
    def _most_cost(self) -> float:
        pairs = [(held, order) for held in range(self.room + 1) for order in self.actions(0, held)]
        return max(self._cost(*pair) for pair in pairs)


class ObstacleGrid(Problem):
    """A walk to the goal past obstacles, some moves at random."""

    name = "grid"
    horizon = 25
    constraint_names = ("obstacles",)
    stationary = True

    def __init__(self, slip: float = 0.03) -> None:
        self.slip = slip
        # numpy guarantees this generator's numbers for good.
        draws = np.random.RandomState(MAP_SEED)
        inner = [(row, column) for row in range(2, SIDE - 2) for column in range(1, SIDE - 1)]
        self.obstacles = frozenset(cell for cell in inner if draws.random_sample() <= OBSTACLES)
        self.goal = (1, int(draws.random_sample() * (SIDE - 3)) + 1)

    def initial(self) -> list[tuple[float, Cell]]:
        """From the corner."""
        return [(1.0, (SIDE - 2, SIDE - 2))]

    def actions(self, step: int, state: Any) -> Iterable[str]:
        """Four moves, also into a wall, which leaves the walker in its cell."""
        return MOVES

    def outcomes(self, step: int, state: Any, action: Any) -> list[Outcome]:
        """Move, except for the share of moves that are random."""
        chances: dict[Cell, float] = {}
        for move in MOVES:
            chance = self.slip / len(MOVES) + (1.0 - self.slip if move == action else 0.0)
            after = self._beside(state, move)
            chances[after] = chances.get(after, 0.0) + chance
        return [
            Outcome(chance, cell, self._reward(cell), (-1.0 if cell in self.obstacles else 0.0,))
            for cell, chance in chances.items()
            if chance > 0
        ]

    def _beside(self, cell: Cell, move: str) -> Cell:
        row, column = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
        return (row, column) if 0 < row < SIDE - 1 and 0 < column < SIDE - 1 else cell

    def _reward(self, cell: Cell) -> float:
        return 100.0 if cell == self.goal else math.dist((SIDE - 2, 1), self.goal) - math.dist(cell, self.goal)


def tiny_harvesting() -> Problem:
    """Return the transmitter with arrivals 0 .. 4, all as likely, in nats."""
    uniform = [0.2] * 5
    return energy_harvesting(
        horizon=6, battery=4, peak_power=3, max_arrival=4, log_base=math.e,
        arrivals={"matrix": [uniform] * 5, "first": uniform},
    )  # fmt: skip


def thrifty(step: int, state: Any) -> int:
    """Send with one unit of power, if there is one."""
    return 1 if sum(state) else 0


def earliest_deadline(step: int, state: Any) -> Any:
    """Do the job with the earliest deadline, which meets every deadline if any order does."""
    left = [job for job in scheduling_example(2).jobs if job.name not in state.done]
    return min(left, key=lambda job: job.deadline).name


@dataclass(frozen=True)
class CommonProblem:
    """A problem that all methods share."""

    make: Callable[[], Problem]
    #: On the expected total violation of an episode; 0 for a peak problem.
    limit: float = 0.0
    #: A stricter limit: a policy that satisfies it is a safe policy to begin with; or a rule that never violates.
    safe_limit: float = 0.0
    safe_rule: Callable[[int, Any], Any] | None = None


PROBLEMS = {
    "inventory": CommonProblem(Inventory, limit=3.5, safe_limit=0.7),
    "grid": CommonProblem(ObstacleGrid, limit=1.0, safe_limit=0.5),
    "tiny harvesting": CommonProblem(tiny_harvesting, safe_rule=thrifty),
    "transmitter": CommonProblem(lambda: energy_harvesting(peak_power=15, log_base=math.e), safe_rule=thrifty),
    "scheduling": CommonProblem(lambda: scheduling_example(2), safe_rule=earliest_deadline),
}


def common_problem(name: str) -> CommonProblem:
    """Return a problem by name, or raise."""
    if name not in PROBLEMS:
        raise SettingsError(f"{name!r} is no problem of the comparison; there are {', '.join(PROBLEMS)}")
    return PROBLEMS[name]


@cache
def compiled(name: str) -> TabularModel:
    """Return the model of a common problem."""
    return compile_model(common_problem(name).make())


# Methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A problem, as it is described to a method."""

    problem: str
    episodes: int

    @property
    def limit(self) -> float:
        """The limit of a learner for expected limits."""
        return common_problem(self.problem).limit or ALLOWANCE

    @property
    def batch(self) -> dict[str, Any]:
        """How often those plan that look at all pairs at once: large problems have few episodes and many plans due."""
        return {"episodes_per_plan": 20 if self.problem in LARGE else 1}

    @property
    def scaled(self) -> dict[str, Any]:
        """Limit and scale of optimists at their best."""
        return {"total": self.limit, "scale": 0.01}

    @property
    def slater(self) -> float:
        """How far below the limit the policy of least violation stays."""
        return self.limit - solve(compiled(self.problem)).violation

    def safe_policy(self) -> Any:
        """A policy that stays well below the limit, and earns little."""
        problem, model = common_problem(self.problem), compiled(self.problem)
        if problem.safe_rule is not None:
            return Policy.from_rule(model, problem.safe_rule)
        return solve_cmdp(model, total=problem.safe_limit).policy


@dataclass(frozen=True)
class Method:
    """A way to deal with constraints."""

    #: Whose colour it has in the figure.
    family: str
    settings: Callable[[Case], LearnerSettings]
    #: In words: what it must know in advance, and what is certified of its policy.
    knows: str = "nothing"
    certifies: str = "nothing"
    #: Is the support of every transition declared, with the constraints?
    support: bool = False
    #: What else is declared (`certificates.DECLARATIONS`).
    declared: tuple[str, ...] = ()
    #: So slow that fewer seeds must do.
    slow: bool = False


PEAK, LINEAR, PRICES, TABLES = "memory or mask", "linear programme", "prices", "penalty or queue"
SUPPORT, SAFE = "f, and what may follow what", "S, K, a safe policy"
SEEN = "nothing seen to violate is taken while anything else is left"
EXPECTED = "an expectation, in theory and at scale 1"
PROVED, EPSILONS = "the gap that is proved, with probability 0.95", (0.1, 0.03, 0.01)


def shares(case: Case) -> tuple[float, ...]:
    """Return the epsilons, shares of the best value, in units of value."""
    best = abs(solve(compiled(case.problem)).value)
    return tuple(share * best for share in EPSILONS)


#: By name. `scale` and `bonus` are those at which each method was at its best.
METHODS = {
    "PosteriorSampling": Method(PEAK, lambda case: PosteriorSampling(), certifies=SEEN),
    "SafeQ": Method(PEAK, lambda case: SafeQ(), certifies=SEEN),
    "Certified": Method(PEAK, lambda case: Certified(epsilon=shares(case)), certifies=PROVED),
    "Certified, declared": Method(
        PEAK, lambda case: Certified(epsilon=shares(case)), certifies=PROVED,
        knows="which pairs share a distribution; rewards; f is of the action", declared=("groups", "action", "rewards"),
    ),
    "SUCBVI": Method(PEAK, lambda case: SUCBVI(), certifies=f"{SEEN}; dead ends too"),
    "UCBVI": Method(PEAK, lambda case: UCBVI(), certifies=SEEN),
    "RLSVI": Method(PEAK, lambda case: RLSVI(), certifies=SEEN),
    "MaskedQ": Method(PEAK, lambda case: MaskedQ(), SUPPORT, "never violates", support=True),
    "PosteriorSampling, support": Method(
        PEAK, lambda case: PosteriorSampling(), SUPPORT, "never violates", support=True
    ),
    "Algorithm 1": Method(TABLES, lambda case: ConstrainedQ(slack=0.1, bonus="none", start="stepwise")),
    "MaximinQ": Method(TABLES, lambda case: MaximinQ(penalty=2.0), "a penalty that is enough"),
    "Triple-Q": Method(TABLES, lambda case: TripleQ(total=case.limit), "K"),
    "Triple-Q, HI tables": Method(
        TABLES, lambda case: TripleQ(per_step=case.limit / compiled(case.problem).horizon), "K"
    ),
    "certainty-equivalent LP": Method(
        LINEAR, lambda case: OptCMDP.certainty_equivalent(total=case.limit, **case.batch), slow=True
    ),
    "OptCMDP, 1": Method(LINEAR, lambda case: OptCMDP(total=case.limit, **case.batch), "S, K", EXPECTED, slow=True),
    "OptCMDP, 0.01": Method(LINEAR, lambda case: OptCMDP(**case.scaled, **case.batch), "S, K", slow=True),
    "OptCMDP-bonus, 0.01": Method(
        LINEAR, lambda case: OptCMDP(bonus=True, **case.scaled, **case.batch), "S, K", slow=True
    ),
    "OptPess-LP, 0.01": Method(
        LINEAR, lambda case: OptPessLP(safe_policy=case.safe_policy(), **case.scaled, **case.batch), SAFE, slow=True
    ),
    "DOPE, 0.01": Method(
        LINEAR, lambda case: DOPE(safe_policy=case.safe_policy(), **case.scaled, **case.batch), SAFE, slow=True
    ),
    "OptDual": Method(PRICES, lambda case: OptDual(total=case.limit, **case.batch), "S, K"),
    "OptPrimalDual": Method(PRICES, lambda case: OptPrimalDual(total=case.limit, **case.batch), "S, K"),
    "OPDOP": Method(
        PRICES,
        lambda case: OptPrimalDual.opdop(total=case.limit, slater=case.slater, episodes=case.episodes, **case.batch),
        "S, K, Slater gap",
    ),
    "regularised": Method(PRICES, lambda case: OptPrimalDual.regularised(total=case.limit), "S"),
    "NPG-PD": Method(
        PRICES, lambda case: OptPrimalDual.npg_pd(total=case.limit, episodes=case.episodes), "the model, K"
    ),
    "WeiMDP": Method(PRICES, lambda case: WeiMDP(total=case.limit), "S, K"),
}  # fmt: skip
QUEUES = ("OptDual", "OptPrimalDual", "OPDOP", "regularised", "NPG-PD", "WeiMDP", "Triple-Q")
OPTIMISTS = ("certainty-equivalent LP", "OptCMDP, 1", "OptCMDP, 0.01", "OptCMDP-bonus, 0.01")
SAFE_START = ("OptPess-LP, 0.01", "DOPE, 0.01")
PEAKS = (
    "PosteriorSampling", "SafeQ", "Certified", "SUCBVI", "UCBVI", "RLSVI", "MaskedQ",
    "PosteriorSampling, support", "Algorithm 1", "MaximinQ",
)  # fmt: skip
ON_COUNTS = ("certainty-equivalent LP", "OptCMDP, 0.01", "OptCMDP-bonus, 0.01", *SAFE_START)
#: Which methods each problem has. Limits on a total cost say nothing of single steps, so HI tables are for the peak
#: problems; what is declared to `Certified` is true of transmitters only.
ROWS = {
    "inventory": (*OPTIMISTS, *SAFE_START, *QUEUES),
    "grid": (*OPTIMISTS, *SAFE_START, *QUEUES),
    "tiny harvesting": (*PEAKS, "Certified, declared", *ON_COUNTS, *QUEUES, "Triple-Q, HI tables"),
    "transmitter": (*PEAKS, "Certified, declared", *ON_COUNTS, *QUEUES, "Triple-Q, HI tables"),
    "scheduling": (*PEAKS, *ON_COUNTS, *QUEUES, "Triple-Q, HI tables"),
}


@dataclass(frozen=True)
class Neighbours:
    """Settings of the experiment."""

    #: Problem, episodes, seeds, seeds of slow methods.
    sizes: tuple[tuple[str, int, int, int], ...] = (
        ("inventory", 10_000, 20, 5),
        ("grid", 10_000, 5, 1),
        ("tiny harvesting", 10_000, 20, 5),
        ("transmitter", 2_000, 3, 1),
        ("scheduling", 2_000, 20, 3),
    )


DEFAULT = Neighbours()
#: Twenty seeds of everything, and ten times as long if that is cheap: hours on two cores.
FULL = Neighbours(
    tuple((name, 100_000 if name in ("inventory", "tiny harvesting") else k, 20, 20) for name, k, *_ in DEFAULT.sizes)
)
QUICK = Neighbours(sizes=(("inventory", 100, 1, 1), ("tiny harvesting", 100, 1, 1)))


def neighbours(request: Request) -> FigureRecord:
    """Return the table and checks of the comparison."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def measure(request: Request, settings: Neighbours) -> FigureRecord:
    """Return the comparison for given settings."""
    batches = {
        (problem, name): tasks(Case(problem, episodes), name, few if is_slow(problem, name) else many)
        for problem, episodes, many, few in settings.sizes
        for name in ROWS[problem]
    }
    found = request.run_groups(batches, "neighbours")
    rows: list[Row] = []
    for problem, *_ in settings.sizes:
        rows += yardstick(problem)
        for (where, name), runs in found.items():
            # Only certified runs prove a gap, and few methods have a price.
            for key in MEASURES if where == problem else ():
                if key in runs[0].values:
                    rows += numbers(problem, name, MEASURES[key], [float(run.values[key]) for run in runs])
    words = {
        name: {"family": method.family, "knows": method.knows, "certifies": method.certifies}
        for name, method in METHODS.items()
    }
    limits = {problem: common_problem(problem).limit for problem, *_ in settings.sizes}
    values = {
        **asdict(settings),
        "quick": request.quick,
        "methods": words,
        "allowance": ALLOWANCE,
        "limits": limits,
    }
    checks, title = request.judged(comparisons(found)), "Ways to deal with constraints, side by side"
    return FigureRecord("neighbours", title, "", values, tuple(rows), tuple(checks))


def is_slow(problem: str, name: str) -> bool:
    """Does a method take so long on a problem that fewer seeds must do?"""
    return METHODS[name].slow or (problem in LARGE and name in EVERY_EPISODE)


def tasks(case: Case, name: str, seeds: int) -> list[Task]:
    """Return the runs of a method on a problem."""
    method = METHODS[name]
    config = {
        "version": VERSION, "problem": case.problem, "episodes": case.episodes, "support": method.support,
        "declared": list(method.declared), "learner": method.settings(case).as_dict(),
    }  # fmt: skip
    return [Task(TASK, {**config, "seed": seed}) for seed in range(seeds)]


def yardstick(problem: str) -> list[Row]:
    """Return the exact optimum under the limit."""
    limit, model = common_problem(problem).limit, compiled(problem)
    best = solve_cmdp(model, total=limit) if limit else solve(model)
    price = solve_cmdp(model, total=limit or ALLOWANCE).multipliers
    assert price is not None
    pairs = {"value": best.value, "violation": best.violation, "price": float(price.ravel()[0])}
    return [
        Row(problem, MODEL_KNOWN, f"median {name}", MEASURES[name][1], None, value, None, 1)
        for name, value in pairs.items()
    ]


def comparisons(found: dict[tuple[str, str], list[Result]]) -> list[Check]:
    """Return what must hold of every seed."""
    checks: list[Check] = []
    for (problem, name), runs in found.items():

        def all_of(key: str, runs: list[Result] = runs) -> list[float]:
            return [float(run.values[key]) for run in runs]

        at = f"{problem}, {name}"
        if name in SAFE_START:
            checks.append(at_most(f"{at}: sum of the positive parts, worst seed", max(all_of("positive_sum")), 0.0))
        if name == "OptCMDP, 1" and problem == "inventory":
            least = min(all_of("violating"))
            checks.append(Check(f"{at}: least share of violating policies", "all", 1.0, least, 0.01))
        if METHODS[name].support:
            checks.append(at_most(f"{at}: most violating episodes", max(all_of("violations")), 0.0))
        if METHODS[name].family == PEAK and problem == "tiny harvesting":  # elsewhere there is too little time
            checks.append(at_most(f"{at}: violation of the policy, worst seed", max(all_of("violation")), 0.0))
    return checks


# Tasks, in a worker process --------------------------------------------------------------------------------------

#: Episodes before the clock starts, so that compiling and loading kernels is not measured.
WARM_UP = 25


def learn_neighbour(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn, and compare every policy that was followed with the limit.

    `seconds` differ from run to run, and so do the digests of these results; all else in them does not.
    """
    model, limit = compiled(config["problem"]), common_problem(config["problem"]).limit
    run_config(config, model, min(WARM_UP, config["episodes"]))
    begun = time.process_time()
    run = run_config(config, model, config["episodes"])
    seconds = time.process_time() - begun
    history, returned = run.history, evaluate(model, run.policy)
    above = history.violation - limit
    # The price of the one limit that a learner keeps, at the end and on average.
    prices = {"price": run.multipliers, "averaged_price": run.averaged_multipliers}
    return {
        "value": returned.value,
        "violation": returned.violation,
        "averaged_value": float(history.averaged_value[-1]),
        "averaged_violation": float(history.averaged_violation[-1]),
        "positive_sum": float(np.maximum(above, 0.0).mean()),
        "signed_sum": float(above.mean()),
        "violating": float((above > ROUNDING).mean()),
        **{name: float(each[0]) for name, each in prices.items() if each is not None and len(each) == 1},
        **({} if run.certificate is None else {"proved_gap": run.certificate.gap}),
        "seconds": seconds,
        "stored": run.stored_numbers,
        "violations": run.violations,
    }


def run_config(config: Mapping[str, Any], model: TabularModel, episodes: int) -> LearningRun:
    """Run so many episodes with an exact history."""
    assumptions = Assumptions(support=model) if config["support"] else declared(config["declared"], model)
    settings = learner_from(config["learner"])
    return learn(
        model, settings, episodes=episodes, seed=config["seed"], history=1, average=False, assumptions=assumptions
    )  # fmt: skip


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = {PEAK: GREEN, LINEAR: BLUE, PRICES: ORANGE, TABLES: PURPLE}
#: In inches: the figure, a line of it, and what a panel has above and below its lines.
WIDTH, LINE, MARGIN = 10.0, 0.17, 0.75
#: Violations are drawn on a logarithmic axis from here on; what is less, 0 included, stands left of it.
LEAST = 1e-4


def draw_neighbours(record: FigureRecord) -> Figure:
    """Draw a line a method, a row of panels a problem: value on the left, violations on the way on the right."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    heights = [LINE * len(methods(record, problem)) + MARGIN for problem in record.variants]
    figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), 2, squeeze=False, sharey="row", gridspec_kw={"height_ratios": heights})
    for problem, (left, right) in zip(record.variants, grid, strict=True):
        draw_values(record, problem, left)
        draw_violations(record, problem, right)
    # What colours and circles stand for, once and above all panels.
    circles = {"returned policy": BLACK, "mean over all episodes on the way": "white"}
    marks = [
        Line2D([], [], marker="o", linestyle="none", color=BLACK, markerfacecolor=face, label=name)
        for name, face in circles.items()
    ]
    marks += [Line2D([], [], color=BLACK, linewidth=0.8, linestyle=":", label="optimum, model known")]
    marks += [
        Line2D([], [], marker="s", linestyle="none", color=shade, label=family) for family, shade in COLOURS.items()
    ]
    figure.legend(handles=marks, loc="outside upper center", ncols=4, fontsize=7.5)
    return figure


def methods(record: FigureRecord, problem: str) -> dict[str, str]:
    """Return {method: colour} of a problem, those of a family together."""
    known = record.settings["methods"]
    names = [name for name in record.curves(problem, "median value") if name != MODEL_KNOWN]
    order = list(COLOURS)
    names.sort(key=lambda name: order.index(known[name]["family"]))
    return {name: COLOURS[known[name]["family"]] for name in names}


def draw_values(record: FigureRecord, problem: str, axes: Axes) -> None:
    """Draw what the returned policy earns, and the mean over all episodes."""
    found = methods(record, problem)
    draw_lines(record, problem, axes, "value", filled=True)
    draw_lines(record, problem, axes, "averaged value", filled=False)
    optimum = record.curves(problem, "median value")[MODEL_KNOWN][0].mean
    axes.axvline(optimum, color=BLACK, linewidth=0.8, linestyle=":")
    axes.set_yticks(range(len(found)), list(found), fontsize=7)
    for shade, tick in zip(found.values(), axes.get_yticklabels(), strict=True):
        tick.set_color(shade)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_title(problem.capitalize(), loc="left")
    axes.set_xlabel("value")


def draw_violations(record: FigureRecord, problem: str, axes: Axes) -> None:
    """Draw by how much the limit was exceeded: by the returned policy, and on the way to it."""
    draw_lines(record, problem, axes, "violation", filled=True)
    draw_lines(record, problem, axes, "positive sum", filled=False)
    axes.set_xscale("symlog", linthresh=LEAST, linscale=0.5)
    axes.set_xlim(left=-LEAST / 2)
    axes.tick_params(axis="y", left=False)
    axes.set_xlabel("by how much an episode exceeds the limit, expected")


def draw_lines(record: FigureRecord, problem: str, axes: Axes, measure: str, *, filled: bool) -> None:
    """Draw medians and quartiles of a measure, a line a method."""
    parts = [record.curves(problem, f"{part} {measure}") for part in ("lower", "median", "upper")]
    limit = record.settings["limits"][problem] if measure == "violation" else 0.0
    size, front = (4.5, 4) if filled else (6.0, 3)
    for line, (name, shade) in enumerate(methods(record, problem).items()):
        low, middle, high = (max(part[name][0].mean - limit, 0.0) if limit else part[name][0].mean for part in parts)
        axes.plot([low, high], [line, line], color=shade, linewidth=1.0, alpha=0.6)
        face = shade if filled else "white"
        axes.plot([middle], [line], "o", color=shade, markerfacecolor=face, markersize=size, zorder=front)
