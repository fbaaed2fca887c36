"""What a problem may leave out, what is read off instead, and how compiling stops where it cannot go on."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peakrl
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Outcome, Problem, TabularModel, compile_model
from peakrl.errors import ProblemError


class Told(Problem):
    """One step, one state; an action for each (reward, constraint values) that is told."""

    horizon = 1

    def __init__(self, told, names=("a", "b")):
        self.told, self.constraint_names = told, names

    def initial(self):
        return [(1.0, "here")]

    def actions(self, step, state):
        return range(len(self.told))

    def outcomes(self, step, state, action):
        reward, constraints = self.told[action]
        return [Outcome(1.0, "there", reward, constraints), Outcome(0.0, "nowhere", -1e6, (1e6,) * len(constraints))]


numbers = st.floats(-1e6, 1e6)


@pytest.mark.filterwarnings("ignore:.*may be rounding:RuntimeWarning")  # values of any size are drawn
@settings(max_examples=50)
@given(told=st.lists(st.tuples(numbers, st.tuples(numbers, numbers)), min_size=1, max_size=5))
def test_bounds_that_are_left_out_are_those_of_the_outcomes_that_can_happen(told):
    model = compile_model(Told(told))
    rewards, values = [reward for reward, _ in told], np.abs([constraints for _, constraints in told])
    assert model.reward_range == (min(rewards), max(rewards))
    assert model.constraint_bounds == tuple(
        max(bound, 1e-30) if bound else 1.0 for bound in values.max(axis=0).tolist()
    )


def test_what_is_declared_is_kept_though_it_is_wider():
    problem = Told([(1.0, (2.0, 0.0))])
    problem.reward_range, problem.constraint_bounds = (-2e6, 5.0), (3e6, 4e6)
    model = compile_model(problem)
    assert model.reward_range == (-2e6, 5.0)
    assert model.constraint_bounds == (3e6, 4e6)


@seeds(5)
def test_nothing_but_the_bounds_changes_when_they_are_left_out(seed):
    declared = random_problem(seed)
    with_bounds = compile_model(declared)
    vars(declared).update(reward_range=None, constraint_bounds=())
    without = compile_model(declared)
    assert (without.outcome_next == with_bounds.outcome_next).all()
    assert peakrl.solve(without).value == peakrl.solve(with_bounds).value
    lo, hi = without.reward_range
    assert with_bounds.reward_range[0] <= lo <= hi <= with_bounds.reward_range[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_without_bounds_numbers_must_still_be_finite(bad):
    with pytest.raises(ProblemError, match=r"state 'here', action 0: the reward is .* finite"):
        compile_model(Told([(bad, (0.0, 0.0))]))
    with pytest.raises(ProblemError, match=r"state 'here', action 0: constraint 'b' is .* finite"):
        compile_model(Told([(0.0, (0.0, bad))]))


def test_constraints_without_names_are_refused_with_what_is_missing():
    with pytest.raises(ProblemError, match=r"1 constraint values for 0 constraints; constraint_names is \(\)"):
        compile_model(Told([(0.0, (1.0,))], names=()))


def test_a_class_in_place_of_a_problem_is_named():
    with pytest.raises(ProblemError, match=r"Told is a class; pass an instance"):
        compile_model(Told)


def test_an_error_of_the_users_own_code_keeps_its_type_and_tells_where_it_happened():
    class Broken(Told):
        def outcomes(self, step, state, action):
            yield from super().outcomes(step, state, action)
            raise KeyError("price")

    with pytest.raises(KeyError, match="price") as caught:
        compile_model(Broken([(0.0, (0.0, 0.0))]))
    assert caught.value.__notes__ == ["'problem' raised this when it was queried at step 0, state 'here', action 0"]


class Wide(Problem):
    """One state with very many actions, or with very many outcomes of each."""

    horizon = 1

    def __init__(self, actions, outcomes):
        self.count, self.spread, self.asked = actions, outcomes, 0

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return range(self.count)

    def outcomes(self, step, state, action):
        self.asked += 1
        return [Outcome(1 / self.spread, -1 - i, float(action + i)) for i in range(self.spread)]


@pytest.mark.parametrize(("actions", "outcomes"), [(100_000, 1), (10_000, 100)])
def test_the_memory_limit_stops_within_a_state_too(actions, outcomes):
    problem = Wide(actions, outcomes)
    with pytest.raises(ProblemError, match=r"more than the limit of 0\.001 GB"):
        compile_model(problem, memory_limit=1e6)
    assert problem.asked < actions / 10


class Clock(Problem):
    """Says that nothing depends on the step; `depends` says what does."""

    horizon, stationary = 4, True

    def __init__(self, depends):
        self.depends = depends

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return range(2 + (self.depends == "actions" and step > 1))

    def outcomes(self, step, state, action):
        reward = float(step if self.depends == "reward" else 0)
        chance = 0.1 * (1 + step) if self.depends == "chance" else 0.5
        return [Outcome(chance, 0, reward), Outcome(1 - chance, 1, reward)]


@pytest.mark.parametrize("what", ["actions", "reward", "chance"])
def test_a_problem_that_is_not_stationary_though_it_says_so_is_refused(what):
    with pytest.raises(ProblemError, match=r"state 0 has other actions or outcomes at step 3 than at step 0, but"):
        compile_model(Clock(what))


def test_a_problem_that_is_stationary_is_fine():
    assert compile_model(Clock("nothing")).stationary


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        (Outcome(1.0, 0, 0.0), "gave a single Outcome"),
        ([], "gave nothing that can happen"),
        ([(1.0, 0, 0.0, 1.0)], r"constraints a sequence of numbers, such as \(1\.0,\); got Outcome"),
    ],
)
def test_outcomes_of_another_form_are_refused_with_the_right_one(outcomes, message):
    class Odd(Told):
        def outcomes(self, step, state, action):
            return outcomes

    with pytest.raises(ProblemError, match=message):
        compile_model(Odd([0], names=()))


def test_a_problem_without_a_first_state_is_refused():
    class Nowhere(Told):
        def initial(self):
            return []

    with pytest.raises(ProblemError, match="gave no first state"):
        compile_model(Nowhere([0]))


def test_arrays_without_constraints_are_a_model_without_constraints():
    model = peakrl.TabularModel.from_arrays(np.ones((1, 1, 1)), [[1.0]], [], horizon=3)
    assert (model.num_constraints, peakrl.solve(model).value) == (0, 3.0)


def test_a_problem_shows_its_name_horizon_and_constraints_whatever_is_missing():
    assert repr(Told([], names=("dry", "hot"))) == "<Told 'problem': horizon 1, constraints: dry, hot>"

    class Bare(Told):
        horizon = property()

    assert repr(Bare([], names=None)) == "<Bare 'problem': horizon not set, constraints: None>"


class Signed(Problem):
    """Rewards of -0.0 and 0.0, of 1 and True: equal numbers that are not to be taken for each other."""

    horizon = 1

    def __init__(self, rewards, constraints=((),)):
        self.rewards, self.constraints = rewards, constraints
        self.constraint_names = tuple(f"f{i}" for i in range(len(constraints[0])))

    def initial(self):
        return [(1.0, "here")]

    def actions(self, step, state):
        return list(range(len(self.rewards)))

    def outcomes(self, step, state, action):
        told = self.constraints[action % len(self.constraints)]
        return [Outcome(0.5, "here", self.rewards[action], told), Outcome(0.5, "there", 1.0, told)]


def test_a_zero_keeps_its_sign_whatever_came_before_it():
    model = compile_model(Signed([0.0, -0.0]))
    assert np.signbit(model.payoffs.reward[model.payoffs.row_payoff]).tolist() == [False, False]
    model = compile_model(Signed([-0.0, 2.0]))
    assert np.signbit(model.payoffs.reward[model.payoffs.row_payoff]).tolist() == [True, False]


def test_a_truth_value_is_refused_also_where_its_number_was_seen_before():
    with pytest.raises(ProblemError, match="action 1: constraints must be numbers"):
        compile_model(Signed([2.0, 2.0], [(1.0,), (True,)]))


class Drifting(Problem):
    """A float that hardly ever repeats."""

    horizon, constraint_names = 1000, ("limit",)

    def initial(self):
        return [(1.0, 0.5)]

    def actions(self, step, state):
        return [0]

    def outcomes(self, step, state, action):
        return [Outcome(0.5, 0.7 * state + 0.1 * sign, 0.0, (sign * 1.0,)) for sign in (-1, 1)]


def test_a_search_that_does_not_end_warns_with_its_rate_and_stops_at_a_limit_that_can_be_raised(monkeypatch):
    monkeypatch.setattr("peakrl.compile.MANY_STATES", 400)
    for limit in (500, 1000):
        with (
            pytest.warns(RuntimeWarning, match=r"40\d states up to step 7 of 1000.* states/s up to max_states"),
            pytest.raises(ProblemError, match=rf"more than {limit:,} states.*max_states="),
        ):
            compile_model(Drifting(), max_states=limit)


def test_one_action_with_too_many_next_states_is_stopped_as_well():
    """Its outcomes never end."""

    class Spread(Drifting):
        def outcomes(self, step, state, action):
            return (Outcome(2.0**-number, number, 0.0, (1.0,)) for number in itertools.count(1))

    with pytest.raises(ProblemError, match=r"step 0, state 0\.5, action 0: .*more than 100 states, the last one 100"):
        compile_model(Spread(), max_states=100)


@pytest.mark.parametrize(("values", "how"), [((0.0, 1.0), "never negative"), ((-2.0, -1.0), "always negative")])
def test_a_constraint_that_nothing_or_everything_violates_is_asked_for_its_sign(values, how):
    class Plant(Problem):
        horizon, constraint_names = 2, ("heat",)

        def initial(self):
            return [(1.0, 0)]

        def actions(self, step, state):
            return [0, 1]

        def outcomes(self, step, state, action):
            return [Outcome(1.0, 0, 1.0, (values[action],))]

    for make in (
        lambda: compile_model(Plant()),
        lambda: TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [[values]], 3),
    ):
        with pytest.warns(RuntimeWarning, match=f"constraint .* is {how}.*Is its sign right"):
            make()


def test_no_built_in_problem_is_asked_for_a_sign():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_model(peakrl.problems.energy_harvesting(peak_power=100))
        for number in (1, 2, 3):
            compile_model(peakrl.problems.scheduling_example(number))
