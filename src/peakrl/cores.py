"""How many processor cores there are to use."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def usable_cores() -> int:
    """Return how many cores this process may use, given its affinity and a container's limit if the system has them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # "max": no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split())
        cores = max(1, min(cores, math.ceil(quota / period)))
    return cores
