"""Straightforward C versions (`benchmarks/*.c`), compiled here and called through ctypes: Algorithm 1 and `solve`."""

from __future__ import annotations

import copy
import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.learners.constrained_q import MODIFIED, ConstrainedQ, OptimisticQ, bonus_constants
from peakrl.space import expand, starts_of
from peakrl.tabular import TabularModel
from peakrl.training.trainer import Trainer
from peakrl.types import Floats, Longs

FOLDER = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


class NoReference(Exception):
    """The C version cannot be compiled; the message says why."""


@cache
def compiled(name: str) -> Any:
    """Return a C file, compiled; raise NoReference if there is no compiler."""
    compiler = next((path for path in map(shutil.which, COMPILERS) if path), None)
    if compiler is None:
        raise NoReference(f"no C compiler found (looked for {', '.join(COMPILERS)})")
    # A loaded library outlives its file.
    with tempfile.TemporaryDirectory(prefix="peakrl-bench-") as folder:
        library = Path(folder) / "reference.so"
        done = subprocess.run(
            [compiler, *FLAGS, "-o", str(library), str(FOLDER / name), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NoReference(f"{Path(compiler).name} failed: {done.stderr.strip().splitlines()[-1:]}")
        return ctypes.CDLL(str(library))


class ReferencePlan:
    """Backward induction in C on a stationary model without constraints, ready to be run."""

    def __init__(self, model: TabularModel) -> None:
        layout = model.layout
        sizes = np.diff(layout.outcome_start)[layout.row_distribution]
        outcomes = expand(layout.outcome_start[layout.row_distribution], sizes)
        self.starts, self.next = starts_of(sizes), layout.outcome_next[outcomes]
        self.probability, self.reward = layout.outcome_probability[outcomes], model.row_means(model.payoffs.reward)
        self.model, self.values = model, np.zeros((2, model.num_slots))
        self.policy = np.zeros((model.horizon, model.num_slots), np.uint8)
        self.function = compiled("solve.c").solve
        self.function.restype = ctypes.c_int64

    def again(self) -> ReferencePlan:
        """Return another that reads the same model and writes values and a policy of its own."""
        other = copy.copy(self)
        other.values, other.policy = np.zeros_like(self.values), np.zeros_like(self.policy)
        return other

    def __call__(self) -> Floats:
        """Run; return the values of step 0 by slot."""
        model, integer = self.model, ctypes.c_int64
        read: tuple[NDArray[Any], ...] = (model.row_start, self.starts, self.next, self.probability, self.reward)
        arrays = (*read, self.values, self.policy)
        which = self.function(integer(model.horizon), integer(model.num_slots), *map(address, arrays))
        values: Floats = self.values[which]
        return values


def cumulative(start: Longs, probability: Floats) -> Floats:
    """Return the running sums within each distribution."""
    sums = np.cumsum(probability)
    before = np.concatenate(([0.0], sums))[start[:-1]]
    result: Floats = sums - np.repeat(before, np.diff(start))
    return result


class ReferenceRun:
    """A run of the C version, ready to be started any number of times."""

    def __init__(self, model: TabularModel, settings: ConstrainedQ, episodes: int, seed: int = 0) -> None:
        engine = Trainer(model, settings, planned=episodes, seed=seed, every=0, average=False).learned()
        assert isinstance(engine, OptimisticQ)
        layout, cap = model.layout, engine.tables.cap
        bound, log_term = bonus_constants(settings, engine.penalty, engine.task.sizes, episodes)
        modified = np.ascontiguousarray(engine.simulator.payoff[:, MODIFIED])
        sums = cumulative(layout.outcome_start, layout.outcome_probability)
        first = np.cumsum(model.first_probability)
        integer, real = ctypes.c_int64, ctypes.c_double
        self.kept = (modified, sums, first, engine)
        self.function = compiled("reference.c").learn
        self.function.restype = ctypes.c_double
        self.arguments = (
            integer(model.horizon), integer(layout.node_stride), integer(layout.entry_stride),
            integer(model.num_nodes), integer(model.num_entries),
            address(layout.row_start), address(layout.row_distribution), address(layout.outcome_start),
            address(layout.outcome_next), address(sums), integer(model.payoffs.stride),
            address(model.payoffs.row_payoff), address(modified),
            integer(len(first)), address(model.first_slot), address(first),
            address(engine.initial), address(cap), ctypes.c_int(int(settings.bonus == "bernstein")),
            real(settings.c1), real(settings.c2), real(bound),
            real(model.max_states * model.max_actions), real(log_term),
            integer(episodes), ctypes.c_uint64(seed),
        )  # fmt: skip

    def __call__(self) -> float:
        """Run; return the sum of modified rewards."""
        return float(self.function(*self.arguments))


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """Return the address of an array."""
    return array.ctypes.data_as(ctypes.c_void_p)
