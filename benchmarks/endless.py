"""Planning without an end, on one core: discounted values against other planners, the safe set against one plain sweep.

Every planner gets the same model, in its own format, and stops when its value is within `TOLERANCE` of the best value
by its own rule; peakrl returns bounds that include rounding. Values are those of the first state.
"""

from __future__ import annotations

import importlib
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from benchmarks.models import random_model
from benchmarks.timing import Section, in_turns
from peakrl import TabularModel, solve
from peakrl.viability import steps_kept

STATES, DISCOUNT, TOLERANCE = 1_000_000, 0.99, 1e-6
#: Of the plain loop: steps for which a policy is followed between two improvements, the best of 10, 20, 50, 100, 200.
STEPS = 50
#: Size of the best value, for planners whose tolerance is not relative.
SIZE = 0.7 / (1 - DISCOUNT)


def endless_rates(section: Section, repeats: int, quick: bool) -> None:
    """Discounted values, and the safe set for ever."""
    model = random_model(2_000 if quick else STATES, None)
    runs: dict[str, Callable[[], float]] = {
        "peakrl": lambda: solve(model, discount=DISCOUNT, tolerance=TOLERANCE, threads=1).value,
        "plain numba loop": lambda: plain(model),
    }
    for name, make in (("quantecon", quantecon), ("mdpsolver", mdpsolver)):
        section.say(f"building the model for {name}")
        with suppress(ImportError):
            runs[name] = make(model)
    seconds = in_turns(list(runs.values()), repeats)
    for (name, run), each in zip(runs.items(), seconds, strict=True):
        section.add(
            planner=name, s=each, **{"bytes a state beside the model": peak(run) / model.num_states}, value=run()
        )
    unsafe = np.random.default_rng(0).random(model.num_rows) < 0.3
    layout, nobody = model.one_step, np.zeros(model.num_slots, np.bool_)

    def safe() -> int:
        return int((steps_kept(layout, ~unsafe, nobody)[0] < 2**31 - 1).sum())

    once, sweep = in_turns([safe, lambda: sweep_predecessors(model, ~unsafe)], repeats)
    section.notes += [
        f"{model.num_states:,} states, {model.num_rows:,} pairs, {len(model.outcome_next):,} outcomes; "
        f"the model takes {model.nbytes / model.num_states:.0f} bytes a state",
        f"safe set for ever: {once:.3f} s, {safe():,} states, {peak(safe) / model.num_states:.0f} bytes a state; "
        f"one sweep over predecessors: {sweep:.3f} s",
    ]


def peak(run: Callable[[], Any]) -> int:
    """Return the largest number of bytes that a call has allocated, as far as Python can see."""
    tracemalloc.start()
    run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def plain(model: TabularModel) -> float:
    """Modified policy iteration in one loop, with MacQueen's bounds."""
    values = plain_loop(
        model.row_start, model.row_distribution, model.outcome_start, model.outcome_next, model.outcome_probability,
        model.payoffs.reward, DISCOUNT, TOLERANCE,
    )  # fmt: skip
    return float(values[model.first_slot[0]])


@njit
def plain_loop(row_start, distribution, start, following, chance, reward, discount, tolerance):  # type: ignore[no-untyped-def]
    slots = len(row_start) - 1
    values, applied, chosen = np.zeros(slots), np.zeros(slots), np.zeros(slots, np.int64)
    while True:
        least, most = np.inf, -np.inf
        for slot in range(slots):
            best = -np.inf
            for row in range(row_start[slot], row_start[slot + 1]):
                total, d = 0.0, distribution[row]
                for o in range(start[d], start[d + 1]):
                    total += chance[o] * values[following[o]]
                total = reward[row] + discount * total
                if total > best:
                    best, chosen[slot] = total, row
            applied[slot] = best
            least, most = min(least, best - values[slot]), max(most, best - values[slot])
        if discount / (1 - discount) * (most - least) <= tolerance * abs(applied[0]):
            return applied + discount / (1 - discount) * (least + most) / 2
        for _ in range(STEPS):
            for slot in range(slots):
                total, d = 0.0, distribution[chosen[slot]]
                for o in range(start[d], start[d + 1]):
                    total += chance[o] * applied[following[o]]
                values[slot] = reward[chosen[slot]] + discount * total
            values, applied = applied, values
        values, applied = applied, values


def transitions(model: TabularModel) -> Any:
    """Return the matrix [row, slot]."""
    shape = (len(model.outcome_start) - 1, model.num_slots)
    return sparse.csr_matrix((model.outcome_probability, model.outcome_next, model.outcome_start), shape)[
        model.row_distribution
    ]


def quantecon(model: TabularModel) -> Callable[[], float]:
    """quantecon's modified policy iteration over state-action pairs."""
    markov = importlib.import_module("quantecon.markov")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = markov.DiscreteDP(model.row_reward, transitions(model), DISCOUNT, model.slot_of_row, model.row_action)
    first = int(model.first_slot[0])
    return lambda: float(problem.solve(method="modified_policy_iteration", epsilon=TOLERANCE * SIZE).v[first])


def mdpsolver(model: TabularModel) -> Callable[[], float]:
    """mdpsolver's modified policy iteration, on one thread."""
    module, matrix, reward = importlib.import_module("mdpsolver"), transitions(model), model.row_reward.tolist()
    cut, columns, chances = matrix.indptr.tolist(), matrix.indices.tolist(), matrix.data.tolist()
    rows = [range(*pair) for pair in zip(model.row_start[:-1].tolist(), model.row_start[1:].tolist(), strict=True)]
    solver = module.model()
    solver.mdp(
        discount=DISCOUNT,
        rewards=[[reward[row] for row in own] for own in rows],
        tranMatProbs=[[chances[cut[row] : cut[row + 1]] for row in own] for own in rows],
        tranMatColumns=[[columns[cut[row] : cut[row + 1]] for row in own] for own in rows],
    )

    def run() -> float:
        solver.solve(
            algorithm="mpi", tolerance=TOLERANCE * SIZE, parallel=False, initValueVector=[0.0] * model.num_slots
        )
        return float(solver.getValue(int(model.first_slot[0])))

    return run


@njit
def predecessors(row_start, distribution, start, following, keeps):  # type: ignore[no-untyped-def]
    """Build the lists of predecessors and pass over all of them once: count those of each state that keep."""
    slots, outcomes = len(row_start) - 1, 0
    begin = np.zeros(slots + 1, np.int64)
    for row in range(len(distribution)):
        for o in range(start[distribution[row]], start[distribution[row] + 1]):
            begin[following[o] + 1] += 1
    begin = np.cumsum(begin)
    place, source = begin[:-1].copy(), np.empty(begin[-1], np.int32)
    for slot in range(slots):
        for row in range(row_start[slot], row_start[slot + 1]):
            for o in range(start[distribution[row]], start[distribution[row] + 1]):
                source[place[following[o]]] = row
                place[following[o]] += 1
    for slot in range(slots):
        for index in range(begin[slot], begin[slot + 1]):
            outcomes += keeps[source[index]]
    return outcomes


def sweep_predecessors(model: TabularModel, keeps: Any) -> int:
    """Return what `predecessors` counts."""
    return int(predecessors(model.row_start, model.row_distribution, model.outcome_start, model.outcome_next, keeps))
