"""Orders of jobs that are chosen with all random processing times known in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from peakrl.problems.scheduling import Job, Schedule, draw_jobs, evaluate_order


def known_times(
    jobs: Iterable[Job], choose: Callable[[tuple[Job, ...]], Sequence[Any]], *, tests: int, seed: int
) -> list[Schedule]:
    """Return the schedules of the orders that `choose` returns for drawn processing times."""
    listed = tuple(jobs)
    drawn = [draw_jobs(listed, seed * tests + test) for test in range(tests)]
    return [evaluate_order(one, choose(one)) for one in drawn]
