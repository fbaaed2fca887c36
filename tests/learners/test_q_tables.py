"""Masked Q-learning, maximin Q and Triple-Q against twins written from the formulas, and what their words promise."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.neighbours import Inventory, tiny_harvesting
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive.q_tables import masked_q, maximin_game, triple_q
from peakrl import Assumptions, compile_model, evaluate, learn, resume, solve
from peakrl.errors import SettingsError
from peakrl.learners import MaskedQ, MaximinQ, TripleQ, learner_from
from peakrl.training import load_run

TINY, INVENTORY = compile_model(tiny_harvesting()), compile_model(Inventory())
PEAK = Assumptions(constraints=lambda step, state, action: 3.0 - action)
LIMITS = [{"total": 0.3}, {"per_constraint": 0.1}, {"per_step": 0.05}]


def least_constraint(problem):
    """f(step, state, action) of a problem: the least value that any outcome has."""

    def function(step, state, action):
        return min(min(outcome.constraints) for outcome in problem.outcomes(step, state, action))

    return function


def policy_differences(run, trace):
    """Where pi^k of a run is not what the twin followed."""
    return [
        (k, step, state)
        for k, chosen in enumerate(trace, 1)
        for (step, state), action in chosen.items()
        if run.averaged_policy.policy(k).action(step, state) != action
    ]


# Masked ------------------------------------------------------------------------------------------------------


@seeds(5)
def test_masked_q_learning_equals_its_twin_and_takes_the_mildest_where_nothing_is_left(seed):
    problem = random_problem(seed, outcome_payoffs=False)
    function = least_constraint(problem)
    model = compile_model(problem)

    def allowed(step, state, actions):
        met = [action for action in actions if function(step, state, action) >= 0]
        return met or [max(actions, key=lambda action: function(step, state, action))]

    run = learn(model, MaskedQ(), episodes=60, seed=seed, assumptions=Assumptions(constraints=function))
    q, trace = masked_q(problem, model, allowed, 60, seed)
    assert policy_differences(run, trace) == []
    for (step, state), table in q.items():
        for action, value in table.items():
            assert run.q[step * model.entry_stride + model.row_of(step, state, action)] == value


def test_masked_q_learning_never_violates_where_a_mask_of_one_step_is_enough():
    run = learn(TINY, MaskedQ(), episodes=20_000, assumptions=PEAK)
    assert run.violations == 0
    result = evaluate(TINY, run.policy)
    assert result.violation == 0
    assert result.value > 0.93 * solve(TINY).value  # the prototype ended at 5.773 of 5.963 after five times as many


def test_masked_q_learning_with_the_support_never_runs_into_a_dead_end():
    model = compile_model(random_problem(31, states=4, actions=3, horizon=4, safe_action=True))
    run = learn(model, MaskedQ(), episodes=300, assumptions=Assumptions(support=model))
    assert run.violations == 0


@pytest.mark.parametrize("target", [TINY, ModelEnvironment(TINY, 0)])
def test_masked_q_learning_without_a_mask_says_what_it_needs(target):
    with pytest.raises(SettingsError, match=r"Assumptions\(constraints=f\)"):
        learn(target, MaskedQ(), episodes=5)


# Maximin -----------------------------------------------------------------------------------------------------


@seeds(5)
def test_the_game_of_maximin_q_is_a_penalty_on_the_worst_constraint(seed):
    problem = random_problem(seed, outcome_payoffs=False, horizon=3)
    model = compile_model(problem)
    run = learn(model, MaximinQ(penalty=2.5), episodes=80, seed=seed)
    q, trace = maximin_game(problem, model, 2.5, 80, seed)
    assert policy_differences(run, trace) == []
    for (step, state), table in q.items():
        for action, value in table.items():
            least = min(value) if isinstance(value, list) else value
            assert run.q[step * model.entry_stride + model.row_of(step, state, action)] == least


def test_a_penalty_of_maximin_q_below_the_multipliers_is_paid_and_one_above_deters():
    # Charging more than peak power earns at most ln(9/4) = 0.81 nats a unit at once: 0.01 cannot deter, 2 can.
    mild, strict = (learn(TINY, MaximinQ(penalty=each), episodes=20_000) for each in (0.01, 2.0))
    assert evaluate(TINY, mild.policy).violation > 0.1
    assert strict.last_violation_episode < 10_000
    assert evaluate(TINY, strict.policy).violation == 0


# Triple-Q ----------------------------------------------------------------------------------------------------


def numbers_of(model, settings, episodes):
    """The constants, as the docstring of `learners.triple_q` has them."""
    lo, hi = model.reward_range
    bounds = list(model.constraint_bounds)
    iota = np.log(np.sqrt(2 * model.max_states * model.max_actions * model.horizon) * episodes)
    scale, span = settings.bonus / 4 * model.horizon * np.sqrt(iota), hi - lo if hi > lo else 1.0
    ranges = [sum(bounds)] if settings.total is not None else bounds
    ranges = ranges * (model.horizon if settings.per_step is not None else 1)
    eta = episodes**0.2
    return {
        "frame": round(episodes**0.6), "chi": eta, "eta": eta, "bonus": scale * span,
        "cost_bonus": [scale * each for each in ranges],
        "lift": 2 * settings.lift * model.horizon**3 * np.sqrt(iota) * span / eta,
    }  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: next(iter(limit)))
@pytest.mark.parametrize("seed", [1, 3])
def test_triple_q_equals_its_twin(seed, limit):
    problem = random_problem(seed + 40)
    model, episodes = compile_model(problem), 90
    settings = TripleQ(bonus=0.02 * (seed % 3), lift=0.001 * (seed % 2), tightening=0.01, **limit)
    count, horizon = model.num_constraints, model.horizon

    def charges(step, violations):
        if settings.total is not None:
            return [sum(violations)]
        if settings.per_constraint is not None:
            return violations
        early, late = [None] * (count * step), [0.0] * (count * (horizon - step - 1))
        return early + violations + late

    (given,) = limit.values()
    size = {"total": 1, "per_constraint": count, "per_step": count * horizon}[next(iter(limit))]
    numbers = numbers_of(model, settings, episodes)
    run = learn(model, settings, episodes=episodes, seed=seed)
    q, cost, queue, trace = triple_q(
        problem, horizon, model.reward_range[1], charges, [given - 0.01] * size, numbers, episodes, seed
    )
    assert policy_differences(run, trace) == []
    eta = numbers["eta"]
    for (step, state, action), value in q.items():
        worth = value - sum(z / eta * each for z, each in zip(queue, cost[step, state, action], strict=True))
        found = run.q[step * model.entry_stride + model.row_of(step, state, action)]
        assert found == pytest.approx(worth, rel=1e-12, abs=1e-12)


@seeds(3)
def test_triple_q_learns_an_environment_on_the_same_draws_as_the_model(seed):
    model = compile_model(random_problem(seed, horizon=3))
    compiled = learn(model, TripleQ(total=0.2), episodes=60, seed=seed)
    run = learn(ModelEnvironment(model, seed), TripleQ(total=0.2), episodes=60)
    assert np.array_equal(run.history.episode_violation, compiled.history.episode_violation)
    assert np.array_equal(run.history.episode_reward, compiled.history.episode_reward)


def test_triple_q_comes_near_the_limit_of_the_inventory():
    # The prototype's averaged policy ended at 6.596 and 3.554 after five times as many episodes; the optimum is 6.665.
    history = learn(INVENTORY, TripleQ(total=3.5), episodes=20_000, history=1).history
    assert history.averaged_value[-1] > 6.4
    assert history.averaged_violation[-1] < 3.7


@pytest.mark.slow
@pytest.mark.parametrize(("bonus", "gap", "violation"), [(0.0, 0.090, 0.072), (0.01, 0.010, 0.238)])
def test_triple_q_is_within_a_tenth_of_the_prototype_on_the_inventory(bonus, gap, violation):
    found = []
    for seed in range(5):
        history = learn(INVENTORY, TripleQ(total=3.5, bonus=bonus), episodes=100_000, seed=seed, history=1).history
        found.append([np.maximum(6.665321527 - history.value, 0).mean(), np.maximum(history.violation - 3.5, 0).mean()])
    median = np.median(found, axis=0)
    assert median[0] < 1.1 * gap
    assert median[1] < 1.1 * violation


# What comes with the seam ------------------------------------------------------------------------------------

SEAM = {
    "maximin": MaximinQ(penalty=2.0), "triple": TripleQ(total=0.1), "tables": TripleQ(per_step=0.1)
}  # fmt: skip


@pytest.mark.parametrize("name", SEAM)
def test_a_run_cut_in_two_equals_the_whole(name, tmp_path, checkpoint_every):
    whole = learn(TINY, SEAM[name], episodes=90, seed=3)

    def stop(view):
        if view.episodes >= 74:  # it watches before it saves, every 37 episodes
            raise KeyboardInterrupt

    checkpoint_every(37)
    with pytest.raises(KeyboardInterrupt):
        learn(TINY, SEAM[name], episodes=90, seed=3, checkpoint=tmp_path / "run", watch=stop)
    assert load_run(tmp_path / "run").episodes == 37
    continued = resume(tmp_path / "run")
    assert continued.episodes == 90
    assert continued.settings == SEAM[name]
    assert np.array_equal(continued.q, whole.q)
    assert np.array_equal(continued.averaged_policy.change_row, whole.averaged_policy.change_row)


@pytest.mark.parametrize("limit", [{}, {"total": 1, "per_step": 1}, {"total": -1}, {"per_constraint": (1, -1)}])
def test_a_learner_on_a_budget_takes_just_one_limit_of_at_least_0(limit):
    with pytest.raises(SettingsError):
        TripleQ(**limit)


def test_limits_must_be_as_many_as_constraints():
    with pytest.raises(SettingsError, match="2 limits, but the target has 1 constraints"):
        learn(TINY, TripleQ(per_constraint=(0.1, 0.2)), episodes=5)


def test_triple_q_is_not_continued_beyond_the_episodes_that_its_frames_were_made_for(tmp_path):
    learn(TINY, TripleQ(total=0.1), episodes=20, checkpoint=tmp_path / "run")
    with pytest.raises(SettingsError, match="frame depends on that number"):
        resume(tmp_path / "run", episodes=40)


@pytest.mark.parametrize(
    "settings", [MaskedQ(bonus="hoeffding"), MaximinQ(penalty=3.0), TripleQ(per_constraint=(1, 2))]
)
def test_settings_store_themselves(settings):
    assert learner_from(settings.as_dict()) == settings
