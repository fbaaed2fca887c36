"""The runs of `robustness`, as functions of a plain configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from peakrl.evaluation import Evaluation, evaluate
from peakrl.kernels.arrays import Floats
from peakrl.learning.active import ActiveRun
from peakrl.learning.settings import LearnerSettings
from peakrl.model.tabular import TabularModel
from peakrl.paper.robustness_problems import INFEASIBLE, instance
from peakrl.planning import Solution, solve
from peakrl.policy.tables import Policy, StochasticPolicy

#: Families whose gap is a share of what the optimum earns beyond a policy that draws among viable actions.
BEYOND_CHANCE = ("stock and queues", "grids")
CATASTROPHE = "rare catastrophe"


def learn_instance(config: Mapping[str, Any]) -> dict[str, Any]:
    """Learn an instance; how far what is handed out falls short at given episodes, and the value lost on the way."""
    family, places = config["family"], config["places"]
    model = instance(family, config["number"])
    best = solve(model)
    active = ActiveRun(
        model, LearnerSettings.from_dict(config["learner"]), planned=places[-1], seed=config["seed"],
        every=places[0] if config["exact"] else 0, average=False,
    )  # fmt: skip
    scale, short, chance = scale_of(family, model, best), [], []
    for place in places:
        active.advance(place - active.done)
        found = evaluate(model, Policy(model, active.learned().decided()))
        short.append(shortfall(family, best, found, scale))
        chance.append(found.violation_probability)
    answer = {"gap": np.array(short), "chance": np.array(chance), "violations": int(active.counters[0])}
    if active.recorder is not None:
        history = active.recorder.history(active.done)
        at = np.searchsorted(history.episode, places)
        answer["lost"] = np.array(places) * (best.value - history.averaged_value[at])
    return answer


def shortfall(family: str, best: Solution[Policy], found: Evaluation, scale: float) -> float:
    """Return what is missing to the optimum in per cent; of an infeasible instance, the violation beyond the least.

    Of a rare catastrophe it is the probability of violating, as it is.
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
    """[entry]: draw among the viable actions of a state; where there are none, among all."""
    viable = model.safe.entries.reshape(-1, model.num_rows).astype(float)
    offers = np.flatnonzero(np.diff(model.row_start) > 0)
    first, sizes = model.row_start[:-1][offers], np.diff(model.row_start)[offers]
    none = np.repeat(np.add.reduceat(viable, first, axis=1) == 0, sizes, axis=1)
    viable[none] = 1.0
    chances: Floats = viable / np.repeat(np.add.reduceat(viable, first, axis=1), sizes, axis=1)
    return chances.ravel()
