"""`learn_in_stages`: the run at chosen episodes is the run that `learn` makes."""

import numpy as np
import pytest

from peakrl import compile_model, learn, solve
from peakrl.errors import SettingsError
from peakrl.learners import Certified, PosteriorSampling, SafeQ
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.training import learn_in_stages


@pytest.fixture(scope="module")
def model():
    return compile_model(energy_harvesting(horizon=4, battery=3, max_arrival=3, mean=1.5, std=1, peak_power=2))


@pytest.mark.parametrize("settings", [PosteriorSampling(), SafeQ()])
def test_the_last_stage_has_learned_what_one_run_learns(model, settings):
    *_, last = learn_in_stages(model, settings, stages=[3, 50, 200], seed=5, history=50)
    whole = learn(model, settings, episodes=200, seed=5, history=50)
    assert (last.policy.rows == whole.policy.rows).all()
    assert (last.episodes, last.violations) == (200, whole.violations)
    assert last.history.averaged_value.tolist() == whole.history.averaged_value.tolist()


def test_an_earlier_stage_stays_as_it_is_while_learning_goes_on(model):
    runs = learn_in_stages(model, SafeQ(), stages=[20, 2_000])
    first = next(runs)
    before = first.policy.rows.copy(), first.q.copy()
    next(runs)
    assert first.episodes == 20
    assert (first.policy.rows == before[0]).all()
    assert np.array_equal(first.q, before[1])


def test_a_learner_that_stops_by_itself_ends_the_stages():
    model = compile_model(scheduling_example(1))
    settings = Certified([0.9 * abs(solve(model).value), 0.5 * abs(solve(model).value)])
    stages = [run.episodes for run in learn_in_stages(model, settings, stages=[100, 10**6, 2 * 10**6])]
    run = learn(model, settings, episodes=10**6)
    assert stages == [100, run.episodes]
    assert [line["epsilon"] for line in run.issued] == list(settings.epsilon)
    assert run.issued[-1]["episodes"] == run.episodes


@pytest.mark.parametrize("stages", [[], [5, 5], [7, 3], [0]])
def test_stages_are_numbers_of_episodes_in_ascending_order(model, stages):
    with pytest.raises(SettingsError, match="stages"):
        next(learn_in_stages(model, stages=stages))


def test_a_run_reports_when_infeasibility_was_proved_and_how_much_its_tables_hold():
    model = compile_model(scheduling_example(3))
    run = learn(model, SafeQ(), episodes=2_000, history="none", average=False)
    assert run.feasible is False
    assert 0 < run.proof_episode <= 2_000
    assert run.stored_numbers > model.num_entries
    earlier = learn(model, SafeQ(), episodes=run.proof_episode - 1, history="none", average=False)
    assert earlier.feasible is None
    assert earlier.proof_episode is None
