"""Logs: what is read of a table, what a policy chosen from it may rest on, and that its bounds are true."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import peakrl
from helpers.random_problems import random_problem
from helpers.recorded_logs import as_rule, logs_of, record, truth, uniform
from peakrl import Assumptions, Certificate, Logs, compile_model, evaluate, learn, load, safe_set, solve, verify
from peakrl.errors import PeakError, PolicyError, SettingsError, StorageError, TargetError
from peakrl.learners import Pessimistic
from peakrl.problems import energy_harvesting
from peakrl.theory import solve_relaxed

HARVESTING = compile_model(energy_harvesting(horizon=4, battery=3, max_arrival=3, mean=1.5, std=1, peak_power=2))
LAYERED = compile_model(random_problem(8, states=3, actions=2, horizon=3, stationary=False, outcome_payoffs=True))
STATES = HARVESTING.state_labels


def reward(step, slot, action):
    return float(HARVESTING.row_reward[HARVESTING.row_start[slot] + action])


def constraint(step, slot, action):
    return float(HARVESTING.row_margin[HARVESTING.row_start[slot] + action].min())


def after(slot, action, arrival):
    return STATES.index(
        (min(3, sum(STATES[slot]) - HARVESTING.action_of_row(HARVESTING.row_start[slot] + action)), arrival)
    )


#: What is declared, by the form of the bounds that follow.
DECLARED = {
    "by step, rewards by outcome": {},
    "unknown number of states": {"stationary": True, "rewards": True},
    "known": {"stationary": True, "states": 16, "rewards": reward, "constraints": constraint},
    "shared": {
        "stationary": True, "rewards": True,
        "shared_transitions": lambda step, slot, action: after(slot, action, 0),
    },
    "dynamics": {"stationary": True, "states": 16, "rewards": True, "dynamics": (after, (0, 1, 2, 3))},
}  # fmt: skip
TABLE = {"episode": [0, 0, 1, 1], "state": [0, 1, 0, 1], "action": [0, 0, 1, 0], "reward": [1.0, 0, 0, 1]}


def changed(**columns):
    """The small table with other columns."""
    return TABLE | columns


# Bounds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECLARED)
def test_bounds_are_true_and_follow_from_the_counts_alone(name, tmp_path):
    assumptions, best = Assumptions(**DECLARED[name]), solve(HARVESTING)
    logs = logs_of(HARVESTING, record(HARVESTING, 600, np.random.default_rng(3)))
    run = learn(logs, Pessimistic(failure_probability=0.1), assumptions=assumptions)
    given = evaluate(logs, as_rule(best.policy), failure_probability=0.1, assumptions=assumptions)
    baseline = learn(logs, Pessimistic(failure_probability=0.1, behavior=uniform), assumptions=assumptions)
    judged = [(one.certificate, truth(HARVESTING, one)) for one in (run, baseline)]
    for certificate, policy in (*judged, (given, best.policy)):
        exact = peakrl.evaluate(HARVESTING, policy)
        assert certificate.holds
        assert certificate.value_low <= exact.value
        assert certificate.optimum_high >= best.value
        assert certificate.violation_probability_high >= exact.violation_probability
        assert certificate.value_high is None or exact.value <= certificate.value_high
        certificate.save(tmp_path / "log.certificate")
        checked = verify(tmp_path / "log.certificate")
        assert checked.holds, checked.reason
    assert given.value_low > run.certificate.value_low or name == "dynamics"  # twice the rows
    for one in (run, baseline):
        one.save(tmp_path / "log.run")
        again = load(tmp_path / "log.run", assumptions=assumptions)
        assert again.certificate.as_dict() == one.certificate.as_dict()
        for step, slot, _ in one.model.decisions():
            state = one.model.state_of_slot(slot)
            assert again.policy.probabilities(step, state) == one.policy.probabilities(step, state)


@pytest.mark.parametrize(
    ("where", "number"),
    [("cell_count", 1), ("then_before", -1), ("weights", 0.5), ("tested", -1), ("reward", 0.1), ("p", 0.2)],
)
def test_an_altered_number_is_noticed(where, number, tmp_path):
    logs = logs_of(HARVESTING, record(HARVESTING, 100, np.random.default_rng(3)))
    settings = Pessimistic(failure_probability=0.1)
    certificate = learn(logs, settings, assumptions=Assumptions(**DECLARED["known"])).certificate
    if where == "p":
        certificate = replace(certificate, failure_probability=0.2)
    else:
        array = certificate.evidence.arrays[where].copy()
        array[int(np.argmax(array > 0))] += number
        arrays = dict(certificate.evidence.arrays) | {where: array}
        certificate = replace(certificate, evidence=replace(certificate.evidence, arrays=arrays))
    certificate.save(tmp_path / "log.certificate")
    with contextlib.suppress(StorageError):
        assert not verify(tmp_path / "log.certificate").holds


def test_the_bound_of_one_action_is_the_betting_bound_of_its_later_rewards():
    """One step, one state, one action: a lower bound of a mean, by a search of its own for the best nu."""
    rewards = np.random.default_rng(1).choice([0.0, 0.25, 1.0], 400, p=[0.2, 0.3, 0.5])
    table = {"episode": np.arange(400), "state": np.zeros(400, int), "action": np.zeros(400, int), "reward": rewards}
    assumptions = Assumptions(stationary=True, states=1)
    run = learn(Logs.from_frame(table, horizon=1, reward_range=(0, 1)), Pessimistic(), assumptions=assumptions)
    later = rewards[200:]
    beta = math.log(2 / (0.2 * 0.05)) + 0.5 * math.log(math.pi * (200 + 0.5))  # one action, and the first state

    def high(nu):
        return nu - math.exp(np.log(nu + later).mean() - beta / 200)

    low = -minimize_scalar(high, bounds=(0.0, 50.0), method="bounded", options={"xatol": 1e-10}).fun
    # All episodes begin in this state, whose lower value bounds every first value: that bet loses nothing.
    assert run.certificate.value_low == pytest.approx(low, abs=1e-7)


def test_bounds_stay_within_the_range_of_returns():
    table = changed(reward=[-1.0, -1.0, -1.0, -1.0])
    certificate = learn(Logs.from_frame(table, horizon=2, reward_range=(-1, 0.5))).certificate
    assert -2 - 1e-8 <= certificate.value_low <= certificate.optimum_high <= 1 + 1e-8


def test_the_policy_is_chosen_by_the_rows_before_the_middle_episode():
    """Another later half changes the bounds but not the policy, its decisions in states met there included."""
    rng = np.random.default_rng(5)
    early, late, other = (record(LAYERED, 20, rng, first=first) for first in (0, 20, 20))
    together = [
        logs_of(LAYERED, {name: np.append(early[name], part[name]) for name in early}) for part in (late, other)
    ]
    first, second = (learn(logs) for logs in together)
    assert np.array_equal(truth(LAYERED, first).rows, truth(LAYERED, second).rows)
    assert first.certificate.value_low != second.certificate.value_low


def test_the_behaviour_decides_where_the_earlier_half_shows_too_little():
    """Four rows of an action suffice for the plan; later rows do not count, nor do states that only they show."""
    tries = {0: [0] * 4 + [1] * 2, 1: [0] * 3 + [1] * 3}
    early = [(state, action) for state, actions in tries.items() for action in actions]
    late = [(1, 0)] * 8 + [(2, 0)] * 4
    state, action = zip(*early, *late, strict=True)
    table = {"episode": range(24), "state": state, "action": action, "reward": [1.0 - one for one in action]}
    usual = lambda step, state, actions: {0: 0.25, 1: 0.75}  # noqa: E731
    run = learn(Logs.from_frame(table, horizon=1, reward_range=(0, 1)), Pessimistic(behavior=usual))
    assert [run.policy.probabilities(0, state) for state in range(3)] == [
        {0: 1.0},
        {0: 0.25, 1: 0.75},
        {0: 0.25, 1: 0.75},
    ]
    assert "the behaviour policy was fixed" in " ".join(run.certificate.rests_on)


@pytest.mark.parametrize(("early", "taken"), [([0, 1, 0], 0), ([0, 0, 0], 1)])
def test_a_behaviour_is_not_followed_where_it_is_known_to_violate(early, taken):
    """Action 1 violates: seen in the earlier half it is avoided; what the later half shows must not decide."""
    actions = [*early, 0, 1, 0]
    table = {"episode": range(6), "state": [0] * 6, "action": actions, "reward": [1.0] * 6}
    table["c"] = [1 - 2 * action for action in actions]
    logs = Logs.from_frame(
        table, horizon=1, reward_range=(0, 1), constraints="c", constraint_bounds=[1], actions=[0, 1]
    )
    run = learn(logs, Pessimistic(behavior=lambda step, state, actions: 1))
    assert run.policy.action(0, 0) == taken
    assert run.certificate.violation_probability_high == 1 or taken == 0


@pytest.mark.parametrize(
    ("behavior", "message"),
    [
        (3, "behavior is 3: it must be a policy"),
        (lambda step, state, actions: {0: 0.5}, "probabilities at step 0 in state 0 are {0: 0.5}"),
        (lambda step, state, actions: {0: 1.5, 1: -0.5}, "probabilities at step 0"),
        (lambda step, state, actions: 7, "takes 7 at step 0 in state 0, which the log's actions lack"),
    ],
)
def test_what_is_no_behaviour_is_refused(behavior, message):
    with pytest.raises(PeakError, match=message):
        learn(Logs.from_frame(TABLE, horizon=2, reward_range=(0, 1)), Pessimistic(behavior=behavior))


def test_with_a_declared_support_no_violation_is_certain(tmp_path):
    columns = record(HARVESTING, 50, np.random.default_rng(2))
    support = {STATES[slot]: slot for slot in range(len(STATES))}
    columns["state"], columns["next_state"] = (
        [STATES[slot] for slot in columns[name]] for name in ("state", "next_state")
    )
    columns["action"] = [
        HARVESTING.action_of_row(HARVESTING.row_start[support[state]] + action)
        for state, action in zip(columns["state"], columns["action"], strict=True)
    ]
    rows = {state: HARVESTING.rows_of_slot(slot) for state, slot in support.items()}
    logs = logs_of(HARVESTING, columns, actions=lambda state: [HARVESTING.action_of_row(row) for row in rows[state]])
    certificate = learn(logs, assumptions=Assumptions(support=HARVESTING)).certificate
    assert certificate.violation_high == 0
    assert certificate.declared_safe
    assert learn(logs).certificate.violation_high > 0
    safe = safe_set(HARVESTING)
    for behavior in (uniform, lambda step, state, actions: max(actions)):  # both violate in some states
        run = learn(logs, Pessimistic(behavior=behavior), assumptions=Assumptions(support=HARVESTING))
        assert run.certificate.violation_high == 0
        for step, slot, _ in run.model.decisions():
            state = run.model.state_of_slot(slot)
            assert set(run.policy.probabilities(step, state)) <= set(safe.actions(state, step))
        run.certificate.save(tmp_path / "log.certificate")
        assert verify(tmp_path / "log.certificate").holds
    # Policies that were given: a deterministic one, a randomised one, and one that violates where no row of the log is.
    safest = solve(HARVESTING).policy
    spends = lambda step, state, actions: max(actions) if (step, state[0]) == (3, 3) else 0  # noqa: E731
    mixed = solve_relaxed(HARVESTING, 0.5).policy
    for policy, certain in ((safest, True), (lambda step, state, actions: 0, True), (spends, False), (mixed, False)):
        certificate = evaluate(logs, policy, assumptions=Assumptions(support=HARVESTING))
        assert (certificate.violation_high == 0) == certain
        assert ("by every outcome of the declared support the policy" in " ".join(certificate.rests_on)) == certain
        certificate.save(tmp_path / "log.certificate")
        assert verify(tmp_path / "log.certificate").holds


def test_a_listed_state_that_the_log_does_not_show_is_bounded_by_the_others(tmp_path):
    columns = record(HARVESTING, 400, np.random.default_rng(7), idle_weights())
    declared = Assumptions(**DECLARED["known"] | {"states": None})
    bounds = {}
    for listed in ((), tuple(range(16))):
        certificate = learn(logs_of(HARVESTING, columns, states=listed), assumptions=declared).certificate
        bounds[bool(listed)] = certificate
        certificate.save(tmp_path / "log.certificate")
        assert verify(tmp_path / "log.certificate").holds
        assert certificate.optimum_high >= solve(HARVESTING).value
    assert bounds[True].violation_high == 0 < bounds[False].violation_high
    assert bounds[True].optimum_high < bounds[False].optimum_high


def idle_weights():
    """[entry]: a logger that does nothing, so that most states never occur."""
    weights = np.zeros(HARVESTING.num_entries)
    weights.reshape(-1, HARVESTING.num_rows)[:, HARVESTING.row_start[:-1]] = 1.0
    return weights


def test_a_violation_in_the_log_counts_and_is_avoided():
    table = {
        "episode": range(40),
        "state": [0] * 40,
        "action": [0, 1] * 20,
        "reward": [0.5, 1.0] * 20,
        "c": [1, -1] * 20,
    }
    logs = Logs.from_frame(table, horizon=1, reward_range=(0, 1), constraints="c", constraint_bounds=[1])
    run = learn(logs)
    assert run.violations == 20
    assert run.policy.action(0, 0) == 0
    assert run.certificate.violation_probability_high < 1
    assert evaluate(logs, lambda step, state, actions: 1).violation_probability_high == 1


def test_a_column_of_costs_is_not_read_as_a_constraint():
    """1 where it is violated would count as satisfied."""
    with pytest.raises(SettingsError, match="'cost' would be a constraint, which is satisfied if it is >= 0"):
        Logs.from_frame(
            changed(cost=[0, 1, 0, 1]), horizon=2, reward_range=(0, 1), constraints="cost", constraint_bounds=[1]
        )


def test_a_truth_value_is_not_read_as_a_constraint():
    """False would be 0, which satisfies it."""
    with pytest.raises(TargetError, match=r"row 0 \(counted from 0\): kept is False .*it must be a number"):
        Logs.from_frame(
            changed(kept=np.array([False, True, True, True])),
            horizon=2, reward_range=(0, 1), constraints="kept", constraint_bounds=[1],
        )  # fmt: skip


def test_a_random_function_is_not_a_given_policy():
    """One draw for each state would be bounded in place of the function."""
    drawn = iter(range(100))
    logs = Logs.from_frame(TABLE, horizon=2, reward_range=(0, 1))
    with pytest.raises(PolicyError, match="called twice at step 0 in state 0 the policy takes 0 and 1"):
        evaluate(logs, lambda step, state, actions: next(drawn) % 2)


@pytest.mark.parametrize("states", [None, 4])
def test_a_function_may_be_random_in_states_that_the_log_does_not_show(states):
    """Weights by visits must not depend on whether such a state was visited; with listed states they do not."""
    logs, assumptions = Logs.from_frame(TABLE, horizon=2, reward_range=(0, 1)), Assumptions(states=states)
    certificate = evaluate(logs, lambda step, state, actions: actions[0], assumptions=assumptions)
    assert certificate.evidence.plain["several"] is (states is None)


def test_infeasible_first_states_are_found():
    table = {"episode": [0, 1], "state": [0, 0], "action": [0, 0], "reward": [0.0, 0.0], "c": [-1, -1]}
    run = learn(Logs.from_frame(table, horizon=1, reward_range=(0, 1), constraints="c", constraint_bounds=[1]))
    assert run.feasible is False
    assert run.certificate.optimum_high is None


# Tables ---------------------------------------------------------------------------------------------------------------


def test_single_transitions_episodes_side_by_side_and_files_hold_the_same_log(tmp_path):
    columns = record(HARVESTING, 60, np.random.default_rng(4))
    assumptions = Assumptions(stationary=True, states=16)
    episodes = logs_of(HARVESTING, columns)
    single = logs_of(HARVESTING, columns, episode=None)
    names = list(columns)
    text = [
        ",".join(names),
        *(",".join(map(repr, line)) for line in zip(*(columns[name].tolist() for name in names), strict=True)),
    ]
    (tmp_path / "log.csv").write_text("\n".join(text) + "\n")
    bound = float(episodes.rules.constraints.bounds[0])
    read = Logs.from_csv(
        tmp_path / "log.csv", horizon=4, reward_range=HARVESTING.reward_range, step="step", next_state="next_state",
        constraints="constraint", constraint_bounds=[bound], actions=episodes.offers,
    )  # fmt: skip
    rule = as_rule(solve(HARVESTING).policy)
    order = np.argsort(columns["step"], kind="stable")  # all first steps, then all second ones, ...
    beside = logs_of(HARVESTING, {name: column[order] for name, column in columns.items()})
    expected = evaluate(episodes, rule, assumptions=assumptions)
    for logs in (single, read, beside):
        found = evaluate(logs, rule, assumptions=assumptions)
        assert found.value_low == pytest.approx(expected.value_low, abs=1e-9)
        assert found.optimum_high == pytest.approx(expected.optimum_high, abs=1e-9)
    assert len(read.untried) == len(episodes.untried)


def test_frames_of_pandas_are_read_and_tables_without_next_states_too():
    pandas = pytest.importorskip("pandas")
    columns = record(LAYERED, 30, np.random.default_rng(6))
    frame = pandas.DataFrame(columns)
    without = logs_of(LAYERED, frame.drop(columns="next_state"), next_state=None)
    rule = lambda step, state, actions: actions[0]  # noqa: E731
    assert evaluate(without, rule).value_low == evaluate(logs_of(LAYERED, frame), rule).value_low


def test_a_data_set_of_minari_is_read():
    class Recorded:
        observations, actions, rewards = np.array([0, 1, 0]), np.array([0, 1]), np.array([1.0, 0.5])
        terminations, truncations, infos = np.array([False, True]), np.array([False, False]), {"cost": np.array([0, 1])}

    class DataSet:
        def iterate_episodes(self):
            return iter([Recorded(), Recorded()])

    logs = Logs.from_minari(
        DataSet(),
        horizon=3,
        reward_range=(0, 1),
        constraint=lambda step: [-step["info"]["cost"]],
        constraint_bounds=[1],
    )
    assert (len(logs), logs.episodes) == (4, 2)
    assert learn(logs).violations == 2
    with pytest.raises(SettingsError, match="peakrl\\[minari\\]"):
        Logs.from_minari("D4RL/none-v0", horizon=3, reward_range=(0, 1))


def test_rows_without_a_next_state_count_for_rewards_and_are_named():
    table = changed(episode=[0, 0, 1, 2], next_state=[1, math.nan, "", 0])
    logs = Logs.from_frame(table, horizon=3, reward_range=(0, 1), next_state="next_state")
    assert any("next states of 2 rows are missing" in line for line in learn(logs).certificate.rests_on)


REFUSED = {
    "row 2 .*2; the reward is outside of reward_range": (changed(reward=[1, 0, 2, 1]), {}),
    "row 3 .*reward is": (changed(reward=[1, 0, 0, None]), {}),
    "row 1 .*state is": (changed(state=[0, 1.5, 0, 1]), {}),
    "row 3 .*step 3 follows step 1": (changed(step=[0, 1, 1, 3]), {"step": "step"}),
    "row 3 .*step 2 is outside": (changed(step=[0, 1, 1, 2]), {"step": "step"}),
    "row 1 .*-3; c is beyond its bound": (changed(c=[1, -3, 0, 0]), {"constraints": "c", "constraint_bounds": [1]}),
    "row 2 .*action 1 is not one of": (TABLE, {"actions": [0]}),
    "row 2 .*action 1 is not on offer in state 0": (TABLE, {"actions": lambda state: [0]}),
    "row 0 .*the next state is 7, but": (changed(n=[7, 0, 1, 0]), {"next_state": "n"}),
    "row 0 .*the episode is over, but": (changed(over=[True, False, False, True]), {"terminated": "over"}),
    "row 3 .*the episode stops here": (changed(over=[False, True, False, False]), {"terminated": "over", "horizon": 3}),
    "no column 'x'; it has 'episode'.*say so, as in state=": (TABLE, {"state": "x"}),
    "next_state must name a column": (TABLE, {"episode": None}),
    "row 0 .*1 is not one of the 1 states=": (TABLE, {"states": [0]}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_row_that_is_wrong_is_named(message):
    table, options = REFUSED[message]
    with pytest.raises(PeakError, match=message):
        Logs.from_frame(table, **{"horizon": 2, "reward_range": (0, 1)} | options)


CONTRADICTED = {
    "row 3 .*earned": (Assumptions(stationary=True, rewards=True), changed(reward=[1, 0, 1, 1])),
    "row 2 .*gave constraints": (
        Assumptions(deterministic=True, stationary=True), changed(action=[0] * 4, reward=[1, 0] * 2, c=[0, 0, 1, 1]),
    ),
    "row 1 .*constraints say": (Assumptions(constraints=lambda step, state, action: 1), changed(c=[0, -1, 1, 1])),
    "row 0 .*no noise": (
        Assumptions(stationary=True, states=2, rewards=True, dynamics=(lambda s, a, noise: (s, None)[noise], (0, 1))),
        changed(reward=[1, 0, 0, 0]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", CONTRADICTED)
def test_a_row_that_contradicts_a_declaration_is_named(message):
    assumptions, table = CONTRADICTED[message]
    if "c" not in table:
        table = table | {"c": [0, 0, 0, 0]}
    logs = Logs.from_frame(table, horizon=2, reward_range=(0, 1), constraints="c", constraint_bounds=[1])
    with pytest.raises(TargetError, match=message):
        learn(logs, assumptions=assumptions)


def test_what_does_not_fit_a_log_is_refused():
    logs = Logs.from_frame(TABLE, horizon=2, reward_range=(0, 1))
    for call in (
        lambda: learn(logs, "SafeQ"),
        lambda: learn(logs, episodes=5),
        lambda: learn(HARVESTING, Pessimistic(), episodes=5),
        lambda: evaluate(logs, "best"),
        lambda: evaluate(logs, lambda step, state, actions: 9),
        lambda: evaluate(logs, lambda step, state, actions: 0, failure_probability=5e-324),
        lambda: learn(
            Logs.from_frame(
                {**TABLE, "n": TABLE["state"]}, horizon=2, reward_range=(0, 1), episode=None, next_state="n"
            )
        ),
    ):
        with pytest.raises(PeakError):
            call()


def test_a_certificate_from_a_log_says_what_voids_it():
    certificate = learn(Logs.from_frame(TABLE, horizon=2, reward_range=(0, 1))).certificate
    said = " ".join(certificate.rests_on)
    assert all(word in said for word in ("hidden confounding", "dropped", "order of time", "2 actions of the log"))
    assert isinstance(certificate, Certificate)
    assert "from a log" in str(certificate)
