"""Where a run stands, as plain values and arrays, and back; what a kernel will trust is checked on the way."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import whole
from peakrl.labels import Arrays
from peakrl.learners.base import alike, overwrite
from peakrl.learners.space import Changes, GrowingSpace, checked_rows
from peakrl.policy.mixture import AveragedPolicy
from peakrl.policy.tables import Policy, first_rows
from peakrl.space import MOST_INDICES
from peakrl.training.history import EXPERIENCE_COLUMNS, POINT_COLUMNS, Experience, PolicyCurve, Recorder
from peakrl.training.trainer import ActiveRun
from peakrl.validate import within

#: More constraints than any environment tells of.
MOST_CONSTRAINTS = 10_000


def snapshot(active: ActiveRun) -> tuple[dict[str, Any], Arrays]:
    """Return plain values and arrays that say where a run stands."""
    algorithm, recorder, space = active.learned(), active.recorder, active.space
    plain: dict[str, Any] = {"done": active.done}
    arrays: Arrays = {"generator": active.generator, "counters": active.counters, "greedy": active.greedy}
    arrays |= {f"engine.{name}": array for name, array in algorithm.arrays().items()}
    if active.average:
        arrays["changes"] = np.stack(active.change_list())
    if isinstance(space, GrowingSpace):
        plain["constraints"] = space.rules.constraints.count
        arrays |= {f"space.{name}": array for name, array in space.arrays().items()}
    if isinstance(recorder, Experience):
        arrays["history"] = recorder.table()
    elif recorder is not None:
        recorder.parts = [np.concatenate([np.empty((0, POINT_COLUMNS)), *recorder.parts])]
        arrays |= {"history": recorder.parts[0], "history.last": recorder.last, "history.sums": recorder.sums}
        if recorder.curve is not None:
            arrays |= {"curve.rows": recorder.curve.rows, "curve.pending": np.stack(recorder.curve.pending)}
    return plain, arrays


def restore(active: ActiveRun, plain: Mapping[str, Any], arrays: Arrays, labels: Sequence[Hashable] | None) -> None:
    """Bring a fresh run to where a snapshot was taken; `labels` are the states of an environment that were met."""
    active.done = plain["done"]
    if labels is not None:
        space = active.space
        assert isinstance(space, GrowingSpace)  # of an environment
        space.rules.constraints.count = stored_count(plain["constraints"], space.rules.constraints.bounds)
        space.load(labels, part(arrays, "space."))
        active.begin_again()
    algorithm = active.learned()
    algorithm.load(part(arrays, "engine."))
    overwrite(active.generator, arrays["generator"], "generator")
    overwrite(active.counters, arrays["counters"], "counters")
    algorithm.check(active.done)
    active.greedy = stored_greedy(active, arrays)
    if active.average:
        active.changes = [stored_changes(active, arrays["changes"])]
    restore_history(active, arrays)


def stored_count(count: Any, bounds: tuple[float, ...] | None) -> int:
    """Return how many constraints an environment has, as a file says; where it declares bounds, as many as those."""
    found = whole(count)
    if found is None or not 0 <= found <= MOST_CONSTRAINTS or (bounds is not None and found != len(bounds)):
        raise ValueError(f"it tells of {count!r} constraints")
    return found


def stored_greedy(active: ActiveRun, arrays: Arrays) -> NDArray[np.int64]:
    """Return [slot, column]: the rows of pi^k."""
    space, columns = active.space, active.greedy.shape[1]
    greedy = checked_rows(space, arrays["greedy"], columns, "greedy")
    if len(greedy) < space.slots and not isinstance(space, GrowingSpace):
        raise ValueError("greedy leaves states out")
    return greedy


def stored_changes(active: ActiveRun, table: NDArray[Any]) -> Changes:
    """Return the three columns of a stored change list, checked."""
    if table.dtype != np.int32 or table.ndim != 2 or len(table) != 3:
        raise ValueError(f"a change list has shape {table.shape}")
    episode, node, row = table
    space = active.space
    if isinstance(space, GrowingSpace):
        slot = node % space.node_stride if space.shared else node
        if not (within(node, MOST_INDICES) and within(slot, space.slots) and within(row, space.rows)):
            raise ValueError("a change list names a state that was not met")
        if space.shared and node.size and int(node.max()) // space.node_stride >= space.horizon:
            raise ValueError("a change list names a step that there is not")
    changes = space.ordered((episode, node, row))
    policy = AveragedPolicy(active.model, active.done, space.first_rows(), *changes)
    if isinstance(space, GrowingSpace):
        return np.array(episode), np.array(node), np.array(row)
    return policy.change_episode, policy.change_node, policy.change_row


def restore_history(active: ActiveRun, arrays: Arrays) -> None:
    """Bring the recorder back."""
    recorder = active.recorder
    if recorder is None:
        return
    table = arrays["history"]
    width = EXPERIENCE_COLUMNS if isinstance(recorder, Experience) else POINT_COLUMNS
    if table.dtype != np.float64 or table.ndim != 2 or table.shape[1] != width:
        raise ValueError(f"history has shape {table.shape}")
    if isinstance(recorder, Experience):
        recorder.load(table)
    else:
        restore_recorder(active, recorder, arrays)


def restore_recorder(active: ActiveRun, recorder: Recorder, arrays: Arrays) -> None:
    """Bring the recorder of a model back."""
    recorder.parts = [arrays["history"]]
    overwrite(recorder.last, arrays["history.last"], "history.last")
    overwrite(recorder.sums, arrays["history.sums"], "history.sums")
    if recorder.curve is not None:
        like = first_rows(recorder.model)
        rows = Policy(recorder.model, alike(like, arrays["curve.rows"], "curve.rows")).rows
        recorder.curve = PolicyCurve(recorder.model, rows)
        recorder.curve.pending = list(stored_changes(active, arrays["curve.pending"]))


def part(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin so, without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
