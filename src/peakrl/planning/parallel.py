"""Threads that share the work of a step.

Work is cut into chunks whose results are returned in order, so that results are the same for any number of threads.
Chunks fit into the processor's caches, and there are several for each thread if there is much to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np

from peakrl.cores import usable_cores
from peakrl.tabular import TabularModel
from peakrl.types import Longs

Found = TypeVar("Found")
#: Another thread pays from about this many pairs of a step on.
PAIRS_A_THREAD = 20_000
#: The largest chunk, in pairs.
PAIRS_A_CHUNK = 150_000


class Share(Protocol):
    """Does a step's work."""

    def __call__(self, part: Callable[[int, int], Found], starts: Longs, first: int, last: int) -> list[Found]:
        """Return `part(begin, end)` for each chunk of first .. last; the work of i is starts[i] .. starts[i + 1]."""


@contextmanager
def threads_for(model: TabularModel, threads: int | None) -> Iterator[Share]:
    """Yield a function that does a step's work on so many threads (None: every core), fewer if steps are short."""
    most = model.num_rows // (1 if model.stationary else model.horizon) // PAIRS_A_THREAD
    number = max(1, min(usable_cores() if threads is None else threads, most))
    with ThreadPoolExecutor(number) as pool:
        run: Any = pool.map if number > 1 else map

        def share(part: Callable[[int, int], Found], starts: Longs, first: int, last: int) -> list[Found]:
            begin, end = int(starts[first]), int(starts[last])
            chunks = max(number, -(-(end - begin) // PAIRS_A_CHUNK))
            # Integers: given floats, numpy would convert all of `starts`.
            work = begin + (end - begin) * np.arange(1, chunks) // chunks
            cuts = [int(first), *(np.searchsorted(starts[first : last + 1], work) + first).tolist(), int(last)]
            return list(run(part, cuts[:-1], cuts[1:]))

        yield share
