"""Safe sets of continuous problems: sound, equal to their definition, and able to say why."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers import continuous_systems as systems
from naive import continuous as naive
from peakrl import ContinuousProblem, PeakError, safe_set, to_gymnasium
from peakrl.viability import FOREVER


def played(make, cells, agent, steps, seed=0, set_of=None):
    """Violations and dead ends of an agent on the true system, behind the shield of a set."""
    problem = make()
    safe = safe_set(problem if set_of is None else set_of, cells=cells)
    assert safe.share > 0.01
    return systems.play(problem, safe, agent, steps, np.random.default_rng(seed))


@pytest.mark.parametrize("agent", ["random", "hostile"])
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_nothing_is_violated_behind_the_shield(name, agent):
    assert played(*systems.SYSTEMS[name], agent, 8_000) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_nothing_is_violated_in_ten_million_steps(name):
    assert played(*systems.SYSTEMS[name], "random", 1_000_000, seed=1) == (0, 0)
    assert played(*systems.SYSTEMS[name], "hostile", 300_000, seed=1) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "make", "cells"),
    [
        ("centre", systems.pendulum, 60),
        ("centre", systems.two_rooms, 30),
        ("corners", systems.logistic, 16),
        ("no disturbance", systems.two_rooms, 60),
    ],
)
def test_a_set_of_images_that_are_too_small_is_caught(kind, make, cells):
    wrong = systems.sabotaged(make, kind)
    assert sum(sum(played(make, cells, agent, 20_000, set_of=wrong)) for agent in ("random", "hostile")) > 0


def same_as_the_naive_twin(seed):
    rng = np.random.default_rng(seed)
    problem, cells = systems.random_problem(rng)
    horizon = None if rng.random() < 0.6 else int(rng.integers(1, 5))
    safe = safe_set(problem, cells=cells, horizon=np.inf if horizon is None else horizon)
    layer, steps = naive.safe_set(problem, cells, horizon)
    np.testing.assert_array_equal(np.where(safe.layer == FOREVER, -1, safe.layer), layer)
    kept = np.where(safe.kept == (horizon or 1), -1, safe.kept.astype(int))
    np.testing.assert_array_equal(kept, np.where(steps < 0, -1, 0) if horizon is None else steps)
    return 0 < safe.share < 1


def test_sets_equal_those_of_the_naive_twin():
    assert sum(same_as_the_naive_twin(seed) for seed in range(25)) >= 3


@pytest.mark.slow
def test_sets_of_200_problems_equal_those_of_the_naive_twin():
    assert sum(same_as_the_naive_twin(seed) for seed in range(25, 225)) >= 25


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_both_branches_of_a_condition_on_the_disturbance_alone_are_images(sign):
    gusts = ContinuousProblem(
        lambda x, a, w: [0.5 * x[0] + np.where(w[0] > 0, sign, -sign) * a],
        box={"x": (-1, 1)}, actions=[0.4, 0.6], disturbance={"wind": (-1, 1)},
    )  # fmt: skip
    safe = safe_set(gusts, cells=40)
    assert safe.actions([0.9]) == safe.actions([-0.9]) == [0.4]  # 0.45 + 0.6 would leave the box


def test_a_point_on_an_edge_may_use_every_cell_that_holds_it():
    safe = safe_set(systems.two_rooms(), cells=30)
    masks = safe.kept.reshape(30, 30, 3).astype(bool)
    low, _ = safe.grid.bounds(int(np.ravel_multi_index((12, 17), (30, 30))))
    expected = masks[11:13, 16:18].any(axis=(0, 1))
    np.testing.assert_array_equal(safe.mask(low), expected)
    inner = low + 0.01
    np.testing.assert_array_equal(safe.mask(inner), masks[12, 17])
    np.testing.assert_array_equal(safe.mask([low, inner]), [expected, masks[12, 17]])


def test_measured_states_may_be_wrong_by_what_was_declared():
    problem, rng, error = systems.jumping(), np.random.default_rng(3), 0.004
    safe = safe_set(problem, cells=(75, 60), measured=error)
    assert 0 < safe.share < safe_set(problem, cells=(75, 60)).share
    x = systems.points_of(safe, 4_000, rng)
    for _ in range(30):
        seen = x + rng.choice([-error, 0.0, error], x.shape)
        mask = safe.mask(seen)
        offered = mask.any(axis=1)
        x, mask = x[offered], mask[offered]
        choice = np.argmax(np.where(mask, rng.random(mask.shape), -1), axis=1)
        after = []
        for a in (0, 1):
            y = np.stack(problem.move(x.T, a, [rng.choice([-0.1, 0.0, 0.1], len(x))]))
            margins = np.array(np.broadcast_arrays(*problem.margins(x.T, a, y)))
            assert margins[:, choice == a].min(initial=1) >= 0
            after.append(y.T)
        x = np.where(choice[:, None] == 1, after[1], after[0])
        x = x[((x >= problem.low) & (x <= problem.high)).all(axis=1)]
        assert safe.contains(np.clip(x + rng.choice([-error, error], x.shape), problem.low, problem.high)).all()


def test_states_with_many_turns_are_looked_up_by_their_remainder():
    safe = safe_set(systems.turning(), cells=(90, 40))
    near = [-2.0, 0.05]
    np.testing.assert_array_equal(safe.mask([near[0] + 2 * np.pi * 1_000, near[1]]), safe.mask(near))
    assert not safe.contains([near[0] + 2 * np.pi * 1e9, near[1]])


def test_the_set_of_blocks_holds_at_every_step_inside_of_a_block():
    assert played(lambda **options: systems.pendulum(block=2, **options), 40, "random", 20_000) == (0, 0)
    assert played(lambda **options: systems.jumping(block=2, **options), (75, 60), "hostile", 8_000) == (0, 0)


def test_a_converter_has_the_published_winning_cells():
    half, width = 0.00025, 0.0005
    low = 1.1505 - half, 5.4505 - half
    problem = systems.converter(low, (low[0] + 800 * width, low[1] + 799 * width))
    assert safe_set(problem, cells=(800, 799)).cells.sum() == pytest.approx(593_089, rel=0.005)


def test_cruise_control_and_a_full_battery_lose_nothing_at_edges_that_are_hit_exactly():
    assert safe_set(systems.cruise(), cells=(30, 28, 200)).share > 0.83
    battery = ContinuousProblem(
        lambda x, a, w: [np.minimum(x[0] - a + w[0], 20.0)],
        box={"charge": (0, 20)}, actions=range(9), disturbance={"harvest": (0, 4)}, constraints=lambda x, a: [x[0] - a],
    )  # fmt: skip
    assert safe_set(battery, cells=400).share == 1.0


def test_reasons_name_the_constraint_the_side_and_where_it_leads():
    safe = safe_set(systems.room(), cells=600)
    assert safe.reason([19.3], 1) is None
    assert "'temperature' may leave its range [18, 24]" in safe.reason([23.99], 1)
    assert "outside of the box" in safe.reason([30.0], 1)
    turning = safe_set(systems.turning(), cells=(90, 40))
    assert "'constraint 0' may be violated" in turning.reason([1.0, 0.0], 0)
    pendulum = safe_set(systems.pendulum(), cells=100)
    assert "safety is known for" in pendulum.reason([0.3, 1.7], 0.0)
    with pytest.raises(PeakError, match=r"action 'up' .* is not one of"):
        safe.reason([19.3], "up")


def test_an_empty_set_says_what_lasted_longest_and_what_to_try():
    slow = ContinuousProblem(
        lambda x, a, w: [x[0] + 0.01 * x[1], x[1] + 0.5 * a],
        box={"position": (-1, 1), "speed": (-1, 1)}, actions=[-1, 1],
    )  # fmt: skip
    reason = safe_set(slow, cells=10).empty_reason
    assert "last longest" in reason
    assert "'position' (by" in reason
    assert "block=2" in reason
    assert safe_set(systems.room(), cells=10).empty_reason is None


def test_the_start_is_safe_only_if_all_of_its_cells_are():
    safe = safe_set(systems.pendulum(start={"angle": (-0.1, 0.1), "speed": (0, 0)}), cells=100)
    assert safe.feasible
    assert not safe_set(systems.pendulum(start={"angle": (-0.5, 0.1), "speed": (-2.5, 0)}), cells=100).feasible
    assert not safe_set(systems.pendulum(start=[0.5, 2.5]), cells=100).feasible


def test_the_start_is_safe_only_if_all_measurements_of_it_are():
    still = ContinuousProblem(
        lambda x, a, w: [0.75 + 0.1 * (x[0] - 0.75)], box={"x": (0, 1)}, actions=[0],
        constraints=lambda x, a: [x[0] - 0.5], start={"x": (0.605, 0.65)},
    )  # fmt: skip
    assert safe_set(still, cells=10, measured=0.001).feasible
    safe = safe_set(still, cells=10, measured=0.01)
    assert not safe.contains([0.605 - 0.01])
    assert not safe.feasible


def test_the_environment_moves_and_judges_like_the_problem():
    problem = systems.jumping(start=[1.0, 0.6], reward=lambda x, a: x[0] - a)
    env = to_gymnasium(problem)
    x, _ = env.reset(seed=1)
    over = False
    while not over:
        following, reward, over, _, info = env.step(0)
        assert reward == x[0]
        assert info["constraints"].tolist() == [x[0] - 0.25, 1.0]
        assert over == (not 0 <= following[1] <= 1)
        x = following
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


@pytest.mark.parametrize("where", ["step", "constraints"])
def test_what_is_not_a_number_is_neither_proved_nor_silently_satisfied(where):
    def root(x, a, w=None):
        return [np.sqrt(x[0] - 0.5)]

    problem = ContinuousProblem(
        root if where == "step" else lambda x, a, w: [x[0]], constraints=root if where == "constraints" else None,
        box={"x": (0, 1)}, actions=[0], outside="clip", start=[0.2],
    )  # fmt: skip
    assert not safe_set(problem, cells=10).contains([0.2])
    env = to_gymnasium(problem)
    env.reset(seed=0)
    with np.errstate(invalid="ignore"), pytest.raises(PeakError, match=r"x 0\.2 .* not a number"):
        env.step(0)


@pytest.mark.parametrize("block", [1, 2])
def test_bounds_of_a_user_in_the_wrong_order_prove_nothing(block):
    turned = ContinuousProblem(
        lambda x, a, w: [x[0]], box={"x": (0, 1)}, actions=[0], block=block, image=lambda p, q, a, v, w: (q, p)
    )
    assert safe_set(turned, cells=10).share == 0.0


def test_any_agent_is_safe_in_the_environment_if_it_takes_actions_of_the_mask():
    problem = systems.room(start={"temperature": (19, 20)})
    env, safe, rng = to_gymnasium(problem), safe_set(problem, cells=300), np.random.default_rng(0)
    x, _ = env.reset(seed=0)
    for _ in range(300):
        x, _, over, _, info = env.step(int(rng.choice(np.flatnonzero(safe.mask(x)))))
        assert not over
        assert info["cost"] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": {"x": (1, 1)}}, "every range must have a width"),
        ({"box": [0, 1]}, "box is .* mapping"),
        ({"actions": []}, "no actions"),
        ({"outside": "bounce"}, "outside is 'bounce'; it must be one of"),
        ({"outside": {"y": "clip"}}, r"outside names \['y'\]"),
        ({"disturbance": [{"w": (0, 1)}, {"v": (0, 1)}]}, "same names"),
        ({"disturbance": [{"w": (0, 1)}], "weights": [0.5]}, "sum to 0.5"),
        ({"start": [2.0]}, "not inside of the box"),
        ({"constraints": lambda x, a: x[0]}, "must return a list"),
        ({"block": 20}, "block=20 makes more than"),
    ],
)
def test_a_wrong_description_names_the_culprit(options, message):
    with pytest.raises(PeakError, match=message):
        ContinuousProblem(lambda x, a, w: x, **{"box": {"x": (0, 1)}, "actions": [0, 1], **options})


def test_what_intervals_cannot_read_is_refused_by_name_and_image_is_the_way_round():
    def step(x, a, w):
        return [np.floor(x[0])]

    box = {"x": (0, 4)}
    with pytest.raises(PeakError, match=r"np\.floor .* image="):
        safe_set(ContinuousProblem(step, box=box, actions=[0]))
    known = ContinuousProblem(
        step, box=box, actions=[0], image=lambda low, high, a, w_low, w_high: ([np.floor(low[0])], [np.floor(high[0])])
    )
    assert safe_set(known, cells=8).share == 1.0
    with pytest.raises(PeakError, match="returned 2 values; a state has 1"):
        safe_set(ContinuousProblem(lambda x, a, w: [x[0], x[0]], box=box, actions=[0]))
    with pytest.raises(PeakError, match="one for each of x"):
        safe_set(known, cells=(8, 8))


def test_sets_of_millions_of_cells_that_do_not_fit_are_refused_before_they_start(monkeypatch):
    monkeypatch.setattr("peakrl.continuous.images.available_memory", lambda: 1e6)
    with pytest.raises(PeakError, match="fewer cells"):
        safe_set(systems.two_rooms(), cells=1_000)


def test_names_are_public():
    assert peakrl.ContinuousProblem is ContinuousProblem
