"""Certificates altered by somebody who knows their format: each is refused, or means what it meant before."""

from __future__ import annotations

import copy
import dataclasses
from functools import cache

import numpy as np
import pytest

import peakrl
from helpers import certified_problems as problems
from helpers.certified_policies import policies
from helpers.machine import Machine
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.recorded_logs import logs_of, record
from peakrl import Assumptions, compile_model, learn
from peakrl.certificates import verify_learned
from peakrl.certificates.certificate import CERTIFICATE, Certificate, Evidence
from peakrl.certificates.verify import MODEL, UNCHECKED, digest_of, verify
from peakrl.errors import PeakError
from peakrl.learners import Certified
from peakrl.learners.certified import evidence as learned_evidence
from peakrl.records import Record

NUMBERS = (
    "value_low", "value_high", "optimum_high", "gap", "violation_high", "violation_probability_high",
    "failure_probability", "episodes",
)  # fmt: skip
#: What a forger writes in place of a number.
OTHERS = (0, 1, -1, 2, 0.5, 1e-300, 5e-324, 1e300, -0.0, 10**9, 2**70, True, None, "1", [])


def learned(target, share, **declared):
    epsilon = problems.share_of_best(getattr(target, "model", target), share)
    known = Assumptions(**declared) if declared else None
    run = learn(target, Certified(epsilon), episodes=60_000, assumptions=known, history="none", average=False)
    return run.certificate


@cache
def honest() -> tuple[Certificate, ...]:
    """Certificates of every kind that hold."""
    problem, tie = random_problem(3, states=3, actions=2, horizon=3, safe_action=True), problems.near_tie()
    exact = [peakrl.certify(problem, policy, epsilon=9.0) for policy in policies(problem, 3)]
    model, rule = compile_model(problem), peakrl.solve(problem).policy
    sampled = [
        peakrl.certify(model, rule, episodes=80, seed=1, epsilon=20.0),
        peakrl.certify(ModelEnvironment(tie, 1), lambda step, state, actions: 0, episodes=80, seed=1),
    ]
    catastrophe, whole = problems.rare_catastrophe(), np.array([[4.0, 1.0], [2.0, 3.0]])
    steady = peakrl.TabularModel.from_arrays(
        np.eye(2)[[[1, 1], [0, 0]]], whole, np.ones((1, 2, 2)), 3, reward_range=(0, 4)
    )
    found = [
        learned(tie, 0.5),
        learned(ModelEnvironment(tie, 1), 0.5),
        learned(ModelEnvironment(tie, 1), 0.8, states=2**21),
        learned(compile_model(problems.Lottery()), 0.5),
        learned(catastrophe, 0.5, support=catastrophe),
        learned(steady, 0.0, deterministic=True),
    ]
    machine, logs = compile_model(Machine()), logs_of(tie, record(tie, 300, np.random.default_rng(0)))
    endless = peakrl.certify(machine, peakrl.solve(machine, discount=0.9).policy, epsilon=1e-6, discount=0.9)
    logged = [
        learn(logs, assumptions=Assumptions(stationary=True), history="none").certificate,
        peakrl.evaluate(logs, peakrl.solve(tie).policy),
    ]
    every = (*exact, *sampled, *found, endless, *logged)
    assert all(one.holds for one in every)
    return every


def mutated(path, certificate: Certificate, rng) -> str:
    """Write a file with one to three things altered and, mostly, with the digests and totals of it; say what was."""
    plain, arrays = copy.deepcopy(dict(certificate.evidence.plain)), dict(certificate.evidence.arrays)
    said, altered = {}, []
    for _ in range(int(rng.integers(1, 4))):
        part = int(rng.integers(5))
        if part == 0:
            name = str(rng.choice([*NUMBERS, "epsilon"]))
            said[name] = other(getattr(certificate, name), rng)
        elif part == 1:
            holder = plain if "model" not in plain or rng.random() < 0.5 else plain["model"]
            name = str(rng.choice([name for name in holder if name not in ("model", "policy", "digest")]))
            holder[name] = other(holder[name], rng)
        elif part == 2 and len(arrays) > 1:
            name = move_bytes(arrays, rng)
        else:
            name = str(rng.choice(sorted(arrays)))
            arrays[name] = other_array(arrays[name], rng)
        altered.append(name)
    if rng.random() < 0.7:
        correct(plain, arrays)
    CERTIFICATE.write(path, Record({"certificate": certificate.as_dict() | said, "evidence": plain}, arrays))
    return ", ".join(altered)


def other(value, rng):
    if isinstance(value, bool):
        return not value
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        return [*value[:place], other(value[place], rng), *value[place + 1 :]]
    if isinstance(value, int | float) and rng.random() < 0.7:
        change = (
            int(rng.choice([-1, 1, 2, 1000])) if isinstance(value, int) else value * rng.choice([-1, 1e-3, 0.5, 1e-6])
        )
        return type(value)(value + change)
    return OTHERS[int(rng.integers(len(OTHERS)))]


def other_array(array, rng):
    kind = rng.integers(8)
    if array.size and kind < 5:
        array, place = array.copy(), int(rng.integers(array.size))
        number = array.flat[place]
        with np.errstate(all="ignore"):
            numbers = [0, 1, -1, number + 1, number - 1, number * 2, array.flat[rng.integers(array.size)], 10**9]
            numbers += [number * 1.01, number + 0.3, np.nan, np.inf, 1e-300] if array.dtype.kind == "f" else []
            array.flat[place] = np.asarray(numbers[rng.integers(len(numbers))]).astype(array.dtype)
        return array
    if kind == 5:
        with np.errstate(all="ignore"):
            return array.astype(rng.choice([np.int8, np.int32, np.int64, np.float32, np.float64]))
    return array[:-1].copy() if kind == 6 and array.ndim else np.concatenate([array, array[-1:]])


def move_bytes(arrays, rng):
    """Move the last number of an array to the begin of another of the same type."""
    one, two = (str(name) for name in rng.choice(sorted(arrays), 2))
    if arrays[one].dtype == arrays[two].dtype and arrays[one].ndim == arrays[two].ndim == 1 and arrays[one].size:
        arrays[one], arrays[two] = arrays[one][:-1], np.append(arrays[one][-1:], arrays[two])
    return f"{one} to {two}"


def correct(plain, arrays):
    """Write the digests and totals that belong to altered arrays."""
    try:
        if "model" in plain:
            m = dataclasses.make_dataclass("m", [])()
            for name in MODEL:
                setattr(m, name, arrays[f"model.{name}"])
            m.stride = plain["model"]["stride"]
            plain["model"]["digest"] = digest_of(m, plain["model"])
        if "candidate" in arrays:
            plain["candidate_digest"] = learned_evidence.digest_of(arrays["candidate"])
            for name, counts in (("samples", "cell_count"), ("then_samples", "then_count")):
                arrays[name] = np.add.reduceat(arrays[counts], arrays["cell_start"]).astype(np.int64)
    except (TypeError, ValueError, IndexError):
        return


def unchanged(one, two, scale):
    return one == two or (None not in (one, two) and abs(one - two) <= 1e-8 * max(scale, abs(one)))


@pytest.mark.parametrize(("seed", "count"), [(0, 60), pytest.param(1, 10_000, marks=pytest.mark.slow)])
def test_an_altered_certificate_is_refused_or_means_the_same(seed, count, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    rng, path, wrong = np.random.default_rng(seed), tmp_path / "forged", []
    for number in range(count):
        original = honest()[number % len(honest())]
        try:
            where = mutated(path, original, rng)
            found = verify(path)
        except PeakError:
            continue
        scale = abs(original.value_high or original.optimum_high)
        # Where nothing is random, every failure probability is true.
        exact = original.evidence.plain.get("deterministic", False)
        names = NUMBERS if not exact else [name for name in NUMBERS if name != "failure_probability"]
        same = all(unchanged(getattr(found, name), getattr(original, name), scale) for name in names)
        if found.holds and not (same and (found.epsilon is None or found.gap <= found.epsilon)):
            wrong.append((original.kind, number, where))
    assert not wrong, wrong


def test_what_is_not_altered_is_confirmed_and_says_once_what_cannot_be_checked(tmp_path):
    for certificate in honest():
        certificate.save(tmp_path / "kept")
        found = verify(tmp_path / "kept")
        assert found.holds, found.reason
        assert found.rests_on == (*certificate.rests_on, UNCHECKED[found.kind])


def forged_learned(tmp_path, arrays=(), said=(), **plain):
    """The verdict on a learned certificate with altered evidence."""
    certificate = honest()[6]
    evidence = Evidence({**certificate.evidence.plain, **plain}, {**certificate.evidence.arrays, **dict(arrays)})
    dataclasses.replace(certificate, evidence=evidence, **dict(said)).save(tmp_path / "forged")
    return verify(tmp_path / "forged")


@pytest.mark.parametrize(
    ("weights", "says"),
    [([1.0, 0.3], "probabilities are invalid"), ([0.5, 0.4], "probabilities are"), ([0.5, 0.5], "several actions")],
)
def test_a_policy_on_a_log_takes_one_action_in_a_state_unless_it_says_so(weights, says, tmp_path):
    """Weights that sum to more earn more, and several actions need bounds of their own; all numbers are made to fit."""
    certificate = honest()[-1]
    arrays = dict(certificate.evidence.arrays)
    size = np.diff(arrays["row_start"])
    (slot,) = np.flatnonzero(size == 2)[:1]
    row = arrays["row_start"][slot]
    arrays["weights"] = arrays["weights"].copy()
    arrays["weights"][row : row + 2] = weights
    with pytest.raises(PeakError, match=says):
        fitting(certificate, arrays, tmp_path / "forged")


def fitting(certificate, arrays, path):
    """The verdict on altered arrays with the numbers that a check without this one gives."""
    forged = dataclasses.replace(certificate, evidence=Evidence(certificate.evidence.plain, arrays))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify_learned, "require", lambda *_: None)
        numbers = verify_learned.check(forged, forged.evidence.plain, arrays)[0]
    dataclasses.replace(forged, **numbers).save(path)
    return verify(path)


def test_a_horizon_without_end_takes_neither_time_nor_memory(tmp_path):
    """With the digest that belongs to it: all arrays of a stationary model are the same."""
    certificate = honest()[4]
    plain = copy.deepcopy(dict(certificate.evidence.plain))
    plain["model"]["horizon"] = 10**12
    correct(plain, certificate.evidence.arrays)
    dataclasses.replace(certificate, evidence=Evidence(plain, certificate.evidence.arrays)).save(tmp_path / "forged")
    with pytest.raises(PeakError, match="no horizon"):
        verify(tmp_path / "forged")


def test_a_discounted_policy_takes_actions_of_its_own_states(tmp_path):
    certificate = honest()[12]
    arrays = certificate.evidence.arrays
    swapped = arrays | {"endless.rows": arrays["endless.rows"][::-1].copy()}
    forged = dataclasses.replace(certificate, evidence=Evidence(certificate.evidence.plain, swapped))
    forged.save(tmp_path / "forged")
    with pytest.raises(PeakError, match="not an action"):
        verify(tmp_path / "forged")


#: By the number of an honest certificate: plain values that cannot be.
IMPOSSIBLE = [
    (6, {"max_reward": 1e301}, "a number is not finite"),
    (6, {"states": 3}, "a model has no declared number"),
    (6, {"actions": 2}, "states and actions come together"),
    (7, {"states": 0}, "no states"),
    (7, {"states": 1}, "more states than declared"),
    (7, {"actions": 1}, "more actions than declared"),
    (6, {"shared": True}, "only environments declare"),
    (9, {"deterministic": True, "declared": {"deterministic": True}}, "and yet rewards depend"),
    (8, {"noises": 1}, "noises explain neither"),
    (6, {"top": -0.5}, "the largest gap is negative"),
    (6, {"attempts": 5, "policies": 0}, "attempts without a policy"),
    (9, {"top": 0.001}, "a gap exceeds"),
    (9, {"top": 100.0}, "a gap is larger than any value"),
    (6, {"constraint_bounds": [-1.0]}, "not above 0"),
    (6, {"horizon": 0}, "out of range"),
    (6, {"epsilon": -1.0}, "out of range"),
    (12, {"discount": 1.5}, "the discount is 1.5"),
    (14, {"horizon": 10**12}, "fewer states than ends"),
    (13, {"given": 1}, "neither true nor false"),
    (13, {"several": 1}, "neither true nor false"),
    (13, {"missing": -1}, "not whole"),
]


@pytest.mark.parametrize(("number", "plain", "says"), IMPOSSIBLE)
def test_plain_values_that_cannot_be_are_named(number, plain, says, tmp_path):
    certificate = honest()[number]
    forged = Evidence({**certificate.evidence.plain, **plain}, certificate.evidence.arrays)
    dataclasses.replace(certificate, evidence=forged).save(tmp_path / "forged")
    with pytest.raises(PeakError, match=says):
        verify(tmp_path / "forged")


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"policies": 1e-300}, "not whole"),
        ({"attempts": -1}, "not whole"),
        ({"certain": 1}, "neither true nor false"),
        ({"reward_range": [0.0, 0.5], "max_reward": 0.5}, "outside of its range"),
        ({"violated": 10**9}, "more violations"),
        ({"candidate_digest": "0" * 32}, "another policy"),
        ({"violated": 1}, "violated where it cannot"),
        ({"max_reward": 0.5, "declared": {"max_reward": 0.5}}, "above the largest one"),
        ({"reward_range": [0.0, 2.0]}, "max_reward is not declared"),
        ({"declared": {"luck": True}}, "declaration is unknown"),
    ],
)
def test_evidence_that_contradicts_itself_is_refused(plain, says, tmp_path):
    with pytest.raises(PeakError, match=says):
        forged_learned(tmp_path, **plain)


def test_steps_that_a_model_does_not_have_are_refused(tmp_path):
    """If states belong to steps, nothing else in the file depends on their number."""
    certificate = learned(compile_model(peakrl.problems.scheduling_example(1)), 0.5, deterministic=True)
    forged = Evidence({**certificate.evidence.plain, "horizon": 200}, certificate.evidence.arrays)
    dataclasses.replace(certificate, evidence=forged).save(tmp_path / "forged")
    with pytest.raises(PeakError, match="a step has no states"):
        verify(tmp_path / "forged")


def test_more_samples_than_episodes_have_steps_are_refused(tmp_path):
    arrays = honest()[6].evidence.arrays
    counts = arrays["cell_count"].copy()
    counts[0] += 10**9
    samples = np.add.reduceat(counts, arrays["cell_start"])
    with pytest.raises(PeakError, match="more samples than steps"):
        forged_learned(tmp_path, {"cell_count": counts, "samples": samples})


def test_what_a_certificate_rests_on_is_written_from_its_evidence_not_copied(tmp_path):
    found = forged_learned(tmp_path, said={"rests_on": ("nothing at all",)})
    assert found.holds
    assert "nothing at all" not in found.rests_on
    assert any("episodes are independent" in line for line in found.rests_on)


def test_the_bytes_of_a_model_in_other_arrays_are_another_model(tmp_path):
    """Constraints that are stored as one axis more of something else keep their bytes, not their meaning."""
    certificate = honest()[0]
    arrays = dict(certificate.evidence.arrays)
    for name, shape in (("model.constraints", (-1,)), ("model.reward", (-1, 1)), ("model.row_start", (1, -1))):
        forged = Evidence(certificate.evidence.plain, {**arrays, name: arrays[name].reshape(shape)})
        dataclasses.replace(certificate, evidence=forged).save(tmp_path / "forged")
        with pytest.raises(PeakError, match=name.removeprefix("model.")):
            verify(tmp_path / "forged")


def test_the_first_line_of_an_exact_certificate_says_for_which_model():
    assert str(honest()[0]).splitlines()[0].startswith("Certificate (exact for the given model) holds")


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 9e-13, 1.0, 1e16])
def test_an_exact_certificate_is_confirmed_and_exact_in_every_unit(unit, tmp_path):
    """Two states, half each; the worse action earns 0 instead of 3 units in one of them."""
    rewards = np.array([[3.0, 0.0], [5.0, 5.0]]) * unit
    model = peakrl.TabularModel.from_arrays(np.full((2, 2, 2), 0.5), rewards, np.ones((1, 2, 2)), 3)
    best = peakrl.solve(model).policy
    worse = peakrl.Policy.from_rule(model, lambda step, state: int(step == 2))
    for policy, holds in ((best, True), (worse, unit == 5e-324)):  # 5e-324 is the unit of rounding
        certificate = peakrl.certify(model, policy, epsilon=0.0)
        assert certificate.holds == holds
        certificate.save(tmp_path / "kept")
        assert verify(tmp_path / "kept").holds == holds


def test_what_a_violation_pays_does_not_hide_the_gap_of_a_policy_that_never_violates(tmp_path):
    model = peakrl.TabularModel.from_arrays(np.ones((1, 3, 1)), [[1.0, 0.5, 1e16]], [[[1.0, 1.0, -1.0]]], 1)
    certificate = peakrl.certify(model, peakrl.Policy.from_rule(model, lambda step, state: 1), epsilon=0.0)
    certificate.save(tmp_path / "kept")
    assert (certificate.holds, certificate.gap) == (False, 0.5)
    assert not verify(tmp_path / "kept").holds


@pytest.mark.parametrize("kind", ["exact", "sampled", "learned"])
def test_a_certificate_names_the_tolerances_of_its_model(kind, tmp_path):
    """Action 1 earns more and falls short of its constraint by 1e-6, which is declared to be satisfied."""
    model = peakrl.TabularModel.from_arrays(
        np.ones((1, 2, 1)), [[0.0, 1.0]], [[[1.0, -1e-6]]], 1, constraint_tolerances=[1e-5]
    )
    model.save(tmp_path / "model")
    model = peakrl.with_monitor(peakrl.load(tmp_path / "model"), peakrl.Monitor(0, lambda *_: 0, ()))
    policy = peakrl.Policy.from_rule(model, lambda step, state: 1)
    certificate = {
        "exact": lambda: peakrl.certify(model, policy),
        "sampled": lambda: peakrl.certify(model, policy, episodes=10),
        "learned": lambda: learn(model, Certified(2.0), episodes=10).certificate,
    }[kind]()
    certificate.save(tmp_path / "kept")
    for found in (certificate, verify(tmp_path / "kept")):
        assert any(line.startswith("a constraint counts as satisfied down to 1e-05") for line in found.rests_on)


def test_values_that_cannot_be_recomputed_to_epsilon_are_not_confirmed(tmp_path):
    """Rewards up to 1e12 are declared, but none above 1: two computations may differ by more than epsilon."""
    model = peakrl.TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.0, 1.0]], [], 1, reward_range=(0, 1e12))
    run = learn(model, Certified(2.0), episodes=300, assumptions=Assumptions(max_reward=1.0))
    assert run.certificate.holds
    dataclasses.replace(run.certificate, gap=0.01, holds=True).save(tmp_path / "kept")
    assert "can only be recomputed to" in verify(tmp_path / "kept").reason


@pytest.mark.parametrize(("unit", "refused"), [(1e-149, False), (1e-160, True), (5e-324, True)])
def test_rewards_too_small_to_be_squared_are_refused_before_the_first_episode(unit, refused, tmp_path):
    rewards = np.array([[3.0, 0.0], [5.0, 4.0]]) * unit
    model = peakrl.TabularModel.from_arrays(np.full((2, 2, 2), 0.5), rewards, np.ones((1, 2, 2)), 5)
    if refused:
        with pytest.raises(PeakError, match="too small for bounds: use another unit"):
            learn(model, Certified(2 * unit), episodes=1)
        return
    certificate = learn(model, Certified(2 * unit), episodes=2000).certificate
    certificate.save(tmp_path / "kept")
    assert certificate.holds
    assert verify(tmp_path / "kept").holds


def test_of_several_epsilons_a_certificate_is_for_the_smallest_one_that_is_reached(tmp_path):
    certificate = learn(problems.near_tie(), Certified((1e6, 1e-9)), episodes=300).certificate
    certificate.save(tmp_path / "kept")
    assert (certificate.holds, certificate.epsilon) == (True, 1e6)
    assert verify(tmp_path / "kept").holds
