"""How reliably learners come to the optimum on families of problems on which none was tuned.

Instances of twelve generated families, each learned with a few seeds. Of the policy returned after 1,000, 10,000 and
100,000 episodes: median and worst gap to the optimum over all runs of a family, in per cent of the optimum; on stock,
queues and grids in per cent of what it earns beyond a policy that draws among viable actions; of rare catastrophes the
probability of violating; of infeasible instances the violation beyond the least. A policy that violates may earn more
than the optimum: its gap is 0 then, and it is counted as *violating*. *Lost* is the sum over episodes of the optimum
less the exact value of the policy followed; below 0 it shows violations too.

An instance is a number: `instance(family, number)` draws it from a generator seeded by both. Draws that a family does
not mean to have (infeasible ones, in most) are made again. States and actions are numbers; rewards and constraints
belong to pairs, so that a random reward or a random violation shows in the state that follows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.records import VERSION, Check, FigureRecord, Floats, Request, Row, at_most
from experiments.style import BLACK, BLUE, SKY, new_figure
from peakrl import Policy, Solution, TabularModel, evaluate, solve
from peakrl.errors import SettingsError
from peakrl.evaluation import Evaluation
from peakrl.learners import UCBVI, PosteriorSampling, SafeQ, learner_from
from peakrl.learners.base import LearnerSettings
from peakrl.policy import StochasticPolicy
from peakrl.sweeps import Result, Task
from peakrl.training import learn_in_stages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Generator = np.random.Generator
TASK = "experiments.robustness:learn_instance"
POSTERIOR, PLANNER = "PosteriorSampling", "UCBVI"
LEARNERS: dict[str, LearnerSettings] = {
    POSTERIOR: PosteriorSampling(),
    "SafeQ": SafeQ(),
    PLANNER: UCBVI(),
}
#: Worst gap that posterior sampling may leave, by family and episodes; what is not here is shown.
LIMITS: dict[str, dict[int, float]] = {
    "dense": {10_000: 0.1},
    "sparse": {1_000: 1.0, 10_000: 0.2},
    "step-dependent": {1_000: 1.0, 10_000: 0.3},
    "chains": {1_000: 1.0},
    "stock and queues": {10_000: 1.0, 100_000: 0.1},
    "grids": {10_000: 1.0},
    "many actions": {1_000: 0.2},
    "several constraints": {1_000: 0.5},
    "infeasible": {10_000: 1.0},
}
#: A run that is still so far below the optimum at the end, in per cent, is stuck.
STUCK = 2.0
CATASTROPHE, INFEASIBLE = "rare catastrophe", "infeasible"
#: Families whose gap is a share of what the optimum earns beyond a policy that draws among viable actions.
BEYOND_CHANCE = ("stock and queues", "grids")
#: Draws of one instance before its family is taken to be wrong.
MOST_DRAWS = 100


@dataclass(frozen=True)
class Robustness:
    """Settings of the experiment."""

    instances: int = 10
    seeds: int = 3
    places: tuple[int, ...] = (1_000, 10_000)
    #: So many of the instances are learned for longer, without the value lost.
    long_instances: int = 10
    long_place: int = 100_000


FULL = Robustness()
DEFAULT = replace(FULL, seeds=1, long_instances=2)
QUICK = replace(FULL, instances=1, seeds=1, places=(200, 1_000), long_instances=0)


def robustness(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def measure(request: Request, settings: Robustness) -> FigureRecord:
    """Return the experiment for given settings."""
    tasks = {(family, name): tasks_of(settings, family, name) for family in FAMILIES for name in LEARNERS}
    found = request.run_groups(tasks, "robustness")
    rows = tuple(row for (family, name), runs in found.items() for row in table(settings, family, name, runs))
    checks: list[Check] = []
    for family in FAMILIES:
        checks += limit_checks(settings, family, {name: found[family, name] for name in LEARNERS})
    last = [
        gap
        for family in FAMILIES
        if family != CATASTROPHE  # which is measured as a probability
        for gap in list(at_places(settings, found[family, POSTERIOR]).values())[-1]
    ]
    checks.append(at_most("PosteriorSampling: runs stuck at the end", float(sum(gap > STUCK for gap in last)), 0.0))
    values = {**asdict(settings), "quick": request.quick, "learners": {k: v.as_dict() for k, v in LEARNERS.items()}}
    title = "How reliably learners come to the optimum"
    return FigureRecord("robustness", title, "episode", values, rows, tuple(request.judged(checks)))


def tasks_of(settings: Robustness, family: str, name: str) -> list[Task]:
    """Return the runs of a learner on a family: those with the value lost first, then the long ones."""
    common = {"version": VERSION, "family": family, "learner": LEARNERS[name].as_dict()}
    sizes = [(settings.instances, settings.places, True), (settings.long_instances, (settings.long_place,), False)]
    return [
        Task(TASK, {**common, "number": number, "seed": seed, "places": list(places), "exact": exact})
        for instances, places, exact in sizes
        for number in range(instances)
        for seed in range(settings.seeds)
    ]


def at_places(settings: Robustness, runs: Sequence[Result], name: str = "gap") -> dict[int, list[float]]:
    """Return {episodes: gaps of the runs, or chances of violating}."""
    short = runs[: settings.instances * settings.seeds]
    found = {place: [float(run.arrays[name][i]) for run in short] for i, place in enumerate(settings.places)}
    long = [float(run.arrays[name][0]) for run in runs[len(short) :]]
    return found | ({settings.long_place: long} if long else {})


def table(settings: Robustness, family: str, name: str, runs: Sequence[Result]) -> list[Row]:
    """Return median and worst gap by episodes, the share of violating policies, and the value lost."""
    unit = "probability" if family == CATASTROPHE else "%"
    rows: list[Row] = []
    for place, gaps in at_places(settings, runs).items():
        rows.append(Row(family, name, "median gap", unit, float(place), float(np.median(gaps)), None, len(gaps)))
        rows.append(Row(family, name, "worst gap", unit, float(place), max(gaps), None, len(gaps)))
    for place, chances in at_places(settings, runs, "chance").items():
        share = sum(chance > 0 for chance in chances) / len(chances)
        rows.append(Row(family, name, "violating policies", "share", float(place), share, None, len(chances)))
    for i, place in enumerate(settings.places):
        rows.append(Row(family, name, "value lost", "", float(place), lost(settings, runs, i), None, len(runs)))
    return rows


def lost(settings: Robustness, runs: Sequence[Result], place: int) -> float:
    """Return the mean over runs of the value lost up to a place."""
    return float(np.mean([run.arrays["lost"][place] for run in runs[: settings.instances * settings.seeds]]))


def limit_checks(settings: Robustness, family: str, found: dict[str, list[Result]]) -> list[Check]:
    """Compare the default's worst gaps with their limits, and what it loses with the planner."""
    checks = [
        at_most(f"{family}: worst gap at {place:,}", max(gaps), LIMITS.get(family, {}).get(place))
        for place, gaps in at_places(settings, found[POSTERIOR]).items()
    ]
    for i, place in enumerate(settings.places):
        ours, planner = (lost(settings, found[name], i) for name in (POSTERIOR, PLANNER))
        if planner > 0 and family != INFEASIBLE:
            what = f"{family}: value lost by {place:,}, in UCBVI's"
            checks.append(Check(what, "shown", None, ours / planner, None))
    return checks


# Families of problems --------------------------------------------------------------------------------------------


def instance(family: str, number: int) -> TabularModel:
    """Return an instance of a family: the same one for the same number."""
    if family not in FAMILIES:
        raise SettingsError(f"there is no family {family!r}; there are {', '.join(FAMILIES)}")
    generator = np.random.default_rng([list(FAMILIES).index(family), number])
    for _ in range(MOST_DRAWS):
        model = FAMILIES[family](generator)
        if solve(model).feasible == (family != INFEASIBLE):
            return model
    raise SettingsError(f"{family!r}: {MOST_DRAWS} draws gave no instance as it is meant to be")


def dense(generator: Generator) -> TabularModel:
    """Every state may follow every other; one pair in five violates."""
    states, actions = 12, 4
    transitions = generator.dirichlet(np.ones(states), (states, actions))
    rewards = generator.random((states, actions))
    return TabularModel.from_arrays(transitions, rewards, margins(generator, states, actions, 0.2), 10, name="dense")


def sparse(generator: Generator) -> TabularModel:
    """Few states follow a pair; one in five violates, and so states are lost that lead to nothing else."""
    states, actions = 25, 4
    transitions = few_outcomes(generator, states, actions, 3)
    rewards = generator.random((states, actions))
    return TabularModel.from_arrays(transitions, rewards, margins(generator, states, actions, 0.2), 12, name="sparse")


def step_dependent(generator: Generator) -> TabularModel:
    """Distributions and rewards of their own at every step: nothing can be pooled."""
    horizon, states, actions = 6, 6, 3
    transitions = generator.dirichlet(np.full(states, 0.5), (horizon, states, actions))
    rewards = generator.random((horizon, states, actions))
    limits = np.stack([margins(generator, states, actions, 0.2) for _ in range(horizon)])
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="step-dependent")


def chain(generator: Generator) -> TabularModel:
    """The large reward lies at the far end of a chain, a small one at its beginning, and each step forward may fail."""
    states = int(generator.integers(6, 11))
    slip, small = generator.uniform(0.0, 0.3), generator.uniform(0.001, 0.02)
    order = generator.permuted(np.tile(np.arange(3), (states, 1)), axis=1)
    transitions, rewards = np.zeros((states, 3, states)), np.zeros((states, 3))
    limits = np.ones((1, states, 3))
    for state in range(states):
        back, forward, bad = order[state]
        transitions[state, back, max(state - 1, 0)] = 1.0
        transitions[state, forward, min(state + 1, states - 1)] += 1.0 - slip
        transitions[state, forward, max(state - 1, 0)] += slip
        transitions[state, bad, state] = 1.0
        limits[0, state, bad] = -1.0
    rewards[0, order[0, 0]] = small
    rewards[-1, order[-1, 1]] = 1.0
    return TabularModel.from_arrays(transitions, rewards, limits, 2 * states, name="chain")


def rare_catastrophe(generator: Generator) -> TabularModel:
    """The better half of the actions leads with probability 0.001 to where only violations are left."""
    states, actions, rare = 6, 4, 1e-3
    transitions = np.zeros((states + 1, actions, states + 1))
    transitions[:states, :, :states] = generator.dirichlet(np.ones(states), (states, actions))
    risky = np.zeros((states, actions), bool)
    risky[:, 0::2] = True
    risky = generator.permuted(risky, axis=1)
    transitions[:states][risky] *= 1.0 - rare
    transitions[:states, :, states][risky] = rare
    transitions[states, :, states] = 1.0
    rewards = np.zeros((states + 1, actions))
    rewards[:states] = 0.5 * generator.random((states, actions)) + 0.5 * risky
    limits = np.ones((1, states + 1, actions))
    limits[0, states] = -1.0
    return TabularModel.from_arrays(transitions, rewards, limits, 6, name="rare catastrophe")


def heavy_noise(generator: Generator) -> TabularModel:
    """Actions differ by a few per cent in how likely the one state is that earns anything."""
    states, actions, horizon = 6, 5, 5
    chance = 0.1 + 0.03 * generator.random((states, actions))
    chance[generator.random((states, actions)) < 0.1] = 0.0
    rest = generator.dirichlet(np.ones(states - 1), (states, actions))
    transitions = np.concatenate([rest * (1.0 - chance[..., None]), chance[..., None]], axis=2)
    rewards = np.zeros((states, actions))
    rewards[-1] = 1.0
    limits = margins(generator, states, actions, 0.15)
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="heavy noise")


def stock_or_queue(generator: Generator) -> TabularModel:
    """A stock that must not overflow, or a queue: as often the one as the other."""
    return stock(generator) if generator.random() < 0.5 else queue(generator)


def stock(generator: Generator) -> TabularModel:
    """Order before the demand is known; what is ordered must fit in, and what is missing is not sold."""
    room, most = int(generator.integers(8, 13)), 4
    demand = generator.dirichlet(np.ones(most + 1))
    price, cost, holding = 1.0, generator.uniform(0.2, 0.6), generator.uniform(0.01, 0.1)
    transitions, rewards = np.zeros((room + 1, most + 1, room + 1)), np.zeros((room + 1, most + 1))
    limits = np.ones((1, room + 1, most + 1))
    for held in range(room + 1):
        for order in range(most + 1):
            limits[0, held, order] = room - held - order
            ready = min(held + order, room)
            for wanted, chance in enumerate(demand):
                sold = min(ready, wanted)
                transitions[held, order, ready - sold] += chance
                rewards[held, order] += chance * price * sold
            rewards[held, order] -= cost * order + holding * ready
    return TabularModel.from_arrays(transitions, rewards, limits, 12, initial=room // 2, name="stock")


def queue(generator: Generator) -> TabularModel:
    """Serve slowly and cheaply or fast and dearly; a queue that has once been longer than allowed stays so."""
    room, rates = int(generator.integers(6, 10)), 3
    arrivals = generator.dirichlet([4.0, 2.0, 1.0])
    serve = np.sort(generator.uniform(0.2, 0.9, rates - 1))
    prices = np.sort(generator.uniform(0.0, 1.0, rates))
    transitions, rewards = np.zeros((room + 2, rates, room + 2)), np.zeros((room + 2, rates))
    limits = np.ones((1, room + 2, rates))
    limits[0, room + 1] = -1.0
    transitions[room + 1, :, room + 1] = 1.0
    for waiting in range(room + 1):
        for rate in range(rates):
            rewards[waiting, rate] = -prices[rate] - waiting / room
            # The fastest rate serves two for certain: it keeps every queue within bounds.
            served = [(2, 1.0)] if rate == rates - 1 else [(1, serve[rate]), (0, 1.0 - serve[rate])]
            for gone, chance in served:
                for come, likely in enumerate(arrivals):
                    transitions[waiting, rate, min(max(waiting - gone, 0) + come, room + 1)] += chance * likely
    rewards[room + 1] = rewards.min()
    return TabularModel.from_arrays(transitions, rewards, limits, 15, name="queue")


def grid(generator: Generator) -> TabularModel:
    """A slippery grid with one-way corridors: from their mouth on, a fall is certain but steps away."""
    side, horizon, slip = 5, 16, generator.uniform(0.05, 0.3)
    cells = side * side
    goal, corridor = cells - 1, 3
    mouths = generator.choice(np.arange(1, cells - 1), 3, replace=False)
    states = cells + len(mouths) * corridor
    transitions, rewards = np.zeros((states, 4, states)), np.zeros((states, 4))
    limits = np.ones((1, states, 4))
    for cell in range(cells):
        for action in range(4):
            for turn, chance in ((0, 1.0 - slip), (1, slip / 2), (3, slip / 2)):
                transitions[cell, action, beside(cell, (action + turn) % 4, side)] += chance
    for number, mouth in enumerate(mouths):
        for depth in range(corridor):
            place = cells + number * corridor + depth
            transitions[place, :, min(place + 1, cells + number * corridor + corridor - 1)] = 1.0
            limits[0, place, :] = -1.0 if depth == corridor - 1 else 1.0
        transitions[mouth] = 0.0
        transitions[mouth, :, cells + number * corridor] = 1.0
        rewards[mouth] = 0.3
    transitions[goal], rewards[goal] = 0.0, 1.0
    transitions[goal, :, goal] = 1.0
    return TabularModel.from_arrays(transitions, rewards, limits, horizon, name="grid")


def beside(cell: int, direction: int, side: int) -> int:
    """Return the cell of a grid that lies up, right, down or left of another; the same one at the border."""
    row, column = divmod(cell, side)
    row += (-1, 0, 1, 0)[direction]
    column += (0, 1, 0, -1)[direction]
    return min(max(row, 0), side - 1) * side + min(max(column, 0), side - 1)


def many_actions(generator: Generator) -> TabularModel:
    """Forty actions in each of five states, most of them poor."""
    states, actions = 5, 40
    transitions = generator.dirichlet(np.full(states, 0.5), (states, actions))
    rewards = generator.beta(1.0, 3.0, (states, actions))
    limits = margins(generator, states, actions, 0.3)
    return TabularModel.from_arrays(transitions, rewards, limits, 5, name="many actions")


def several_constraints(generator: Generator) -> TabularModel:
    """Three constraints, each with its own sense of what is too much, and any state may be the first."""
    states, actions = 10, 6
    transitions = few_outcomes(generator, states, actions, 4)
    rewards = generator.random((states, actions))
    limits = np.concatenate([margins(generator, states, actions, 0.12) for _ in range(3)])
    first = generator.dirichlet(np.ones(states))
    return TabularModel.from_arrays(transitions, rewards, limits, 8, initial=first, name="several constraints")


def infeasible(generator: Generator) -> TabularModel:
    """No policy satisfies the constraint: the least expected violation is wanted, and then the most reward."""
    states, actions = 10, 3
    transitions = few_outcomes(generator, states, actions, 3)
    rewards = generator.random((states, actions))
    limits = generator.uniform(-1.0, 0.4, (1, states, actions))
    return TabularModel.from_arrays(transitions, rewards, limits, 8, name="infeasible")


def rare_payoff(generator: Generator) -> TabularModel:
    """Take a sure reward, or go on to a lottery that is worth more, but seldom pays."""
    depth = int(generator.integers(0, 4))
    worth, chance = generator.uniform(1.5, 3.0), 10.0 ** generator.uniform(-1.5, -0.5)
    end, prize, states = depth + 1, depth + 2, depth + 3
    order = generator.permuted(np.tile(np.arange(3), (depth + 1, 1)), axis=1)
    transitions, rewards = np.zeros((states, 3, states)), np.zeros((states, 3))
    limits = np.ones((1, states, 3))
    transitions[:, :, end] = 1.0
    for state in range(depth + 1):
        sure, onwards, bad = order[state]
        rewards[state, sure], limits[0, state, bad] = 1.0, -1.0
        if state < depth:
            transitions[state, onwards, [end, state + 1]] = 0.0, 1.0
        else:
            transitions[state, onwards, [end, prize]] = 1.0 - chance, chance
    rewards[prize] = worth / chance
    return TabularModel.from_arrays(transitions, rewards, limits, depth + 2, name="rare payoff")


def margins(generator: Generator, states: int, actions: int, share: float) -> Floats:
    """Return (1, S, A): a share of the pairs violates by up to 1, the others have room."""
    size = generator.uniform(0.1, 1.0, (1, states, actions))
    fails = generator.random((1, states, actions)) < share
    # One action of each state satisfies the constraint; it may lead to states where none does.
    fails[0, np.arange(states), generator.integers(0, actions, states)] = False
    return np.where(fails, -size, size)


def few_outcomes(generator: Generator, states: int, actions: int, outcomes: int) -> Floats:
    """Return distributions (S, A, S) with a few possible next states each."""
    transitions = np.zeros((states, actions, states))
    for state in range(states):
        for action in range(actions):
            chosen = generator.choice(states, outcomes, replace=False)
            transitions[state, action, chosen] = generator.dirichlet(np.ones(outcomes))
    return transitions


#: How an instance of each family is drawn.
FAMILIES: dict[str, Callable[[Generator], TabularModel]] = {
    "dense": dense,
    "sparse": sparse,
    "step-dependent": step_dependent,
    "chains": chain,
    CATASTROPHE: rare_catastrophe,
    "heavy noise": heavy_noise,
    "stock and queues": stock_or_queue,
    "grids": grid,
    "many actions": many_actions,
    "several constraints": several_constraints,
    INFEASIBLE: infeasible,
    "rare payoffs": rare_payoff,
}


# Tasks, in a worker process --------------------------------------------------------------------------------------


def learn_instance(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn an instance; how far the returned policy falls short at given episodes, and the value lost on the way."""
    family, places, exact = config["family"], config["places"], config["exact"]
    model = instance(family, config["number"])
    best = solve(model)
    scale, short, chance = scale_of(family, model, best), [], []
    learner = learner_from(config["learner"])
    record: Any = places[0] if exact else "none"
    for run in learn_in_stages(model, learner, stages=places, seed=config["seed"], history=record):
        found = evaluate(model, run.policy)
        short.append(shortfall(family, best, found, scale))
        chance.append(found.violation_probability)
    answer = {"gap": np.array(short), "chance": np.array(chance), "violations": run.violations}
    if exact:
        at = np.searchsorted(run.history.episode, places)
        answer["lost"] = np.array(places) * (best.value - run.history.averaged_value[at])
    return answer


def shortfall(family: str, best: Solution[Policy], found: Evaluation, scale: float) -> float:
    """Return what is missing to the optimum in per cent; of an infeasible instance, the violation beyond the least.

    Of a rare catastrophe it is the probability of violating.
    """
    if family == INFEASIBLE:
        return 100.0 * (found.violation / best.violation - 1.0)
    if family == CATASTROPHE:
        return float(found.violation_probability)
    return max(0.0, 100.0 * (best.value - found.value) / scale)


def scale_of(family: str, model: TabularModel, best: Solution[Policy]) -> float:
    """Return what 100 per cent are."""
    if family not in BEYOND_CHANCE:
        return abs(best.value)
    return best.value - evaluate(model, StochasticPolicy(model, viable_chances(model))).value


def viable_chances(model: TabularModel) -> Floats:
    """[entry]: draw among the viable actions of a state; if there are none, among all."""
    viable = model.safe.entries.reshape(-1, model.num_rows).astype(float)
    offers = np.flatnonzero(np.diff(model.row_start) > 0)
    first, sizes = model.row_start[:-1][offers], np.diff(model.row_start)[offers]
    none = np.repeat(np.add.reduceat(viable, first, axis=1) == 0, sizes, axis=1)
    viable[none] = 1.0
    chances: Floats = viable / np.repeat(np.add.reduceat(viable, first, axis=1), sizes, axis=1)
    return chances.ravel()


# Drawing ---------------------------------------------------------------------------------------------------------

COLOURS = dict(zip(LEARNERS, (SKY, BLUE, BLACK), strict=True))
#: Lower end of the logarithmic axis: smaller gaps are drawn there.
FLOOR = 1e-4


def draw_robustness(record: FigureRecord) -> Figure:
    """Draw median (dot; hollow if some policy violates) to worst gap (bar), a panel for each number of episodes."""
    episodes = sorted({row.x for row in record.rows if row.measure == "worst gap" and row.x is not None})
    figure, grid = new_figure(len(episodes), 1, height=3.4)
    for place, (axes,) in zip(episodes, grid, strict=True):
        for number, (name, colour) in enumerate(COLOURS.items()):
            for height, family in enumerate(record.variants):
                at = {r.measure: r.mean for r in record.rows if (r.variant, r.curve, r.x) == (family, name, place)}
                median, worst = max(at["median gap"], FLOOR), max(at["worst gap"], FLOOR)
                y, label = height + 0.22 * (number - 1), name if height == 0 else None
                axes.plot([median, worst], [y, y], color=colour, linewidth=1.2, label=label)
                fill = "white" if at["violating policies"] > 0 else colour
                axes.plot([median], [y], color=colour, marker="o", markersize=4, markerfacecolor=fill)
                axes.plot([worst], [y], color=colour, marker="|", markersize=8, linestyle="")
        axes.set_xscale("log")
        ticks = [10.0**power for power in range(-4, 3)]
        axes.set_xticks(ticks, [f"≤ {FLOOR:g}", *(f"{tick:g}" for tick in ticks[1:])])
        axes.set_yticks(range(len(record.variants)), record.variants)
        axes.invert_yaxis()
        title = f"After {place:,.0f} episodes: median (hollow: some policy violates) to worst (bar) gap"
        axes.set_title(title, loc="left")
        axes.set_xlabel("% (rare catastrophe: probability of violating)")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    return figure
