"""The number of usable processor cores."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def usable_cores() -> int:
    """Return the number of cores that this process may use: affinity, and a container's limit if there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # "max": no limit
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split())
        cores = max(1, min(cores, math.ceil(quota / period)))
    return cores
