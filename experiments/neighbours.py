"""One table of all ways to deal with constraints: what each must know, what it earns, what it violates, what it costs.

Five common problems (`paper.neighbour_problems`), many seeds. Of every policy pi^k that was followed, value and
violation are exact. With d the limit (0 where a peak constraint is to be kept), v_k the expected violation of pi^k:

    value, violation          of the policy that is handed out
    averaged value, violation of the mean over all episodes
    positive sum              sum_k [v_k - d]+ / K        no episode pays for another
    signed sum                sum_k (v_k - d) / K         opposite errors cancel: what primal-dual bounds are about
    violating policies        the share of pi^k with v_k > d
    violating episodes        in which some constraint was violated; a cost is always above 0
    price, averaged price     of a unit of violation, at the end and on average over the run, where a method has one
    proved gap                to the best safe policy, as far as it is proved at the end (certified learner)
    seconds, numbers stored   of the processor, exact history of every episode included; in the learner's tables
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from peakrl.learning.algorithm_one import AlgorithmOne
from peakrl.learning.certified.learner import Certified
from peakrl.learning.linear.learner import OptCMDP
from peakrl.learning.linear.pessimists import DOPE, OptPessLP
from peakrl.learning.masked_q import MaskedQ
from peakrl.learning.maximin_q import MaximinQ
from peakrl.learning.posterior import Posterior
from peakrl.learning.practical import Practical
from peakrl.learning.primal_dual import OptDual, OptPrimalDual, WeiMDP
from peakrl.learning.settings import LearnerSettings
from peakrl.learning.triple_q import TripleQ
from peakrl.learning.ucbvi import SUCBVI, UCBVI
from peakrl.paper.efficiency import at_most, numbers
from peakrl.paper.neighbour_problems import common_problem
from peakrl.paper.neighbour_tasks import compiled
from peakrl.paper.records import VERSION, Check, FigureRecord, Request, Row
from peakrl.planning import solve, solve_budget
from peakrl.policy.tables import Policy
from peakrl.runs import Result, Task

TASK = "peakrl.paper.neighbour_tasks:learn_neighbour"
#: Of what a run tells: the measure and its unit.
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
#: Learners for expected limits must be given one above 0 where the limit is 0.
ALLOWANCE = 0.01
MODEL_KNOWN = "model known"
#: Problems of many thousand (step, state, action), and methods that look at all of them in every episode.
LARGE = ("grid", "transmitter", "scheduling")
EVERY_EPISODE = ("regularised", "NPG-PD", "SUCBVI")


@dataclass(frozen=True)
class Case:
    """A problem, as a method is told of it."""

    problem: str
    episodes: int

    @property
    def limit(self) -> float:
        """What a learner for expected limits is given."""
        return common_problem(self.problem).limit or ALLOWANCE

    @property
    def batch(self) -> dict[str, Any]:
        """How often those plan that look at all pairs at once: large problems have few episodes and many plans due."""
        return {"episodes_per_plan": 20 if self.problem in LARGE else 1}

    @property
    def slater(self) -> float:
        """How far below the limit the policy of least violation stays."""
        return self.limit - solve(compiled(self.problem)).violation

    def safe_policy(self) -> Any:
        """A policy that stays well below the limit, and earns little."""
        problem, model = common_problem(self.problem), compiled(self.problem)
        if problem.safe_rule is not None:
            return Policy.from_rule(model, problem.safe_rule)
        return solve_budget(model, total=problem.safe_limit).policy


@dataclass(frozen=True)
class Method:
    """A way to deal with constraints."""

    #: Whose colour it has in the figure.
    family: str
    #: In words: what it is told in advance, and what is certified of its policy.
    knows: str
    certifies: str
    settings: Callable[[Case], LearnerSettings]
    #: Is it told what may follow what, with the constraints?
    support: bool = False
    #: What else it is told (`certificate_tasks.DECLARATIONS`).
    declared: tuple[str, ...] = ()
    #: So slow that fewer seeds must do.
    slow: bool = False


PEAK, LINEAR, PRICES, TABLES = "memory or mask", "linear programme", "prices", "penalty or queue"
NOTHING_KNOWN, NOTHING_CERTIFIED = "nothing", "nothing"
SEEN = "nothing seen to violate is taken while anything else is left"
EXPECTED = "an expectation, in theory and at scale 1"
PROVED = "the gap that is proved, with probability 0.95"
#: By name. `scale` and `bonus` are those at which the notes on the prototypes found each method at its best.
METHODS = {
    "posterior": Method(PEAK, NOTHING_KNOWN, SEEN, lambda case: Posterior()),
    "practical": Method(PEAK, NOTHING_KNOWN, SEEN, lambda case: Practical()),
    "certified": Method(PEAK, NOTHING_KNOWN, PROVED, lambda case: Certified(epsilon=(0.1, 0.03, 0.01), relative=True)),
    "certified, declared": Method(
        PEAK, "which pairs share a law; rewards; f is of the action", PROVED,
        lambda case: Certified(epsilon=(0.1, 0.03, 0.01), relative=True), declared=("groups", "action", "rewards"),
    ),
    "SUCBVI": Method(PEAK, NOTHING_KNOWN, f"{SEEN}; dead ends too", lambda case: SUCBVI()),
    "UCBVI": Method(PEAK, NOTHING_KNOWN, SEEN, lambda case: UCBVI()),
    "masked Q": Method(PEAK, "f, and what may follow what", "never violates", lambda case: MaskedQ(), support=True),
    "posterior, support": Method(
        PEAK, "f, and what may follow what", "never violates", lambda case: Posterior(), support=True
    ),
    "Algorithm 1": Method(
        TABLES, NOTHING_KNOWN, NOTHING_CERTIFIED, lambda case: AlgorithmOne(slack=0.1, bonus="none", start="stepwise")
    ),
    "maximin Q": Method(TABLES, "a penalty that is enough", NOTHING_CERTIFIED, lambda case: MaximinQ(penalty=2.0)),
    "Triple-Q": Method(TABLES, "K", NOTHING_CERTIFIED, lambda case: TripleQ(total=case.limit)),
    "Triple-Q, HI tables": Method(
        TABLES, "K", NOTHING_CERTIFIED,
        lambda case: TripleQ(per_step=case.limit / compiled(case.problem).horizon),
    ),
    "certainty-equivalent LP": Method(
        LINEAR, NOTHING_KNOWN, NOTHING_CERTIFIED,
        lambda case: OptCMDP.certainty_equivalent(total=case.limit, **case.batch), slow=True,
    ),
    "OptCMDP, 1": Method(LINEAR, "S, K", EXPECTED, lambda case: OptCMDP(total=case.limit, **case.batch), slow=True),
    "OptCMDP, 0.01": Method(
        LINEAR, "S, K", NOTHING_CERTIFIED, lambda case: OptCMDP(total=case.limit, scale=0.01, **case.batch), slow=True
    ),
    "OptCMDP-bonus, 0.01": Method(
        LINEAR, "S, K", NOTHING_CERTIFIED,
        lambda case: OptCMDP(total=case.limit, scale=0.01, bonus=True, **case.batch), slow=True,
    ),
    "OptPess-LP, 0.01": Method(
        LINEAR, "S, K, a safe policy", NOTHING_CERTIFIED,
        lambda case: OptPessLP(total=case.limit, scale=0.01, safe_policy=case.safe_policy(), **case.batch), slow=True,
    ),
    "DOPE, 0.01": Method(
        LINEAR, "S, K, a safe policy", NOTHING_CERTIFIED,
        lambda case: DOPE(total=case.limit, scale=0.01, safe_policy=case.safe_policy(), **case.batch), slow=True,
    ),
    "OptDual": Method(
        PRICES, "S, K", NOTHING_CERTIFIED,
        lambda case: OptDual(total=case.limit, **case.batch),
    ),
    "OptPrimalDual": Method(
        PRICES, "S, K", NOTHING_CERTIFIED, lambda case: OptPrimalDual(total=case.limit, **case.batch)
    ),
    "OPDOP": Method(
        PRICES, "S, K, Slater gap", NOTHING_CERTIFIED,
        lambda case: OptPrimalDual.opdop(total=case.limit, slater=case.slater, episodes=case.episodes, **case.batch),
    ),
    "regularised": Method(PRICES, "S", NOTHING_CERTIFIED, lambda case: OptPrimalDual.regularised(total=case.limit)),
    "NPG-PD": Method(
        PRICES, "the model, K", NOTHING_CERTIFIED,
        lambda case: OptPrimalDual.npg_pd(total=case.limit, episodes=case.episodes),
    ),
    "WeiMDP": Method(PRICES, "S, K", NOTHING_CERTIFIED, lambda case: WeiMDP(total=case.limit)),
}  # fmt: skip
QUEUES = ("OptDual", "OptPrimalDual", "OPDOP", "regularised", "NPG-PD", "WeiMDP", "Triple-Q")
OPTIMISTS = ("certainty-equivalent LP", "OptCMDP, 1", "OptCMDP, 0.01", "OptCMDP-bonus, 0.01")
SAFE_START = ("OptPess-LP, 0.01", "DOPE, 0.01")
PEAKS = (
    "posterior", "practical", "certified", "SUCBVI", "UCBVI", "masked Q", "posterior, support", "Algorithm 1",
    "maximin Q",
)  # fmt: skip
ON_COUNTS = ("certainty-equivalent LP", "OptCMDP, 0.01", "OptCMDP-bonus, 0.01", *SAFE_START)
#: Which methods each problem has. Limits on a total cost say nothing of single steps, so HI tables are for the peak
#: problems; what is declared to `certified` is true of transmitters only.
ROWS = {
    "inventory": (*OPTIMISTS, *SAFE_START, *QUEUES),
    "grid": (*OPTIMISTS, *SAFE_START, *QUEUES),
    "tiny harvesting": (*PEAKS, "certified, declared", *ON_COUNTS, *QUEUES, "Triple-Q, HI tables"),
    "transmitter": (*PEAKS, "certified, declared", *ON_COUNTS, *QUEUES, "Triple-Q, HI tables"),
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
#: Twenty seeds of everything, and ten times as long where that is cheap: hours on two cores.
FULL = Neighbours(
    sizes=(
        ("inventory", 100_000, 20, 20),
        ("grid", 10_000, 20, 20),
        ("tiny harvesting", 100_000, 20, 20),
        ("transmitter", 2_000, 20, 20),
        ("scheduling", 2_000, 20, 20),
    )
)
QUICK = Neighbours(sizes=(("inventory", 100, 1, 1), ("tiny harvesting", 100, 1, 1)))


def neighbours(request: Request) -> FigureRecord:
    """Return the table and checks of the comparison."""
    return measure(request, QUICK if request.quick else FULL if request.full else DEFAULT)


def measure(request: Request, settings: Neighbours) -> FigureRecord:
    """Return the comparison for given settings."""
    batches = {
        (problem, name): tasks(Case(problem, episodes), name, few if is_slow(problem, name) else many)
        for problem, episodes, many, few in settings.sizes
        for name in ROWS[problem]
    }
    results = iter(request.run([task for batch in batches.values() for task in batch], "neighbours"))
    found = {key: [next(results) for _ in batch] for key, batch in batches.items()}
    rows: list[Row] = []
    for problem, *_ in settings.sizes:
        rows += yardstick(problem)
        for (where, name), runs in found.items():
            if where == problem:
                rows += table(problem, name, runs)
    checks = comparisons(found)
    if request.quick:
        checks = [replace(check, tolerance=None) for check in checks]
    told = {
        name: {"family": method.family, "knows": method.knows, "certifies": method.certifies}
        for name, method in METHODS.items()
    }
    limits = {problem: common_problem(problem).limit for problem, *_ in settings.sizes}
    values = {**asdict(settings), "quick": request.quick, "methods": told, "allowance": ALLOWANCE, "limits": limits}
    title = "Ways to deal with constraints, side by side"
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


def table(problem: str, name: str, runs: list[Result]) -> list[Row]:
    """Return median, quartiles and largest of every measure over seeds."""
    rows: list[Row] = []
    for key, measure in MEASURES.items():
        if key not in runs[0].values:  # only certified runs prove a gap, and few methods have a price
            continue
        rows += numbers(problem, name, measure, [float(run.values[key]) for run in runs])
    return rows


def yardstick(problem: str) -> list[Row]:
    """Return the exact optimum under the limit."""
    limit = common_problem(problem).limit
    best = solve_budget(compiled(problem), total=limit) if limit else solve(compiled(problem))
    price = solve_budget(compiled(problem), total=limit or ALLOWANCE).multipliers
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
        if name in SAFE_START:
            worst = max(float(run.values["positive_sum"]) for run in runs)
            checks.append(at_most(f"{problem}, {name}: sum of the positive parts, worst seed", worst, 0.0))
        if name == "OptCMDP, 1" and problem == "inventory":
            least = min(float(run.values["violating"]) for run in runs)
            checks.append(Check(f"{problem}, {name}: least share of violating policies", "all", 1.0, least, 0.01))
        if METHODS[name].support:
            most = max(float(run.values["violations"]) for run in runs)
            checks.append(at_most(f"{problem}, {name}: most violating episodes", most, 0.0))
        if METHODS[name].family == PEAK and problem == "tiny harvesting":  # elsewhere there is too little time
            worst = max(float(run.values["violation"]) for run in runs)
            checks.append(at_most(f"{problem}, {name}: violation of the policy, worst seed", worst, 0.0))
    return checks
