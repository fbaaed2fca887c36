"""Primal-dual learners: their kernel against a twin, the inventory's exact price, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.neighbours import Inventory, tiny_harvesting
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive.primal_dual import improved, lagrangian_sweep
from peakrl import Assumptions, TabularModel, compile_model, evaluate, learn, resume
from peakrl.errors import SettingsError
from peakrl.learners import OptDual, OptPrimalDual, WeiMDP, learner_from
from peakrl.learners.counts import NO_CELL
from peakrl.learners.primal_dual import replan
from peakrl.theory import solve_modified
from peakrl.training import load_run
from peakrl.training.trainer import Trainer

INVENTORY = compile_model(Inventory())
#: Of the inventory at a limit of 3.5: the optimum and the price of the cost, by linear programming, and the two
#: deterministic policies beside it.
OPTIMUM, PRICE, BELOW, ABOVE = 6.665321527, 0.921212, (6.6123, 3.4425), (6.6961, 3.5334)
TWINS = {
    "plan": OptDual(total=0.4, bonus=0.01, multiplier_step=0.3),
    "plan by step": OptDual(per_step=0.1, bonus=0.003, multiplier_step=0.2),
    "improve": OptPrimalDual(per_constraint=0.2, bonus=0.002, policy_step=0.3, multiplier_step=0.2),
    "opdop": OptPrimalDual.opdop(total=0.3, slater=0.1, episodes=300),
    "regularised": OptPrimalDual.regularised(per_step=0.1, temperature=0.5),
    "weighted": WeiMDP(total=0.4, bonus=0.0),
}


def begun(model, settings, episodes, seed=0):
    """The algorithm of a run of so many episodes."""
    active = Trainer(model, settings, planned=300, seed=seed, every=0, average=False)
    active.advance(episodes)
    return active.learned()


def cells_of(algorithm, row):
    """(next slot, count) of what a row led to."""
    counts, found = algorithm.tables.counts, []
    cell = int(counts.first[row])
    while cell != NO_CELL:
        found.append((int(counts.following[cell]), int(counts.count[cell])))
        cell = int(counts.before[cell])
    return found


def test_actions_that_are_forbidden_leave_values_and_chances_numbers():
    """With a temperature the logarithm of a chance of 0 would come in."""
    model = TabularModel.from_arrays(np.ones((1, 2, 1)), [[0.5, 1.0]], [[[1.0, -1.0]]], 2)
    run = learn(model, TWINS["regularised"], episodes=5, assumptions=Assumptions(support=model))
    found = run._learned.tables
    assert run.violations == 0
    assert found.chance.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert found.w[0, :2] == pytest.approx([1.0, 0.5], abs=3.0)  # no more than what bonuses add
    assert np.isfinite(found.price).all()


@pytest.mark.parametrize("name", TWINS)
@seeds(4)
def test_a_plan_or_an_improvement_equals_its_twin(name, seed):
    model = compile_model(random_problem(seed + 70, stationary=True, horizon=4, constraints=2))
    settings = TWINS[name]
    algorithm = begun(model, settings, 40, seed)
    tables, numbers, horizon = algorithm.tables, algorithm.tables._asdict(), model.horizon
    rows_of = [list(model.rows_of_slot(slot)) for slot in range(model.num_slots)]
    seen = [cells_of(algorithm, row) for row in range(model.num_rows)]
    visits = np.maximum(tables.counts.visits, 1)
    reward, charge = tables.counts.reward / visits, tables.charge / visits[:, None]
    before, k = tables.price.copy(), int(tables.plans[0])
    fall = (k + 3.0) ** -0.53 if numbers["heat"] else 1.0
    heat = numbers["heat"] * numbers["span"] * (k + 3.0) ** -0.4 if numbers["heat"] else 0.0
    policy = None if settings.rule != OptPrimalDual.rule else tables.chance.T.tolist()
    replan(tables, model.layout, 41)
    price = tables.price if name == "weighted" else before
    twin = (rows_of, horizon, seen, reward, charge, price, numbers, policy, heat)
    plans, cost, gains = lagrangian_sweep(*twin)
    assert pytest.approx(np.array(gains), rel=1e-12, abs=1e-9) == tables.gain.T
    weights = tables.counts.begun / tables.counts.begun.sum()
    expected = weights @ np.array(cost)
    if policy is None:
        # Rounding decides between actions that are equally good.
        best, own = (np.take_along_axis(np.array(gains), np.array(rows), 1) for rows in (plans, tables.plan.T))
        assert pytest.approx(best, rel=1e-12, abs=1e-9) == own
    else:
        new = improved(rows_of, policy, gains, numbers["policy_step"] * fall, heat, numbers["mixing"])
        assert pytest.approx(np.array(new), abs=1e-9) == tables.chance.T
    if name == "weighted":
        assert expected[0] <= 0.4 or price[0] > 1e6
        cheaper = lagrangian_sweep(rows_of, horizon, seen, reward, charge, price * (1 - 1e-6), numbers)
        assert price[0] == 0 or weights @ np.array(cheaper[1]) > 0.4
    else:
        moved = (1 - fall * heat / numbers["span"]) * before + numbers["price_step"] * fall * (
            expected - numbers["limit"]
        )
        assert tables.price == pytest.approx(np.clip(moved, 0, numbers["most"]), abs=1e-9)


@pytest.mark.parametrize("stationary", [True, False])
def test_an_environment_on_the_same_draws_is_learned_as_the_model_is(stationary):
    model = compile_model(random_problem(5, stationary=stationary, horizon=3, states=3))
    compiled = learn(model, TWINS["plan"], episodes=60, seed=4)
    run = learn(ModelEnvironment(model, 4), TWINS["plan"], episodes=60, seed=4)
    assert np.array_equal(run.history.episode_violation, compiled.history.episode_violation)
    assert run.multipliers == pytest.approx(compiled.multipliers)


def test_states_of_an_environment_that_are_new_have_their_actions_drawn_too():
    # Six orders at the first state, three of them costlier than the mean: 12 first episodes that all do the same have
    # a chance of 6^-11.
    runs = [learn(ModelEnvironment(INVENTORY, 1), OptPrimalDual(total=3.5), episodes=1, seed=s) for s in range(12)]
    assert len({float(run.history.episode_violation[0]) for run in runs}) > 3
    assert all(not run.behavior_policy.deterministic for run in runs)


@pytest.mark.parametrize("stationary", [True, False])
@pytest.mark.parametrize("batch", [1, 7])
def test_history_holds_the_exact_value_of_the_policy_that_is_drawn_from(stationary, batch):
    model = compile_model(random_problem(8, stationary=stationary, horizon=3, states=3))
    settings = OptPrimalDual(total=0.4, policy_step=0.05, episodes_per_plan=batch)
    run = learn(model, settings, episodes=60, history=1)
    exact = evaluate(model, run.behavior_policy)
    assert not run.behavior_policy.deterministic
    assert (run.history.value[-1], run.history.violation[-1]) == pytest.approx((exact.value, exact.violation))
    # The first plan has nothing to improve by; every later one moves the policy.
    changed = np.flatnonzero(np.diff(run.history.value)) + 2
    assert changed.tolist() == list(range(batch + 1, 61, batch))


def test_the_averaged_price_is_the_mean_of_its_curve():
    run = learn(INVENTORY, OptPrimalDual(total=0.1, multiplier_step=0.05), episodes=50)
    assert run.averaged_multipliers == pytest.approx(run.multiplier_curve[:, 1].mean())
    assert run.averaged_multipliers[0] != run.multipliers[0]
    assert learn(INVENTORY, OptPrimalDual(total=3.5), episodes=1).averaged_multipliers == pytest.approx([0.0])


# The inventory: exact numbers ---------------------------------------------------------------------------------


def test_prices_of_the_dual_learner_tend_to_the_multiplier_of_the_linear_programme():
    run = learn(INVENTORY, OptDual(total=3.5), episodes=30_000, average=False)
    curve = run.multiplier_curve
    assert len(curve) == 1000
    assert run.multipliers[0] == pytest.approx(PRICE, rel=0.05)
    assert curve[len(curve) // 2 :, 1].mean() == pytest.approx(PRICE, rel=0.03)
    assert run.history.averaged_violation[-1] == pytest.approx(3.5, abs=0.15)


def test_with_the_model_known_averages_come_to_the_optimum_and_the_last_policy_swings():
    settings = OptPrimalDual.npg_pd(total=3.5, episodes=1_000)
    history = learn(INVENTORY, settings, episodes=1_000, history=1, average=False).history
    assert history.averaged_value[-1] == pytest.approx(6.6704, abs=0.002)  # the prototype's numbers
    assert history.averaged_violation[-1] == pytest.approx(3.5285, abs=0.001)
    assert np.ptp(history.violation[-300:]) > 0.05


def test_with_falling_steps_and_temperature_the_last_policy_settles():
    settings = OptPrimalDual.regularised(total=3.5, known_model=True)
    history = learn(INVENTORY, settings, episodes=10_000, history=1, average=False).history
    assert (history.value[-1], history.violation[-1]) == pytest.approx((6.632, 3.521), abs=0.001)
    assert np.ptp(history.violation[-1000:]) < 0.002


def test_the_weighted_problem_ends_at_the_corner_below_the_limit():
    run = learn(INVENTORY, WeiMDP(total=3.5, known_model=True), episodes=20, average=False)
    result = evaluate(INVENTORY, run.policy)
    assert (result.value, result.violation) == pytest.approx(BELOW, abs=5e-5)
    assert run.multipliers[0] == pytest.approx(PRICE, abs=1e-6)


@pytest.mark.parametrize("model", [
    compile_model(tiny_harvesting()),  # many pairs share a distribution
    compile_model(random_problem(5, stationary=False, horizon=4, states=4)),  # tables by step
])  # fmt: skip
def test_with_the_model_known_a_plan_is_held_to_cost_what_it_does(model):
    active = Trainer(model, WeiMDP(total=100, known_model=True), planned=30, seed=0, every=0, average=False)
    active.advance(30)
    found = evaluate(model, active.result().policy)
    best = solve_modified(model, slack=0.0, penalty=0.0)  # the limit says nothing, so that the most is earned
    assert found.value == pytest.approx(best.value)
    assert active.learned().tables.expected[0] == pytest.approx(found.violation)
    assert found.violation > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "gap", "violation"),
    [(OptDual(total=3.5), 0.0129, 0.034), (OptPrimalDual(total=3.5), 0.196, 0.055)],
)
def test_the_inventory_is_learned_as_the_prototypes_did_to_a_tenth(settings, gap, violation):
    found, prices = [], []
    for seed in range(5):
        run = learn(INVENTORY, settings, episodes=100_000, seed=seed, history=1, average=False)
        history = run.history
        found.append([np.maximum(OPTIMUM - history.value, 0).mean(), np.maximum(history.violation - 3.5, 0).mean()])
        prices.append(run.multipliers[0])
    median = np.median(found, axis=0)
    assert median[0] < 1.1 * gap
    assert median[1] < 1.1 * violation
    if isinstance(settings, OptDual) and not isinstance(settings, OptPrimalDual):
        assert np.median(prices) == pytest.approx(PRICE, rel=0.02)


# What is refused, stored and read back ---------------------------------------------------------------------------


def test_settings_that_cannot_be_are_refused_in_words():
    for make, words in [
        (lambda: OptDual(total=1, slater=0), "slater is 0; it must be above 0"),
        (lambda: OptPrimalDual.opdop(total=1, slater=0, episodes=10), "slater is 0; it must be above 0"),
        (lambda: OptDual(total=1, slater=1, multiplier_bound=2), "exclude each other"),
        (lambda: OptDual(), "no limit is given"),
        (lambda: WeiMDP(per_step=1), "give total"),
        (lambda: OptPrimalDual(total=1, temperature=1, episodes_per_plan=2), "leave episodes_per_plan at 1"),
        (
            lambda: OptPrimalDual.opdop(total=1, slater=1),
            "episodes is not given: OPDOP's steps depend",
        ),
        (lambda: OptPrimalDual.opdop(total=1, episodes=9), "slater is not given: OPDOP caps its prices"),
        (lambda: OptPrimalDual.npg_pd(total=1, episodes=0), "depend on the length of the run"),
    ]:
        with pytest.raises(SettingsError, match=words):
            make()


def test_a_known_model_must_be_there():
    with pytest.raises(SettingsError, match="an environment has no known probabilities"):
        learn(ModelEnvironment(INVENTORY, 0), WeiMDP(total=3.5, known_model=True), episodes=5)


@pytest.mark.parametrize("name", ["plan", "improve", "known"])
def test_a_run_cut_in_two_equals_the_whole(name, tmp_path, checkpoint_every):
    settings = TWINS.get(name) or OptPrimalDual.npg_pd(total=3.5, episodes=90)
    whole = learn(INVENTORY, settings, episodes=90, seed=3)

    def stop(view):
        if view.episodes >= 74:  # it watches before it saves, every 37 episodes
            raise KeyboardInterrupt

    checkpoint_every(37)
    with pytest.raises(KeyboardInterrupt):
        learn(INVENTORY, settings, episodes=90, seed=3, checkpoint=tmp_path / "run", watch=stop)
    assert load_run(tmp_path / "run").episodes == 37
    continued = resume(tmp_path / "run")
    assert continued.settings == settings
    assert np.array_equal(continued.q, whole.q)
    assert np.array_equal(continued.multiplier_curve, whole.multiplier_curve)
    assert np.array_equal(continued.averaged_policy.change_row, whole.averaged_policy.change_row)
    with pytest.raises(SettingsError, match="depends on that number"):
        resume(tmp_path / "run", episodes=91)


def test_settings_store_themselves():
    for name in TWINS:
        assert learner_from(TWINS[name].as_dict()) == TWINS[name]
