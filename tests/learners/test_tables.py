"""Declared tables: how they grow, what kernels and files get, and what is refused."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import pytest

from peakrl.learners.tables import TableStore, dtype_of, table
from peakrl.types import Floats, Ints, Longs


class Cells(NamedTuple):
    following: Annotated[Ints, table("cell", fill=-1, low=-1, below="slot")]
    cells: Annotated[Longs, table(1, counts="cell")]


class Tables(NamedTuple):
    counts: Cells
    value: Annotated[Floats, table("slot", "column", fill=2.5, low=0.0)]
    greedy: Annotated[Longs, table("slot", "column", rows=True)]
    visits: Annotated[Ints, table("slot", low=0, high="done")]
    errors: Annotated[Floats, table("slot", 3, when="adaptive")]
    scratch: Annotated[Floats, table("slot", stored=False)]
    bonus: float


STARTS = np.array([0, 2, 2, 5])  # the second slot has no rows


def store(adaptive=0):
    made = TableStore(Tables, {"slot": 0, "cell": 0, "column": 2, "adaptive": adaptive}, bonus=0.5)
    made.grow(slot=3, cell=4)
    made.fill_rows(0, STARTS)
    return made


def test_kernels_get_what_is_in_use_and_all_cells_that_are_allocated():
    made = store()
    tables = made.tables
    assert [tables.value.shape, tables.errors.shape, tables.counts.following.shape] == [(3, 2), (0, 3), (4,)]
    assert (tables.value.dtype, tables.counts.following.dtype, tables.bonus) == (np.float64, np.int32, 0.5)
    assert (tables.value == 2.5).all()
    assert tables.greedy.tolist() == [[0, 0], [2, 2], [2, 2]]


def test_the_type_of_an_array_is_read_from_every_form_of_its_hint():
    # Before and since numpy 2.5: ndarray[shape, dtype[float32]], and an alias with the one argument float32.
    assert dtype_of(np.ndarray[tuple[int], np.dtype[np.float32]]) == dtype_of(list[np.float32]) == np.float32


def test_growing_keeps_what_was_written_and_fills_the_rest():
    made = store()
    made.tables.value[1] = 7.0
    made.grow(slot=5)
    assert made.tables.value.tolist() == [[2.5, 2.5], [7.0, 7.0], [2.5, 2.5], [2.5, 2.5], [2.5, 2.5]]
    made.tables.counts.cells[0] = 3
    made.reserve(2)
    assert len(made.tables.counts.following) >= 5


def test_files_hold_the_cells_in_use_and_nothing_that_follows_from_elsewhere():
    made = store()
    made.tables.counts.following[:2] = 1, 2
    made.tables.counts.cells[0] = 2
    assert set(made.arrays()) == {"following", "cells", "value", "greedy", "visits"}
    assert made.arrays()["following"].tolist() == [1, 2]
    assert "errors" in store(adaptive=1).arrays()


def test_what_was_saved_is_loaded_with_its_cells():
    made, again = store(), store()
    made.reserve(90)
    made.tables.counts.following[:80], made.tables.counts.cells[0] = 1, 80
    made.tables.value[:] = 4.0
    again.load({name: array.copy() for name, array in made.arrays().items()})
    again.check(STARTS, {"done": 3})
    assert again.arrays().keys() == made.arrays().keys()
    assert all(np.array_equal(array, made.arrays()[name]) for name, array in again.arrays().items())


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("value", -1.0), ("value", np.nan), ("value", np.inf), ("visits", 4), ("visits", -1),
        ("following", 3), ("following", -2), ("greedy", 5),
    ],
)  # fmt: skip
def test_values_out_of_their_range_are_refused(name, forged):
    made = store()
    made.tables.counts.cells[0] = 1
    made.check(STARTS, {"done": 3})
    made.arrays()[name].reshape(-1)[0] = forged
    with pytest.raises(ValueError, match=f"engine.{name}"):
        made.check(STARTS, {"done": 3})


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("value", np.zeros((3, 2), np.float32)), ("value", np.zeros((2, 2))), ("cells", np.array([9])),
        ("following", np.zeros(7, np.int32)),
    ],
)  # fmt: skip
def test_tables_of_another_type_or_shape_are_refused(name, forged):
    arrays = {key: array.copy() for key, array in store().arrays().items()} | {name: forged}
    with pytest.raises(ValueError, match=r"engine\."):
        store().load(arrays)


def test_a_file_that_fills_every_cell_leaves_kernels_the_room_that_they_had():
    made, full = store(), store()
    full.tables.counts.cells[0] = 4
    made.load(full.arrays())
    assert made.tables.counts.cells[0] == 4
    assert len(made.tables.counts.following) >= 4 + 4
