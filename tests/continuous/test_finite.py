"""Continuous problems as finite ones: the same safe set, every cell that can follow, and no violation of learners."""

from __future__ import annotations

import numpy as np
import pytest

import peakrl
from helpers import continuous_systems as systems
from peakrl import Assumptions, ConstrainedEnv, ContinuousProblem, Discretize, PeakError, compile_model, safe_set
from peakrl.continuous import to_problem

SMALL = {
    "room": (systems.room, 60), "rooms": (systems.two_rooms, 20), "pendulum": (systems.pendulum, 20),
    "turning": (systems.turning, (30, 20)), "jumping": (systems.jumping, (30, 20)),
}  # fmt: skip


def anywhere(problem):
    """The same problem, which begins anywhere in its box."""
    problem.start = problem.low, problem.high
    return problem


def same_safe_set(problem, cells, horizon=None):
    safe, model = (
        safe_set(problem, cells=cells, horizon=horizon),
        compile_model(to_problem(problem, cells=cells, horizon=horizon)),
    )
    found, order = safe_set(model), [model.action_labels.index(action) for action in range(len(problem.choices))]
    for cell in range(safe.grid.size):
        state = tuple(int(k) for k in np.unravel_index(cell, safe.grid.cells))
        for step in range(horizon or 1):
            expected = safe.kept[cell] >= (1 if horizon is None else horizon - step)
            np.testing.assert_array_equal(found.mask(state, step)[order], expected)
    return 0 < safe.share < 1


@pytest.mark.parametrize("name", SMALL)
def test_the_finite_problem_has_the_safe_set_of_the_grid(name):
    make, cells = SMALL[name]
    same_safe_set(anywhere(make()), cells)
    same_safe_set(anywhere(make()), cells, horizon=4)


def next_cells_are_known(problem, support, cells, count=500):
    """Does the support name a cell that holds the next state, for points of cells, their corners, and all actions?"""
    rng, grid = np.random.default_rng(0), safe_set(problem, cells=cells).grid
    model = compile_model(to_problem(anywhere(support), cells=cells))
    states = [tuple(int(k) for k in np.unravel_index(cell, grid.cells)) for cell in rng.integers(0, grid.size, count)]
    low = np.array([[edges[k] for edges, k in zip(grid.edges, state, strict=True)] for state in states])
    high = np.array([[edges[k + 1] for edges, k in zip(grid.edges, state, strict=True)] for state in states])
    share = np.where(rng.random((count, 1)) < 0.5, rng.integers(0, 2, low.shape), rng.random(low.shape))
    x = np.clip(low + share * (high - low), low, high)
    part, side = rng.integers(0, len(problem.weights), count), rng.integers(0, 2, (count, problem.noise_low.shape[1]))
    w = np.where(side, problem.noise_high[part], problem.noise_low[part])
    for index, action in enumerate(problem.actions):
        y = np.stack(np.broadcast_arrays(*problem.move(x.T, action, w.T)), axis=1)
        for state, found in zip(states, grid.locate(y), strict=True):
            row = model.row_of(0, state, index)
            after = {model.state_of_slot(slot) for slot in model.next_slots(row)}
            held = {tuple(int(k) for k in np.unravel_index(each, grid.cells)) for each in found if each >= 0}
            left = model.row_margin[row].min() < 0 or any(each[0] < 0 for each in after)
            if not (held & after if held else left):
                return False
    return True


@pytest.mark.parametrize("name", SMALL)
def test_every_cell_that_the_true_dynamics_reach_is_possible(name):
    make, cells = SMALL[name]
    assert next_cells_are_known(make(), make(), cells)


def test_images_of_the_centre_miss_cells_that_are_reached():
    assert not next_cells_are_known(systems.pendulum(), systems.sabotaged(systems.pendulum, "centre"), 20)


def test_cells_are_as_likely_as_their_share_of_the_image_and_of_the_start():
    problem = ContinuousProblem(
        lambda x, a, w: [0.5 * x[0] + w[0]], box={"x": (0, 1)}, actions=["on"], weights=[0.75, 0.25],
        disturbance=[{"w": (0, 0.3)}, {"w": (0.8, 1.1)}], outside="exit", start={"x": (0.1, 0.5)},
        reward=lambda x, a: 3.0 * x[0],
    )  # fmt: skip
    cells = to_problem(problem, cells=5, horizon=3)
    assert {state: p for p, state in cells.initial()} == pytest.approx({(0,): 0.25, (1,): 0.5, (2,): 0.25})
    model, found = compile_model(cells), {}
    row = model.row_of(0, (1,), 0)  # from [0.2, 0.4] to [0.1, 0.5] or [0.9, 1.3], of which [1, 1.3] is an exit
    for outcome in cells.outcomes(0, (1,), 0):
        found[outcome.next_state] = found.get(outcome.next_state, 0.0) + outcome.probability
    expected = {(0,): 0.75 / 4, (1,): 0.75 / 2, (2,): 0.75 / 4, (4,): 0.25 / 4, (-1,): 0.25 * 3 / 4}
    assert found == pytest.approx(expected)
    assert {model.state_of_slot(slot) for slot in model.next_slots(row)} == set(expected)
    assert model.row_reward[row] == pytest.approx(0.9)
    gone = compile_model(cells).row_of(1, (-1,), 0)
    assert model.row_reward[gone] == 0
    assert [model.state_of_slot(slot) for slot in model.next_slots(gone)] == [(-1,)]


def test_a_disturbance_of_weight_0_is_possible():
    gusts = ContinuousProblem(
        lambda x, a, w: [0.5 * x[0] + a * w[0]], box={"x": (0, 0.7)}, actions=[0, 1], weights=[1.0, 0.0],
        disturbance=[{"w": (0, 0.1)}, {"w": (0.6, 0.6)}],
    )  # fmt: skip
    same_safe_set(anywhere(gusts), 7)
    assert safe_set(gusts, cells=7).actions([0.65]) == [0]


def test_a_learner_with_this_support_never_violates_on_cells_or_on_the_true_system():
    room = peakrl.problems.room_temperature()
    cells = to_problem(room, cells=60, horizon=24)
    assert peakrl.learn(cells, episodes=300, assumptions=Assumptions(support=cells)).violations == 0
    assert peakrl.learn(cells, episodes=300).violations > 0
    env = Discretize(peakrl.to_gymnasium(room), 60)
    env = ConstrainedEnv(env, horizon=24, reward_range=(-1, 0), constraint_bounds=(6.0,))
    assert peakrl.learn(env, episodes=300, assumptions=Assumptions(support=cells)).violations == 0
    assert peakrl.learn(env, episodes=300).violations > 0


def test_a_problem_without_a_known_start_is_refused():
    with pytest.raises(PeakError, match="'room' needs a start that is a point or a box: pass start="):
        compile_model(to_problem(systems.room(), cells=5, horizon=3))
