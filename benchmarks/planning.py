"""Planning and building models, against C and other planners.

Every planner gets the same model and does the same backward induction; Storm and quantecon in their own formats, built
outside of the clock. All of them return the value of the first state. Memory is the peak of what a planner allocates
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
from functools import partial
from pathlib import Path
from typing import Any

from scipy import sparse

from benchmarks.learning import bare_run, table_bytes
from benchmarks.models import SPARSE_ACTIONS, SPARSE_HORIZON, PlainQueues, Queues, random_model, sparse_model
from benchmarks.reference import NoReference, ReferencePlan
from benchmarks.timing import Section, in_turns
from peakrl import TabularModel, compile_model, solve
from peakrl.compile import explore
from peakrl.learners import ConstrainedQ
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.storage import available_memory

STATES, HORIZON = 1_000_000, 100
#: Bytes for each entry (pair and step) that building, solving and learning may take together at their peak.
BYTES_AN_ENTRY = 60
#: Steps that are learned on a model of `scaling`.
STEPS = 2_000_000


# solve -----------------------------------------------------------------------------------------------------------


def solve_rates(section: Section, repeats: int, quick: bool) -> None:
    """One core in turns by process time; then all cores, by the clock on the wall."""
    section.say("building the model")
    model = random_model(2_000 if quick else STATES, 5 if quick else HORIZON)
    runs: dict[str, Callable[[], float]] = {"peakrl": lambda: solve(model, threads=1).value}
    for name, make in (("C, policy kept", plain_c), ("Storm, value only", storm), ("quantecon", quantecon)):
        section.say(f"building it for {name}")
        try:
            runs[name] = make(model)
        except (NoReference, ImportError) as error:
            section.notes.append(f"{name} left out: {error}")
    seconds = dict(zip(runs, in_turns(list(runs.values()), repeats), strict=True))
    compared = seconds.get("C, policy kept", seconds["peakrl"])
    for name, run in runs.items():
        tracemalloc.start()
        value, megabytes = run(), tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        each = 1e9 * seconds[name] / model.num_entries
        section.add(
            planner=name, s=seconds[name],
            **{"ns a pair and step": each, "times C": seconds[name] / compared},
            **{"MB beside the model": megabytes, "first state's value": value},
        )  # fmt: skip
    values = [row["first state's value"] for row in section.rows]
    section.notes += [
        f"values of the first state differ by {(max(values) - min(values)) / abs(values[0]):.1g} of it at most",
        f"{model.num_states:,} states, {model.num_pairs:,} pairs, {model.horizon} steps; "
        f"the model takes {model.nbytes / 1e6:.0f} MB",
        *threads_compared(model, repeats),
    ]


def threads_compared(model: TabularModel, repeats: int) -> list[str]:
    """Return what more threads of `solve` gain, and what the memory of this machine allows to gain."""
    cores = len(os.sched_getaffinity(0))
    one, every = in_turns([partial(solve, model, threads=1), partial(solve, model)], repeats, time.perf_counter)
    notes = [f"peakrl on {cores} cores: {every:.3g} s, {one / every:.2f} times as fast as on one (time on the wall)"]
    with suppress(NoReference):
        plan = ReferencePlan(model)
        plans = [plan, *(plan.again() for _ in range(cores - 1))]

        def side_by_side() -> None:
            with ThreadPoolExecutor(cores) as pool:
                list(pool.map(lambda each: each(), plans))

        alone, together = in_turns([plan, side_by_side], repeats, time.perf_counter)
        notes.append(f"{cores} C loops side by side do {cores * alone / together:.2f} times the work of one")
    return notes


def plain_c(model: TabularModel) -> Callable[[], float]:
    """The plain C loop (`benchmarks/solve.c`)."""
    plan, first = ReferencePlan(model), int(model.first_slot[0])
    return lambda: float(plan()[first])


def storm(model: TabularModel) -> Callable[[], float]:
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


def quantecon(model: TabularModel) -> Callable[[], float]:
    """quantecon's backward induction over state-action pairs, which keeps values and the policy of every step."""
    markov, layout = importlib.import_module("quantecon.markov"), model.layout
    transitions = sparse.csr_matrix(
        (layout.outcome_probability, layout.outcome_next, layout.outcome_start),
        shape=(len(layout.outcome_start) - 1, model.num_slots),
    )[layout.row_distribution]
    with warnings.catch_warnings():  # about what it cannot do without a discount
        warnings.simplefilter("ignore")
        reward = model.row_means(model.payoffs.reward)
        problem = markov.DiscreteDP(reward, transitions, 1.0, model.slot_of_row, model.row_action)
    first = int(model.first_slot[0])
    return lambda: float(markov.backward_induction(problem, model.horizon)[0][0, first])


# Models of growing size ------------------------------------------------------------------------------------------


def scaling_rates(section: Section, repeats: int, quick: bool) -> None:
    """Build, solve and learn while S*A*H goes from 10^3 to 10^8."""
    for power in range(3, 7 if quick else 9):
        entries = 10**power
        if entries * BYTES_AN_ENTRY > available_memory():
            section.notes.append(f"10^{power} entries left out: they may take {entries * BYTES_AN_ENTRY / 1e9:.0f} GB")
            continue
        states, often = entries // (SPARSE_ACTIONS * SPARSE_HORIZON), 1 if power >= 7 else repeats
        model, episodes = sparse_model(states), STEPS // SPARSE_HORIZON
        learner = bare_run(model, ConstrainedQ.published(0.1), episodes)()
        build, plan, learned = in_turns(
            [partial(sparse_model, states), partial(solve, model), partial(learner.advance, episodes)], often
        )
        section.add(
            entries=model.num_entries, states=model.num_states, pairs=model.num_pairs,
            **{"ns a step": 1e9 * learned / STEPS, "s to build": build, "s to solve": plan},
            **{"ns to solve, a pair and step": 1e9 * plan / model.num_entries},
            **{"model bytes a pair": model.nbytes / model.num_pairs},
            **{"table bytes an entry": table_bytes(learner) / model.num_entries},
        )  # fmt: skip
    section.notes.append("entries: S*A*H; process time; build: TabularModel.from_arrays, its input included")


def compile_rates(section: Section, repeats: int, quick: bool) -> None:
    """Pairs a second of `compile_model`: state by state, and many states at once."""
    room = 6 if quick else 46
    ways: list[tuple[Any, str, Any]] = [(PlainQueues(room), "state by state", explore)]
    ways.append((Queues(room), "many states at once", compile_model))
    for problem in (energy_harvesting(), scheduling_example(2)):
        ways += [(problem, "state by state", explore), (problem, "many states at once", compile_model)]
    for problem, way, build in ways:
        pairs, (seconds,) = build(problem).num_rows, in_turns([partial(build, problem)], repeats)
        section.add(problem=problem.name, way=way, ms=1e3 * seconds, **{"pairs a second": pairs / max(seconds, 1e-9)})
