"""What progress calls the runs of an experiment: the problem, the learner, how long, and which seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from peakrl.runs import Task


def named(task: Task) -> Task:
    """Return a task with a name that is made of its configuration; one that has a name keeps it."""
    return task if task.name else replace(task, name=", ".join(words(task)))


def words(task: Task) -> Iterator[str]:
    """Yield what tells a run from the others."""
    config = task.config
    problem = config.get("problem", {name: config[name] for name in ("family", "number") if name in config})
    yield from filter(None, [problem_words(problem)])
    yield learner_words(config) or task.function.rpartition(":")[2].replace("_", " ")
    if config.get("rung"):
        yield f"knowing {config['rung']}"
    if config.get("declared"):
        yield f"declared {' and '.join(config['declared'])}"
    if isinstance(config.get("episodes"), int):
        yield f"{config['episodes']:,} episodes"
    yield from filter(None, [which(config)])


def problem_words(problem: Any) -> str:
    """Return what a problem is called."""
    if not isinstance(problem, Mapping):
        return str(problem)
    kind = str(problem.get("kind", problem.get("family", ""))).replace("_", " ")
    told = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in problem.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "seed"
    ]
    return f"{kind} ({', '.join(told)})" if told else kind


def learner_words(config: Mapping[str, Any]) -> str:
    """Return who learns; nothing where nobody does."""
    if "learners" in config:
        return f"{len(config['learners'])} learners"
    learner = config.get("learner")
    return str(learner["learner"]) if isinstance(learner, Mapping) else str(learner or "")


def which(config: Mapping[str, Any]) -> str:
    """Return the seeds, sequences or tests of a run."""
    if "arrivals" in config:
        return f"{len(config['arrivals'])} sequences"
    if config.get("tests"):
        return f"tests {config['tests'][0] + 1} to {config['tests'][-1] + 1}"
    if "seeds" in config:
        return f"{config['seeds']} seeds"
    return f"seed {config['seed']}" if "seed" in config else ""
