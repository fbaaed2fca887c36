"""The runs of `neighbours`, as functions of a plain configuration."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from peakrl.evaluation import evaluate
from peakrl.learning.active import ActiveRun, drive
from peakrl.learning.knowledge import Knowledge
from peakrl.learning.run import LearningRun
from peakrl.learning.settings import LearnerSettings
from peakrl.model.explore import compile_model
from peakrl.model.tabular import TabularModel
from peakrl.paper.certificate_tasks import declared
from peakrl.paper.neighbour_problems import common_problem

#: What exact expectations may exceed a limit by.
ROUNDING = 1e-9
#: Run before the clock starts, so that no row is charged for kernels that are compiled or loaded.
WARM_UP = 25


@cache
def compiled(name: str) -> TabularModel:
    """Return the model of a common problem."""
    return compile_model(common_problem(name).make())


def learn_neighbour(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn, and tell how every policy that was followed stood to the limit.

    `seconds` is of a clock, so that the digests of these results differ from run to run, and all else in them does not.
    """
    model, limit = compiled(config["problem"]), common_problem(config["problem"]).limit
    start(config, model, min(WARM_UP, config["episodes"]))
    begun = time.process_time()
    active, run = start(config, model, config["episodes"])
    seconds = time.process_time() - begun
    stored = sum(array.size for array in active.learned().arrays().values())
    proved = {} if run.certificate is None else {"proved_gap": run.certificate.gap}
    told = {**figures(run, model, limit), **prices(run), **proved}
    return {**told, "seconds": seconds, "stored": stored, "violations": run.violations}


def start(config: Mapping[str, Any], model: TabularModel, episodes: int) -> tuple[ActiveRun, LearningRun]:
    """Run so many episodes of those that are planned."""
    knowledge = Knowledge(support=model) if config["support"] else declared(config["declared"], model)
    settings = LearnerSettings.from_dict(config["learner"])
    active = ActiveRun(
        model, settings, planned=config["episodes"], seed=config["seed"], every=1, average=False, knowledge=knowledge
    )
    return active, drive(active, episodes)


def prices(run: LearningRun) -> dict[str, float]:
    """Return the price of the one limit that a learner keeps, at the end and on average, where it has them."""
    last, mean = run.multipliers, run.averaged_multipliers
    found = {"price": last, "averaged_price": mean}
    return {name: float(each[0]) for name, each in found.items() if each is not None and len(each) == 1}


def figures(run: LearningRun, model: TabularModel, limit: float) -> dict[str, float]:
    """Return value and violation of what is handed out and of the mean over episodes, and sums by episode."""
    history, handed = run.history, evaluate(model, run.policy)
    above = history.violation - limit
    return {
        "value": handed.value,
        "violation": handed.violation,
        "averaged_value": float(history.averaged_value[-1]),
        "averaged_violation": float(history.averaged_violation[-1]),
        "positive_sum": float(np.maximum(above, 0.0).mean()),
        "signed_sum": float(above.mean()),
        "violating": float((above > ROUNDING).mean()),
    }
