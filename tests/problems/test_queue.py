"""The queue against its own arithmetic, written out, and against plain value iteration."""

import numpy as np
import pytest

import peakrl
from peakrl.errors import PeakError
from peakrl.problems.queues import threshold_policy

ARRIVALS = (0.2, 0.5, 0.2, 0.1)


def arrays(room, fastest, waiting=0.1, energy=1.0):
    """[state, action, next state], [state, action] and [state, action]: chances, rewards, worst constraint."""
    chances = np.zeros((room + 1, fastest + 1, room + 1))
    rewards, worst = np.zeros((2, room + 1, fastest + 1))
    for n in range(room + 1):
        for speed in range(fastest + 1):
            left = max(n - speed, 0)
            for new, chance in enumerate(ARRIVALS):
                chances[n, speed, min(left + new, room)] += chance
            rewards[n, speed] = -waiting * n - energy * speed * speed
            worst[n, speed] = room - left - (len(ARRIVALS) - 1)
    return chances, rewards, worst


def test_its_discounted_optimum_is_that_of_value_iteration():
    chances, rewards, worst = arrays(6, 3)
    values = np.zeros(7)
    for _ in range(2_000):
        values = np.where(worst >= 0, rewards + 0.95 * chances @ values, -np.inf).max(axis=1)
    best = peakrl.solve(peakrl.problems.queue(room=6, arrivals=ARRIVALS, horizon=None), discount=0.95)
    assert best.value == pytest.approx(values[0], abs=1e-8)


def test_a_speed_is_safe_for_ever_if_there_is_room_for_the_most_arrivals():
    safe = peakrl.safe_set(peakrl.problems.queue(room=6, arrivals=ARRIVALS, horizon=None))
    worst = arrays(6, 3)[2]
    for n in range(7):
        assert safe.mask(n).tolist() == (worst[n] >= 0).tolist()


def test_a_server_slower_than_the_most_arrivals_turns_somebody_away():
    best = peakrl.solve(peakrl.problems.queue(room=6, fastest=2, arrivals=ARRIVALS, horizon=None), average=True)
    assert not best.feasible
    assert best.safe_steps == 4  # 3, then one more after each step: 3, 4, 5, 6, 7


def test_no_threshold_is_better_than_the_optimum():
    problem = peakrl.problems.queue(room=6, arrivals=ARRIVALS, horizon=30)
    best = peakrl.solve(problem).value
    found = [peakrl.evaluate(problem, threshold_policy(problem, threshold)) for threshold in range(5)]
    assert max(one.value for one in found if one.violation == 0) < best


def test_bad_arguments_are_named():
    with pytest.raises(PeakError, match="start is 21"):
        peakrl.problems.queue(start=21)
    with pytest.raises(PeakError, match="arrivals"):
        peakrl.problems.queue(arrivals=[0.5, 0.6])
