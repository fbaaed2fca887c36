"""Wherever a model is taken a problem will do, and what is neither is named."""

import numpy as np
import pytest

import peakrl
from helpers.random_problems import random_problem
from peakrl import PeakError
from peakrl.errors import PolicyError, SettingsError


class Duck:
    """Offers what a problem offers without being one by name."""

    horizon = 2

    def initial(self):
        return [(1.0, 0)]

    def actions(self, step, state):
        return (0, 1)

    def outcomes(self, step, state, action):
        return [(1.0, state + action, float(action))]


PROBLEM = random_problem(3, safe_action=True, constraints=2)
SETTINGS = peakrl.learners.ConstrainedQ.published(0.5)


def test_a_problem_gives_what_its_model_gives():
    for numbers in [
        lambda target: peakrl.solve(target).value,
        lambda target: peakrl.theory.solve_modified(target, 0.1).value,
        lambda target: peakrl.theory.solve_relaxed(target, 0.1).value,
        lambda target: peakrl.theory.audit_slack(target, 0.1).as_dict(),
        lambda target: peakrl.learn(target, SETTINGS, episodes=50).history.value.tolist(),
        lambda target: [run.violations for run in peakrl.learn_many(target, SETTINGS, 20, seeds=[0, 1])],
        lambda target: [run.violations for run in peakrl.learn_many([target, target], SETTINGS, 20)],
    ]:
        assert numbers(PROBLEM) == numbers(peakrl.compile_model(PROBLEM))


def test_policies_made_for_a_problem_are_evaluated_and_simulated_on_it_and_on_its_model():
    policy = peakrl.Policy.from_rule(PROBLEM, lambda step, state: 0)
    model = peakrl.compile_model(PROBLEM)
    assert peakrl.evaluate(PROBLEM, policy).value == peakrl.evaluate(model, policy).value
    once = [peakrl.simulate(target, policy, episodes=20).rewards for target in (PROBLEM, model)]
    np.testing.assert_array_equal(*once)


def test_a_policy_of_another_problem_is_refused():
    policy = peakrl.solve(random_problem(4)).policy
    with pytest.raises(PolicyError, match="the policy belongs to"):
        peakrl.evaluate(PROBLEM, policy)
    learned = peakrl.learn(peakrl.to_gymnasium(PROBLEM), episodes=2).policy
    with pytest.raises(PolicyError, match="`certify` takes it, by the labels"):
        peakrl.evaluate(PROBLEM, learned)


def test_a_problem_is_compiled_once_by_each_call(monkeypatch):
    asked = []
    monkeypatch.setattr(type(PROBLEM), "initial", lambda self: asked.append(1) or self.first)
    for call in (peakrl.solve, lambda p: peakrl.theory.audit_slack(p, 0.1), lambda p: peakrl.learn(p, episodes=5)):
        asked.clear()
        call(PROBLEM)
        assert len(asked) == 1


def test_what_offers_a_problems_methods_is_one():
    assert peakrl.solve(Duck()).value == 2.0
    assert peakrl.learn(Duck(), episodes=20).model.horizon == 2


def test_a_model_is_compiled_already():
    model = peakrl.compile_model(PROBLEM)
    assert peakrl.compile_model(model) is model


def test_learning_without_settings_is_posterior_sampling():
    run = peakrl.learn(PROBLEM, episodes=30)
    assert run.settings == peakrl.learners.PosteriorSampling()
    asked = peakrl.learn(PROBLEM, peakrl.learners.PosteriorSampling(), episodes=30)
    np.testing.assert_array_equal(run.policy.rows, asked.policy.rows)


def test_a_run_file_is_read_with_the_problem_in_place_of_its_model(tmp_path):
    run = peakrl.learn(PROBLEM, SETTINGS, episodes=10)
    run.save(tmp_path / "run")
    assert peakrl.load(tmp_path / "run", PROBLEM).episodes == 10
    assert peakrl.resume(tmp_path / "run", model=PROBLEM, episodes=15).episodes == 15


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: peakrl.solve(Duck), r"it is a class: pass an instance, Duck\(\.\.\.\)"),
        (lambda: peakrl.solve(3), "3 is neither a Problem nor a TabularModel"),
        (lambda: peakrl.solve(peakrl.to_gymnasium(Duck())), "does not reveal its model"),
        (lambda: peakrl.learn("mine.toml", episodes=5), "target is str; it must be a Problem"),
        (lambda: peakrl.learn_many([Duck(), 3], SETTINGS, 5), "models: number 1 is int"),
        (lambda: peakrl.simulate(3, peakrl.solve(Duck()).policy, episodes=5), "3 cannot be simulated"),
        (lambda: peakrl.evaluate(Duck(), peakrl.solve(Duck())), "is not a policy; pass its .policy"),
        (lambda: peakrl.evaluate(Duck(), peakrl.learn(Duck(), episodes=5)), "is not a policy; pass its .policy"),
        (lambda: peakrl.evaluate(Duck(), lambda step, state: 0), "make one with Policy.from_rule"),
    ],
)
def test_what_is_neither_is_named(call, message):
    with pytest.raises((PeakError, SettingsError), match=message):
        call()


def test_models_may_be_given_by_name():
    model = peakrl.compile_model(PROBLEM)
    policy = peakrl.solve(model).policy
    assert peakrl.evaluate(model=model, policy=policy).value == peakrl.solve(PROBLEM).value
    assert (
        peakrl.theory.audit_slack(model=model, slack=0.1).optimum.value
        == peakrl.theory.solve_relaxed(model=model, slack=0).value
    )
    assert peakrl.theory.solve_modified(model=model, slack=0.1, penalty=1.0).value is not None
    assert peakrl.Policy.from_rule(model=model, rule=lambda step, state: 0).deterministic
