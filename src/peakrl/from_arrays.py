"""Dense and sparse arrays of a model, validated: the input of `TabularModel.from_arrays`.

Arrays are indexed [step, state, action, next_state]; an array that does not depend on the step has no such axis. Every
layer is converted to the rows (state, action) of a compressed sparse matrix.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.checks import AT_MOST, check_distribution, check_horizon, is_usual
from peakrl.errors import ProblemError
from peakrl.memory import MOST_STEPS, check_tables
from peakrl.problem import NO_TRUTH_VALUES, Header, check_header, payoff_limits
from peakrl.ragged import distribution_fault, shared_lists
from peakrl.space import check_sizes, starts_of
from peakrl.types import Distributions, Floats, Payoffs

# The stubs distinguish sparse formats that are treated alike here.
sparse: Any = importlib.import_module("scipy.sparse")


def arrays_of_model(
    transitions: Any, rewards: Any, constraints: Any, initial: Any, available: Any, declared: tuple[Any, ...]
) -> tuple[Header, Distributions, Payoffs, dict[str, Any]]:
    """Return the validated arguments of `tabular.assemble` for `TabularModel.from_arrays`.

    `declared` has the arguments of `check_header`.
    """
    name, horizon, names, *bounds = declared
    horizon = check_horizon(horizon, "horizon", MOST_STEPS, error=ProblemError)
    rewards = as_floats(rewards, "rewards")
    layers, by_step, states, actions = transition_layers(transitions, horizon, rewards.shape)
    reward, reward_steps = table(rewards, (states, actions), horizon, "rewards have")
    constraint, constraint_steps = constraint_table(constraints, (states, actions), horizon)
    mask, mask_steps = availability(available, (states, actions), horizon)
    stationary = not (by_step or reward_steps or constraint_steps or mask_steps)
    count, steps = constraint.shape[1], 1 if stationary or horizon is None else horizon
    header = check_header(name, horizon, [f"constraint {i}" for i in range(count)] if names is None else names, *bounds)
    if len(header.constraint_names) != count:
        raise ProblemError(f"constraint_names {header.constraint_names} must be {count} different names")

    # From here on the arrays of all steps are one: a pair is (step * states + state) * actions + action.
    size = states * actions

    def locate(pair: int) -> str:
        where = "" if stationary else f"step {pair // size}, "
        return f"{where}state {pair % size // actions}, action {pair % actions}"

    whole = layers[0] if steps == 1 else sparse.vstack([layers[step % len(layers)] for step in range(steps)]).tocsr()
    pair, chosen = select_rows(whole, np.resize(mask, steps * size), locate)
    row_reward = np.resize(reward, steps * size)[pair]
    row_constraints = np.resize(np.moveaxis(constraint, 1, -1), (steps * size, count))[pair]
    check_payoffs(header, row_reward, row_constraints, lambda row: locate(int(pair[row])))
    first_slot, first_probability = first_states(initial, states)
    slots = states if stationary else states * (steps + 1)
    check_sizes(name, states=slots, pairs=len(pair), outcomes=len(chosen.indices))
    check_tables(name, horizon or 1, states)
    start, following = chosen.indptr.astype(np.int64), chosen.indices.astype(np.int32)
    if not stationary:  # the states of step h are the slots from h * states on
        following += np.repeat((pair // size + 1) * states, np.diff(start)).astype(np.int32)
    ends = np.cumsum(np.bincount(pair // size, minlength=steps))
    lists = shared_lists(start, following, chosen.data, ends.tolist())
    row_start = starts_of(np.bincount(pair // actions, minlength=steps * states))
    payoffs = Payoffs(0, np.arange(len(pair), dtype=np.int32), row_reward, row_constraints)
    return (
        header,
        lists,
        payoffs,
        {
            "state_labels": range(states),
            "slot_state": np.arange(slots) % states,
            "action_labels": range(actions),
            "row_action": pair % actions,
            "row_start": np.concatenate([row_start, np.full(slots + 1 - len(row_start), len(pair))]),
            "first_slot": first_slot,
            "first_probability": first_probability,
            "layer_start": None if stationary else np.arange(steps + 1) * states,
        },
    )


def transition_layers(
    given: Any, horizon: int | None, reward_shape: tuple[int, ...]
) -> tuple[list[Any], bool, int, int]:
    """Return a CSR matrix of S*A rows for each layer, whether they depend on the step, S and A."""
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


def table(array: NDArray[Any], shape: tuple[Any, ...], horizon: int | None, what: str) -> tuple[NDArray[Any], bool]:
    """Return an array (steps, *shape), with one step if it does not depend on the step, and whether it does."""
    if array.shape == shape:
        return array[None], False
    if array.shape == (horizon, *shape):
        return array, True
    expected = f"{shape}" + ("" if horizon is None else f" or {(horizon, *shape)}")
    expected = expected.replace("'", "")
    raise ProblemError(f"{what} shape {array.shape}; the shape must be {expected}")


def constraint_table(given: Any, shape: tuple[int, int], horizon: int | None) -> tuple[Floats, bool]:
    """Return an array (steps, I, S, A), and whether it depends on the step."""
    array = as_floats(given, "constraints")
    if array.size and np.asarray(given).dtype == bool:
        raise ProblemError(f"{NO_TRUTH_VALUES}; got truth values")
    if array.shape == (0,):  # an empty list: no constraint
        array = np.zeros((0, *shape))
    count = array.shape[-3] if array.ndim > 2 and array.shape[-2:] == shape else "I"
    return table(array, (count, *shape), horizon, "constraints have")


def availability(given: Any, shape: tuple[int, int], horizon: int | None) -> tuple[NDArray[np.bool_], bool]:
    """Return a mask (steps, S, A), and whether it depends on the step."""
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
    return table(array.astype(bool), shape, horizon, "available has")


def select_rows(matrix: Any, offered: NDArray[np.bool_], locate: Callable[[int], str]) -> tuple[NDArray[np.int64], Any]:
    """Return [row]: the pair of each available action; and their validated rows."""
    matrix.sum_duplicates()
    pairs = np.flatnonzero(offered)
    chosen = matrix if offered.all() else matrix[pairs]
    position, row, total, zeros = distribution_fault(chosen.indptr.astype(np.int64), chosen.data)
    if position >= 0:
        pair = int(pairs[np.searchsorted(chosen.indptr, position, side="right") - 1])
        raise ProblemError(
            f"transitions, {locate(pair)}, next state {int(chosen.indices[position])}: "
            f"{chosen.data[position]} is not a probability"
        )
    if row >= 0:
        raise ProblemError(f"transitions, {locate(int(pairs[row]))}: probabilities sum to {total:.12g}, not to 1")
    if zeros:
        chosen.eliminate_zeros()
    return pairs, chosen


def check_payoffs(header: Header, reward: Floats, constraints: Floats, locate: Callable[[int], str]) -> None:
    """Raise if a reward or constraint value is not finite, or outside of the declared bounds."""
    words = [("rewards", f"lies outside reward_range {header.reward_range}")]
    named = zip(header.constraint_names, header.constraint_bounds, strict=True)
    words += ((f"constraint {name!r}", f"exceeds its bound of {bound}") for name, bound in named)
    limits = payoff_limits(header.reward_range, header.constraint_bounds)
    for (what, fault), column, least, most in zip(words, (reward, *constraints.T), *limits, strict=True):
        valid = (column >= least) & (column <= most)
        if not valid.all():
            row = int(np.argmin(valid))
            fault = fault if is_usual(float(column[row])) else f"is not a finite number{AT_MOST}"
            raise ProblemError(f"{what}, {locate(row)}: {column[row]} {fault}")


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
