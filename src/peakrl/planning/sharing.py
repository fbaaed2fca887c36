"""Sharing work among threads: cut into chunks, which whoever is free takes next.

Each chunk is worked out by itself and what it returns is put in order, so that results are the same for any number of
threads. Chunks are many more than threads where there is much to do, so that nobody waits long for one who was held up,
and small enough for the caches, which also serves a single thread.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from peakrl.kernels.arrays import Longs
from peakrl.model.tabular import TabularModel

Found = TypeVar("Found")
#: A thread of its own pays from about this many pairs of a step on.
PAIRS_A_THREAD = 20_000
#: What one call does at most, in pairs.
PAIRS_A_CHUNK = 150_000


class Share(Protocol):
    """Does a step's work."""

    def __call__(self, part: Callable[[int, int], Found], starts: Longs, first: int, last: int) -> list[Found]:
        """Return what `part` gives for each chunk of first .. last; `starts` tells where each one's work begins."""


@contextmanager
def threads_for(model: TabularModel, threads: int | None) -> Iterator[Share]:
    """Yield what does a step's work on so many threads; None: on every core, as far as steps are long enough."""
    most = model.num_rows // (1 if model.stationary else model.horizon) // PAIRS_A_THREAD
    number = max(1, min(len(os.sched_getaffinity(0)) if threads is None else threads, most))
    if number == 1:
        yield alone
        return
    with ThreadPoolExecutor(number - 1) as pool:

        def share(part: Callable[[int, int], Found], starts: Longs, first: int, last: int) -> list[Found]:
            return together(pool, number, part, chunks(starts, int(first), int(last), number))

        yield share


def alone(part: Callable[[int, int], Found], starts: Longs, first: int, last: int) -> list[Found]:
    """Do one chunk after the other."""
    return [part(begin, end) for begin, end in chunks(starts, int(first), int(last), 1)]


def together(
    pool: Executor, threads: int, part: Callable[[int, int], Found], todo: list[tuple[int, int]]
) -> list[Found]:
    """Do the chunks on this thread and on those of the pool."""
    waiting, found = deque(enumerate(todo)), dict[int, Found]()

    def work() -> None:
        while waiting:
            try:
                number, (begin, end) = waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            found[number] = part(begin, end)

    others = [pool.submit(work) for _ in range(min(threads, len(todo)) - 1)]
    work()
    for other in others:
        other.result()
    return [found[number] for number in range(len(todo))]


def chunks(starts: Longs, first: int, last: int, threads: int) -> list[tuple[int, int]]:
    """Cut first .. last into chunks of about equal work."""
    begin, end = int(starts[first]), int(starts[last])
    number = max(threads, -(-(end - begin) // PAIRS_A_CHUNK))
    # Whole numbers: among others numpy would first turn all of `starts` into floats.
    cuts = np.searchsorted(starts[first : last + 1], begin + (end - begin) * np.arange(number + 1) // number) + first
    cuts[0], cuts[-1] = first, last
    return list(pairwise(cuts.tolist()))
