"""A policy that is declared to be safe: learners stay with it where nothing else is known to be, and never violate."""

import numpy as np
import pytest

import naive
import peakrl
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from helpers.shielded_environments import Corridor, CorridorProblem
from naive import safety as naive_safety
from peakrl import Assumptions, ConstrainedEnv, Outcome, Policy, compile_model, evaluate, learn, safe_set, solve
from peakrl.errors import SettingsError, TargetError
from peakrl.learners import Certified, ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.safety.safe_policy import SafePolicy
from peakrl.viability import kept_nodes

LEARNERS = {
    "posterior": PosteriorSampling(),
    "certified": Certified(1e-6),
    "practical": SafeQ(),
    "Algorithm 1": ConstrainedQ.published(0.1),
}
NEIGHBOURS = {
    "UCBVI": peakrl.learners.UCBVI(),
    "SUCBVI": peakrl.learners.SUCBVI(),
    "MaskedQ": peakrl.learners.MaskedQ(),
}
LEFT, STAY, RIGHT = range(3)
DECLARED = {"horizon": Corridor.horizon, "reward_range": (0, 5), "constraint_bounds": (1.0,)}


class Numbered(CorridorProblem):
    """The corridor as its environment has it: actions 0, 1, 2."""

    def actions(self, step, state):
        return range(3)

    def outcomes(self, step, state, action):
        return super().outcomes(step, state, ["left", "stay", "right"][action])


class Pessimist(Numbered):
    """A support with outcomes that never happen: whatever is done may slip, even staying."""

    name = "pessimist"

    def outcomes(self, step, state, action):
        slips = {LEFT: range(-2, 2), STAY: range(-2, 3), RIGHT: range(-1, 3)}[action]
        places = {min(max(state + slip, 0), 5) for slip in slips}
        for after in sorted(places):
            yield Outcome(1 / len(places), after, float(after), (-1.0 if after in (0, 5) else 1.0,))


def stays(step, place):
    """Safe wherever there is no pit: staying never slips."""
    return STAY if place not in (0, 5) else None


def pit(transition):
    return -1.0 if transition.info["fell"] else 1.0


# The kernels against their twins -----------------------------------------------------------------------------------


@seeds(20)
def test_what_a_policy_keeps_from_a_state_on_is_what_following_it_shows(seed):
    problem = random_problem(seed, states=4, actions=3, horizon=4)
    rng = np.random.default_rng(seed)
    points = naive.decision_points(problem)
    best = solve(problem).policy
    wanted = {
        at: best.action(*at) if rng.random() < 0.7 else next(iter(problem.actions(*at))) for at in points
    }  # mostly the optimum, so that some of it is safe
    policy = Policy.from_rule(problem, lambda step, state: wanted[step, state])
    kept = kept_nodes(policy.model.layout, policy.model.keeps, policy.rows)
    promise = SafePolicy(policy)
    for step, state in points:
        expected = naive_safety.keeps_all(problem, wanted, step, state)
        node = step * policy.model.node_stride + policy.model.slot_of(step, state)
        assert kept[node] == expected
        assert promise.action(step, state) == (wanted[step, state] if expected else None)


@seeds(20)
def test_what_a_promise_adds_to_the_safe_set_is_what_a_plain_recursion_finds(seed):
    problem = random_problem(seed, states=5, actions=3, horizon=4)
    rng = np.random.default_rng(seed)
    points = naive.decision_points(problem)
    chosen = {
        at: rng.choice([next(iter(problem.actions(*at))), -7]) for at in points if rng.random() < 0.3
    }  # -7: an action that the model does not offer
    wide = SafePolicy(lambda step, state: chosen.get((step, state))).widened(compile_model(problem))
    expected = naive_safety.safe_with_promises(problem, chosen)
    found = {(*point, action) for point in points for action in wide.actions(*reversed(point))}
    assert found == {entry for entry in expected if entry[2] != -7}
    assert found >= {entry for entry in naive.safe_entries(problem) if entry[:2] in set(points)}
    for point in points:
        assert wide.contains(*reversed(point)) == any(entry[:2] == point for entry in expected)


# Learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS)
def test_alone_it_is_followed_everywhere_and_nothing_violates(learner):
    problem = peakrl.problems.scheduling_example(2)
    best = solve(problem)
    run = learn(problem, LEARNERS[learner], episodes=100, assumptions=Assumptions(safe_policy=best.policy))
    assert run.violations == 0
    assert run.history.violation.max() == 0.0
    assert evaluate(problem, run.policy).value == pytest.approx(best.value, rel=1e-12)
    assert learn(problem, LEARNERS[learner], episodes=100).violations > 0


@pytest.mark.parametrize("learner", NEIGHBOURS)
def test_neighbours_follow_it_too(learner):
    best = solve(peakrl.problems.scheduling_example(1))
    known = Assumptions(safe_policy=best.policy)
    run = learn(best.policy.model, NEIGHBOURS[learner], episodes=30, assumptions=known)
    assert run.violations == 0
    assert evaluate(best.policy.model, run.policy).value == pytest.approx(best.value, rel=1e-12)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("on_environment", [False, True])
def test_with_a_support_too_wide_to_be_safe_learners_leave_the_policy_and_never_violate(learner, on_environment):
    assert not safe_set(Pessimist()).feasible
    known = Assumptions(support=Pessimist(), safe_policy=stays)
    if on_environment:
        run = learn(
            ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS[learner], episodes=300, assumptions=known
        )
        without = learn(ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS[learner], episodes=300)
    else:
        run = learn(Numbered(), LEARNERS[learner], episodes=300, assumptions=known)
        without = learn(Numbered(), LEARNERS[learner], episodes=300)
    assert run.violations == 0
    assert without.violations > 0
    found = {run.policy.action(step, place) for step in range(8) for place in run.policy.table(step)}
    assert RIGHT in found  # from place 2 a step to the right ends in 2, 3 or 4, where staying is safe
    assert all(run.policy.action(step, 3) != RIGHT for step in range(2, 12))  # from 3 the pit may be reached


def test_an_action_that_the_support_does_not_know_is_taken_by_the_policy_and_by_nobody_else():
    class Three(Numbered):
        """Knows nothing of what staying does."""

        def actions(self, step, state):
            return (LEFT, RIGHT)

    known = Assumptions(support=Three(), safe_policy=stays)
    run = learn(
        ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS["posterior"], episodes=200, assumptions=known
    )
    assert run.violations == 0
    assert run.policy.action(11, 4) == STAY
    assert run.policy.action(11, 2) == RIGHT


class Daring(peakrl.Learner):
    """Takes the last action on offer."""

    def act(self, step, state, actions):
        return actions[-1]


def test_a_learner_of_ones_own_is_offered_what_is_promised_and_nothing_else():
    known = Assumptions(safe_policy=stays)
    for target in (Numbered(), ConstrainedEnv(Corridor(), constraint=pit, **DECLARED)):
        run = learn(target, Daring(), episodes=30, assumptions=known)
        assert run.violations == 0
        assert {run.policy.action(step, 2) for step in range(12)} == {STAY}


def test_what_nothing_calls_safe_is_not_said_to_fail():
    run = learn(
        ConstrainedEnv(Corridor(), constraint=pit, **DECLARED),
        LEARNERS["practical"],
        episodes=20,
        assumptions=Assumptions(safe_policy=stays),
    )
    views = {view.action: view for view in run.policy.explain(0, 2)}
    assert views[RIGHT].value == -np.inf
    assert views[RIGHT].violates is None
    assert views[RIGHT].dead_end is None
    assert views[RIGHT].safe is None


def test_a_policy_from_an_environment_is_believed_where_it_knows_the_state():
    earlier = learn(
        ConstrainedEnv(Corridor(), constraint=pit, **DECLARED),
        Daring(),
        episodes=5,
        assumptions=Assumptions(safe_policy=stays),
    )
    run = learn(
        ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS["practical"], episodes=20,
        assumptions=Assumptions(safe_policy=earlier.policy),
    )  # fmt: skip
    assert run.violations == 0


# What is not safe after all ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda step, place: RIGHT, r"at step 1 .*action 2 in state 3 violated by 1, but it is the safe policy's"),
        (lambda step, place: STAY if step < 4 else None, r"at step 3 .*action 1 in state 2 led to 2, in which the"),
        (lambda step, place: STAY if step < 4 else 9, r"nothing but action 9, .* to be safe at step 4 in state 2"),
        (lambda step, place: None, r"from the first state 2 on: it names no action at step 0 in state 2"),
        (lambda step, place: 9, r"from the first state 2 on: its action 9 is not on offer"),
        (lambda step, place: 1 / 0, r"safe_policy\(step, state\) raised ZeroDivisionError: .* for step 0, state"),
        (lambda step, place: [1], r"safe_policy\(step, state\) raised TypeError: unhashable"),
        ("stay", r"safe_policy is 'stay': it must be a policy, or a function of step and state"),
    ],
)  # fmt: skip
def test_a_safe_policy_that_is_not_safe_is_an_error_that_names_step_and_state(policy, message):
    with pytest.raises(SettingsError, match=message):
        learn(Numbered(), LEARNERS["practical"], episodes=5, assumptions=Assumptions(safe_policy=policy))


def test_a_policy_whose_own_model_finds_it_unsafe_is_told_where():
    model = compile_model(Numbered())
    daring = Policy.from_rule(model, lambda step, place: RIGHT)
    with pytest.raises(
        SettingsError, match=r"from the first state 2 on: at step 1 in state 3 its action 2 may violate"
    ):
        learn(model, LEARNERS["practical"], episodes=5, assumptions=Assumptions(safe_policy=daring))
    run = learn(model, LEARNERS["practical"], episodes=5)
    with pytest.raises(SettingsError, match=r"pass its \.policy, or a function"):
        learn(model, LEARNERS["practical"], episodes=5, assumptions=Assumptions(safe_policy=run))
    with pytest.raises(SettingsError, match=r"it must be deterministic"):
        learn(model, LEARNERS["practical"], episodes=5, assumptions=Assumptions(safe_policy=run.averaged_policy))


def test_declared_constraints_that_call_the_safe_policy_unsafe_are_an_error():
    known = Assumptions(safe_policy=stays, constraints=lambda step, place, action: -1.0 if action == STAY else 1.0)
    with pytest.raises(
        TargetError, match=r"constraints says that the safe policy's action 1 violates at step 0 in state 2"
    ):
        learn(
            ConstrainedEnv(Corridor(), constraint=pit, **DECLARED), LEARNERS["practical"], episodes=5, assumptions=known
        )


class Windy(Corridor):
    """Staying does not hold in the fourth step."""

    def step(self, action):
        return super().step(RIGHT if self.time == 3 else action)


def home(transition):
    return 1.0 if transition.next_observation == 2 else -1.0


def test_an_environment_that_contradicts_the_promise_ends_the_run():
    everywhere = Assumptions(safe_policy=lambda step, place: STAY)
    with pytest.raises(TargetError, match=r"step \d+: action 1 in state \d violated by 1, but it is the safe policy's"):
        learn(
            ConstrainedEnv(Windy(), constraint=home, **DECLARED),
            LEARNERS["practical"],
            episodes=5,
            assumptions=everywhere,
        )
    here = Assumptions(safe_policy=lambda step, place: STAY if place == 2 else None)
    with pytest.raises(
        TargetError, match=r"step 3: action 1 in state 2 led to \d, in which the safe policy has no action"
    ):
        learn(
            ConstrainedEnv(Windy(), constraint=pit, **DECLARED), LEARNERS["practical"], episodes=500, assumptions=here
        )
    nowhere = Assumptions(safe_policy=lambda step, place: None)
    with pytest.raises(
        TargetError, match="episode 1, step 0: safe_policy does not keep the constraints from the first"
    ):
        learn(
            ConstrainedEnv(Corridor(), constraint=pit, **DECLARED),
            LEARNERS["practical"],
            episodes=5,
            assumptions=nowhere,
        )


def test_the_first_action_of_all_is_the_safe_policys_even_before_the_constraints_are_counted():
    taken, uncounted = [], {key: value for key, value in DECLARED.items() if key != "constraint_bounds"}

    class Watched(Corridor):
        def step(self, action):
            taken.append(int(action))
            return super().step(action)

    learn(
        ConstrainedEnv(Watched(), constraint=pit, **uncounted),
        LEARNERS["practical"],
        episodes=3,
        assumptions=Assumptions(safe_policy=stays),
    )
    assert set(taken) == {STAY}
    taken.clear()
    with pytest.raises(TargetError, match="it names no action at step 0 in state 2"):
        learn(
            ConstrainedEnv(Watched(), constraint=pit, **uncounted), LEARNERS["practical"], episodes=3,
            assumptions=Assumptions(safe_policy=lambda step, place: None),
        )  # fmt: skip
    assert taken == []  # not even the first
