"""What a model may ask for, said before the work begins: a small file can ask for more than any machine has."""

from __future__ import annotations

from peakrl.errors import ProblemError
from peakrl.storage import SHARE, available_memory

#: Steps of an episode, at most: an hour of them at a rate of 250 a second.
MOST_STEPS = 1_000_000
#: What a policy keeps for each (step, state), at most: a row.
BYTES_A_NODE = 4
#: What learners, and planners that are asked for values by step and state, keep: a value, a violation, a choice.
BYTES_WITH_VALUES = 24


def check_tables(name: str, horizon: int, slots: int, limit: float | None = None, *, each: int = BYTES_A_NODE) -> None:
    """Raise where the tables of a model by (step, state) are beyond `limit` bytes (None: most of what is free).

    `slots` are those that every step has, 1 where each has its own; `each` is what one (step, state) takes.
    """
    needed, limit = float(horizon) * slots * each, available_memory() * SHARE if limit is None else limit
    if needed > limit:
        raise ProblemError(
            f"{name!r} has {slots:,} states and a horizon of {horizon:,}: its tables by step and state would take "
            f"{needed / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB. Coarsen the states or the steps"
        )
