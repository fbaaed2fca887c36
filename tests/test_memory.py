"""What asks for too much is refused before the work begins, with the budget in the message."""

from __future__ import annotations

import time

import numpy as np
import pytest

from peakrl import Outcome, PeakError, Problem, TabularModel, compile_model, learn, solve, sweep
from peakrl import memory as budgets
from peakrl.problems import energy_harvesting


class Ticking(Problem):
    """One state, one action."""

    stationary = True

    def __init__(self, horizon):
        self.horizon = horizon

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return [0]

    def outcomes(self, step, state, action):
        return [Outcome(1.0, 0, 0.0)]


SWEEP = {
    "seeds": 1, "episodes": [1, 2], "problems": [{"kind": "scheduling_example", "number": 1}], "settings": [{}],
}  # fmt: skip
GRID = {"kind": "thermostat", "grid": {name: [0] * 100 for name in ("a", "b", "c", "d", "e", "f", "g", "h")}}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: compile_model(Ticking(2**31 - 1)), "horizon of 'problem' is 2147483647; .* from 1 to 1,000,000"),
        (lambda: TabularModel.from_arrays([[[1.0]]], [[0.0]], [], 2**31 - 1), "horizon is .* from 1 to 1,000,000"),
        (lambda: energy_harvesting(horizon=2147483647), "horizon is 2147483647; .* from 1 to 1,000,000"),
        (lambda: energy_harvesting(max_arrival=9999999999), "max_arrival is 9999999999; .* from 0 to 1,000,000"),
        (lambda: energy_harvesting(battery=9999999999), "battery is 9999999999; .* from 0 to 1,000,000"),
        (lambda: energy_harvesting(battery=float("inf")), "battery is inf"),
        (
            lambda: sweep(SWEEP | {"problems": [GRID]}, dry_run=True),
            r"problems\[0\].grid has over 100,000 combinations",
        ),
        (lambda: sweep(SWEEP | {"seeds": 10**7}, dry_run=True), "seeds is 10000000; .* from 1 to 1,000,000"),
        (lambda: sweep(SWEEP | {"seeds": 10**6}, dry_run=True), "the sweep has over 1,000,000 runs"),
        (
            lambda: compile_model(
                energy_harvesting(battery=50, max_arrival=1, mean=0.5, horizon=10_000), memory_limit=1e6
            ),
            "102 states and a horizon of 10,000: .* 0.00408 GB, more than the limit of 0.001 GB",
        ),
    ],
)
def test_too_much_is_refused_at_once(ask, words):
    begun = time.monotonic()
    with pytest.raises(PeakError, match=words):
        ask()
    assert time.monotonic() - begun < 10


def test_a_long_horizon_costs_a_search_no_more_than_its_states_do():
    """All states of a battery of 5 are met within 6 steps; the tables of the long problem are those of the short."""
    short = compile_model(energy_harvesting(battery=5, max_arrival=5, horizon=10))
    long = compile_model(energy_harvesting(battery=5, max_arrival=5, horizon=20_000))
    assert list(long.state_labels) == list(short.state_labels)
    for one, other in zip(short.layout[5:], long.layout[5:], strict=True):
        assert np.array_equal(one, other)


def test_values_by_step_and_state_have_a_budget_of_their_own(monkeypatch):
    model = compile_model(Ticking(1000))
    monkeypatch.setattr(budgets, "available_memory", lambda: 20_000.0)
    found = solve(model)  # 1,000 bytes of choices
    for ask in (lambda: found.node_values, lambda: learn(model, episodes=1)):
        with pytest.raises(PeakError, match=r"tables by step and state would take 2\.4e-05 GB"):
            ask()
