"""Memory limits of models, checked before anything is allocated."""

from __future__ import annotations

from peakrl.errors import ProblemError
from peakrl.storage import SHARE, available_memory

#: Largest horizon.
MOST_STEPS = 1_000_000
#: Bytes that a policy takes for each (step, state), at most.
BYTES_A_NODE = 4
#: Bytes that learners take, and planners that return values by step and state: a value, a violation, a choice.
BYTES_WITH_VALUES = 24


def check_tables(name: str, horizon: int, slots: int, limit: float | None = None, *, each: int = BYTES_A_NODE) -> None:
    """Raise if the tables of a model by (step, state) exceed `limit` bytes (None: most of the free memory).

    `slots` is the number of slots of every step, 1 if each step has its own; `each` is the size of one (step, state).
    """
    needed, limit = float(horizon) * slots * each, available_memory() * SHARE if limit is None else limit
    if needed > limit:
        raise ProblemError(
            f"{name!r} has {slots:,} states and a horizon of {horizon:,}: its tables by step and state would take "
            f"{needed / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB. Coarsen the states or the steps"
        )
