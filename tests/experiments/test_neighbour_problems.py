"""The common problems, held against the values that HiGHS and backward induction gave for independent copies."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.neighbours import Inventory, ObstacleGrid, common_problem, tiny_harvesting
from peakrl import compile_model, solve
from peakrl.errors import SettingsError
from peakrl.theory import solve_modified

FREE = 0.0


def test_the_inventory_without_a_limit_earns_the_most_at_every_step():
    best = solve_modified(Inventory(), slack=0.0, penalty=FREE)
    assert best.value == pytest.approx(7.0, abs=1e-9)
    assert best.violation == pytest.approx(4.5053, abs=1e-4)


def test_the_inventory_has_the_corners_of_the_critical_multiplier():
    # At 0.921212 two deterministic policies tie; on either side of it one of them wins.
    below = solve_modified(Inventory(), slack=0.0, penalty=0.92)
    above = solve_modified(Inventory(), slack=0.0, penalty=0.9225)
    assert below.value + 0.92 * below.violation == pytest.approx(6.6961, abs=1e-4)
    assert below.violation == pytest.approx(3.5334, abs=1e-4)
    assert above.value + 0.9225 * above.violation == pytest.approx(6.6123, abs=1e-4)
    assert above.violation == pytest.approx(3.4425, abs=1e-4)


def test_the_grid_has_its_map_and_its_optima():
    grid = ObstacleGrid()
    assert len(grid.obstacles) == 105
    assert grid.goal == (1, 16)
    best = solve_modified(grid, slack=0.0, penalty=FREE)
    assert best.value == pytest.approx(913.983, abs=1e-3)
    assert best.violation == pytest.approx(5.025, abs=1e-3)


def test_the_grid_without_slips_can_be_walked_past_every_obstacle():
    assert solve_modified(ObstacleGrid(slip=0.0), slack=0.0, penalty=FREE).value == pytest.approx(963.98, abs=1e-2)
    best = solve(ObstacleGrid(slip=0.0))
    assert best.feasible
    assert best.value == pytest.approx(619.759, abs=1e-3)


def test_tiny_harvesting_has_twenty_five_states_and_its_optimum():
    model = compile_model(tiny_harvesting())
    assert model.num_states == 25
    best = solve(model)
    assert best.feasible
    assert best.value == pytest.approx(5.962809, abs=1e-6)
    assert solve_modified(model, slack=0.0, penalty=FREE).value == pytest.approx(6.103552, abs=1e-6)


@pytest.mark.parametrize("name", ["inventory", "grid", "tiny harvesting"])
def test_a_common_problem_is_found_by_name_and_names_one_constraint(name):
    model = compile_model(common_problem(name).make())
    assert model.num_constraints == 1
    assert np.isfinite(model.row_violation).all()


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(SettingsError, match="inventory, grid, tiny harvesting, transmitter, scheduling"):
        common_problem("stock")
