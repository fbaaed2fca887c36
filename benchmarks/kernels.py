"""Steps a second of the learners' kernels, on one core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peakrl.benchmark.reference import NoReference, ReferenceRun
from peakrl.benchmark.sections import Section, in_turns
from peakrl.learning.active import ActiveRun
from peakrl.learning.run import learn
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.problems.harvesting.problem import energy_harvesting
from peakrl.problems.scheduling.problem import scheduling_example


def problems(quick: bool) -> dict[str, tuple[TabularModel, int]]:
    """{name: (model, episodes)}"""
    less = 10 if quick else 1
    return {
        "energy harvesting, random arrivals": (compile_model(energy_harvesting()), 50_000 // less),
        "scheduling example 2": (compile_model(scheduling_example(2)), 500_000 // less),
    }


def bare_run(model: TabularModel, settings: LearnerSettings, episodes: int) -> Callable[[], ActiveRun]:
    """Return a function that learns without history and averaged policy."""

    def run() -> ActiveRun:
        active = ActiveRun(model, settings, planned=episodes, seed=0, every=0, average=False)
        active.advance(episodes)
        return active

    return run


def table_bytes(active: ActiveRun) -> int:
    """Bytes of everything that learning writes to."""
    return sum(array.nbytes for array in active.learned().arrays().values())


def kernel_rates(section: Section, repeats: int, quick: bool) -> None:
    """Algorithm 1 with and without the Bernstein bonus, and the ratio to C."""
    kinds = {
        "none": LearnerSettings.published(0.1),
        "hoeffding": LearnerSettings.paper(0.1, bonus="hoeffding"),
        "bernstein": LearnerSettings.paper(0.1),
    }
    for name, (model, episodes) in problems(quick).items():
        for bonus, settings in kinds.items():
            run = bare_run(model, settings, episodes)
            steps = episodes * model.horizon
            row: dict[str, Any] = {"problem": name, "bonus": bonus}
            try:
                if bonus == "hoeffding":
                    raise NoReference("the C version has no Hoeffding bonus")
                seconds, c_seconds = in_turns([run, ReferenceRun(model, settings, episodes)], repeats)
                compared: dict[str, Any] = {"C ns a step": 1e9 * c_seconds / steps, "times C": c_seconds / seconds}
            except NoReference as reason:
                if str(reason) not in section.notes:
                    section.notes.append(str(reason))
                seconds = in_turns([run], repeats)[0]
                compared = {"C ns a step": None, "times C": None}
            row |= {"million steps a second": steps / seconds / 1e6, "ns a step": 1e9 * seconds / steps} | compared
            row["bytes a pair and step"] = table_bytes(run()) / model.num_entries
            section.add(**row)
    section.notes.append(
        "both times include filling the tables; bytes a pair and step: all tables that learning writes"
    )


def practical_rates(section: Section, repeats: int, quick: bool) -> None:
    """Nanoseconds for each entry that an update reaches: all steps of a pair where steps are shared."""
    model, episodes = problems(quick)["energy harvesting, random arrivals"]
    kinds = {
        "Algorithm 1, no bonus": (LearnerSettings.published(0.1), 1),
        "practical": (LearnerSettings.practical(), model.horizon),
        "practical, steps not shared": (LearnerSettings.practical(share_steps=False), 1),
    }
    runs = [
        lambda settings=settings: learn(model, settings, episodes=episodes, record="none", average=False)
        for settings, _ in kinds.values()
    ]
    steps = episodes * model.horizon
    for (name, (_, entries)), seconds in zip(kinds.items(), in_turns(runs, repeats), strict=True):
        each = 1e9 * seconds / steps
        section.add(learner=name, **{"ns a step": each, "entries a step": entries, "ns an entry": each / entries})
