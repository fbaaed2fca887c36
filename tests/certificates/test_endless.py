"""Certificates of policies without an end, against fractions, and forged ones."""

import contextlib
from dataclasses import replace
from fractions import Fraction

import gymnasium
import numpy as np
import pytest

import peakrl
from helpers.machine import Machine
from helpers.seeds import seeds
from naive.stationary import Chain, at_start, policies
from peakrl.certificates import verify_endless
from peakrl.certificates.verify import read_model
from peakrl.errors import PeakError, PolicyError
from planning.test_without_an_end import exact, random_model


def checked(certificate, path, **changed):
    """Save a certificate with other arrays, and verify it."""
    arrays = {**certificate.evidence.arrays, **{f"endless.{name}": array for name, array in changed.items()}}
    replace(certificate, evidence=replace(certificate.evidence, arrays=arrays)).save(path)
    return peakrl.verify(path)


def value_of(chain, target, discount, paid):
    """Return what the walk earns, by state: the probability of reaching, a discounted sum or the gain."""
    if target:
        return chain.absorbed_in(target)
    return chain.gain(paid) if discount is None else chain.discounted(paid, Fraction(discount))


def forged_bounds(certificate, rng):
    """Yield the bounds that follow from other proofs, where these prove anything."""
    plain, arrays = certificate.evidence.plain, dict(certificate.evidence.arrays)
    for size in (1e-9, 0.1, 10.0):
        for name in ("low", "high"):
            shift = rng.choice([-size, 0.0, size], arrays[f"endless.{name}"].shape)
            arrays[f"endless.{name}"] = certificate.evidence.arrays[f"endless.{name}"] + shift
        with contextlib.suppress(ValueError):
            found = verify_endless.check(read_model(plain["model"], arrays), plain, arrays)[0]
            yield found["value_low"], found["value_high"]


def compared(seed, path, discount, target):
    model, rng = random_model(seed), np.random.default_rng(seed)
    criterion = {"reach": target} if target else {} if discount is None else {"discount": discount}
    best = peakrl.solve(model, **(criterion or {"average": True})).policy
    drawn = peakrl.Policy(model, np.array([rng.choice(model.rows_of_slot(slot)) for slot in range(model.num_slots)]))
    reward, violation = exact(model.row_reward), exact(model.row_violation.sum(axis=1))
    firsts, values = set(model.first_slot.tolist()), []
    for policy in (best, drawn):
        found = peakrl.certify(model, policy, **criterion)
        chain = Chain(model, policy.rows.tolist(), target)
        value = at_start(model, value_of(chain, target, discount, [reward[row] for row in policy.rows]))
        assert Fraction(found.value_low) <= value <= Fraction(found.value_high)
        assert found.value_high - found.value_low < 1e-6
        safe = firsts <= chain.safe_from(model)
        assert safe == (found.violation_high == 0) == (found.violation_probability_high == 0) == found.holds
        if not target:
            harm = at_start(model, value_of(chain, target, discount, [violation[row] for row in policy.rows]))
            assert harm <= Fraction(found.violation_high) <= harm + Fraction(1, 10**6)
        verified = checked(found, path)
        assert verified.holds == found.holds, verified.reason
        for low, high in forged_bounds(found, rng):
            assert low <= value <= high
    for rows in policies(model):
        chain = Chain(model, rows, target)
        if firsts <= chain.safe_from(model):
            values.append(at_start(model, value_of(chain, target, discount, [reward[row] for row in rows])))
    assert (found.optimum_high is None) == (not values)
    if values:
        assert max(values) <= Fraction(found.optimum_high) <= max(values) + Fraction(1, 10**6)


@pytest.mark.parametrize(("discount", "target"), [(0.9, ()), (None, ()), (None, {0}), (None, {1})])
@seeds(6)
def test_bounds_hold_and_are_verified(seed, discount, target, tmp_path_factory):
    compared(seed, tmp_path_factory.mktemp("endless") / "certificate", discount, frozenset(target))


@pytest.mark.parametrize("discount", [1e-4, 0.99999])
def test_a_small_or_a_slowly_found_violation_is_confirmed(discount, tmp_path):
    """Where the policy may violate, bounds by a residual differ in their rounding."""
    for seed in range(20, 30):
        model = random_model(seed)
        policy = peakrl.Policy(model, np.array([model.rows_of_slot(slot)[-1] for slot in range(model.num_slots)]))
        found = peakrl.certify(model, policy, epsilon=1e6, discount=discount)
        verified = checked(found, tmp_path / "certificate")
        assert verified.holds == found.holds, verified.reason
        if found.violation_high:
            low = replace(found, violation_high=found.violation_high * 0.999)
            assert not checked(low, tmp_path / "certificate").holds


@pytest.mark.parametrize("criterion", [{"discount": 0.9}, {}, {"reach": {1}}])
def test_a_forged_certificate_is_refused(criterion, tmp_path):
    model = peakrl.compile_model(Machine())
    policy = peakrl.solve(model, **(criterion or {"average": True})).policy
    found = peakrl.certify(model, policy, epsilon=1e-6, **criterion)
    path = tmp_path / "certificate"
    assert found.holds
    assert checked(found, path).holds
    arrays = found.evidence.arrays
    risky = arrays["endless.rows"].copy()
    risky[:2] = 1, 3  # runs although it is warm
    assert not checked(found, path, rows=risky).holds or "reach" in criterion
    with pytest.raises(PeakError, match="called unsafe"):
        checked(found, path, kept=np.array([0, 1, 0], np.int32))
    assert not checked(replace(found, value_low=found.value_low + 1e-3, value_high=found.value_high + 1e-3), path).holds


@pytest.mark.parametrize("criterion", [{"discount": 0.9}, {}, {"reach": {1}}])
def test_huge_numbers_in_a_proof_do_not_widen_the_tolerance(criterion, tmp_path):
    model = peakrl.compile_model(Machine())
    found = peakrl.certify(model, peakrl.solve(model, **(criterion or {"average": True})).policy, **criterion)
    false = replace(found, value_low=found.value_low + 1.0, value_high=found.value_high + 1.0, gap=found.gap - 1.0)
    huge = found.evidence.arrays["endless.high"] + 1e300
    assert not checked(false, tmp_path / "certificate", high=huge).holds


def test_a_walk_that_never_arrives_is_not_certain_to():
    """A probability of 1 everywhere never changes from step to step, and is no lower bound."""
    model = peakrl.TabularModel.from_arrays([[[1, 0], [0, 1]], [[0, 1], [0, 1]]], [[0, 0], [0, 0]], [], None)
    found = peakrl.certify(model, peakrl.Policy(model, np.array([0, 2])), reach={1})
    arrays = found.evidence.arrays | {"endless.low": np.array([[-1.0, -1.0], [0.0, 0.0]])}
    numbers = verify_endless.check(read_model(found.evidence.plain["model"], arrays), found.evidence.plain, arrays)[0]
    assert numbers["value_low"] == found.value_low == 0.0
    assert found.optimum_high == 1.0


def test_what_is_lost_at_every_step_adds_up(tmp_path):
    """A gain that grows by 2^-55 a step is no upper bound, though no computed expectation shows it."""
    chances = [[[1, 0], [1, 0]], [[0, 1], [2.0**-54, 1 - 2.0**-53]]]
    model = peakrl.TabularModel.from_arrays(
        chances, [[1, 1], [0, 0]], [[[1, 1], [1, -1]]], None, initial=[0, 1], available=[[1, 0], [1, 1]]
    )
    found = peakrl.certify(model, peakrl.Policy(model, np.array([0, 1])))
    assert found.value_high < 1e-9
    forged = {"rows": np.array([0, 2], np.int32), "high": np.array([[1.0, 0.5], [0.0, 0.0]])}
    with pytest.raises(PeakError, match="increases the gain"):
        checked(found, tmp_path / "certificate", **forged)


def test_what_cannot_be_certified_is_named():
    model = peakrl.compile_model(Machine())
    policy = peakrl.solve(model, discount=0.9).policy
    with pytest.raises(PeakError, match="without episodes="):
        peakrl.certify(model, policy, episodes=5)
    finite = model.with_horizon(5)
    with pytest.raises(PeakError, match="horizon 5"):
        peakrl.certify(finite, peakrl.solve(finite).policy, discount=0.9)
    with pytest.raises(PeakError, match=r"certify its average on model.with_horizon\(None\)"):
        peakrl.certify(finite, policy)
    both = [peakrl.certify(one, policy, discount=0.9).value_low for one in (finite, model)]
    assert both[0] == both[1]


def test_a_policy_of_an_environment_is_certified_on_its_table_with_what_it_does_in_unknown_states(tmp_path):
    chances = np.zeros((4, 2, 4))  # from 0 to 1 or 2, hardly ever to 3, from there back
    chances[0], chances[1:, :, 0] = [0.0, 0.5, 0.5 - 1e-6, 1e-6], 1.0
    rewards = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])
    table = peakrl.TabularModel.from_arrays(chances, rewards, [np.ones((4, 2))], None)
    run = peakrl.learn(peakrl.to_gymnasium(table), "SafeQ", episodes=50, discount=0.9)
    certificate = peakrl.certify(table, run.policy, discount=0.9)
    lost = certificate.optimum_high - certificate.value_low
    assert lost == pytest.approx(0.9 * 2e-6 / (1 - 0.9**2), rel=1e-3)  # what 3 earns and could
    assert certificate.rests_on[-1].endswith("the policy takes the first available action")
    certificate.save(tmp_path / "certificate")
    assert certificate.rests_on[-1] in peakrl.verify(tmp_path / "certificate").rests_on
    everywhere = peakrl.TabularModel.from_arrays(
        chances, rewards, [np.ones((4, 2))], None, initial=[0.7, 0.1, 0.1, 0.1]
    )
    whole = peakrl.learn(peakrl.to_gymnasium(everywhere), "SafeQ", episodes=99, discount=0.9)
    assert "first available" not in "".join(peakrl.certify(everywhere, whole.policy, discount=0.9).rests_on)


def test_a_policy_with_a_horizon_that_was_learned_on_an_environment_has_no_certificate_without_an_end():
    def dry(transition):
        return -1.0 if transition.terminated and not transition.reward else 1.0

    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    env = peakrl.ConstrainedEnv(lake, horizon=8, reward_range=(0, 1), constraint=dry)
    policy, table = peakrl.learn(env, episodes=50).policy, peakrl.compile_model(peakrl.from_gymnasium(env))
    for endless in (table, table.with_horizon(None)):
        with pytest.raises(PolicyError, match="the policy has horizon 8"):
            peakrl.certify(endless, policy, discount=0.9)
