import contextlib
import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import naive
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import Outcome, PeakError, Problem, TabularModel, compile_model
from peakrl.errors import PolicyError, ProblemError, SettingsError

#: Compiling takes its time on the first call.
patient = settings(max_examples=60)


def read_back(model):
    """{(step, state, action): {(next state, reward, constraints): probability}} of what a model's arrays hold."""
    layout, payoffs = model.layout, model.payoffs
    held = {}
    for step, (first, last) in enumerate(layout.step_slots):
        for slot in range(first, last):
            for row in model.rows_of_slot(slot) if model.reachable[step * layout.node_stride + slot] else ():
                d = layout.row_distribution[row]
                listed = held.setdefault((step, model.state_of_slot(slot), model.action_of_row(row)), {})
                for j, o in enumerate(range(layout.outcome_start[d], layout.outcome_start[d + 1])):
                    record = payoffs.row_payoff[row] + payoffs.stride * j
                    label = model.state_of_slot(layout.outcome_next[o])
                    key = (label, payoffs.reward[record], tuple(payoffs.constraints[record]))
                    listed[key] = listed.get(key, 0.0) + layout.outcome_probability[o]
    return held


def told(problem):
    """The same by asking the problem."""
    held = {}
    for step, state in naive.decision_points(problem):
        for action in problem.actions(step, state):
            listed = held.setdefault((step, state, action), {})
            for outcome in problem.outcomes(step, state, action):
                if outcome.probability > 0:
                    key = (outcome.next_state, outcome.reward, tuple(outcome.constraints))
                    listed[key] = listed.get(key, 0.0) + outcome.probability
    return held


def same(one, other):
    return one.keys() == other.keys() and all(one[key] == pytest.approx(other[key], abs=1e-14) for key in one)


# --- What is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(60), range(60, 120)], ids=str)
def test_a_compiled_model_holds_what_the_problem_tells_and_nothing_else(seeds):
    for seed in seeds:
        problem = random_problem(seed)
        model = compile_model(problem)
        assert same(read_back(model), told(problem)), seed
        firsts = {model.state_of_slot(s): p for s, p in zip(model.first_slot, model.first_probability, strict=True)}
        assert firsts == {state: p for p, state in problem.initial() if p > 0}, seed


@dataclass(frozen=True)
class Harvester(Problem):
    """Battery and arrival 0..20, any power of 0..20: what is left and a fresh arrival come next."""

    horizon: int = 20
    stationary: bool = True
    constraint_names = ("power in store", "peak power")
    constraint_bounds = (40.0, 20.0)
    reward_range = (0.0, 5.0)

    def initial(self):
        return [(1 / 21, (0, arrival)) for arrival in range(21)]

    def actions(self, step, state):
        return range(21)

    def outcomes(self, step, state, action):
        left = min(max(sum(state) - action, 0), 20)
        return [Outcome(1 / 21, (left, e), math.log2(1 + action), (sum(state) - action, 8 - action)) for e in range(21)]


def test_rows_that_lead_to_the_same_distribution_share_it():
    model = compile_model(Harvester())
    assert (model.num_states, model.num_pairs, model.num_rows) == (441, 9261, 9261)
    assert len(model.outcome_next) == 441
    assert model.stationary
    assert model.num_nodes == 21 * 441
    assert model.num_entries == 20 * 9261


@dataclass(frozen=True)
class Subsets(Problem):
    """Take one of n things at each step until none is left: the state is what has been taken."""

    horizon: int
    stationary: bool = True
    reward_range = (0.0, 1.0)

    def initial(self):
        return [(1.0, frozenset())]

    def actions(self, step, state):
        return [thing for thing in range(self.horizon) if thing not in state]

    def outcomes(self, step, state, action):
        return [(1.0, state | {action}, 0.5, ())]


@pytest.mark.parametrize("stationary", [True, False])
def test_layers_that_never_meet_are_stored_once(stationary):
    """2^n subsets and n 2^(n-1) ways to take one thing more, whether or not the problem says it is stationary."""
    model = compile_model(Subsets(8, stationary))
    assert not model.stationary
    assert (model.num_slots, model.num_nodes, model.num_states) == (256, 256, 256)
    assert (model.num_rows, model.num_entries, model.num_pairs) == (1024, 1024, 1024)
    assert len(model.outcome_next) == 255  # one for each subset but the first
    assert (model.max_states, model.max_actions) == (70, 8)
    assert model.deterministic


def test_a_recurring_state_is_one_slot_only_in_a_stationary_problem():
    stationary = compile_model(random_problem(0, states=3, horizon=4, stationary=True, actions=3))
    dependent = compile_model(random_problem(0, states=3, horizon=4, stationary=False, actions=3))
    assert stationary.num_slots == stationary.num_states
    assert dependent.num_slots > dependent.num_states
    assert not dependent.stationary


def test_nothing_that_a_stationary_model_stores_grows_with_its_horizon():
    transitions, rewards = np.full((3, 2, 3), 1 / 3), np.zeros((3, 2))
    stored = [vars(TabularModel.from_arrays(transitions, rewards, [], horizon)) for horizon in (2, 200)]
    sizes = [{name: each.shape for name, each in one.items() if isinstance(each, np.ndarray)} for one in stored]
    assert sizes[0] == sizes[1]
    assert len(sizes[0]) > 8


@seeds(25)
def test_reachable_nodes_are_those_that_some_policy_meets(seed):
    problem = random_problem(seed)
    model = compile_model(problem)
    layout = model.layout
    met = {
        (step, model.state_of_slot(slot))
        for step, (first, last) in enumerate(layout.step_slots)
        for slot in range(first, last)
        if model.reachable[step * layout.node_stride + slot]
    }
    assert met == set(naive.decision_points(problem))


def test_row_figures_are_means_and_least_values_over_outcomes():
    for seed in range(40):
        problem = random_problem(seed, outcome_payoffs=True)
        model = compile_model(problem)
        for (step, state, action), listed in told(problem).items():
            row = model.row_of(step, state, action)
            assert model.row_reward[row] == pytest.approx(sum(p * r for (_, r, _), p in listed.items()))
            for i in range(model.num_constraints):
                lost = sum(p * max(-f[i], 0.0) for (_, _, f), p in listed.items())
                assert model.row_violation[row, i] == pytest.approx(lost)
                assert model.row_margin[row, i] == min(f[i] for _, _, f in listed)


# --- Arrays ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FromArrays(Problem):
    """Arrays told state by state: the readable twin of `TabularModel.from_arrays`."""

    horizon: int
    transitions: np.ndarray  # [step, state, action, next_state]
    rewards: np.ndarray  # [step, state, action]
    constraints: np.ndarray  # [step, constraint, state, action]
    mask: np.ndarray  # [step, state, action]
    first: np.ndarray

    @property
    def constraint_names(self):
        return [f"constraint {i}" for i in range(self.constraints.shape[1])]

    @property
    def constraint_bounds(self):
        return [4.0] * self.constraints.shape[1]

    reward_range = (-3.0, 3.0)

    def initial(self):
        return [(float(p), state) for state, p in enumerate(self.first)]

    def actions(self, step, state):
        return np.flatnonzero(self.mask[step, state]).tolist()

    def outcomes(self, step, state, action):
        reward = float(self.rewards[step, state, action])
        values = self.constraints[step, :, state, action].tolist()
        row = self.transitions[step, state, action]
        return [Outcome(float(p), s, reward, values) for s, p in enumerate(row)]


def random_arrays(seed):
    """Arguments of from_arrays, each by step or not, and the twin that tells them."""
    rng = np.random.default_rng(seed)
    states, actions, horizon = (int(rng.integers(1, n)) for n in (6, 4, 5))
    count = int(rng.integers(0, 4))
    by_step = rng.random(4) < (0.5 if seed % 2 else 0.0)
    lead = [(horizon,) if flag else () for flag in by_step]
    transitions = rng.dirichlet(np.ones(states), size=(*lead[0], states, actions))
    if states > 1:
        transitions[rng.random(transitions.shape) < 0.5] = 0.0
        transitions[..., 0] += transitions.sum(axis=-1) == 0.0
        transitions /= transitions.sum(axis=-1, keepdims=True)
    rewards = rng.uniform(-3, 3, (*lead[1], states, actions))
    constraints = rng.uniform(-4, 4, (*lead[2], count, states, actions))
    mask = rng.random((*lead[3], states, actions)) < 0.7
    mask[..., 0] |= ~mask.any(axis=-1)
    first = rng.dirichlet(np.ones(states)) * (rng.random(states) < 0.7)
    first = first / first.sum() if first.sum() > 0 else np.eye(states)[0]
    given = {"transitions": transitions, "rewards": rewards, "constraints": constraints, "available": mask}
    full = [
        np.broadcast_to(array, (horizon, *array.shape[len(extra) :]))
        for array, extra in zip(given.values(), lead, strict=True)
    ]
    return {**given, "horizon": horizon, "initial": first}, FromArrays(horizon, *full, first)


@pytest.mark.parametrize("seeds", [range(50), range(50, 100)], ids=str)
def test_arrays_give_the_model_of_the_problem_that_tells_them(seeds):
    for seed in seeds:
        arrays, problem = random_arrays(seed)
        model = TabularModel.from_arrays(**arrays)
        assert same(read_back(model), told(problem)), seed
        assert same(read_back(model), read_back(compile_model(problem))), seed


def test_sparse_transitions_of_either_form_give_the_model_of_the_dense_ones():
    for seed in range(0, 40, 2):
        arrays, _ = random_arrays(seed)
        dense = arrays["transitions"]
        stacked = sparse.csr_array(dense.reshape(-1, len(dense)))
        each = [sparse.coo_matrix(dense[:, action]) for action in range(dense.shape[1])]
        expected = TabularModel.from_arrays(**arrays)
        for form in (stacked, stacked.tocoo(), sparse.csc_matrix(stacked), each):
            assert TabularModel.from_arrays(**{**arrays, "transitions": form}).digest == expected.digest


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.int8, bool])
def test_sparse_transitions_may_be_of_any_number_type(kind):
    """Sure transitions are exact in every type; what is stored is a float64."""
    dense = np.eye(3)[[[1, 2], [2, 0], [0, 1]]]
    arguments = (np.zeros((3, 2)), np.zeros((1, 3, 2)), 4)
    expected = TabularModel.from_arrays(dense, *arguments)
    model = TabularModel.from_arrays(sparse.csr_array(dense.reshape(6, 3).astype(kind)), *arguments)
    assert model.digest == expected.digest


def test_sparse_entries_that_are_stored_twice_add_up_and_stored_zeros_do_not_count():
    form = sparse.coo_matrix(([0.5, 0.5, 1.0, 0.0], ([0, 0, 1, 1], [0, 0, 1, 0])), shape=(2, 2))
    model = TabularModel.from_arrays(form, np.zeros((2, 1)), np.zeros((1, 2, 1)), 2)
    assert sorted(model.outcome_next.tolist()) == [0, 1]
    assert model.outcome_probability.tolist() == [1.0, 1.0]


def test_what_was_given_is_left_alone_and_what_is_held_cannot_be_written_to():
    form = sparse.csr_array(np.array([[0.5, 0.5], [0.25, 0.75]]))
    form.data = np.array([0.25, 0.25, 0.5, 0.25, 0.75])
    form.indices, form.indptr = np.array([0, 0, 1, 0, 1]), np.array([0, 3, 5])  # with an entry stored twice
    before = form.data.copy()
    model = TabularModel.from_arrays(form, np.zeros((2, 1)), np.zeros((1, 2, 1)), 2)
    assert np.array_equal(form.data, before)
    rewards = np.array([[1.0], [2.0]])
    model = TabularModel.from_arrays(np.eye(2)[:, None], rewards, np.zeros((1, 2, 1)), 2)
    digest = model.digest
    rewards[:] = 7.0
    assert model.row_reward.tolist() == [1.0, 2.0]
    assert digest == TabularModel.from_arrays(np.eye(2)[:, None], [[1.0], [2.0]], np.zeros((1, 2, 1)), 2).digest
    for array in (*model.layout, *model.payoffs, model.slot_state, model.row_action, model.first_slot):
        assert not isinstance(array, np.ndarray) or not array.flags.writeable


def test_an_action_that_is_not_available_needs_no_sensible_numbers():
    transitions = np.eye(2)[:, None].repeat(2, axis=1)
    transitions[0, 1] = math.nan
    rewards = np.array([[1.0, math.inf], [0.0, 2.0]])
    model = TabularModel.from_arrays(
        transitions, rewards, np.zeros((1, 2, 2)), 3, available=[[True, False], [True, True]]
    )
    assert (model.num_pairs, model.reward_range) == (3, (0.0, 2.0))
    with pytest.raises(PolicyError, match="action 1 is not available at step 0 in state 0"):
        model.row_of(0, 0, 1)


def test_a_state_without_actions_is_fine_where_it_is_met_only_after_the_last_step():
    transitions = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    arguments = (transitions, np.zeros((2, 1)), np.zeros((1, 2, 1)))
    assert TabularModel.from_arrays(*arguments, 1, available=[[True], [False]]).num_pairs == 1
    with pytest.raises(ProblemError, match="state 1 can be reached at step 1 and has no action"):
        TabularModel.from_arrays(*arguments, 2, available=[[True], [False]])


def test_bounds_are_read_off_the_data_where_they_are_not_given():
    arguments = (np.eye(2)[:, None], [[-1.5], [2.5]], [[[-3.0], [2.0]], [[0.0], [0.0]]], 2)
    model = TabularModel.from_arrays(*arguments)
    assert (model.reward_range, model.constraint_bounds) == ((-1.5, 2.5), (3.0, 1.0))
    model = TabularModel.from_arrays(
        *arguments, reward_range=(-2, 3), constraint_bounds=(4, 5), constraint_names=["x", "y"]
    )
    assert (model.reward_range, model.constraint_bounds) == ((-2.0, 3.0), (4.0, 5.0))
    assert model.constraint_names == ("x", "y")


# --- Bad input -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line(Problem):
    """0 - 1 - 2, one step to the right or none; every attribute can be spoilt."""

    name: str = "line"
    horizon: object = 3
    constraint_names: object = ("room",)
    constraint_bounds: object = (2.0,)
    reward_range: object = (0.0, 1.0)
    first: object = ((1.0, 0),)
    offered: object = ("stay", "go")
    told: object = None

    def initial(self):
        return self.first

    def actions(self, step, state):
        return self.offered(step, state) if callable(self.offered) else self.offered

    def outcomes(self, step, state, action):
        if self.told is not None and (step, state, action) == (1, 1, "go"):
            return self.told
        return [Outcome(1.0, min(state + (action == "go"), 2), 0.5, (1.0,))]


WHERE = "step 1, state 1, action 'go'"


BAD_PROBLEMS = [
    ({"horizon": 0}, "horizon of 'line' is 0"),
    ({"constraint_names": "room"}, "constraint_names of 'line' is the string 'room'"),
    ({"constraint_names": ("a", "a"), "constraint_bounds": (1, 1)}, "not distinct"),
    ({"constraint_bounds": (1, 1)}, "constraint_bounds of 'line' has 2 numbers for 1 constraints"),
    ({"constraint_bounds": (0.0,)}, "constraint_bounds of 'line': number 0 is 0.0"),
    ({"reward_range": (1.0, 0.0)}, "reward_range of 'line' is"),
    ({"first": ((0.5, 0), (0.4, 1))}, "of initial.* sum to 0.9, not to 1"),
    ({"first": ((-0.5, 0), (1.5, 1))}, "probability -0.5 of initial"),
    ({"first": ()}, "gave no first state"),
    ({"first": ((0.5, 0), (0.5, 0))}, "initial.* names a state twice"),
    ({"first": ((1.0, []),)}, r"initial.*state \[\] is not hashable"),
    ({"first": (1.0, 0)}, "initial.* must give .probability, state. pairs"),
    ({"offered": ()}, "step 0, state 0: no action is on offer before the horizon"),
    (
        {"offered": lambda step, state: () if step == 2 else ("stay", "go")},
        "step 2, state 0: no action is on offer",
    ),
    ({"offered": ("go", "go")}, "step 0, state 0, action 'go': the action is offered twice"),
    ({"offered": "stay"}, r"step 0, state 0: actions\(\) gave 'stay'; it must be a sequence of actions"),
    ({"offered": ([1],)}, r"step 0, state 0, action \[1\]: the action is not hashable"),
    ({"told": 5}, f"{WHERE}: outcomes.* gave 5"),
    ({"told": []}, f"{WHERE}: outcomes\\(\\) gave nothing"),
    ({"told": [Outcome(0.7, 2, 0.5, (1.0,))]}, f"{WHERE}: probabilities sum to 0.7, not to 1"),
    ({"told": [Outcome(-0.2, 2, 0.5, (1.0,)), Outcome(1.2, 1, 0.5, (1.0,))]}, f"{WHERE}: probability -0.2"),
    ({"told": [Outcome("often", 2, 0.5, (1.0,))]}, f"{WHERE}: probability 'often' is not a number"),
    ({"told": [Outcome(1.0, [2], 0.5, (1.0,))]}, rf"{WHERE}: state \[2\] is not hashable"),
    ({"told": [Outcome(1.0, 2, 1.1, (1.0,))]}, f"{WHERE}: the reward is 1.1, outside of reward_range"),
    ({"told": [Outcome(1.0, 2, math.nan, (1.0,))]}, f"{WHERE}: the reward is nan; it must be a finite number"),
    ({"told": [Outcome(1.0, 2, "much", (1.0,))]}, f"{WHERE}: the reward must be a number"),
    ({"told": [Outcome(1.0, 2, 0.5, (2.1,))]}, f"{WHERE}: constraint 'room' is 2.1, beyond its bound of 2.0"),
    ({"told": [Outcome(1.0, 2, 0.5, (math.nan,))]}, f"{WHERE}: constraint 'room' is nan"),
    ({"told": [Outcome(1.0, 2, 0.5, ())]}, f"{WHERE}: 0 constraint values for 1 constraints"),
    ({"told": [Outcome(1.0, 2, 0.5, ("1",))]}, f"{WHERE}: the reward must be a number"),
    ({"told": [Outcome(1.0, 2, 0.5, (False,))]}, f"{WHERE}: .* False would count as 0, which is satisfied"),
    ({"told": [Outcome(1.0, 2, 0.5, (np.True_,))]}, f"{WHERE}: constraints must be numbers, >= 0"),
    ({"told": [(1.0, 2)]}, f"{WHERE}: .* is not an Outcome"),
]


def test_a_bad_problem_is_refused_with_the_culprit_named():
    for spoilt, message in BAD_PROBLEMS:
        with pytest.raises(ProblemError, match=message):
            compile_model(replace(Line(), **spoilt))


def test_the_unspoilt_problem_is_fine():
    assert compile_model(Line()).num_states == 3


def test_what_is_no_problem_at_all_is_refused_with_what_it_lacks():
    class Half:
        horizon, reward_range = 2, (0.0, 1.0)

        def initial(self):
            return [(1.0, 0)]

    with pytest.raises(ProblemError, match=r"has no method actions"):
        compile_model(Half())
    with pytest.raises(ProblemError):
        compile_model("a problem")


def test_the_memory_limit_stops_an_endless_state_space_with_an_estimate():
    class Endless(Subsets):
        def actions(self, step, state):
            return range(2)

        def outcomes(self, step, state, action):
            return [(1.0, (state, action), 0.5, ())]

    with pytest.raises(ProblemError, match=r"has at least [\d,]+ states and [\d,]+ pairs by step \d+, about 0.002 GB"):
        compile_model(Endless(60), memory_limit=2e6)
    for limit in ("much", math.nan, -1.0):
        with pytest.raises(SettingsError, match="memory_limit"):
            compile_model(Line(), memory_limit=limit)


GOOD = {
    "transitions": np.full((2, 2, 2), 0.5),
    "rewards": np.zeros((2, 2)),
    "constraints": np.zeros((1, 2, 2)),
    "horizon": 3,
}


def spoil(name, *place, value):
    array = GOOD[name].copy()
    array[place] = value
    return {name: array}


BAD_ARRAYS = [
    ({"horizon": 0}, "horizon is 0"),
    (spoil("transitions", 1, 0, 0, value=0.4), "state 1, action 0: probabilities sum to 0.9, not to 1"),
    (spoil("transitions", 1, 0, value=[-0.5, 1.5]), "state 1, action 0, next state 0: -0.5 is not a probability"),
    ({"transitions": np.full((3, 2, 2, 2), [0.5, 0.4])}, "step 0, state 0, action 0: probabilities sum to 0.9"),
    ({"transitions": np.full((2, 2, 3), 1 / 3)}, r"transitions have shape \(2, 2, 3\)"),
    ({"transitions": np.full((4, 2, 2, 2), 0.5)}, "transitions hold 4 steps for a horizon of 3"),
    ({"transitions": [[[0.5, 0.5]], [[1.0]]]}, "transitions must be an array of numbers"),
    ({"transitions": sparse.eye(2).tocsr()}, "sparse transitions have shape"),
    ({"transitions": [sparse.eye(2), sparse.eye(3)]}, r"transitions of action 1 have shape \(3, 3\)"),
    ({"rewards": np.zeros((2, 3))}, r"rewards have shape \(2, 3\); the shape must be \(2, 2\) or \(3, 2, 2\)"),
    ({"rewards": [[1.0], [1.0, 2.0]]}, "rewards must be an array of numbers"),
    (spoil("rewards", 1, 1, value=math.inf), "rewards, state 1, action 1: inf"),
    ({"reward_range": (0.5, 1.0)}, "rewards, state 0, action 0: 0.0 lies outside reward_range"),
    ({"constraints": np.zeros((1, 2, 3))}, r"constraints have shape \(1, 2, 3\)"),
    ({"constraints": np.ones((1, 2, 2), bool)}, "constraints must be numbers, .* got truth values"),
    (spoil("constraints", 0, 1, 0, value=math.nan), "constraint 'constraint 0', state 1, action 0: nan"),
    (
        {**spoil("constraints", 0, 0, 1, value=-3.0), "constraint_bounds": (2.0,)},
        "state 0, action 1: -3.0 exceeds",
    ),
    ({"constraint_bounds": (1.0, 1.0)}, "constraint_bounds of 'arrays' has 2 numbers for 1 constraints"),
    ({"constraint_names": ("a", "b")}, "must be 1 different names"),
    ({"initial": 2}, "initial state 2 is outside 0..1"),
    ({"initial": [0.5, 0.6]}, "of initial sum to 1.1"),
    ({"initial": [1.0]}, r"initial has shape \(1,\)"),
    ({"available": np.ones((2, 3), bool)}, r"available has shape \(2, 3\)"),
    ({"available": [[1, 2], [1, 1]]}, "available must hold True and False"),
    ({"available": np.zeros((2, 2), bool)}, "available: .*no action"),
    ({"available": [[True, True], [False, False]]}, "state 1 can be reached at step 1 and has no action"),
]


def test_bad_arrays_are_refused_with_the_culprit_named():
    for spoilt, message in BAD_ARRAYS:
        with pytest.raises(ProblemError, match=message):
            TabularModel.from_arrays(**{**GOOD, **spoilt})


anything = st.one_of(
    st.floats(), st.integers(), st.none(), st.text(max_size=3), st.booleans(), st.lists(st.floats(), max_size=2)
)


@patient
@given(st.lists(st.one_of(anything, st.tuples(anything, anything, anything, anything)), max_size=3))
def test_whatever_outcomes_are_told_the_answer_is_a_model_or_a_peak_error(outcomes):
    try:
        model = compile_model(replace(Line(), told=outcomes))
    except PeakError:
        return
    assert model.outcome_probability.sum() == pytest.approx(len(model.outcome_start) - 1)


@patient
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("horizon", "constraint_names", "constraint_bounds", "reward_range", "first", "offered"), anything
        ),
    )
)
def test_whatever_the_head_of_a_problem_says_the_answer_is_a_model_or_a_peak_error(spoilt):
    if isinstance(spoilt.get("horizon"), int) and spoilt["horizon"] > 50:
        spoilt["horizon"] = 50
    with contextlib.suppress(PeakError):
        compile_model(replace(Line(), **spoilt))


@patient
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            (
                "transitions", "rewards", "constraints", "initial", "available", "reward_range", "constraint_bounds",
                "constraint_names",
            ),
            anything,
        ),
    )
)  # fmt: skip
def test_whatever_arrays_are_given_the_answer_is_a_model_or_a_peak_error(spoilt):
    with contextlib.suppress(PeakError):
        TabularModel.from_arrays(**{**GOOD, **spoilt})


# --- Labels and identity ---------------------------------------------------------------------------------------------


def test_states_and_actions_are_found_by_label_and_unknown_ones_named():
    model = compile_model(Line())
    for step, state in naive.decision_points(Line()):
        assert model.state_of_slot(model.slot_of(step, state)) == state
        for action in ("stay", "go"):
            assert model.action_of_row(model.row_of(step, state, action)) == action
    for step in (-1, 3):
        with pytest.raises(PolicyError, match=f"step {step} is outside 0..2"):
            model.slot_of(step, 0)
    with pytest.raises(PolicyError, match="state 7 does not occur at step 1"):
        model.slot_of(1, 7)
    with pytest.raises(PolicyError, match=r"state \[1\] does not occur"):
        model.slot_of(1, [1])
    with pytest.raises(
        PolicyError, match=r"action 'jump' is not available at step 0 in state 0 \(there are: 'stay', 'go'"
    ):
        model.row_of(0, 0, "jump")


def test_the_digest_tells_models_apart_by_every_number():
    arrays, _ = random_arrays(7)
    digest = TabularModel.from_arrays(**arrays).digest
    assert digest == TabularModel.from_arrays(**arrays).digest
    seen = {digest}
    for name in ("rewards", "constraints"):
        for place in itertools.product(*map(range, arrays[name].shape)):
            spoilt = arrays[name].copy()
            spoilt[place] = np.nextafter(spoilt[place], 10.0)
            seen.add(TabularModel.from_arrays(**{**arrays, name: spoilt, "available": None}).digest)
    cells = arrays["rewards"].size + arrays["constraints"].size
    assert len(seen) == cells + 1


def test_a_model_shows_its_sizes():
    assert repr(compile_model(replace(Line(), name="shown"))) == (
        "<TabularModel 'shown': 3 states, 6 pairs, horizon 3, 1 constraint, 8 stored outcomes, layered>"
    )
