"""Tables of posterior sampling from a file: whatever a kernel will trust is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from peakrl.learners.posterior_sampling.tables import CELLS, DEAD_FIRST, EPISODES, NO_CELL, PROVED
from peakrl.types import Ints

if TYPE_CHECKING:
    from peakrl.learners.posterior_sampling.learner import PosteriorLearner


def check_posterior(learner: PosteriorLearner, done: int) -> None:
    """Raise where tables from a file hold what posterior sampling cannot have written after `done` episodes."""
    space, status, arrays = learner.space, learner.status, learner.arrays()
    start, rows = space.layout.row_start, arrays["row"]
    has = np.diff(start) > 0
    if (((rows < start[:-1, None]) | (rows >= start[1:, None])) & has[:, None]).any():
        raise ValueError("engine.row names a row that its state has not")
    cells, steps = int(status[CELLS]), done * space.horizon
    limits = {
        "head": (NO_CELL, cells - 1), "cell_link": (NO_CELL, cells - 1), "cell_next": (0, space.slots - 1),
        "cell_count": (1, steps), "visits": (0, steps), "drawn": (0, steps), "tried": (0, steps), "kinds": (0, cells),
        "ghost": (0.0, 1.0), "cell_weight": (0.0, 1.0), "harm": (0.0, np.finfo(float).max),
        "cell_cost": (0.0, np.finfo(float).max), "row_cost": (0.0, np.finfo(float).max),
    }  # fmt: skip
    for name, (least, most) in limits.items():
        if arrays[name].size and not (arrays[name].min() >= least and arrays[name].max() <= most):
            raise ValueError(f"engine.{name} holds a number that cannot be")
    for name in ("cell_reward", "row_reward", "value", "cost"):
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"engine.{name} holds a number that cannot be")
    for name in ("value", "cost"):
        if arrays[name][:, learner.columns :].any() or arrays[name][~has].any():
            raise ValueError(f"engine.{name} tells of something after the last step")
    if (arrays["begun"] < 0).any() or arrays["begun"][~has].any() or int(arrays["begun"].sum()) != done:
        raise ValueError("engine.begun holds a number that cannot be")
    if status[EPISODES] != done or (status < 0).any() or status[PROVED] > done or status[DEAD_FIRST] >= space.slots:
        raise ValueError("engine.status holds a number that cannot be")
    check_lists(arrays["head"], arrays["cell_link"], arrays["kinds"])


def check_lists(head: Ints, link: Ints, kinds: Ints) -> None:
    """Raise unless every cell is in just one list, and each list is as long as it says."""
    seen = np.zeros(len(link), np.bool_)
    for law in np.flatnonzero(kinds).tolist():
        cell, length = int(head[law]), 0
        while cell != NO_CELL:
            if seen[cell]:
                raise ValueError("engine.cell_link leads in a circle")
            seen[cell] = True
            cell, length = int(link[cell]), length + 1
        if length != kinds[law]:
            raise ValueError("engine.kinds holds a number that cannot be")
    if not seen.all() or (head[kinds == 0] != NO_CELL).any():
        raise ValueError("engine.head leaves out an outcome")
