"""Certificates of discounted policies without an end, against fractions, and forged ones."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import peakrl
from helpers.machine import Machine
from helpers.seeds import seeds
from naive.stationary import Chain, at_start, policies
from peakrl.errors import PeakError
from planning.test_without_an_end import exact, random_model


def checked(certificate, path, **changed):
    """Save a certificate, with other arrays or numbers, and verify it."""
    arrays = {**certificate.evidence.arrays, **{f"endless.{name}": array for name, array in changed.items()}}
    replace(certificate, evidence=replace(certificate.evidence, arrays=arrays)).save(path)
    return peakrl.verify(path)


@seeds(10)
def test_bounds_hold_and_are_verified(seed, tmp_path_factory):
    model = random_model(seed)
    rng = np.random.default_rng(seed)
    best = peakrl.solve(model, discount=0.9)
    drawn = peakrl.Policy(model, np.array([rng.choice(model.rows_of_slot(slot)) for slot in range(model.num_slots)]))
    reward, violation = exact(model.row_reward), exact(model.row_violation.sum(axis=1))
    for policy in (best.policy, drawn):
        found = peakrl.certify(model, policy, discount=0.9)
        chain = Chain(model, policy.rows.tolist())
        value = at_start(model, chain.discounted([reward[row] for row in policy.rows], Fraction(0.9)))
        harm = at_start(model, chain.discounted([violation[row] for row in policy.rows], Fraction(0.9)))
        assert Fraction(found.value_low) <= value <= Fraction(found.value_high)
        assert found.value_high - found.value_low < 1e-6
        assert harm <= Fraction(found.violation_high)
        assert (found.violation_high == 0) == (harm == 0) == (found.violation_probability_high == 0) == found.holds
        verified = checked(found, tmp_path_factory.mktemp("endless") / "certificate")
        assert verified.holds == found.holds, verified.reason
    values = []
    for rows in policies(model):
        chain = Chain(model, rows)
        if set(model.first_slot.tolist()) <= chain.safe_from(model):
            values.append(at_start(model, chain.discounted([reward[row] for row in rows], Fraction(0.9))))
    assert (found.optimum_high is None) == (not values)
    if values:
        assert max(values) <= Fraction(found.optimum_high)


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


def test_a_forged_certificate_is_refused(tmp_path):
    model = peakrl.compile_model(Machine())
    policy = peakrl.solve(model, discount=0.9).policy
    found = peakrl.certify(model, policy, epsilon=1e-6, discount=0.9)
    path = tmp_path / "certificate"
    assert found.holds
    assert checked(found, path).holds
    arrays = found.evidence.arrays
    for name in ("values", "best"):
        wrong = arrays[f"endless.{name}"] + np.array([0.1, 0.0, 0.0])
        assert not checked(found, path, **{name: wrong}).holds
    risky = arrays["endless.rows"].copy()
    risky[1] = 3  # runs although it is warm
    assert not checked(found, path, rows=risky).holds
    with pytest.raises(PeakError, match="called unsafe"):
        checked(found, path, kept=np.array([2**31 - 1, 1, 0], np.int32) * np.array([0, 1, 1], np.int32))
    assert not checked(replace(found, value_low=found.value_low + 1e-3, value_high=found.value_high + 1e-3), path).holds
    with pytest.raises(PeakError, match="discount="):
        peakrl.certify(model, policy)
