"""Problems that are asked about many states at once: the model is that of asking one after another."""

import numpy as np
import pytest

from benchmarks.models import PlainQueues, Queues
from peakrl import ArrayProblem, Outcome, compile_model
from peakrl import array_problem as layers
from peakrl.compile import explore
from peakrl.errors import PeakError, ProblemError


class Queue(ArrayProblem):
    """Two queues and a machine that wears out: whom to serve, how fast."""

    name = "queue"
    horizon = 6
    constraint_names = ("room", "wear")
    all_actions = tuple((who, speed) for who in (0, 1) for speed in (0, 1, 2))

    def __init__(self, most=4, worst=3, *, stationary=True, by_outcome=False):
        self.most, self.worst, self.stationary, self.by_outcome = most, worst, stationary, by_outcome
        self.state_ranges = {"first": (0, most), "second": (0, most), "wear": (0, worst)}

    def initial(self):
        return [(0.5, (0, 0, 0)), (0.5, (1, 2, 0))]

    def available(self, step, state, action):
        return (state[action[0]] > 0) | (action == (0, 0))

    def outcomes(self, step, state, action):
        first, second, wear = state
        who, speed = action
        served = np.minimum(speed, state[who])
        left = (first - served, second) if who == 0 else (first, second - served)
        found = []
        for chance, arrival in ((0.6, 0), (0.3, 1), (0.1, 2)):
            later = (np.minimum(left[0] + arrival, self.most), left[1], np.minimum(wear + (speed == 2), self.worst))
            reward = 2.0 * served - 0.1 * (first + second) + (0.0 if self.stationary else 0.5 * step)
            room = self.most - left[0] - (arrival if self.by_outcome else 1)
            found.append(Outcome(chance, later, reward, (room, self.worst - wear - speed)))
        return found


VARIANTS = [
    {"stationary": stationary, "by_outcome": by_outcome} for stationary in (True, False) for by_outcome in (True, False)
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_model_is_that_of_asking_one_state_after_another(variant):
    fast, slow = compile_model(Queue(**variant)), explore(Queue(**variant))
    assert list(fast.state_labels) == [tuple(map(int, state)) for state in slow.state_labels]
    assert list(fast.action_labels) == list(slow.action_labels)
    assert fast.digest == slow.digest


def test_it_does_not_matter_how_many_states_are_asked_about_at_once(monkeypatch):
    for variant in VARIANTS:
        whole = compile_model(Queue(**variant))
        with monkeypatch.context() as patch:
            patch.setattr(layers, "MOST_ANSWERS", 60)
            assert compile_model(Queue(**variant)).digest == whole.digest


class Rarely(ArrayProblem):
    """Drawn tables in which a single outcome pays otherwise than the rest of its row."""

    name, horizon, all_actions, constraint_names = "rarely", 1, (0, 1), ("limit",)

    def __init__(self, seed):
        self.state_ranges = {"place": (0, 11)}
        rng = np.random.default_rng(seed)
        self.following = rng.integers(0, 12, (4, 2, 12))
        self.paid = np.zeros((4, 2, 12))
        self.paid[2, rng.integers(2), rng.integers(4)] = 1.0

    def initial(self):
        return [(0.25, (place,)) for place in range(4)]

    def outcomes(self, step, state, action):
        (place,) = state
        return [
            Outcome(0.25, (following[place],), paid[place], (0.5 - paid[place],))
            for following, paid in zip(self.following[:, action], self.paid[:, action], strict=True)
        ]


@pytest.mark.parametrize("seed", range(2))
def test_an_outcome_with_another_payoff_counts_wherever_its_next_state_stands(seed, monkeypatch):
    monkeypatch.setattr(layers, "MOST_ANSWERS", 16)  # one stretch of states has such an outcome, others do not
    fast, slow = (make(Rarely(seed)) for make in (compile_model, explore))
    assert slow.row_means(slow.payoffs.reward).sum() == 0.25
    assert fast.digest == slow.digest


def test_the_queues_of_the_benchmark_are_the_same_in_both_forms():
    fast, slow = compile_model(Queues(3)), compile_model(PlainQueues(3))
    assert list(fast.state_labels) == list(slow.state_labels)
    assert fast.digest == slow.digest


def broken(**methods):
    """A queue with other methods or attributes."""
    return type("Broken", (Queue,), methods)()


def changed(**parts):
    """Outcomes with one part replaced."""

    def outcomes(self, step, state, action):
        return [outcome._replace(**parts) for outcome in Queue.outcomes(self, step, state, action)]

    return outcomes


WRONG = [
    ({"outcomes": changed(probability=0.5)}, r"state \(0, 0, 0\), action \(0, 0\): probabilities sum to 1.5"),
    ({"outcomes": changed(next_state=(9, 0, 0))}, "field 'first' is 9, outside its range"),
    ({"outcomes": changed(next_state=(0, 0))}, "a state has 2 fields; state_ranges names 3"),
    ({"outcomes": changed(next_state=(0.5, 0, 0))}, "not a whole number"),
    ({"outcomes": changed(reward=np.nan)}, "the reward is nan"),
    ({"outcomes": changed(constraints=(True, 1.0))}, "constraints must be numbers"),
    ({"outcomes": changed(constraints=(1.0,))}, "1 constraint values"),
    ({"outcomes": lambda *_: []}, "gave nothing that can happen"),
    ({"outcomes": lambda *_: [None]}, "is not an Outcome"),
    ({"available": lambda *_: False}, r"state \(0, 0, 0\): no action is on offer"),
    ({"available": lambda *_: 1.5}, "must give a truth value"),
    ({"all_actions": ()}, "at least one action"),
    ({"initial": lambda self: [(1.0, (0, 0, 7))]}, "field 'wear' is 7"),
    ({"available": lambda self, step, state, action: np.array(step == 0) | (action == (0, 0))}, "stationary"),
]


def test_what_is_wrong_is_named():
    for methods, message in WRONG:
        with pytest.raises(ProblemError, match=message):
            compile_model(broken(**methods))


def test_ranges_must_be_ranges():
    for ranges in ({}, {"x": 3}, {"x": (2, 1)}, {"x": (0, 2**40), "y": (0, 2**40)}, None):
        problem = Queue()
        problem.state_ranges = ranges
        with pytest.raises(PeakError, match="state_ranges"):
            compile_model(problem)
