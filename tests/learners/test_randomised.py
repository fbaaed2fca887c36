"""Algorithms whose policies draw their actions, on the seam: what is recorded, kept and handed out."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.random_problems import random_problem
from peakrl import Policy, compile_model, evaluate, solve
from peakrl.learners.base import Algorithm, LearnerSettings
from peakrl.planning.backward import value_of_mixture
from peakrl.policy import StochasticPolicy
from peakrl.sampling import draw_first, draw_outcome, uniform
from peakrl.space import read_only
from peakrl.theory import solve_relaxed
from peakrl.training.trainer import Trainer, drive

MODEL = compile_model(random_problem(3, states=4, actions=3, horizon=5, constraints=1))


#: [entry]: all actions of a state as likely.
UNIFORM = np.tile(1.0 / np.diff(MODEL.row_start)[MODEL.slot_of_row], MODEL.num_entries // MODEL.num_rows)


class CoinFlips(LearnerSettings):
    """Learns nothing: every action is as likely as the others."""

    def make(self, task):
        return CoinFlipper(task)


class CoinFlipper(Algorithm):
    randomised = True

    def grow(self, first, log):
        start = self.space.layout.row_start
        self.size = np.diff(start)[:, None]
        self.drawn = np.repeat(start[:-1, None], self.columns, axis=1)
        self.weights = np.repeat(1.0 / np.maximum(self.size[self.space.slot_of_row], 1), self.columns, axis=1)

    def begin(self, episode, generator, log):
        before, start = self.drawn.copy(), self.space.layout.row_start
        for slot, column in np.ndindex(self.drawn.shape):
            self.drawn[slot, column] = start[slot] + int(uniform(generator) * self.size[slot, 0])
        slot, column = np.nonzero(before != self.drawn)
        log.extend(column * self.space.layout.node_stride + slot, self.drawn[slot, column])

    def run(self, generator, done, episodes, log, experience, counters):
        model = self.task.model
        quantities = model.row_reward, model.row_violation.sum(axis=1)
        tables = [
            value_of_mixture(model.layout, model.num_nodes, each, read_only(self.chances())) for each in quantities
        ]
        exact = [float(model.first_probability @ table[model.first_slot]) for table in tables]
        self.begin(done + 1, generator, log.since(done + 1))
        slot, earned, violated = draw_first(generator, model.sampler), 0.0, 0.0
        for step in range(model.horizon):
            row = self.row(step, slot)
            distribution = model.layout.row_distribution[row]
            outcome = draw_outcome(generator, model.layout, model.sampler, distribution)
            record = model.payoffs.row_payoff[row] + model.payoffs.stride * (
                outcome - model.outcome_start[distribution]
            )
            earned += model.payoffs.reward[record]
            violated += model.record_violation[record]
            slot = int(model.layout.outcome_next[outcome])
        if len(experience):
            experience[0] = earned, violated, *exact
        return 1

    def row(self, step, slot):
        return int(self.drawn[slot, step if self.space.shared else 0])

    def greedy(self):
        return self.drawn.copy()

    def chances(self):
        return self.space.entries_of(self.weights)

    def values(self):
        return np.zeros(self.task.model.num_entries)


@pytest.fixture(scope="module")
def run():
    active = Trainer(MODEL, CoinFlips(), planned=400, seed=5, every=1, average=True)
    return drive(active, 400)


def test_what_is_followed_and_handed_out_are_the_chances(run):
    for policy in (run.policy, run.behavior_policy):
        assert isinstance(policy, StochasticPolicy)
        assert np.array_equal(policy.weights, UNIFORM)


def test_history_holds_the_figures_of_the_chances_and_not_of_the_draws(run):
    exact = evaluate(MODEL, StochasticPolicy(MODEL, UNIFORM))
    assert run.history.value == pytest.approx(exact.value)
    assert run.history.violation == pytest.approx(exact.violation)
    assert run.history.averaged_value == pytest.approx(exact.value)


def test_every_episode_follows_the_table_that_was_drawn_for_it(run):
    drawn = {run.averaged_policy.policy(episode).rows.tobytes() for episode in range(1, 401)}
    assert len(drawn) > 300  # of far more than 400 tables, drawn evenly


def test_the_mixture_of_the_drawn_tables_is_worth_what_the_chances_are(run):
    exact = evaluate(MODEL, run.policy)
    mixed = evaluate(MODEL, run.averaged_policy)
    values = [evaluate(MODEL, run.averaged_policy.policy(episode)).value for episode in range(1, 401)]
    # Independent draws: five standard errors of their mean.
    assert abs(mixed.value - exact.value) < 5 * np.std(values) / 20


def test_the_likeliest_actions_are_a_table_and_those_of_a_table_its_own():
    weights = solve_relaxed(MODEL, slack=0.05).policy
    table = weights.likeliest
    assert isinstance(table, Policy)
    for step, slot, node in MODEL.decisions():
        chances = weights.probabilities(step, MODEL.state_of_slot(slot))
        assert chances[MODEL.action_of_row(int(table.rows[node]))] == max(chances.values())
    best = solve(MODEL).policy
    assert best.likeliest is best
