"""Bounds on values of continuous problems, and sets that reach a target, against twins, simulation and SCOTS."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import continuous_systems as systems
from naive import continuous as naive
from peakrl import ContinuousProblem, PeakError, problems, solve, to_gymnasium


def tank(**options):
    """A tank with a leak: paid for being full, and for not pumping; it must not run over."""
    return ContinuousProblem(
        lambda x, a, w: [np.where(x[0] > 0.6, 0.8, 0.9) * x[0] + 0.25 * a + w[0]],
        box={"level": (0, 1)}, actions=[0, 1], disturbance=[{"w": (-0.02, 0.0)}, {"w": (0.0, 0.05)}],
        weights=[0.3, 0.7], constraints=lambda x, a: [x[0] - 0.1], reward=lambda x, a: x[0] - 0.3 * a,
        start={"level": (0.3, 0.5)}, name="tank", **options,
    )  # fmt: skip


@pytest.mark.parametrize("cells", [12, 35])
def test_bounds_equal_those_of_the_naive_twin(cells):
    best = solve(tank(), cells=cells, discount=0.9)
    low, high = naive.value_bounds(tank(), (cells,), 0.9, sweeps=250)
    np.testing.assert_allclose(best.cell_low, low, atol=1e-7)
    np.testing.assert_allclose(best.cell_high, high, atol=1e-7)


def test_the_policy_earns_what_is_guaranteed_and_the_gap_halves():
    gaps = []
    for cells, parts in ((50, 8), (100, 16), (200, 32)):
        problem = problems.continuous_harvesting(parts=parts)
        best = solve(problem, cells=cells, discount=0.95)
        gaps.append((best.optimum_high - best.value_low) / best.optimum_high)
    assert gaps[1] < 0.55 * gaps[0]
    assert gaps[2] < 0.55 * gaps[1]
    env, earned = to_gymnasium(problem), []
    for seed in range(60):
        x, _ = env.reset(seed=seed)
        total = 0.0
        for step in range(150):
            x, reward, _, _, info = env.step(best.policy(x))
            total += 0.95**step * reward
            assert info["cost"].max() == 0.0
        earned.append(total)
    error = 4 * np.std(earned) / np.sqrt(len(earned))
    assert best.value_low - error < np.mean(earned) < best.optimum_high + error


def test_a_horizon_counts_steps_and_the_policy_depends_on_them():
    room = problems.room_temperature(coldest=5.0, warmest=5.0)
    best = solve(room, cells=300, horizon=8)
    for x in np.linspace(18.01, 23.99, 40):
        assert best.low([x]) <= cheapest(x, 8) + 1e-9
        assert best.high([x]) >= cheapest(x, 8) - 1e-9
    x, heated = 21.0, 0
    for step in range(8):
        action = best.policy.action([x], step)
        heated += action
        (x,) = room.move([x], action, [5.0])
        assert 18 <= x <= 24
    assert -heated >= best.low([21.0]) - 1e-9


def cheapest(x, steps):
    """The best value of the room at 5 degrees outside, by trying everything."""
    if steps == 0:
        return 0.0
    after = [0.9 * x + 0.5, 0.9 * x + 3.0]
    return max((cheapest(y, steps - 1) - a for a, y in enumerate(after) if 18 <= y <= 24), default=-np.inf)


def test_blocks_discount_every_action():
    one, two = (solve(tank(block=block), cells=80, discount=0.9) for block in (1, 2))
    inside = np.isfinite(two.cell_low)
    assert inside.sum() > 30
    assert (two.cell_low <= one.cell_high + 1e-9)[inside].all()
    assert (one.cell_low <= two.cell_high + 1e-9)[inside].all()


def test_the_value_of_a_start_box_is_the_mean_of_its_cells():
    best = solve(tank(), cells=10, discount=0.9)
    assert best.value_low == pytest.approx((best.cell_low[3] + best.cell_low[4]) / 2)


def test_the_vehicle_reaches_its_target_from_the_published_number_of_cells():
    target = {"east": (9 - 1e-9, 9.5 + 1e-9), "north": (-1e-9, 0.5 + 1e-9)}
    found = solve(systems.vehicle(growth_bound=True), cells=(51, 51, 35), reach=target)
    assert (found.layer == 0).sum() == 140
    assert (found.layer > 0).sum() == 48_018


def test_a_target_is_reached_within_the_promised_steps():
    problem = systems.vehicle()
    found = solve(problem, cells=(51, 51, 35), reach=lambda x: [x[0] - 9 + 1e-9, 0.5 + 1e-9 - x[1]])
    rng = np.random.default_rng(0)
    for cell in rng.choice(np.flatnonzero(found.layer > 0), 30):
        x = rng.uniform(*found.grid.bounds(int(cell)))
        for _ in range(found.steps(x)):
            if x[0] >= 9 and x[1] <= 0.5:
                break
            action, before = found.policy.action(x), x
            x = np.array(problem.move(list(x), action))
            assert min(problem.margins(list(before), action, x)) >= 0
        assert x[0] >= 9 - 1e-6
        assert x[1] <= 0.5 + 1e-6
    assert not found.contains([2.3, 2.0, 0.0])


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        (tank(), {}, "pass one of"),
        (tank(), {"discount": 0.9, "horizon": 3}, "pass one of"),
        (tank(), {"reach": {"height": (0, 1)}}, r"reach names \['height'\]"),
        (systems.room(), {"discount": 0.9}, "has no reward"),
        (systems.jumping(), {"reach": {"height": (0, 1)}}, "does not support outside='exit'"),
        (tank(), {"discount": 1.0}, "discount is 1.0"),
    ],
)
def test_what_has_no_value_is_refused(problem, options, message):
    with pytest.raises(PeakError, match=message):
        solve(problem, cells=5, **options)
