"""Memory: as many bytes as docs/performance.md says, and none more while a run goes on."""

from __future__ import annotations

import re
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from benchmarks.models import sparse_model
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import TabularModel, compile_model, learn
from peakrl.evaluation.curve import new_curve
from peakrl.learners import ConstrainedQ, SafeQ
from peakrl.policy.tables import first_rows
from peakrl.problems import energy_harvesting
from peakrl.training.trainer import Trainer

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
SETTINGS = {
    "Algorithm 1, no bonus": ConstrainedQ.published(0.25),
    "Algorithm 1, Hoeffding bonus": ConstrainedQ.paper(0.25, bonus="hoeffding"),
    "Algorithm 1, Bernstein bonus": ConstrainedQ.paper(0.25),
}


def stated(name):
    """The numbers of the documented table row that begins with `name`."""
    row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row is not None, f"docs/performance.md has no row {name!r}"
    return [int(number) for number in re.findall(r"\d+", row.group(1))]


def learner_of(model, settings, **choices):
    chosen = {"planned": 100_000, "seed": 0, "every": 0, "average": False} | choices
    return Trainer(model, settings, **chosen)


@pytest.mark.parametrize("name", SETTINGS)
@seeds(4)
def test_learning_tables_take_the_stated_bytes(name, seed):
    model = compile_model(random_problem(seed, states=4, actions=3, horizon=4, stationary=seed % 2 == 0))
    an_entry, a_node = stated(name)
    taken = sum(array.nbytes for array in learner_of(model, SETTINGS[name]).learned().arrays().values())
    assert taken == an_entry * model.num_entries + a_node * model.num_nodes


@pytest.mark.parametrize("kind", ["stationary", "layered"])
@seeds(3)
def test_the_practical_learners_tables_take_the_stated_bytes(kind, seed):
    model = compile_model(random_problem(seed, states=4, actions=3, horizon=4, stationary=kind == "stationary"))
    an_entry, a_state_and_step, a_pair, a_state = stated(f"SafeQ, {kind} model")
    taken = sum(array.nbytes for array in learner_of(model, SafeQ()).learned().arrays().values())
    states_and_steps = model.num_slots * (model.horizon if model.stationary else 1)
    counted = an_entry * model.num_entries + a_state_and_step * states_and_steps
    assert taken == counted + a_pair * model.num_rows + a_state * model.num_slots + 24


def test_a_change_takes_the_stated_bytes():
    model = compile_model(energy_harvesting())
    averaged = learn(model, SETTINGS["Algorithm 1, no bonus"], episodes=300, history="none").averaged_policy
    assert averaged.num_changes > 1000
    assert averaged.nbytes == stated("each change of the averaged policy")[0] * averaged.num_changes


def test_a_model_of_arrays_takes_the_stated_bytes():
    a_pair, a_constraint, an_outcome, a_distribution, a_state = stated("`TabularModel.from_arrays`")
    states, actions, constraints, horizon = 200, 5, 3, 4
    rng = np.random.default_rng(0)
    chance = rng.random((states, actions, states)) * (rng.random((states, actions, states)) < 0.1)
    chance[:, :, 0] += 0.1
    model = TabularModel.from_arrays(
        chance / chance.sum(axis=2, keepdims=True),
        rng.random((states, actions)),
        rng.random((constraints, states, actions)),
        horizon,
    )
    counted = (
        (a_pair + a_constraint * constraints) * model.num_pairs
        + an_outcome * len(model.outcome_next)
        + a_distribution * (len(model.outcome_start) - 1)
        + a_state * states
    )
    assert 0 <= model.nbytes - counted <= 1000


def resident():
    """Bytes that this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
@pytest.mark.parametrize("settings", [*SETTINGS.values(), SafeQ()])
def test_memory_does_not_grow_while_learning(settings):
    learner = learner_of(compile_model(energy_harvesting()), settings)
    learner.advance(1000)
    before = resident()
    for _ in range(20):
        learner.advance(500)
    # The change list of an averaged policy would take several times as much.
    assert resident() - before < 1e6


def test_memory_grows_by_the_change_list_and_its_size_is_reported():
    learner = learner_of(compile_model(energy_harvesting()), SETTINGS["Algorithm 1, no bonus"], average=True)
    learner.advance(10)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        learner.advance(3000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    reported = learner.result().averaged_policy.nbytes
    assert 0.9 * reported < grown < 1.1 * reported + 50_000


@pytest.mark.parametrize("stationary", [True, False])
def test_the_exact_history_takes_the_stated_bytes_while_it_is_recorded(stationary):
    model = compile_model(random_problem(1, states=40, actions=3, horizon=8, stationary=stationary))
    layout = model.layout
    a_state_and_step, a_law_and_step, a_pair, an_outcome, a_state = stated("the exact history of a stationary model")
    first = model.first_slot, model.first_probability
    payoffs = np.zeros((model.num_rows, 2))
    curve = new_curve(layout, payoffs, *first, first_rows(model))
    taken = sum(array.nbytes for array in curve if isinstance(array, np.ndarray))
    laws = int(np.diff(layout.step_distributions, axis=1).sum())
    counted = a_state_and_step * model.num_nodes + a_law_and_step * laws + a_pair * model.num_rows
    counted += an_outcome * len(layout.outcome_next) + (a_state if stationary else a_state + 4) * model.num_slots
    # Totals of each step, and up to three cells that fill it up.
    assert 0 <= taken - counted <= model.horizon * (5 * a_law_and_step + 100) + 100


def test_a_run_that_is_over_keeps_the_points_of_its_history_and_one_policy():
    model, kept = sparse_model(1_000), []
    for record in ("none", 1, "none", 1):  # what the model works out once comes with the first two
        tracemalloc.start()
        try:
            run = learn(model, SETTINGS["Algorithm 1, no bonus"], episodes=50, history=record)
            kept.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert len(run.history) == 50
    assert kept[3] - kept[2] < 4 * model.num_nodes + 2 * 56 * 50 + 20_000  # the tables take 3 MB
