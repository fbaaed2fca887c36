"""A state space: who belongs where, and what can be done with no more than that."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Policy, compile_model, evaluate, simulate, solve
from peakrl.errors import ProblemError
from peakrl.policy import load_policy
from peakrl.space import StateSpace, expand, spans, starts_of
from peakrl.theory import audit_slack, solve_relaxed


@seeds(20)
def test_every_pair_knows_its_state_and_every_state_its_step(seed):
    model = compile_model(random_problem(seed))
    owners = [slot for slot in range(model.num_slots) for _ in model.rows_of_slot(slot)]
    assert model.slot_of_row.tolist() == owners
    steps = [model.horizon] * model.num_slots
    for step, (first, last) in enumerate(model.step_slots.tolist()):
        steps[first:last] = [step] * (last - first)
    assert model.step_of_slot.tolist() == ([0] * model.num_slots if model.stationary else steps)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), max_size=6))
def test_ranges_expand_to_their_members_one_after_another(ranges):
    first, sizes = (np.array([pair[side] for pair in ranges], np.int64) for side in (0, 1))
    assert expand(first, sizes).tolist() == [at for start, size in ranges for at in range(start, start + size)]
    assert starts_of(sizes).tolist() == [sum(size for _, size in ranges[:place]) for place in range(len(ranges) + 1)]


def test_steps_share_everything_or_follow_each_other():
    assert spans(3, np.array([0, 7])).tolist() == [[0, 7]] * 3
    assert spans(3, np.array([0, 2, 3, 5])).tolist() == [[0, 2], [2, 3], [3, 5]]


def corridor():
    """Two steps: from "left" one may stay or go, from "right" only stay."""
    return StateSpace(
        name="corridor",
        steps=2,
        constraint_names=("width",),
        reward_range=(0.0, 1.0),
        constraint_bounds=(1.0,),
        stationary=True,
        state_labels=["left", "right"],
        slot_state=np.arange(2, dtype=np.int32),
        action_labels=["stay", "go"],
        row_action=np.array([0, 1, 0], np.int32),
        stage_start=np.array([0, 2]),
        row_start=np.array([0, 2, 3]),
    )


def test_a_policy_needs_no_more_than_a_space(tmp_path):
    policy = Policy.from_rule(corridor(), lambda step, state: "go" if (step, state) == (0, "left") else "stay")
    assert policy.table(0) == {"left": "go", "right": "stay"}
    assert policy.table(1) == {"left": "stay", "right": "stay"}
    assert [view.safe for view in policy.explain(0, "left")] == [None, None]
    policy.save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy", corridor()).table(0) == policy.table(0)


def test_whatever_needs_dynamics_says_that_a_space_has_none():
    for use in [
        solve,
        lambda space: solve_relaxed(space, 0.1),
        compile_model,
        lambda space: audit_slack(space, 0.1),
        lambda space: evaluate(space, Policy.from_rule(space, lambda step, state: "stay")),
        lambda space: simulate(space, Policy.from_rule(space, lambda step, state: "stay"), episodes=2),
    ]:
        with pytest.raises(ProblemError, match=r"'corridor' is an environment, not a model: .* simulate\(env"):
            use(corridor())
