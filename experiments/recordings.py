"""Arrivals that a user has recorded: a NumPy file of whole numbers, sequences x slots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO
from zipfile import BadZipFile

import numpy as np

from peakrl.errors import ProblemError, StorageError
from peakrl.kernels.arrays import Longs
from peakrl.problems.harvesting.arrivals import recorded_sequences
from peakrl.problems.tables.problem import declared_size
from peakrl.storage import opened


def load_recordings(path: str | Path, *, horizon: int = 20, max_arrival: int = 20) -> Longs:
    """Return the first `horizon` slots of every sequence in a .npy file, checked."""
    try:
        with opened(path) as file:
            check_size(path, file)
            numbers = np.load(file, allow_pickle=False)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile):
        raise StorageError(f"{path} is no array of numbers in NumPy's format; numpy.save makes such a file") from None
    if not isinstance(numbers, np.ndarray):
        raise StorageError(f"{path} holds several arrays; save a single one with numpy.save")
    if numbers.ndim != 2 or not len(numbers):
        raise ProblemError(
            f"{path}: the array has shape {numbers.shape}; it must be sequences x slots, such as (100, {horizon})"
        )
    try:
        return recorded_sequences(numbers, horizon=horizon, max_arrival=max_arrival)
    except ProblemError as error:
        # Positions are [sequence, slot], from 0.
        raise ProblemError(f"{path}: {error}") from None


def check_size(path: str | Path, file: IO[bytes]) -> None:
    """Raise where an array's file says that it holds more, or less, than it does."""
    if file.read(6) == b"\x93NUMPY":
        file.seek(0)
        (asked, _), size = declared_size(file), os.fstat(file.fileno()).st_size
        if asked != size:
            raise StorageError(f"{path} is damaged: its array asks for {asked:,} bytes of {size:,}")
    file.seek(0)
