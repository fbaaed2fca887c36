"""Models and state spaces from files: what is read equals what was stored, and kernels can rely on it.

The declarations of the arrays (`labels.SPACE_FIELDS`, `tabular.DYNAMICS_FIELDS`, `tabular.PAYOFF_FIELDS`) give types,
lengths and ranges of indices. This module checks what connects them:

    slots of a step    contiguous, from 0 on; slots after the last step have no rows
    rows of a slot     distinct actions, and a distribution of the same step
    a distribution     at least one outcome, positive probabilities that sum to 1, next slots of the next step
    payoffs            a record for every outcome, finite, within the declared range and bounds
    first slots        distinct slots of step 0, with probabilities that sum to 1
    reachable states   at least one action

A model with labels that a file cannot hold, or a very large one, is stored by its digest alone; the reader must then
provide the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import (
    check_bounds,
    check_count,
    check_distribution,
    check_horizon,
    check_number,
    check_range,
    check_tolerances,
)
from peakrl.errors import StorageError
from peakrl.labels import SPACE_FIELDS, load_labels
from peakrl.memory import MOST_STEPS, check_tables
from peakrl.problem import payoff_limits
from peakrl.ragged import distribution_fault, repeated_member
from peakrl.records import Field, Record, content_of
from peakrl.space import MOST_INDICES, StateSpace, read_only
from peakrl.tabular import DYNAMICS_FIELDS, MODEL, PAYOFF_FIELDS, TabularModel, refuse_stuck_states
from peakrl.types import MemoryAxis, Payoffs
from peakrl.visited import VisitedStates

#: A space may name at most this many actions that no state has.
MOST_UNUSED_NAMES = 1_000_000
#: What may be wrong, and in what words; each check relies on those before it.
Faults = Iterator[tuple[bool, str]]


def load_model(path: str | Path) -> TabularModel:
    """Return the model that `model.save(path)` wrote.

    Everything in the file is validated before it is used.
    """
    with MODEL.reading(path) as record:
        return restored_model(path, record)


def restored_model(path: str | Path, record: Record) -> TabularModel:
    """Return the model of a record (`tabular.store_model`) that is part of a file, or raise."""
    plain = record.plain
    with content_of(path):
        if plain["left_out"] is not None:
            raise StorageError(
                f"{path} does not hold its model {plain['name']!r}, since {plain['left_out']}: compile the same "
                "problem again and pass it as model= (on the command line: --problem FILE)"
            )
        model = assembled(record)
        refuse(model_faults(model))
        refuse_stuck_states(model)
        if model.digest != plain["digest"]:
            raise ValueError("its model does not match its digest")
    return model


def restored_space(record: Record) -> VisitedStates:
    """Return the visited states of a record (`labels.store_space`); `FileKind.reading` translates errors."""
    space = VisitedStates(**space_fields(record, SPACE_FIELDS))
    refuse(visited_faults(space))
    return space


def assembled(record: Record) -> TabularModel:
    """Return a model whose arrays are as declared; the faults below are not checked."""
    own = space_fields(record, SPACE_FIELDS | DYNAMICS_FIELDS | PAYOFF_FIELDS)
    spec, reason = record.plain["spec"], record.plain["infeasible_reason"]
    if not isinstance(spec, dict | None):
        raise ValueError(f"the problem's specification is {spec!r}")
    payoffs = Payoffs(int(record.plain["payoff_stride"]), *(own.pop(name) for name in PAYOFF_FIELDS))
    reason = None if reason is None else str(reason)
    # As stored, not through `assemble`: the faults below are checked.
    memory = memory_of(record.plain["memory"], own["state_labels"])
    tolerances = check_tolerances(record.plain["constraint_tolerances"], "constraint_tolerances")
    return TabularModel(
        **own, payoffs=payoffs, constraint_tolerances=tolerances, infeasible_reason=reason, spec=spec, memory=memory
    )


def memory_of(axes: list[Any], labels: Sequence[Any]) -> tuple[MemoryAxis, ...]:
    """Return the checked description of what budgets and monitors added to the states."""
    if axes and not all(isinstance(label, tuple) and len(label) == len(axes) + 1 for label in labels):
        raise ValueError(f"its states must be tuples of {len(axes) + 1} parts, by its list 'memory'")
    found = []
    for name, first, limit, unit in axes:
        axis = MemoryAxis(str(name))
        if unit is not None:
            limit = check_count(limit, "limit", 0, MOST_INDICES)
            first = check_count(first, "start", 0, limit)
            axis = MemoryAxis(str(name), first, limit, check_number(unit, "step", above=0.0))
        found.append(axis)
    return tuple(found)


def space_fields(record: Record, fields: dict[str, Field]) -> dict[str, Any]:
    """Return the values, labels and arrays of a state space, checked by themselves."""
    plain = record.plain
    names = tuple(map(str, plain["constraint_names"]))
    values = {
        "name": str(plain["name"]),
        "steps": check_horizon(plain["horizon"], "horizon", MOST_STEPS, endless=plain["stationary"] is True),
        "stationary": plain["stationary"] is True,
        "constraint_names": names,
        "constraint_bounds": check_bounds(plain["constraint_bounds"], "constraint_bounds", len(names)),
        "reward_range": check_range(plain["reward_range"], "reward_range"),
        "state_labels": (states := load_labels(record.part("states"))),
        "action_labels": (actions := load_labels(record.part("actions"))),
    }
    stages = 1 if values["stationary"] else plain["horizon"]
    sizes = {"stage": stages, "stage end": stages + 1, "state": len(states), "action": len(actions)}
    return values | record.checked(fields, **sizes, constraint=len(names))


# What connects the arrays -----------------------------------------------------------------------------------------


def refuse(faults: Faults) -> None:
    """Raise ValueError for the first fault."""
    for wrong, words in faults:
        if wrong:
            raise ValueError(words)


def space_faults(space: StateSpace) -> Faults:
    """Steps share all states, or have their own, in order; states of a step and actions of a state are distinct."""
    slots, rows, starts = space.num_slots, space.num_rows, np.append(space.stage_start, space.num_slots)
    yield slots < 1 or rows < 1, "it has no states or no actions"
    yield len(set(space.constraint_names)) < space.num_constraints, "its constraints repeat a name"
    yield space.num_states > slots, f"it names {space.num_states:,} states and stores {slots:,}"
    yield len(space.action_labels) > rows + MOST_UNUSED_NAMES, f"it names {len(space.action_labels):,} actions"
    check_tables(space.name, space.lines, slots if space.stationary else 1)
    repeated = repeated_member(space.row_start, space.row_action, len(space.action_labels))
    yield repeated >= 0, "a state offers an action twice"
    if space.stationary:
        yield starts.tolist() != [0, slots, slots], "its steps do not share all states"
        own = space.num_states == slots and np.array_equal(space.slot_state, np.arange(slots))
        yield not own, "its states are not stored in the order of their names"
        return
    yield bool(starts[0] != 0 or (np.diff(starts) < 0).any()), "its steps' states do not follow each other"
    yield repeated_member(read_only(starts), space.slot_state, space.num_states) >= 0, "a step has a state twice"


def visited_faults(space: VisitedStates) -> Faults:
    """Every visited state belongs to a step and has actions."""
    yield from space_faults(space)
    yield int(space.stage_start[-1]) != space.num_slots, "its steps' states do not follow each other"
    yield bool((np.diff(space.row_start) < 1).any()), "a state offers no action"


def model_faults(model: TabularModel) -> Faults:
    """Outcomes lead to the next step; probabilities sum to 1; payoffs lie within the declared range and bounds."""
    yield from space_faults(model)
    payoffs, sizes = model.payoffs, np.diff(model.outcome_start)
    yield payoffs.stride not in (0, 1), f"its payoffs have a stride of {payoffs.stride}"
    yield bool(sizes.min(initial=1) < 1), "a pair leads nowhere"
    last = payoffs.row_payoff + payoffs.stride * (sizes[model.row_distribution] - 1)
    yield int(last.max()) >= len(payoffs.reward), "an outcome has no payoff"
    yield from step_faults(model)
    yield from number_faults(model)


def step_faults(model: TabularModel) -> Faults:
    """Rows and distributions belong to one step and lead to the next."""
    if model.stationary:
        return
    starts, distributions = np.append(model.stage_start, model.num_slots), model.distribution_start
    yield bool((np.diff(starts) < 1).any()), "a step has no states, or none follows the last"
    yield bool((np.diff(distributions) < 1).any()), "a step has no distributions"
    rows = model.row_start[starts[:-1]]
    yield int(rows[-1]) != model.num_rows, "a state after the last step offers actions"
    yield int(model.first_slot.max(initial=0)) >= starts[1], "a first state belongs to a later step"
    yield bool((np.diff(rows) < 1).any()), "a step offers no action"
    yield not stays(model.row_distribution, rows[:-1], distributions), "a pair has a distribution of another step"
    outcomes = model.outcome_start[distributions[:-1]]
    yield not stays(model.outcome_next, outcomes, starts[1:]), "an outcome leads to another step"


def number_faults(model: TabularModel) -> Faults:
    """Probabilities, rewards and constraint values."""
    payoffs, first = model.payoffs, np.array([0, len(model.first_slot)])
    position, row, total, zeros = distribution_fault(model.outcome_start, model.outcome_probability)
    yield position >= 0, f"outcome {position} has no probability"
    yield row >= 0, f"the probabilities of distribution {row} sum to {total:.12g}"
    yield zeros > 0, "an outcome has probability 0"
    check_distribution(model.first_probability, "of the first state")
    yield not model.first_probability.min() > 0, "a first state has probability 0"
    yield repeated_member(read_only(first), model.first_slot, model.num_slots) >= 0, "a first state is named twice"
    words = [f"a reward lies outside {model.reward_range}"]
    words += (f"constraint {name!r} exceeds its bound" for name in model.constraint_names)
    paid, limits = (payoffs.reward, *payoffs.constraints.T), payoff_limits(model.reward_range, model.constraint_bounds)
    for fault, values, least, most in zip(words, paid, *limits, strict=True):
        # min and max of an array with NaN are NaN, and comparisons with NaN are false.
        yield not least <= values.min() <= values.max() <= most, fault


def stays(index: NDArray[Any], starts: NDArray[np.int64], bounds: NDArray[np.int64]) -> bool:
    """Does part k of `index` (they begin at `starts`) stay within bounds[k] .. bounds[k + 1]?"""
    least, most = np.minimum.reduceat(index, starts), np.maximum.reduceat(index, starts)
    return bool((least >= bounds[:-1]).all() and (most < bounds[1:]).all())
