"""Learning on models: steps a second of kernels, the cost of history, several cores, and certificates."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.reference import NoReference, ReferenceRun
from benchmarks.timing import Section, in_turns
from peakrl import TabularModel, certify, compile_model, learn, learn_many, solve
from peakrl.learners import Certified, ConstrainedQ, SafeQ
from peakrl.learners.base import LearnerSettings
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.problems.harvesting import draw_arrivals
from peakrl.training.many import usable_cores
from peakrl.training.trainer import Trainer


def problems(quick: bool) -> dict[str, tuple[TabularModel, int]]:
    """{name: (model, episodes)}"""
    less = 10 if quick else 1
    return {
        "energy harvesting, random arrivals": (compile_model(energy_harvesting()), 50_000 // less),
        "scheduling example 2": (compile_model(scheduling_example(2)), 500_000 // less),
    }


def bare_run(model: TabularModel, settings: LearnerSettings, episodes: int) -> Callable[[], Trainer]:
    """Return a function that learns without history and averaged policy."""

    def run() -> Trainer:
        active = Trainer(model, settings, planned=episodes, seed=0, every=0, average=False)
        active.advance(episodes)
        return active

    return run


def table_bytes(active: Trainer) -> int:
    """Bytes of everything that learning writes to."""
    return sum(array.nbytes for array in active.learned().arrays().values())


def kernel_rates(section: Section, repeats: int, quick: bool) -> None:
    """Algorithm 1 with each bonus and SafeQ, and the ratio to C."""
    kinds: dict[str, Any] = {
        "Algorithm 1, no bonus": ConstrainedQ.published(0.1),
        "Algorithm 1, Hoeffding": ConstrainedQ.paper(0.1, bonus="hoeffding"),
        "Algorithm 1, Bernstein": ConstrainedQ.paper(0.1),
        "SafeQ": SafeQ(),
    }
    without_c = ("Algorithm 1, Hoeffding", "SafeQ")
    for name, (model, episodes) in problems(quick).items():
        for kind, settings in kinds.items():
            functions: list[Callable[[], Any]] = [bare_run(model, settings, episodes)]
            try:
                if kind not in without_c:
                    functions.append(ReferenceRun(model, settings, episodes))
            except NoReference as reason:
                section.notes = [str(reason)]
            steps, (seconds, *in_c) = episodes * model.horizon, in_turns(functions, repeats)
            section.add(
                problem=name, learner=kind,
                **{"million steps a second": steps / seconds / 1e6, "ns a step": 1e9 * seconds / steps},
                **{"C ns a step": 1e9 * in_c[0] / steps if in_c else None},
                **{"times C": in_c[0] / seconds if in_c else None},
                **{"bytes a pair and step": table_bytes(functions[0]()) / model.num_entries},
            )  # fmt: skip
    section.notes.append("times include filling the tables; bytes a pair and step: all tables that learning writes")


def history_costs(section: Section, repeats: int, quick: bool) -> None:
    """The exact curve of pi^k and of pi-bar^k, against learning alone: random arrivals, and frozen ones of figure 2."""
    random, episodes = problems(quick)["energy harvesting, random arrivals"]
    frozen = compile_model(energy_harvesting(arrivals=draw_arrivals(1, seed=0)[0]))
    kinds: dict[str, Any] = {
        "nothing": ("none", False),
        "1,000 points": ("auto", False),
        "1,000 points, averaged policy": ("auto", True),
        "every episode, averaged policy": (1, True),
    }
    settings = ConstrainedQ.published(0.1)
    for name, model in (("random arrivals", random), ("frozen arrivals", frozen)):
        runs: list[Any] = [bare_run(model, settings, episodes)]
        for record, average in kinds.values():
            runs.append(partial(learn, model, settings, episodes=episodes, history=record, average=average))
        for kept, seconds in zip(("kernel alone", *kinds), times := in_turns(runs, repeats), strict=True):
            section.add(model=name, kept=kept, **{"s": seconds, "times kernel": seconds / times[0]})


def core_rates(section: Section, repeats: int, quick: bool) -> None:
    """`learn_many` with one thread and with one for each core, by the clock on the wall."""
    cores = usable_cores()
    random, episodes = problems(quick)["energy harvesting, random arrivals"]
    arrivals = draw_arrivals((4 if quick else 20) * cores, seed=0)
    frozen = [compile_model(energy_harvesting(arrivals=sequence)) for sequence in arrivals]
    cases: dict[str, Any] = {
        "energy harvesting, random arrivals": (random, episodes, range(4 * cores)),
        "the same, frozen arrivals (figure 2)": (frozen, 20_000, 0),
    }
    for name, (models, length, seeds) in cases.items():
        run = partial(
            learn_many, models, ConstrainedQ.published(0.1), length, seeds,
            average=False, history="none", keep=lambda run: None,
        )  # fmt: skip
        one, every = in_turns([partial(run, workers=1), partial(run, workers=cores)], repeats, time.perf_counter)
        section.add(runs=name, cores=cores, **{"s on one": one, "s on all": every, "times one": one / every})


def certificate_times(section: Section, repeats: int, quick: bool) -> None:
    """A certified learner until it stops, and `certify` of an optimal policy on its model."""
    share = 0.2 if quick else 0.05
    cases = {
        "energy harvesting, peak 8": compile_model(energy_harvesting(peak_power=8)),
        "scheduling example 1": compile_model(scheduling_example(1)),
    }
    for name, model in cases.items():
        best = solve(model)
        settings = Certified(share * abs(best.value))
        run = partial(learn, model, settings, episodes=1_000_000, history="none", average=False)
        learned, exact = in_turns([run, partial(certify, model, best.policy)], 1 if quick else repeats)
        episodes, gap = run().episodes, f"{100 * share:g} %"
        section.add(problem=name, gap=gap, episodes=episodes, **{"s to learn it": learned, "s, model known": exact})
