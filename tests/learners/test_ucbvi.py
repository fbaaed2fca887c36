"""UCBVI: its plan against a plain twin, the optimum from true frequencies, and what comes with the seam."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest

from experiments.theory import doors
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from naive import optimistic_plan
from peakrl import Assumptions, ConstrainedEnv, Policy, compile_model, evaluate, learn, resume, solve
from peakrl.errors import StorageError
from peakrl.learners import SUCBVI, UCBVI, learner_from
from peakrl.learners.counts import NO_CELL, count_step
from peakrl.learners.episode import Log
from peakrl.learners.ucbvi import plan
from peakrl.problems import energy_harvesting
from peakrl.records import read_record, write_record
from peakrl.training import load_run
from peakrl.training.trainer import Trainer

SMALL = compile_model(
    energy_harvesting(horizon=5, battery=5, max_arrival=5, mean=3, std=2, peak_power=3, log_base=math.e)
)


def begun(bonus=0.5, seed=0, episodes=0):
    """The algorithm of a run of so many episodes."""
    active = Trainer(SMALL, UCBVI(bonus=bonus), planned=10_000, seed=seed, every=0, average=False)
    if episodes:
        active.advance(episodes)
    return active.learned()


def seen_of(algorithm):
    """[row]: (next slot, count) of everything counted."""
    counts, found = algorithm.tables.counts, []
    for row in range(algorithm.space.rows):
        cell, cells = int(counts.first[row]), []
        while cell != NO_CELL:
            cells.append((int(counts.following[cell]), int(counts.count[cell])))
            cell = int(counts.before[cell])
        found.append(cells)
    return found


def test_the_plan_is_the_optimum_from_true_frequencies():
    algorithm = begun(bonus=0.0)
    for row in range(SMALL.num_rows):
        distribution = SMALL.row_distribution[row]
        violation = float(SMALL.row_violation[row].sum())
        for outcome in range(*SMALL.outcome_start[distribution : distribution + 2]):
            following = int(SMALL.outcome_next[outcome])
            for _ in range(round(1000 * SMALL.outcome_probability[outcome])):
                count_step(algorithm.tables.counts, row, following, float(SMALL.row_reward[row]), violation)
    plan(algorithm.tables, algorithm.layout, Log.of_size(0))
    result = evaluate(SMALL, Policy(SMALL, algorithm.decided()))
    assert result.value == pytest.approx(solve(SMALL).value, rel=1e-3)  # frequencies are rounded to thousandths
    assert result.violation == 0


@pytest.mark.parametrize("bonus", [0.7, 50.0])  # the second so large that the cap holds values down
def test_the_kernel_agrees_with_its_plain_twin(bonus):
    lo, hi = SMALL.reward_range
    for episodes in (1, 4, 24, 230):
        algorithm = begun(bonus=bonus, seed=2, episodes=episodes)
        plan(algorithm.tables, algorithm.layout, Log.of_size(0))
        rows_of = [SMALL.rows_of_slot(slot) for slot in range(SMALL.num_slots)]
        visits = np.maximum(algorithm.tables.counts.visits, 1)
        reward, forbidden = (
            (algorithm.tables.counts.reward / visits - lo).tolist(),
            algorithm.tables.counts.max_violation > 0,
        )
        expected = optimistic_plan(rows_of, SMALL.horizon, seen_of(algorithm), reward, forbidden, hi - lo, bonus)
        offers = np.diff(SMALL.row_start) > 0
        assert np.array_equal(algorithm.greedy().T[:, offers], np.array(expected)[:, offers])


def test_every_step_is_counted_once_and_by_the_models_probabilities():
    algorithm = begun(seed=1, episodes=4_000)
    visits = algorithm.tables.counts.visits
    assert visits.sum() == 4_000 * SMALL.horizon
    row = int(visits.argmax())
    distribution = SMALL.row_distribution[row]
    first, last = SMALL.outcome_start[distribution : distribution + 2]
    seen = dict(seen_of(algorithm)[row])
    shares = [seen.get(int(slot), 0) / visits[row] for slot in SMALL.outcome_next[first:last]]
    # Five standard errors of a share of at most 1/2.
    assert shares == pytest.approx(SMALL.outcome_probability[first:last].tolist(), abs=2.5 / math.sqrt(visits[row]))


def test_it_comes_close_to_the_optimum_and_stops_violating():
    run = learn(SMALL, UCBVI(), episodes=4_000)
    result = evaluate(SMALL, run.policy)
    assert result.value > 0.99 * solve(SMALL).value
    assert result.violation == 0
    assert 0 < run.last_violation_episode < 4_000
    assert run.history.value[-1] == pytest.approx(result.value, rel=0.01)


@seeds(5)
def test_an_environment_on_the_same_draws_is_learned_as_the_model_is(seed):
    model = compile_model(random_problem(seed))
    compiled = learn(model, UCBVI(), episodes=60, seed=seed)
    run = learn(ModelEnvironment(model, seed), UCBVI(), episodes=60)
    assert (run.violations, run.last_violation_episode) == (compiled.violations, compiled.last_violation_episode)


def test_it_learns_on_gymnasiums_own_environments():
    env = ConstrainedEnv(
        gymnasium.make("FrozenLake-v1", is_slippery=False),
        horizon=8,
        reward_range=(0, 1),
        constraint=lambda transition: -1.0 if transition.terminated and not transition.reward else 1.0,
    )
    run = learn(env, UCBVI(), episodes=1_500, assumptions=Assumptions(stationary=True))
    assert run.history.episode_reward[-50:].mean() > 0.9


def test_a_run_cut_in_two_equals_the_whole(tmp_path):
    path = tmp_path / "run"
    whole = learn(SMALL, UCBVI(), episodes=90, seed=3)
    learn(SMALL, UCBVI(), episodes=37, seed=3, checkpoint=path)
    assert load_run(path).settings == UCBVI()
    continued = resume(path, episodes=90)
    assert np.array_equal(continued.policy.rows, whole.policy.rows)
    assert np.array_equal(continued.averaged_policy.change_row, whole.averaged_policy.change_row)
    assert continued.violations == whole.violations


def test_a_run_on_an_environment_is_read_back(tmp_path):
    path = tmp_path / "run"
    run = learn(ModelEnvironment(SMALL, 3), UCBVI(), episodes=40)
    run.save(path)
    assert np.array_equal(load_run(path, ModelEnvironment(SMALL, 3)).policy.rows, run.policy.rows)


def test_its_settings_show_and_store_themselves():
    assert repr(UCBVI(bonus=0.25)) == "UCBVI(bonus=0.25)"
    assert learner_from(UCBVI(bonus=0.25).as_dict()) == UCBVI(bonus=0.25)


# SUCBVI ------------------------------------------------------------------------------------------------------


def failing_entries(algorithm):
    """[step][row] from what was seen, by the definition: a pair fails that violated or led to a state that is dead."""
    space, seen = algorithm.space, seen_of(algorithm)
    starts = space.layout.row_start
    dead, found = set(), []
    for step in reversed(range(space.horizon)):
        fails = [
            bool(algorithm.tables.counts.max_violation[row] > 0 or any(slot in dead for slot, _ in seen[row]))
            for row in range(space.rows)
        ]
        found.insert(0, fails)
        slots = range(space.slots) if space.shared else np.flatnonzero(space.slot_step == step).tolist()
        dead = {
            slot for slot in slots if starts[slot + 1] > starts[slot] and all(fails[starts[slot] : starts[slot + 1]])
        }
    return found


@seeds(25)
def test_sucbvi_fails_what_its_definition_says_and_chooses_nothing_else_while_it_can(seed):
    model = compile_model(random_problem(seed, horizon=4))
    active = Trainer(model, SUCBVI(), planned=200, seed=seed, every=0, average=False)
    active.advance(60)
    algorithm = active.learned()
    plan(algorithm.tables, algorithm.layout, Log.of_size(0))
    fails, known = failing_entries(algorithm), algorithm.known()
    for step, slot in algorithm.space.decisions():
        rows = list(model.rows_of_slot(slot))
        chosen = algorithm.row(step, slot)
        assert [bool(known[step * model.entry_stride + row]) for row in rows] == [fails[step][row] for row in rows]
        assert not fails[step][chosen] or all(fails[step][row] for row in rows)


def test_sucbvi_violates_in_at_most_h_s_a_episodes_and_proves_just_what_is_infeasible():
    for seed in range(5):
        model = compile_model(random_problem(seed, horizon=3))
        run = learn(model, SUCBVI(), episodes=1_500, seed=seed)
        feasible = solve(model).feasible
        # So many episodes meet every outcome of so small a problem.
        assert run.feasible is (None if feasible else False)
        assert bool(run.infeasibility_proof) is not feasible
        if feasible:
            assert run.violations <= model.horizon * model.num_rows
            assert evaluate(model, run.policy).violation == 0


def test_sucbvi_takes_what_violates_once_and_plans_anew_at_once():
    # One of three doors violates, and a plan is otherwise followed for ten episodes.
    assert learn(doors(0.1), SUCBVI(), episodes=60).violations == 1
    assert learn(doors(0.1), UCBVI(), episodes=60).violations == 10


def test_sucbvi_learns_an_environment_as_the_model_and_reads_itself_back(tmp_path):
    model = compile_model(random_problem(4, horizon=4, safe_action=False))
    compiled = learn(model, SUCBVI(), episodes=80, seed=2)
    run = learn(ModelEnvironment(model, 2), SUCBVI(), episodes=80)
    assert np.array_equal(run.history.episode_reward, compiled.history.episode_reward)
    by_model, by_steps = (
        [(line.step, line.violation) for line in each.infeasibility_proof] for each in (compiled, run)
    )
    assert by_model == by_steps != []
    compiled.save(tmp_path / "run")
    again = load_run(tmp_path / "run")
    assert (again.settings, again.feasible) == (SUCBVI(), compiled.feasible)
    assert np.array_equal(again.policy.rows, compiled.policy.rows)


@pytest.mark.parametrize(("name", "spoil"), [("dead", lambda a: a + 2), ("proved", lambda a: a + 10**6)])
def test_a_forged_dead_end_is_refused(name, spoil, tmp_path):
    path = tmp_path / "run"
    learn(SMALL, SUCBVI(), episodes=30, checkpoint=path)
    plain, arrays = read_record(path, "learning run")
    arrays[f"engine.{name}"] = spoil(arrays[f"engine.{name}"]).astype(arrays[f"engine.{name}"].dtype)
    write_record(path, "learning run", plain, arrays)
    with pytest.raises(StorageError):
        load_run(path)
