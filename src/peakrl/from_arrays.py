"""Dense and sparse arrays of a model, validated: the input of `TabularModel.from_arrays`.

Arrays are indexed [step, state, action, next_state]; an array that does not depend on the step has no such axis. Every
layer is converted to the rows (state, action) of a compressed sparse matrix.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import (
    AT_MOST,
    LARGEST,
    ROUNDING,
    bound_above,
    check_bounds,
    check_count,
    check_distribution,
    check_each,
    check_range,
    check_tolerances,
)
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS, check_tables
from peakrl.problem import NO_TRUTH_VALUES, Header
from peakrl.ragged import distribution_fault, number_lists, pick_lists
from peakrl.space import check_sizes, read_only
from peakrl.types import Floats, Payoffs

#: Describes where a row stands, for messages.
Locate = Callable[[int], str]


def arrays_of_model(
    transitions: Any,
    rewards: Any,
    constraints: Any,
    horizon: int,
    *,
    initial: Any,
    available: Any,
    reward_range: tuple[float, float] | None,
    constraint_bounds: Sequence[float] | None,
    constraint_names: Sequence[str] | None,
    constraint_tolerances: Sequence[float] | None,
    name: str,
) -> tuple[Header, dict[str, Any]]:
    """Return the validated header and arrays of `TabularModel.from_arrays`, by the parameters of `tabular.assemble`."""
    horizon = check_count(horizon, "horizon", 1, MOST_STEPS, error=ProblemError)
    rewards = as_floats(rewards, "rewards")
    layers, by_step, states, actions = transition_layers(transitions, horizon, rewards.shape)
    reward, reward_steps = table(rewards, (states, actions), horizon, "rewards")
    constraint, constraint_steps = constraint_table(constraints, (states, actions), horizon)
    mask, mask_steps = availability(available, (states, actions), horizon)
    stationary = not (by_step or reward_steps or constraint_steps or mask_steps)
    count = constraint.shape[1]
    steps = 1 if stationary else horizon

    parts = []
    for step in range(steps):
        offered = mask[step % len(mask)].ravel()
        where = "" if stationary else f"step {step}, "
        parts.append(select_rows(layers[step % len(layers)], offered, states, actions, where))
    kept = [part.pairs for part in parts]
    row_reward = joined([reward[step % len(reward)].ravel()[k] for step, k in enumerate(kept)])
    row_constraints = joined(
        [constraint[step % len(constraint)].reshape(count, states * actions)[:, k].T for step, k in enumerate(kept)]
    )
    pair = joined(kept)
    step_of_row = np.repeat(np.arange(steps), [len(k) for k in kept])

    def locate(row: int) -> str:
        where = "" if stationary else f"step {step_of_row[row]}, "
        return f"{where}state {pair[row] // actions}, action {pair[row] % actions}"

    if constraint_names is None:
        constraint_names = [f"constraint {i}" for i in range(count)]
    names = tuple(str(name) for name in check_each(constraint_names, "constraint_names", "names"))
    if len(names) != count or len(set(names)) < count:
        raise ProblemError(f"constraint_names {names} must be {count} different names")
    tolerances = check_tolerances(constraint_tolerances or (0.0,) * count, "constraint_tolerances", count)
    lohi = bounded_rewards(row_reward, reward_range, locate)
    bounds = bounded_constraints(row_constraints, constraint_bounds, names, locate)
    first_slot, first_probability = first_states(initial, states)
    slots = states if stationary else states * (horizon + 1)
    check_sizes(name, states=slots, pairs=len(pair), outcomes=sum(len(part.following) for part in parts))
    check_tables(name, horizon, states)
    stacked = stack(parts, 0 if stationary else states)
    return Header(name, horizon, names, lohi, bounds, tolerances), {
        "state_labels": range(states),
        "slot_state": np.arange(slots) % states,
        "action_labels": range(actions),
        "row_action": pair % actions,
        "row_start": np.concatenate([stacked.row_start, np.full(slots + 1 - len(stacked.row_start), len(pair))]),
        "row_distribution": stacked.distribution,
        "outcome_start": stacked.outcome_start,
        "outcome_next": stacked.following,
        "outcome_probability": stacked.probability,
        "payoffs": Payoffs(0, np.arange(len(pair), dtype=np.int32), row_reward, row_constraints),
        "first_slot": first_slot,
        "first_probability": first_probability,
        "layer_start": None if stationary else np.arange(horizon + 1) * states,
        "distribution_start": None if stationary else stacked.distribution_start,
    }


@dataclass(frozen=True)
class Rows:
    """The rows of the available actions of one layer."""

    #: [row]: state * A + action; and [state]: number of rows.
    pairs: NDArray[np.int64]
    counts: NDArray[np.int64]
    #: Lists of next states.
    start: NDArray[np.int64]
    following: NDArray[np.int32]
    probability: Floats


def transition_layers(given: Any, horizon: int, reward_shape: tuple[int, ...]) -> tuple[list[Any], bool, int, int]:
    """Return a CSR matrix of S*A rows for each layer, whether they depend on the step, S and A."""
    # The stubs distinguish sparse formats that are treated alike here.
    sparse: Any = importlib.import_module("scipy.sparse")
    if sparse.issparse(given):
        if len(reward_shape) < 2:
            raise ProblemError(f"rewards have shape {reward_shape}; with sparse transitions they must be (S, A)")
        actions = reward_shape[-1]
        states = given.shape[-1]
        if actions == 0 or given.shape != (states * actions, states):
            raise ProblemError(
                f"sparse transitions have shape {given.shape}; with {actions} actions use (S*A, S), row s*A + a"
            )
        # A copy: the user's matrix must not be changed.
        return [sparse.csr_matrix(given, dtype=np.float64, copy=True)], False, states, actions
    if isinstance(given, list | tuple) and given and all(sparse.issparse(m) for m in given):
        states, actions = given[0].shape[0], len(given)
        for action, matrix in enumerate(given):
            if matrix.shape != (states, states):
                raise ProblemError(f"transitions of action {action} have shape {matrix.shape}, not {(states, states)}")
        order = (np.arange(states)[:, None] + states * np.arange(actions)[None, :]).ravel()
        parts = [sparse.csr_matrix(matrix, dtype=np.float64) for matrix in given]
        return [sparse.vstack(parts).tocsr()[order]], False, states, actions
    array = as_floats(given, "transitions")
    if array.ndim not in (3, 4) or array.shape[-1] != array.shape[-3] or 0 in array.shape:
        raise ProblemError(f"transitions have shape {array.shape}; they must be (S, A, S) or (H, S, A, S)")
    if array.ndim == 4 and len(array) != horizon:
        raise ProblemError(f"transitions hold {len(array)} steps for a horizon of {horizon}")
    states, actions = array.shape[-1], array.shape[-2]
    steps = array if array.ndim == 4 else array[None]
    # NaN must survive until the rows are checked: csr_matrix keeps it, since NaN != 0.
    return [sparse.csr_matrix(layer.reshape(-1, states)) for layer in steps], array.ndim == 4, states, actions


def as_floats(given: Any, what: str) -> Floats:
    """Return an array of floats or raise."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ProblemError(f"{what} must be an array of numbers") from None


def table(given: Any, shape: tuple[int, int], horizon: int, what: str) -> tuple[Floats, bool]:
    """Return an array (steps, S, A), with one step if it does not depend on the step."""
    array = as_floats(given, what)
    if array.shape == shape:
        return array[None], False
    if array.shape == (horizon, *shape):
        return array, True
    raise ProblemError(f"{what} have shape {array.shape}; they must be {shape} or {(horizon, *shape)}")


def constraint_table(given: Any, shape: tuple[int, int], horizon: int) -> tuple[Floats, bool]:
    """Return an array (steps, I, S, A)."""
    array = as_floats(given, "constraints")
    if array.size and np.asarray(given).dtype == bool:
        raise ProblemError(f"{NO_TRUTH_VALUES}; got truth values")
    if array.shape == (0,):  # an empty list: no constraint
        array = np.zeros((0, *shape))
    if array.ndim == 3 and array.shape[1:] == shape:
        return array[None], False
    if array.ndim == 4 and array.shape[0] == horizon and array.shape[2:] == shape:
        return array, True
    raise ProblemError(
        f"constraints have shape {array.shape}; they must be (I, {shape[0]}, {shape[1]}) or "
        f"({horizon}, I, {shape[0]}, {shape[1]})"
    )


def availability(given: Any, shape: tuple[int, int], horizon: int) -> tuple[NDArray[np.bool_], bool]:
    """Return a mask (steps, S, A)."""
    if given is None:
        return np.ones((1, *shape), bool), False
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ProblemError("available must hold True and False (or 1 and 0)")
    if not array.any():
        raise ProblemError("available: there is no action")
    if array.shape == shape:
        return array[None].astype(bool), False
    if array.shape == (horizon, *shape):
        return array.astype(bool), True
    raise ProblemError(f"available has shape {array.shape}; it must be {shape} or {(horizon, *shape)}")


def select_rows(matrix: Any, offered: NDArray[np.bool_], states: int, actions: int, where: str) -> Rows:
    """Return the validated rows of the available actions of a layer."""
    matrix.sum_duplicates()
    pairs = np.flatnonzero(offered)
    chosen = matrix if offered.all() else matrix[pairs]
    start = chosen.indptr.astype(np.int64)
    position, row, total, zeros = distribution_fault(read_only(start), read_only(chosen.data))
    if position >= 0:
        pair = int(pairs[np.searchsorted(start, position, side="right") - 1])
        raise ProblemError(
            f"transitions, {where}state {pair // actions}, action {pair % actions}, next state "
            f"{int(chosen.indices[position])}: {chosen.data[position]} is not a probability"
        )
    if row >= 0:
        pair = int(pairs[row])
        raise ProblemError(
            f"transitions, {where}state {pair // actions}, action {pair % actions}: probabilities sum to "
            f"{total:.12g}, not to 1"
        )
    if zeros:
        chosen.eliminate_zeros()
        start = chosen.indptr.astype(np.int64)
    counts = np.bincount(pairs // actions, minlength=states)
    return Rows(pairs, counts, start, chosen.indices.astype(np.int32, copy=False), chosen.data)


def bounded_rewards(reward: Floats, given: tuple[float, float] | None, locate: Locate) -> tuple[float, float]:
    """Return the reward range, declared or of the data; raise if a reward lies outside."""
    bad = np.flatnonzero(~(np.abs(reward) <= LARGEST))
    if bad.size:
        raise ProblemError(f"rewards, {locate(int(bad[0]))}: {reward[bad[0]]} is not a finite number{AT_MOST}")
    if given is None:
        return float(reward.min()), float(reward.max())
    lo, hi = check_range(given, "reward_range")
    tolerance = ROUNDING * max(1.0, abs(lo), abs(hi))
    bad = np.flatnonzero((reward < lo - tolerance) | (reward > hi + tolerance))
    if bad.size:
        raise ProblemError(f"rewards, {locate(int(bad[0]))}: {reward[bad[0]]} lies outside reward_range {(lo, hi)}")
    return lo, hi


def bounded_constraints(
    values: Floats, given: Sequence[float] | None, names: tuple[str, ...], locate: Locate
) -> tuple[float, ...]:
    """Return the bounds on |f_i|, declared or of the data; raise if a value exceeds them."""
    for index, name in enumerate(names):
        bad = np.flatnonzero(~(np.abs(values[:, index]) <= LARGEST))
        if bad.size:
            value = values[bad[0], index]
            raise ProblemError(f"constraint {name!r}, {locate(int(bad[0]))}: {value} is not a finite number{AT_MOST}")
    largest = np.abs(values).max(axis=0, initial=0.0)
    if given is None:
        return tuple(bound_above(float(bound)) for bound in largest)
    bounds = check_bounds(given, "constraint_bounds", len(names))
    for index, (name, bound) in enumerate(zip(names, bounds, strict=True)):
        bad = np.flatnonzero(np.abs(values[:, index]) > bound * (1 + ROUNDING))
        if bad.size:
            value = values[bad[0], index]
            raise ProblemError(f"constraint {name!r}, {locate(int(bad[0]))}: {value} exceeds its bound of {bound}")
    return bounds


def first_states(initial: Any, states: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the possible first states and their probabilities."""
    if isinstance(initial, int | np.integer) and not isinstance(initial, bool):
        if not 0 <= initial < states:
            raise ProblemError(f"initial state {initial} is outside 0..{states - 1}")
        return np.array([initial]), np.ones(1)
    probability = as_floats(initial, "initial")
    if probability.shape != (states,):
        raise ProblemError(f"initial has shape {probability.shape}; it must be a state or {states} probabilities")
    check_distribution(probability, "of initial")
    chosen = np.flatnonzero(probability)
    return chosen, probability[chosen]


class Stacked(NamedTuple):
    """The layers of a model, concatenated."""

    row_start: NDArray[np.int64]
    distribution: NDArray[np.int32]
    outcome_start: NDArray[np.int64]
    following: NDArray[np.int32]
    probability: Floats
    #: [layer + 1]: first distribution of each layer.
    distribution_start: list[int]


def stack(parts: list[Rows], shift: int) -> Stacked:
    """Concatenate layers: next slots of layer h are shifted by (h+1)*shift; equal next-state lists are stored once."""
    row_start, outcome_start = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    distribution, following, probability, distribution_start = [], [], [], [0]
    rows = outcomes = 0
    for layer, part in enumerate(parts):
        index, ends, next_states, chances = unique_lists(part)
        following.append(next_states if shift == 0 else next_states + np.int32((layer + 1) * shift))
        probability.append(chances)
        outcome_start.append(outcomes + ends)
        distribution.append(index if layer == 0 else index + np.int32(distribution_start[-1]))
        distribution_start.append(distribution_start[-1] + len(ends))
        row_start.append(rows + np.cumsum(part.counts))
        rows, outcomes = rows + len(part.pairs), outcomes + len(chances)
    return Stacked(
        joined(row_start),
        joined(distribution),
        joined(outcome_start),
        joined(following),
        joined(probability),
        distribution_start,
    )


def unique_lists(part: Rows) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32], Floats]:
    """Return for every row the index of its next-state list; and of the distinct lists their ends and members."""
    index, chosen = number_lists(part.start, part.following, part.probability.view(np.uint64))
    if len(chosen) == len(index):
        return index, part.start[1:], part.following, part.probability
    return index, *pick_lists(part.start, part.following, part.probability, chosen)


def joined(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    """Concatenate arrays; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
