"""Slips that are easily made, and what is said about them."""

import pytest

import peakrl
from helpers.random_problems import random_problem
from peakrl import PeakError
from peakrl.errors import PolicyError

MODEL = peakrl.compile_model(random_problem(1))
POLICY = peakrl.solve(MODEL).policy


SLIPS = [
    (
        lambda: peakrl.learn(MODEL, 1000, episodes=10),
        r"learner is 1000; it must be settings such as peakrl\.learners\.",
    ),
    (
        lambda: peakrl.learn(MODEL, "posterior", episodes=10),
        "learner is 'posterior'; it must be one of PosteriorSampling, SafeQ, Certified, ",
    ),
    (lambda: peakrl.learn(MODEL, "ConstrainedQ", episodes=10), "ConstrainedQ needs slack: give slack="),
    (lambda: peakrl.learn_many(MODEL, "certified", 10), "Certified needs epsilon: give epsilon="),
    (
        lambda: peakrl.learn(MODEL, episodes=10, history="all"),
        r"history is 'all'; it must be .*, .auto., .sampled. or .none.",
    ),
    (lambda: peakrl.learners.ConstrainedQ(), "ConstrainedQ needs slack: give slack="),
    (lambda: peakrl.learners.find_learner("Nobody"), "learner is 'Nobody'; it must be one of"),
    (lambda: peakrl.learners.ConstrainedQ(slack=1, foo=2), "foo is not a setting of ConstrainedQ"),
    (lambda: peakrl.theory.audit_slack(MODEL, 0), "slack is 0: give a penalty as well"),
    (lambda: peakrl.evaluate(POLICY, MODEL), "the problem comes first, then the policy"),
    (lambda: POLICY.action("0", 0), "step '0' is outside"),
    (lambda: peakrl.Policy.from_rule(MODEL, {0: 1}), r"\{0: 1\} is not a rule"),
    (lambda: peakrl.to_gymnasium(3), r"3 is not a Problem: it has no method initial\(\)"),
    (
        lambda: peakrl.simulate(peakrl.to_gymnasium(MODEL), 5, episodes=3),
        r"5 is neither a policy, such as run\.policy, nor a function",
    ),
]


def test_a_slip_is_named_with_what_would_be_right():
    for slip, message in SLIPS:
        with pytest.raises(PeakError, match=message):
            slip()


def test_an_error_in_a_rule_tells_where_it_was_asked():
    with pytest.raises(ZeroDivisionError) as caught:
        peakrl.Policy.from_rule(MODEL, lambda step, state: 1 // 0)
    assert caught.value.__notes__[0].startswith("the rule raised this for step 0, state ")


def test_a_policy_of_another_model_is_named_in_a_line():
    with pytest.raises(
        PolicyError, match=r"^the policy belongs to <TabularModel 'random': .*, not to <TabularModel"
    ) as e:
        peakrl.evaluate(random_problem(2), POLICY)
    assert "\n" not in str(e.value)
