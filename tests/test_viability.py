"""For how many steps safety can be kept, against a fixed point, every stationary policy, and the finite horizon."""

from itertools import product

import numpy as np
import pytest

from helpers.seeds import seeds
from peakrl import TabularModel
from peakrl.viability import FOREVER, steps_kept

pytestmark = pytest.mark.filterwarnings("ignore:constraint .* is (never|always) negative:RuntimeWarning")


def random_model(seed, *, states=None, horizon=1):
    """A stationary model: few outcomes, shared distributions, and about a third of the actions violates."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, 7)) if states is None else states
    actions, kinds = int(rng.integers(1, 4)), int(rng.integers(1, 9))
    rows = np.zeros((kinds, states))
    for row in rows:
        row[rng.integers(states, size=rng.integers(1, 3))] = 1
    transitions = (rows / rows.sum(1, keepdims=True))[rng.integers(kinds, size=(states, actions))]
    constraints = np.where(rng.random((2, states, actions)) < rng.choice([0.05, 0.2, 0.4]), -1.0, 1.0)
    available = rng.random((states, actions)) < 0.8
    available[np.arange(states), rng.integers(actions, size=states)] = True
    rewards = rng.random((states, actions))
    return TabularModel.from_arrays(transitions, rewards, constraints, horizon, available=available)


def kept_by_rounds(model):
    """The formula of `viability`, round by round; whatever has not changed for as many rounds as states is forever."""
    slots = [np.inf] * model.num_slots
    for _ in range(model.num_slots + 1):
        rows = [
            1 + min(slots[s] for s in model.next_slots(row)) if keeps else 0 for row, keeps in enumerate(model.keeps)
        ]
        slots = [max((rows[row] for row in model.rows_of_slot(slot)), default=0) for slot in range(model.num_slots)]
    return slots, rows


def safe_under_some_policy(model):
    """The slots from which one of all stationary deterministic policies never violates."""
    found = set()
    for policy in product(*(model.rows_of_slot(slot) for slot in range(model.num_slots))):
        for slot in range(model.num_slots):
            seen, open_ = {slot}, [slot]
            while open_:
                following = set(model.next_slots(policy[open_.pop()])) - seen
                seen |= following
                open_ += following
            if all(model.keeps[policy[each]] for each in seen):
                found.add(slot)
    return found


def finite(kept):
    return [np.inf if steps == FOREVER else int(steps) for steps in kept]


@seeds(30)
def test_steps_kept_are_the_greatest_fixed_point(seed):
    model = random_model(seed)
    found = tuple(map(finite, steps_kept(model.layout, model.keeps, np.zeros(model.num_slots, bool))))
    assert found == kept_by_rounds(model)


@seeds(10)
def test_safety_is_kept_for_ever_exactly_where_some_stationary_policy_never_violates(seed):
    model = random_model(seed, states=4)
    slots, _ = steps_kept(model.layout, model.keeps, np.zeros(model.num_slots, bool))
    assert set(np.flatnonzero(slots == FOREVER)) == safe_under_some_policy(model)


@pytest.mark.slow
def test_steps_kept_on_two_thousand_models():
    ends = set()
    for seed in range(2000):
        model = random_model(10**6 + seed)
        slots, rows = map(finite, steps_kept(model.layout, model.keeps, np.zeros(model.num_slots, bool)))
        assert (slots, rows) == kept_by_rounds(model)
        assert {slot for slot, steps in enumerate(slots) if steps == np.inf} == safe_under_some_policy(model)
        ends |= set(slots)
    assert {0, 1, 2, 3, np.inf} <= ends


@seeds(10)
def test_an_action_is_safe_at_a_step_if_it_is_kept_for_the_remaining_ones(seed):
    horizon = 1 + seed % 5
    model = random_model(seed, states=6, horizon=horizon)
    slots, rows = steps_kept(model.layout, model.keeps, np.zeros(model.num_slots, bool))
    safe, forever = model.safe, model.with_horizon(None).safe
    for step in range(horizon):
        assert np.array_equal(safe.rows(step), rows >= horizon - step)
        assert np.array_equal(safe.slots(step), slots >= horizon - step)
        assert np.array_equal(forever.rows(step), rows == FOREVER)
        assert np.array_equal(forever.slots(step), slots == FOREVER)
