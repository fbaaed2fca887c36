"""Numbers of the quick version of every experiment, summed by measure; wall-clock times are left out.

Sums and not digests: the last bits of a number depend on the machine.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from experiments import EXPERIMENTS, run_experiment
from experiments.records import Request

STORED = Path(__file__).with_name("experiments.json")


def numbers(name):
    """Sums over the rows of an experiment: by measure, of each column, plain and weighted with the row's number."""
    with tempfile.TemporaryDirectory() as folder:
        record = run_experiment(name, Request(Path(folder), quick=True, workers=2))
    rows = sorted((row for row in record.rows if not row.measure.endswith("seconds")), key=lambda row: row.measure)
    return {measure: sums(list(group)) for measure, group in groupby(rows, key=lambda row: row.measure)}


def sums(rows):
    """Number of rows, and the sums of their columns."""
    # What never happens is infinite, and would hide the other numbers.
    columns = [
        [-1.0 if value == math.inf else value or 0.0 for value in map(attrgetter(name), rows)]
        for name in ("x", "mean", "std", "samples")
    ]
    weighted = [[(i + 1) / len(rows) * value for i, value in enumerate(column)] for column in columns]
    return [len(rows), *(math.fsum(column) for column in columns + weighted)]


def stored():
    """The sums as they were stored."""
    return json.loads(STORED.read_text())


if __name__ == "__main__":
    found = {name: numbers(name) for name in EXPERIMENTS}
    text = json.dumps(found, indent=1, sort_keys=True)
    # A list in one line.
    STORED.write_text(re.sub(r"\[[^\]]*\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n")
