"""Certificates of a learner that stops by itself: no single number that one rests on can be altered unnoticed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from peakrl import Assumptions, compile_model, learn
from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.certificates.verify import verify
from peakrl.errors import PeakError
from peakrl.learners import Certified
from peakrl.problems import energy_harvesting, scheduling_example

HARVESTING = energy_harvesting(horizon=4, battery=3, max_arrival=3, mean=1.5, std=1, peak_power=2)
TOLD = Assumptions(shared_transitions=True, constraint_depends_on="action", rewards=True)
MAPPED = Assumptions(
    dynamics=(lambda state, action, arrival: (min(3, sum(state) - action), arrival), (0, 1, 2, 3)), rewards=True
)
CATASTROPHE = problems.rare_catastrophe()
KINDS = {
    "model": lambda: (problems.near_tie(), None),
    "outcome-dependent": lambda: (compile_model(problems.Lottery()), None),
    "environment": lambda: (ModelEnvironment(problems.near_tie(), 1), None),
    "unknown states": lambda: (ModelEnvironment(CATASTROPHE, 1), Assumptions(states=2**21)),
    "declared": lambda: (compile_model(HARVESTING), TOLD),
    "map": lambda: (compile_model(HARVESTING), MAPPED),
    "support": lambda: (CATASTROPHE, Assumptions(support=CATASTROPHE)),
    "layered": lambda: (compile_model(scheduling_example(1)), None),
}
#: What every bound rests on: the samples, the returns, how p is shared, and what rewards and violations can be.
ARRAYS = ("cell_count", "then_count", "returns_count", "returns_index")
PLAIN = (
    "horizon",
    "policies",
    "max_reward",
    "epsilon",
    "noises",
    "states",
    "reward_range",
)
SAID = ("failure_probability", "value_low", "optimum_high", "gap", "epsilon", "episodes")


@cache
def issued(kind: str) -> Certificate:
    target, assumptions = KINDS[kind]()
    settings = Certified(problems.share_of_best(getattr(target, "model", target), 0.5))
    run = learn(target, settings, episodes=60_000, assumptions=assumptions, history="none", average=False)
    assert run.certificate is not None
    assert run.certificate.holds
    return run.certificate


def changed(number, rng):
    """Another number of the same kind, no smaller than it must be noticed."""
    if isinstance(number, int | np.integer):
        return int(number) + int(rng.choice([-1, 1, 7]))
    return float(number) + float(rng.choice([-1, 1])) * float(rng.uniform(0.001, 0.5)) * max(abs(float(number)), 0.1)


def altered(certificate: Certificate, rng) -> tuple[str, Certificate]:
    """Return where one number was altered, and the certificate with it."""
    evidence = certificate.evidence
    assert evidence is not None
    plain, arrays, said = dict(evidence.plain), dict(evidence.arrays), {}
    part = rng.integers(3)
    if part == 0:
        where = str(rng.choice([name for name in SAID if getattr(certificate, name) is not None]))
        said[where] = changed(getattr(certificate, where), rng)
    elif part == 1:
        where = str(rng.choice([name for name in PLAIN if plain[name] is not None]))
        if where == "reward_range":
            pair, end = list(plain[where]), int(rng.integers(2))
            pair[end] = changed(pair[end], rng)
            plain[where] = pair
        else:
            plain[where] = changed(plain[where], rng)
    else:
        where = str(rng.choice([name for name in ARRAYS if arrays[name].size]))
        array = arrays[where] = arrays[where].copy()
        used = np.flatnonzero(array) if array.any() else np.arange(array.size)
        place = int(rng.choice(used))
        array[place] = changed(array[place], rng)
    return where, Certificate(**{**certificate.__dict__, **said, "evidence": Evidence(plain, arrays)})


def test_what_is_not_altered_is_confirmed(tmp_path):
    for kind in KINDS:
        issued(kind).save(tmp_path / "kept")
        assert verify(tmp_path / "kept").holds


@pytest.mark.parametrize(("seed", "count"), [(0, 35), (1, 35), pytest.param(10_000, 10_000, marks=pytest.mark.slow)])
def test_no_altered_number_passes(seed, count, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    rng, path, accepted = np.random.default_rng(seed), tmp_path / "altered", []
    for number in range(count):
        kind = list(KINDS)[number % len(KINDS)]
        where, forged = altered(issued(kind), rng)
        forged.save(path)
        try:
            holds = verify(path).holds
        except PeakError:
            continue
        if holds:
            accepted.append((kind, where))
    assert accepted == []
