"""The most reward within one limit, by the price of the cost: against linear programmes and plain recursions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive.lagrangian import priced_values
from peakrl import TabularModel, compile_model
from peakrl.learners import OptCMDP
from peakrl.learners.empirical_model import Box, box_distributions
from peakrl.planning.backward import value_of_mixture
from peakrl.planning.lagrangian import NONE_FORBIDDEN, best_plan, best_within, no_boxes, plan_at, reached_by, worth_of
from peakrl.planning.occupancy import flow, most_reward
from peakrl.space import read_only
from peakrl.training.trainer import Trainer


def some_barred(model, rng):
    """[entry]: some actions, never all of a node, must not be taken."""
    barred = (rng.random(model.num_entries) < 0.3).astype(np.int8)
    first = np.asarray(model.layout.row_start[:-1][np.diff(model.layout.row_start) > 0])
    barred.reshape(-1, model.num_rows)[:, first] = 0
    return barred


@seeds(24)
def test_the_optimum_is_that_of_the_linear_programme(seed):
    rng = np.random.default_rng(seed)
    model = compile_model(random_problem(seed + 500, constraints=1 + seed % 2, stationary=seed % 3 > 0))
    reward, cost = model.row_reward, model.row_violation.sum(axis=1)
    barred = some_barred(model, rng) if seed % 2 else np.zeros(model.num_entries, np.int8)
    paths, limit = flow(model), float(rng.uniform(0.01, 1.0))
    closed, costs = np.flatnonzero(barred[paths.entries]), sparse.csr_array(cost[paths.rows][None])
    programme = most_reward(paths, reward[paths.rows], costs, np.array([limit]), 1.0, closed)
    found = best_within(model, reward, cost, limit, forbidden=barred if seed % 2 else NONE_FORBIDDEN)
    assert (found is None) == (programme is None)
    if found is None:
        return
    value, used = (
        model.first_probability
        @ value_of_mixture(model.layout, model.num_nodes, each, read_only(found.weights))[model.first_slot]
        for each in (reward, cost)
    )
    assert value == pytest.approx(reward[paths.rows] @ programme.shares, abs=1e-8)
    assert used <= limit + 1e-12
    assert found.used == pytest.approx(used, abs=1e-12)
    assert ((found.weights > 0) & (found.weights < 1)).sum() <= 2
    assert not (found.weights[barred == 1] > 0).any()


def counted(seed, scale):
    """A chain of counts, the box around it, and what its rows pay."""
    model = compile_model(random_problem(seed, states=4, actions=2, horizon=3, constraints=1, stationary=seed % 2 == 0))
    settings = OptCMDP(total=0.3, scale=scale)
    active = Trainer(model, settings, planned=1000, seed=seed, every=0, average=False)
    active.advance(9)
    learner = active.learned()
    cells, chain = learner.chain(anywhere=True)
    box = Box.of(cells, learner.tables.counts.visits, scale, learner.box_log)
    nothing = np.zeros(model.num_rows)
    return learner, chain, cells, box, *learner.chain_payoffs(chain, nothing, nothing)


@pytest.mark.parametrize("boxed", [True, False])
def test_a_plan_at_a_price_is_the_best_of_a_plain_recursion(boxed):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        learner, chain, cells, box, reward, cost = counted(seed + 10, 0.05)
        laws = box_distributions(chain, learner.space, cells, box) if boxed else no_boxes(chain.layout)
        barred = np.zeros(chain.num_entries, np.int8)
        barred[rng.integers(0, len(chain.row_of) - 3)] = 1
        written = boxes(learner, chain, cells, box) if boxed else {}
        plan = plan_at(chain.layout, laws, chain.num_nodes, reward, cost[:, 0], barred, 1.0, 0.7)
        value, charge, rows, order = plan
        expected = priced_values(chain, reward, cost[:, 0], barred, 0.7, written)
        stride = chain.layout.node_stride
        for step in range(chain.layout.horizon):
            nodes = step * stride + np.arange(*chain.layout.step_slots[step])
            assert (value - 0.7 * charge)[nodes] == pytest.approx(expected[step][slice(*chain.layout.step_slots[step])])
        # Valued again as a given choice it is the same, and only what it leads to is reached.
        side = np.zeros(chain.num_nodes, np.int8)
        again = worth_of(chain.layout, laws, chain.num_nodes, reward, cost[:, 0], rows, side, order[None])
        assert again[0] == pytest.approx(value)
        assert again[1] == pytest.approx(charge)
        reached = reached_by(chain.layout, laws, chain.num_nodes, chain.first_slot, rows, side, order[None])
        worthless = np.where(reached, rows, np.where(rows >= 0, chain.layout.row_start[0], -1)).astype(np.int32)
        elsewhere = worth_of(chain.layout, laws, chain.num_nodes, reward, cost[:, 0], worthless, side, order[None])
        assert elsewhere[0][chain.first_slot] == pytest.approx(value[chain.first_slot])


def boxes(learner, chain, cells, box):
    """{row of the chain: {next slot: (P^, beta)}}, read off plainly."""
    found = {}
    for row, own in enumerate(chain.row_of.tolist()):
        if own >= 0 and cells.start[own + 1] > cells.start[own]:
            distribution = {
                int(chain.place[slot]): (0.0, float(box.unseen[own])) for slot in range(learner.space.slots)
            }
            for cell in range(cells.start[own], cells.start[own + 1]):
                distribution[int(chain.place[cells.following[cell]])] = (
                    float(cells.probability[cell]),
                    float(box.seen[cell]),
                )
            found[row] = distribution
    return found


def test_of_plans_of_the_least_cost_the_one_of_most_reward_is_taken():
    model = TabularModel.from_arrays(np.ones((1, 4, 1)), [[0.0, 2.0, 1.0, 9.0]], np.ones((1, 1, 4)), 3)
    found = best_plan(model, model.row_reward, np.array([0.5, 0.5, 0.5, 0.6]), None)
    assert (found.cost, found.value) == pytest.approx((1.5, 6.0))
