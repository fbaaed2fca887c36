"""Planning on a large random model of the shape of a model checker's benchmark, against C and other planners.

Every planner gets the same model and does the same backward induction; Storm and quantecon in their own formats, built
outside of the clock. All of them say what the first state is worth. Memory is the peak of what a planner allocates
beside its model, as far as Python can see it.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from peakrl.benchmark.reference import NoReference, ReferencePlan
from peakrl.benchmark.sections import Section, in_turns
from peakrl.model.tabular import TabularModel
from peakrl.planning import solve

STATES, CHOICES, HORIZON = 1_000_000, 3.2, 100
#: The share of pairs with a second outcome, and the far ones among next states: most lie near, as breadth first has it.
BRANCHING, FAR, REACH = 0.1, 0.05, 1_000
#: Plans, and returns what the first state is worth.
Run = Callable[[], float]


def random_model(states: int, horizon: int, seed: int = 0) -> TabularModel:
    """A stationary model without constraints: 3.2 actions a state and 1.1 outcomes an action on average."""
    from scipy import sparse

    rng = np.random.default_rng(seed)
    most = 5
    available = np.arange(most) < rng.choice([2, 3, 4, 5], states, p=[0.3, 0.35, 0.2, 0.15])[:, None]
    pairs = states * most
    sizes = 1 + (rng.random(pairs) < BRANCHING)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    state = np.repeat(np.arange(states), most).repeat(sizes)
    near = state + rng.integers(-REACH, REACH, starts[-1])
    following = np.where(rng.random(starts[-1]) < FAR, rng.integers(0, states, starts[-1]), near) % states
    first = rng.uniform(0.1, 0.9, pairs)
    probability = np.where(sizes.repeat(sizes) == 1, 1.0, first.repeat(sizes))
    second = starts[1:][sizes == 2] - 1
    probability[second] = 1.0 - first[sizes == 2]
    laws = sparse.csr_matrix((probability, following, starts), shape=(pairs, states))
    rewards = rng.random((states, most))
    return TabularModel.from_arrays(laws, rewards, np.empty((0, states, most)), horizon, available=available)


def planning_rates(section: Section, repeats: int, quick: bool) -> None:
    """One core in turns by process time; then all cores, by the clock on the wall."""
    section.say("building the model")
    model = random_model(2_000 if quick else STATES, 5 if quick else HORIZON)
    runs: dict[str, Run] = {"peakrl": lambda: solve(model, threads=1).value}
    planners = (("C, policy kept", plain_c), ("Storm, value only", storm), ("quantecon", quantecon))
    for name, make in (*planners, ("mdpsolver", mdpsolver)):
        section.say(f"building it for {name}")
        try:
            runs[name] = make(model)
        except (NoReference, ImportError) as error:
            section.notes.append(f"{name} left out: {error}")
    section.say(f"solving in turns: {', '.join(runs)}")
    seconds = dict(zip(runs, in_turns(list(runs.values()), repeats), strict=True))
    compared = seconds.get("C, policy kept", seconds["peakrl"])
    for name, run in runs.items():
        section.add(**columns(model, name, seconds[name], compared, *value_and_megabytes(run)))
    values = [row["first state's value"] for row in section.rows]
    policy = solve(model).policy.choices
    assert policy is not None
    section.notes += [
        f"values of the first state differ by {(max(values) - min(values)) / abs(values[0]):.1g} of it at most",
        f"{model.num_states:,} states, {model.num_pairs:,} pairs, {model.horizon} steps; a policy takes "
        f"{policy.nbytes / 1e6:.0f} MB, the model {model.nbytes / 1e6:.0f} MB",
        *threads_compared(section, model, repeats),
    ]


def threads_compared(section: Section, model: TabularModel, repeats: int) -> list[str]:
    """Return what a second thread of `solve` gains, and what the memory of this machine would let anybody gain."""
    section.say("solving with every core")
    cores = len(os.sched_getaffinity(0))
    found = [lambda: solve(model, threads=1).value, lambda: solve(model).value]
    one, every = in_turns(found, repeats, time.perf_counter)
    notes = [f"peakrl on {cores} cores: {every:.3g} s, {one / every:.2f} times as fast as on one (time on the wall)"]
    with suppress(NoReference):
        plan = ReferencePlan(model)
        plans = [plan, *(plan.again() for _ in range(cores - 1))]

        def side_by_side() -> None:
            with ThreadPoolExecutor(cores) as pool:
                list(pool.map(lambda each: each(), plans))

        alone, together = in_turns([plan, side_by_side], repeats, time.perf_counter)
        notes.append(
            f"{cores} C loops side by side, each of its own, do {cores * alone / together:.2f} times the work of one: "
            "what this machine's memory leaves to more cores"
        )
    return notes


def columns(
    model: TabularModel, name: str, seconds: float, compared: float, value: float, megabytes: float
) -> dict[str, Any]:
    """Return a line of the table."""
    return {
        "planner": name,
        "s": seconds,
        "ns a pair and step": 1e9 * seconds / model.num_entries,
        "times C": seconds / compared,
        "MB beside the model": megabytes,
        "first state's value": value,
    }


def value_and_megabytes(run: Run) -> tuple[float, float]:
    """Return what the first state is worth, and the most that was allocated at a time through Python or numpy."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def plain_c(model: TabularModel) -> Run:
    """The C loop that one would write on a first day (`benchmarks/solve.c`)."""
    plan, first = ReferencePlan(model), int(model.first_slot[0])
    return lambda: float(plan()[first])


def storm(model: TabularModel) -> Run:
    """Storm's sparse engine: the most reward within the horizon, of every state; it keeps no policy."""
    stormpy = importlib.import_module("stormpy")
    with tempfile.TemporaryDirectory(prefix="peakrl-bench-") as folder:
        path = Path(folder) / "model.drn"
        with open(path, "w", encoding="ascii") as file:
            file.writelines(explicit(model))
        built = stormpy.build_model_from_drn(str(path))
    (asked,) = stormpy.parse_properties(f'R{{"reward"}}max=? [C<={model.horizon}]')
    first = built.initial_states[0]

    def run() -> float:
        found = stormpy.model_checking(built, asked, only_initial_states=False)
        return float(found.get_value(first) if hasattr(found, "get_value") else found.at(first))  # before 2.0: at

    return run


def explicit(model: TabularModel) -> Iterator[str]:
    """Yield the lines of a model in Storm's explicit format."""
    layout, reward = model.layout, model.row_means(model.payoffs.reward).tolist()
    start, link, cut = layout.row_start.tolist(), layout.row_distribution.tolist(), layout.outcome_start.tolist()
    following, chance, first = layout.outcome_next.tolist(), layout.outcome_probability.tolist(), model.first_slot[0]
    yield f"@type: MDP\n@parameters\n\n@reward_models\nreward\n@nr_states\n{model.num_slots}\n"
    yield f"@nr_choices\n{model.num_rows}\n@model\n"
    for slot in range(model.num_slots):
        yield f"state {slot} [0]{' init' if slot == first else ''}\n"
        for row in range(start[slot], start[slot + 1]):
            yield f"\taction {row - start[slot]} [{reward[row]!r}]\n"
            outcomes = sorted((following[o], chance[o]) for o in range(cut[link[row]], cut[link[row] + 1]))
            yield from (f"\t\t{place} : {probability!r}\n" for place, probability in outcomes)


def quantecon(model: TabularModel) -> Run:
    """quantecon's backward induction over state-action pairs, which keeps values and the policy of every step."""
    from scipy import sparse

    markov = importlib.import_module("quantecon.markov")
    layout = model.layout
    laws = sparse.csr_matrix(
        (layout.outcome_probability, layout.outcome_next, layout.outcome_start),
        shape=(len(layout.outcome_start) - 1, model.num_slots),
    )[layout.row_distribution]
    reward = model.row_means(model.payoffs.reward)
    with warnings.catch_warnings():  # of what it cannot do without a discount, which nobody asks of it
        warnings.simplefilter("ignore")
        problem = markov.DiscreteDP(reward, laws, 1.0, model.slot_of_row, model.row_action)
    first = int(model.first_slot[0])
    return lambda: float(markov.backward_induction(problem, model.horizon)[0][0, first])


def mdpsolver(model: TabularModel) -> Run:
    """mdpsolver solves discounted problems of no end only."""
    importlib.import_module("mdpsolver")
    raise ImportError("it solves discounted problems without a horizon only, which is another computation")
