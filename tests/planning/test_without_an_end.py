"""Discounted, average and reach-avoid criteria against all stationary policies, computed with fractions."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import peakrl
from helpers.machine import Machine
from helpers.seeds import seeds
from naive.stationary import Chain, at_start, policies
from peakrl.errors import PeakError


def random_model(seed, most=4, first=None):
    """Return a model with several parts, cycles, absorbing states and constraints, feasible or not."""
    rng = np.random.default_rng(seed)
    states, actions = int(rng.integers(2, most + 1)), int(rng.integers(1, 3 if most > 4 else 4))
    chances = np.zeros((states, actions, states))
    ring = rng.random() < 0.2  # periodic
    for state in range(states):
        for action in range(actions):
            count = 1 if ring else int(rng.integers(1, 3))
            following = rng.choice(states, min(count, states), replace=False)
            if ring:
                following = [(state + 1 + action * (states // 2)) % states]
            if rng.random() < 0.15:
                following = [state]
            share = rng.integers(1, 8, len(following)) / rng.choice([8.0, 7.0, 10.0])
            chances[state, action, following] = share / share.sum()
    available = rng.random((states, actions)) < 0.8
    available[np.arange(states), rng.integers(actions, size=states)] = True
    limits = rng.choice([-1.0, 0.5, 1.0, 2.0], (int(rng.integers(1, 4)), states, actions), p=[0.08, 0.3, 0.3, 0.32])
    initial = np.zeros(states)
    initial[rng.choice(states, int(rng.integers(1, 3)), replace=False)] = 1
    if first is not None:
        initial = np.arange(states) == first
    return peakrl.TabularModel.from_arrays(
        chances,
        rng.integers(-4, 5, (states, actions)),
        limits,
        None,
        available=available,
        initial=initial / initial.sum(),
    )


def exact(numbers):
    return list(map(Fraction, numbers.tolist()))


def check(model, solution, value_of, best_of, target=frozenset()):
    """Compare with the best of all policies; `value_of(chain)` is the value by state of what is maximised."""
    reward, violation = exact(model.row_reward), exact(model.row_violation.sum(axis=1))
    firsts, found, least, own = set(model.first_slot.tolist()), [], [], None
    rows = solution.policy.rows.tolist()
    for policy in policies(model):
        chain = Chain(model, policy, target)
        if firsts <= chain.safe_from(model):
            found.append(at_start(model, value_of(chain, [reward[row] for row in policy])))
        if list(policy) == rows:
            own = chain
    assert solution.feasible == bool(found)
    scale = max(1.0, abs(solution.value), float(np.abs(model.row_reward).max()))
    assert solution.value_high - solution.value_low <= 1e-9 * scale
    assert Fraction(solution.value_low) <= at_start(model, value_of(own, [reward[row] for row in rows]))
    if found:
        assert firsts <= own.safe_from(model)
        assert solution.violation == 0.0
        assert Fraction(solution.value_low) <= max(found) <= Fraction(solution.value_high)
        assert at_start(model, value_of(own, [reward[row] for row in rows])) <= max(found)
    else:
        for policy in policies(model):
            chain = Chain(model, policy)
            least.append(at_start(model, best_of(chain, [violation[row] for row in policy])))
        assert solution.violation == pytest.approx(float(min(least)), rel=1e-9, abs=1e-9)
        assert solution.reason is not None
        kept = [peakrl.safe_set(model, horizon=steps).feasible for steps in range(1, model.num_slots + 2)]
        assert solution.safe_steps == kept.index(False)
    return bool(found)


def compared(seed, most=4):
    model = random_model(seed, most)
    discount = [0.0, 0.5, 0.9, 0.99][seed % 4]

    def total(chain, paid):
        return chain.discounted(paid, discount)

    gain, target = Chain.gain, frozenset({seed % model.num_slots})
    feasible = check(model, peakrl.solve(model, discount=discount), total, total)
    check(model, peakrl.solve(model, average=True), gain, gain)
    solution = peakrl.solve(model, reach=target)
    if solution.feasible:
        check(model, solution, lambda chain, _: chain.absorbed_in(target), None, target)
        times = []
        for policy in policies(model):
            chain = Chain(model, policy, target)
            if set(model.first_slot.tolist()) <= chain.safe_from(model):
                times.append([chain.time()[slot] for slot in model.first_slot.tolist()])
        sure = [
            at_start(model, dict(zip(model.first_slot.tolist(), each, strict=True)))
            for each in times
            if None not in each
        ]
        assert (solution.expected_time is None) == (not sure)
        if sure:
            assert solution.expected_time == pytest.approx(float(min(sure)), rel=1e-8)
    return feasible


@seeds(12)
def test_small_models_against_all_stationary_policies(seed):
    compared(seed)


@pytest.mark.slow
def test_two_thousand_models_against_all_stationary_policies():
    feasible = [compared(10**6 + seed, most=5 if seed % 10 else 8) for seed in range(2000)]
    assert 200 < sum(feasible) < 1900


def reached_within(model, policy, target, slot, step, horizon):
    """Return the probabilities of a violation before the target, and of reaching it, with fractions."""
    if slot in target or step == horizon:
        return Fraction(0), Fraction(int(slot in target))
    row = policy[step * model.num_slots + slot]
    outcomes, broken, reached = model.outcomes_of_row(row), Fraction(0), Fraction(0)
    for following, chance in zip(
        model.outcome_next[outcomes].tolist(), model.outcome_probability[outcomes].tolist(), strict=True
    ):
        harm, arrival = reached_within(model, policy, target, following, step + 1, horizon)
        broken += Fraction(chance) * (harm if model.keeps[row] else 1)
        reached += Fraction(chance) * arrival
    return broken, reached


@seeds(8)
def test_reaching_within_a_horizon_against_all_policies(seed):
    model, horizon = random_model(seed, most=2 + seed % 2), 3 - seed % 2
    target, firsts, best = frozenset({seed % model.num_slots}), model.first_slot.tolist(), []
    for steps in product(policies(model), repeat=horizon):
        policy = [row for step in steps for row in step]
        ends = {slot: reached_within(model, policy, target, slot, 0, horizon) for slot in firsts}
        if not any(broken for broken, _ in ends.values()):
            best.append(at_start(model, {slot: reached for slot, (_, reached) in ends.items()}))
    solution = peakrl.solve(model, reach=target, horizon=horizon)
    assert solution.feasible == bool(best)
    if best:
        assert solution.value == pytest.approx(float(max(best)), abs=1e-12)
        ends = [reached_within(model, solution.policy.rows.tolist(), target, slot, 0, horizon) for slot in firsts]
        assert not any(broken for broken, _ in ends)
        assert solution.node_values[firsts] == pytest.approx([float(reached) for _, reached in ends], abs=1e-12)
    with pytest.raises(PeakError, match="without an end"):
        peakrl.solve(model, discount=0.9, horizon=horizon)


def test_the_machine_of_the_docs():
    model = peakrl.compile_model(Machine())
    assert peakrl.solve(model, discount=0.9).value == pytest.approx(13.793103448275862, abs=1e-9)
    assert peakrl.solve(model.with_horizon(11), average=True).value == pytest.approx(4 / 3, abs=1e-9)
    assert peakrl.solve(model, reach=lambda state: state == 1).expected_time == pytest.approx(2.0)
    with pytest.raises(PeakError, match="different criteria"):
        peakrl.solve(model, discount=0.9, average=True)
    with pytest.raises(PeakError, match="below 1"):
        peakrl.solve(model, discount=1.0)


def first_violation(model, policy):
    """The probability of ever violating from each state and the expected steps up to then, with fractions."""
    size = model.num_slots
    end = size  # the walk stops after a violation
    chain = Chain(model, policy)
    harms = [not model.keeps[row] for row in policy]  # payoffs do not depend on the outcome here
    chain.chance = [[*(0 if harms[i] else p for p in chain.chance[i]), int(harms[i])] for i in range(size)]
    chain.chance.append([0] * size + [1])
    chain.size, chain.target = size + 1, frozenset({end})
    chain.after = [chain.reached(slot) for slot in range(size + 1)]
    return chain.absorbed_in({end}), chain.time()


def evaluated(seed):
    model = random_model(seed)
    rng = np.random.default_rng(seed)
    policy = [int(rng.choice(model.rows_of_slot(slot))) for slot in range(model.num_slots)]
    own = peakrl.Policy(model, np.array(policy))
    chain, reward = Chain(model, policy), [Fraction(float(model.row_reward[row])) for row in policy]
    violation = [Fraction(float(model.row_violation[row].sum())) for row in policy]
    found, long = peakrl.evaluate(model, own, discount=0.9), peakrl.evaluate(model.with_horizon(7), own)
    near = {"abs": 1e-9}
    assert found.value == pytest.approx(float(at_start(model, chain.discounted(reward, 0.9))), **near)
    assert found.violation == pytest.approx(float(at_start(model, chain.discounted(violation, 0.9))), **near)
    for gain in (long.value, long.gain, found.gain):
        assert gain == pytest.approx(float(at_start(model, chain.gain(reward))), **near)
    assert long.violation == pytest.approx(float(at_start(model, chain.gain(violation))), **near)
    for state in range(model.num_slots):
        share = chain.gain([int(slot == state) for slot in range(model.num_slots)])
        assert long.stationary_distribution[state] == pytest.approx(float(at_start(model, share)), **near)
    chance, time = first_violation(model, policy)
    assert found.violation_probability == pytest.approx(float(at_start(model, chance)), **near)
    assert (found.violation_probability > 0) == (at_start(model, chance) > 0) == (found.violation > 0)
    firsts = [time[slot] for slot in model.first_slot.tolist()]
    if None in firsts:
        assert found.steps_to_violation == np.inf
    else:
        assert found.steps_to_violation == pytest.approx(float(at_start(model, time)))
    return found.violation_probability


def test_a_violation_that_ends_is_0_on_average():
    chances = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    model = peakrl.TabularModel.from_arrays(chances, np.zeros((2, 1)), np.array([[[-1.0], [1.0]]]), None)
    for criterion in ({"average": True}, {"reach": {1}}):
        solution = peakrl.solve(model, **criterion)
        found = peakrl.evaluate(model, solution.policy)
        assert (solution.feasible, found.violation_probability) == (False, 1.0)
        assert solution.violation == found.violation == 0.0


@seeds(12)
def test_evaluation_against_fractions(seed):
    evaluated(seed)


def test_a_walk_is_simulated_for_as_many_steps_as_asked():
    model = peakrl.compile_model(Machine())
    best = peakrl.solve(model, average=True).policy
    runs = peakrl.simulate(model, best, episodes=500, steps=300)
    assert runs.value_interval.low < 400 < runs.value_interval.high
    assert runs.violation == 0.0
    assert len(peakrl.rollout(model, best, steps=7)) == 7
    env = peakrl.ConstrainedEnv(peakrl.to_gymnasium(model), reward_range=(0, 2))
    assert len(peakrl.rollout(env, lambda step, state, actions: 0, steps=5)) == 5
    for call in (peakrl.rollout, lambda *both: peakrl.simulate(*both, episodes=2)):
        with pytest.raises(PeakError, match="steps="):
            call(model, best)
    with pytest.raises(PeakError, match="has no end"):
        peakrl.rollout(model.with_horizon(3), peakrl.solve(model.with_horizon(3)).policy, steps=4)


@pytest.mark.parametrize("criterion", [{"discount": 0.9}, {"average": True}])
def test_after_an_unavoidable_violation_the_policy_is_the_best_safe_one(criterion):
    compared = 0
    for seed in range(400):
        model = random_model(seed)
        solution, safe = peakrl.solve(model, **criterion), peakrl.safe_set(model)
        for state in range(0 if solution.feasible else model.num_states):
            if safe.contains(state):
                best = peakrl.solve(random_model(seed, first=state), **criterion)
                number = model.slot_of(0, state)
                assert solution.state_low[number] <= best.value_high
                assert solution.state_high[number] >= best.value_low
                compared += 1
    assert compared > 30


def test_a_target_that_is_no_set_is_refused():
    with pytest.raises(PeakError, match="reach is 8; it must be a collection of states, or a function of a state"):
        peakrl.solve(random_model(1), reach=8)
