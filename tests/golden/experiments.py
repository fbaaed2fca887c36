"""Numbers of the quick version of every experiment, as one digest each; wall-clock times are left out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from experiments import EXPERIMENTS, run_experiment
from experiments.records import Request
from golden.cases import digest

STORED = Path(__file__).with_name("experiments.json")


def numbers(name):
    """Digest of the numbers of an experiment, whatever its curves are called."""
    with tempfile.TemporaryDirectory() as folder:
        record = run_experiment(name, Request(Path(folder), quick=True, workers=2))
    rows = [(row.x, row.mean, row.std, row.samples) for row in record.rows if not row.measure.endswith("seconds")]
    return digest(sorted(rows, key=repr))


def stored():
    """The digests as they were stored."""
    return json.loads(STORED.read_text())


if __name__ == "__main__":
    found = {name: numbers(name) for name in EXPERIMENTS}
    STORED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
