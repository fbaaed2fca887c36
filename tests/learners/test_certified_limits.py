"""The certified learner with declared supports and constraints: never a violation, and a certificate that says so."""

from __future__ import annotations

import numpy as np
import pytest

from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from peakrl import Assumptions, TabularModel, evaluate, learn, resume, solve
from peakrl.certificates.verify import verify
from peakrl.learners import Certified

MODEL = problems.rare_catastrophe()
#: The same possible outcomes, with other probabilities.
SUPPORT = problems.rare_catastrophe(0.6)


def constraint(step, state, action):
    return -1.0 if state == 1 else 1.0


def target(on, seed=0):
    return MODEL if on == "model" else ModelEnvironment(MODEL, seed)


def certified(on, assumptions, epsilon=0.2, **given):
    settings = Certified(problems.share_of_best(MODEL, epsilon))
    return learn(target(on), settings, episodes=20_000, assumptions=assumptions, **given)


@pytest.mark.parametrize("on", ["model", "environment"])
def test_with_a_support_it_certifies_without_one_violation(on, tmp_path):
    run = certified(on, Assumptions(support=SUPPORT))
    certificate, best = run.certificate, solve(MODEL)
    assert run.violations == 0
    assert run.stop_reason == "certified"
    assert certificate.violation_high == certificate.violation_probability_high == 0
    assert any("declared" in line and "support" in line for line in certificate.rests_on)
    if on == "model":
        assert evaluate(MODEL, run.averaged_policy).violation_probability == 0
        assert best.value - evaluate(MODEL, run.policy).value <= certificate.gap <= certificate.epsilon
    certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


@pytest.mark.parametrize("on", ["model", "environment"])
def test_declared_constraints_are_known_before_they_are_tried(on, tmp_path):
    run = certified(on, Assumptions(constraints=constraint))
    assert run.stop_reason == "certified"
    # The trap itself is not known: whoever falls into it violates, once it is learned never again.
    assert run.violations <= certified(on, None).violations
    assert any("the constraints of each" in line for line in run.certificate.rests_on)
    run.certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


@pytest.mark.parametrize("on", ["model", "environment"])
def test_a_run_cut_and_resumed_is_the_same_bit_for_bit(on, tmp_path):
    declared, path = Assumptions(support=SUPPORT), tmp_path / "run"
    settings = Certified(0.05, relative=True)
    make = target if on == "model" else lambda on, seed=0: Cut(MODEL)
    whole = learn(make(on), settings, episodes=600, assumptions=declared, history=20)
    learn(make(on), settings, episodes=230, assumptions=declared, history=20).save(path)
    more = {} if on == "model" else {"env": make(on)}
    again = resume(path, episodes=600, assumptions=declared, **more)
    assert again.certificate == whole.certificate
    assert again.q.tobytes() == whole.q.tobytes()
    assert np.array_equal(again.averaged_policy.change_row, whole.averaged_policy.change_row)


class Cut(ModelEnvironment):
    """Draws again in every episode, from its seed: a resumed run sees what an uninterrupted one does."""

    def __init__(self, model: TabularModel) -> None:
        super().__init__(model, 0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.walk = type(self.walk)(self.model, seed)
        return super().reset(seed=seed, options=options)
