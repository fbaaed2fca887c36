"""Learning from logs: policies beside those of basic RL and VI-LCB, and certified gaps by the size of the log.

Random Garnets (Laroche et al., Safe policy improvement with baseline bootstrapping, ICML 2019), with 20 steps in place
of the discount 0.95: 50 states, 4 actions, 4 next states for each pair; reaching the last state earns 1, once. The
behaviour is a softmax policy worth 0.9 of the way from uniform actions to the optimum. Every log has a Garnet of its
own; 0 is the value of the behaviour, 1 the optimum. `Pessimistic` learns with the behaviour and without it. The rivals
do not know it; they plan on the counted transitions of the whole log, or of its earlier half, which is all that
`Pessimistic` chooses its policy from:

    basic RL    Q = r + mean of V(s'),  0 for pairs that were never tried
    VI-LCB      less 0.1 sqrt( log(2 S A H / 0.05) / (2 n) ),  at least 0      (Rashidinejad et al., 2021)

The factor 0.1 is the better one of 0.05, 0.1 and 1, and the constants of `Pessimistic` were chosen, on other Garnets.

Energy harvesting: logs of the greedy policy, rewards and constraints declared, all states listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.drawing import curve, label
from experiments.records import VERSION, Check, FigureRecord, Floats, Longs, Request, Row, at_most, exact, spread
from experiments.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, new_figure
from peakrl import Assumptions, Logs, compile_model, learn, problems, solve
from peakrl.learners import Pessimistic
from peakrl.sweeps import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATES, ACTIONS, NEXT, HORIZON, GOAL = 50, 4, 4, 20, 49
GARNETS, ENERGY = "Random Garnets", "Energy harvesting, logs of the greedy policy"
VALUE, LOWEST = (("mean value", "0: behaviour, 1: optimum"), ("1 % quantile", "0: behaviour, 1: optimum"))
GAP, WORSE = ("certified gap", "bits"), ("logs with a policy worse than the behaviour", "share")
OURS, ALONE = "Pessimistic", "Pessimistic, behaviour not known"
#: Rule and part of the log, of each rival.
RIVALS = {
    "basic RL": (0.0, 1.0),
    "VI-LCB": (0.1, 1.0),
    "basic RL, earlier half": (0.0, 0.5),
    "VI-LCB, earlier half": (0.1, 0.5),
}
COLOURS = dict(zip((OURS, ALONE, *RIVALS), (BLUE, SKY, GREY, ORANGE, PURPLE, GREEN), strict=True))
#: Differences of values below this are rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Sizes:
    """Settings of the experiment."""

    trajectories: tuple[int, ...] = (10, 20, 50, 100, 200, 500, 1000, 2000)
    logs: int = 200
    episodes: tuple[int, ...] = (100, 1_000, 10_000)
    behaviour: float = 0.9
    failure_probability: float = 0.05


DEFAULT = Sizes()
FULL = replace(DEFAULT, logs=1000, episodes=(100, 1_000, 10_000, 100_000))
QUICK = replace(DEFAULT, trajectories=(20, 200), logs=10, episodes=(100,))


def logs(request: Request) -> FigureRecord:
    """Return tables and checks of the experiment."""
    return measure(request, request.choose(QUICK, DEFAULT, FULL))


def measure(request: Request, settings: Sizes) -> FigureRecord:
    """Return the experiment for given settings."""
    common = {"version": VERSION, "failure_probability": settings.failure_probability}
    tasks = {
        (GARNETS, "", size): [
            Task("experiments.logs:garnet", {**common, "size": size, "seed": seed, "behaviour": settings.behaviour})
            for seed in range(settings.logs)
        ]
        for size in settings.trajectories
    } | {
        (ENERGY, declared, size): [Task("experiments.logs:energy", {**common, "size": size, "declared": declared})]
        for declared in ("shared_transitions", "dynamics")
        for size in settings.episodes
    }
    rows: list[Row] = []
    found: list[Check] = []
    for (variant, name, size), runs in request.run_groups(tasks, "logs").items():
        if variant == ENERGY:
            rows.append(exact(variant, name, GAP, size, float(runs[0].values["gap"])))
            continue
        values = {each: np.array([float(run.values[each]) for run in runs]) for each in COLOURS}
        for each, column in values.items():
            rows.append(spread(variant, each, VALUE, size, column))
            rows.append(exact(variant, each, LOWEST, size, float(np.quantile(column, 0.01))))
            rows.append(exact(variant, each, WORSE, size, float(np.mean(column < -ROUNDING))))
        found += checks(size, values, settings.failure_probability)
    title = "Learning from logs: policies by the number of trajectories, and certified gaps"
    values_of = {**asdict(settings), "quick": request.quick}
    return FigureRecord("logs", title, "episodes of the log", values_of, tuple(rows), tuple(request.judged(found)))


def checks(size: int, values: Mapping[str, Floats], p: float) -> list[Check]:
    """Return how often the policy is worse than the behaviour, and by how much each rival is better than it.

    Rivals on the same rows are judged; those on the whole log have twice as many.
    """
    worse = float(np.mean(values[OURS] < -ROUNDING))
    found = [at_most(f"{size} trajectories: share of policies worse than the behaviour", worse, p)]
    for name, (_, part) in RIVALS.items():
        for kind, of in (("mean", np.mean), ("1 % quantile", partial(np.quantile, q=0.01))):
            behind = max(0.0, float(of(values[name]) - of(values[OURS])))
            what = f"{size} trajectories: {kind} of {name} above ours"
            found.append(at_most(what, behind, 0.0) if part < 1 else Check(what, "aim: at most", 0.0, behind, None))
    return found


# Garnets, in a worker process ------------------------------------------------------------------------------------


def garnet(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every policy on one Garnet, 0 for the behaviour and 1 for the optimum."""
    size = config["size"]
    rng = np.random.default_rng([4242, size, config["seed"]])
    chances = drawn(rng)
    best, greedy, q = planned(chances)
    behaviour, weights = softened(chances, q, config["behaviour"])
    log = record(chances, weights, size, rng)
    policies = {
        name: np.eye(ACTIONS)[planned(counted(log, max(1, int(size * part))), doubt)[1]]
        for name, (doubt, part) in RIVALS.items()
    }
    table = {name: column.ravel() for name, column in zip(("state", "action", "reward", "next"), log, strict=True)}
    table["episode"] = np.repeat(np.arange(size), HORIZON)
    made = Logs.from_frame(
        table, horizon=HORIZON, reward_range=(0, 1), next_state="next", actions=range(ACTIONS), states=range(STATES)
    )
    rule = partial(likelihoods, weights)
    for name, known in ((OURS, rule), (ALONE, None)):
        settings = Pessimistic(failure_probability=config["failure_probability"], behavior=known)
        policy: Any = learn(made, settings, history="none", assumptions=Assumptions(stationary=True)).policy
        policies[name] = np.zeros((HORIZON, STATES, ACTIONS))
        for step, state in np.ndindex(HORIZON, STATES):
            for action, chance in policy.probabilities(step, state).items():
                policies[name][step, state, action] = chance
    assert abs(value_of(chances, np.eye(ACTIONS)[greedy]) - best) < 1e-12
    return {name: (value_of(chances, table) - behaviour) / (best - behaviour) for name, table in policies.items()}


def likelihoods(weights: Floats, step: int, state: int, actions: Sequence[int]) -> dict[int, float]:
    """Return how likely a policy [step, state, action] takes each action."""
    return dict(zip(actions, weights[step, state].tolist(), strict=True))


def drawn(rng: np.random.Generator) -> Floats:
    """Return [state, action, next state]: the probabilities of a Garnet; the last state is never left."""
    chances = np.zeros((STATES, ACTIONS, STATES))
    for state in range(STATES):
        for action in range(ACTIONS):
            cuts = np.sort(rng.random(NEXT - 1))
            chances[state, action, rng.choice(STATES, NEXT, replace=False)] = np.diff(cuts, prepend=0.0, append=1.0)
    chances[GOAL], chances[GOAL, :, GOAL] = 0.0, 1.0
    return chances


def planned(counts: Floats, doubt: float = 0.0) -> tuple[float, Longs, Floats]:
    """Return value, policy [step, state] and Q of the first step, on counts or probabilities [state, action, next]."""
    samples = counts.sum(axis=2)
    chances = counts / np.maximum(samples, 1e-300)[:, :, None]
    penalty = doubt * np.sqrt(math.log(2 * STATES * ACTIONS * HORIZON / 0.05) / 2 / np.maximum(samples, 1e-300))
    value, rows = np.zeros(STATES), np.zeros((HORIZON, STATES), np.int64)
    for step in range(HORIZON - 1, -1, -1):
        q = backed_up(chances, value)
        q = np.where(samples > 0, np.maximum(q - penalty, 0.0) if doubt else q, 0.0)
        rows[step], value = q.argmax(axis=1), q.max(axis=1)
    return float(value[0]), rows, q


def backed_up(chances: Floats, value: Floats) -> Floats:
    """[state, action]: the mean of reward plus value; reaching the last state earns 1."""
    after = value.copy()
    after[GOAL] = 1.0
    q: Floats = chances @ after
    q[GOAL] = 0.0
    return q


def value_of(chances: Floats, weights: Floats) -> float:
    """Return the value of a policy [step, state, action]."""
    value = np.zeros(STATES)
    for step in range(HORIZON - 1, -1, -1):
        value = (weights[step] * backed_up(chances, value)).sum(axis=1)
    return float(value[0])


def softened(chances: Floats, q: Floats, share: float) -> tuple[float, Floats]:
    """Return value and weights of the softmax policy that earns a share of what separates uniform actions from best."""
    shape = HORIZON, STATES, ACTIONS
    low, best = value_of(chances, np.full(shape, 1 / ACTIONS)), planned(chances)[0]
    cold, hot = 1e-4, 1e2
    for _ in range(40):
        middle = math.sqrt(cold * hot)
        weights = np.exp((q - q.max(axis=1, keepdims=True)) / middle)
        weights = np.broadcast_to(weights / weights.sum(axis=1, keepdims=True), shape)
        value = value_of(chances, weights)
        cold, hot = (middle, hot) if value > low + share * (best - low) else (cold, middle)
    return value, weights


def record(chances: Floats, weights: Floats, size: int, rng: np.random.Generator) -> list[Any]:
    """Return [episode, step] of states, actions, rewards and next states."""
    state, columns = np.zeros(size, np.int64), []
    for step in range(HORIZON):
        action = (rng.random(size)[:, None] > weights[step, state].cumsum(axis=1)).sum(axis=1).clip(0, ACTIONS - 1)
        after = (rng.random(size)[:, None] > chances[state, action].cumsum(axis=1)).sum(axis=1).clip(0, GOAL)
        columns.append((state, action, ((after == GOAL) & (state != GOAL)) * 1.0, after))
        state = after
    return [np.stack(column, axis=1) for column in zip(*columns, strict=True)]


def counted(log: list[Any], episodes: int) -> Floats:
    """Return [state, action, next state]: how often it occurred in the first episodes."""
    counts = np.zeros((STATES, ACTIONS, STATES))
    state, action, _, after = (column[:episodes].ravel() for column in log)
    np.add.at(counts, (state, action, after), 1.0)
    return counts


# Energy harvesting, in a worker process --------------------------------------------------------------------------


PEAK, BATTERY = 8, 20


def energy(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the certified gap by one log of the greedy policy."""
    problem, size = problems.energy_harvesting(peak_power=PEAK, battery=BATTERY), config["size"]
    model, rng = compile_model(problem), np.random.default_rng([17, size])
    chances, levels = [chance for chance, _ in problem.initial()], range(BATTERY + 1)
    arrivals, battery, rows = (
        rng.choice(len(chances), (size, model.horizon + 1), p=chances),
        np.zeros(size, np.int64),
        [],
    )
    for step in range(model.horizon):
        power = np.minimum(battery + arrivals[:, step], PEAK)
        after = np.minimum(battery + arrivals[:, step] - power, BATTERY)
        earned, spare = np.log2(1 + power), PEAK - power
        rows.append((battery, arrivals[:, step], power, earned, spare, after, arrivals[:, step + 1]))
        battery = after
    names = ("battery", "arrival", "power", "reward", "spare", "next battery", "next arrival")
    table = {
        name: np.stack(column, axis=1).ravel() for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    table["episode"] = np.repeat(np.arange(size), model.horizon)
    log = Logs.from_frame(
        table, horizon=model.horizon, reward_range=model.reward_range, state=names[:2], action="power",
        next_state=names[5:], constraints="spare", constraint_bounds=model.constraint_bounds,
        actions=lambda state: range(sum(state) + 1), states=[(here, more) for here in levels for more in levels],
    )  # fmt: skip
    known: dict[str, Any] = {
        "shared_transitions": lambda step, state, action: min(BATTERY, sum(state) - action),
        "dynamics": (lambda state, action, more: (min(BATTERY, sum(state) - action), more), tuple(levels)),
    }
    assumptions = Assumptions(
        stationary=True, rewards=lambda step, state, action: math.log2(1 + action),
        constraints=lambda step, state, action: PEAK - action, **{config["declared"]: known[config["declared"]]},
    )  # fmt: skip
    run = learn(log, Pessimistic(failure_probability=config["failure_probability"]), assumptions=assumptions)
    assert run.certificate is not None
    return {"gap": run.certificate.gap, "optimum": solve(model).value, "low": run.certificate.value_low}


# Drawing ---------------------------------------------------------------------------------------------------------


def draw_logs(record: FigureRecord) -> Figure:
    """Draw the mean and the 1 % quantile of the policies' values, and the certified gap, over the size of the log."""
    figure, ((mean, low, gap),) = new_figure(1, 3, height=3.4)
    for axes, measure in ((mean, VALUE), (low, LOWEST)):
        for name, rows in record.curves(GARNETS, measure[0]).items():
            curve(axes, rows, name, COLOURS[name], band=False)
            label(axes, GARNETS, record.x, rows)
        axes.set_ylim(-1.0, 1.05)
    for (name, rows), colour in zip(record.curves(ENERGY, GAP[0]).items(), (ORANGE, SKY), strict=True):
        curve(gap, rows, name, colour, marker="o")
        label(gap, "Energy harvesting", record.x, rows)
    gap.set_yscale("log")
    for axes in (mean, low, gap):
        axes.set_xscale("log")
    figure.legend(*mean.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    gap.legend()
    return figure
