"""What a log of `PEAKRL_COMPILE_LOG` tells: `python tests/compile_log.py FILE`; the suite prints it at its end."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


def summary(log):
    """How many kernels were compiled, how many twice into one cache, and for how many types beyond the first."""
    lines = [tuple(line.split("\t")[1:]) for line in Path(log).read_text().splitlines()]
    counts = Counter(lines)
    twice = sorted(f"{module}.{name}" for (_, module, name, _), count in counts.items() if count > 1)
    types = Counter(key[:3] for key in counts)
    further = sorted(f"{name} {count}" for (_, _, name), count in types.items() if count > 1)
    text = [f"{len(lines)} kernels compiled, {len(twice)} twice, {len(counts) - len(types)} for further argument types"]
    text += [f"twice: {', '.join(twice)}"] if twice else []
    return text + ([f"types: {', '.join(further)}"] if further else [])


if __name__ == "__main__":
    print("\n".join(summary(sys.argv[1])))
