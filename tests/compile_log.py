"""What a log of `PEAKRL_COMPILE_LOG` tells: `python tests/compile_log.py FILE`; the suite prints it at its end."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


def compiled(log):
    """Return cache, module, name and types of every kernel that was compiled."""
    return [tuple(line.split("\t")[1:]) for line in Path(log).read_text().splitlines()]


def compiled_twice(log):
    """Return the kernels that were compiled twice for the same types into one cache."""
    return sorted(f"{module}.{name}" for (_, module, name, _), count in Counter(compiled(log)).items() if count > 1)


def summary(log):
    """How many kernels were compiled, how many twice into one cache, and for how many types beyond the first."""
    lines, twice = compiled(log), compiled_twice(log)
    counts = Counter(lines)
    types = Counter(key[:3] for key in counts)
    further = sorted(f"{name} {count}" for (_, _, name), count in types.items() if count > 1)
    text = [f"{len(lines)} kernels compiled, {len(twice)} twice, {len(counts) - len(types)} for further argument types"]
    text += [f"twice: {', '.join(twice)}"] if twice else []
    return text + ([f"types: {', '.join(further)}"] if further else [])


if __name__ == "__main__":
    print("\n".join(summary(sys.argv[1])))
