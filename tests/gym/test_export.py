"""Problems as Gymnasium environments, and policies for use."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from helpers.random_policies import averaged_policy, chance_policy, random_chances, random_tables
from helpers.random_problems import random_problem
from helpers.seeds import seeds
from peakrl import compile_model, learn, solve, to_gymnasium
from peakrl.errors import PolicyError, ProblemError
from peakrl.learners import SafeQ
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.schedule_labels import ScheduleState

MADE = [
    ("peakrl/EnergyHarvesting-v0", {}),
    ("peakrl/EnergyHarvesting-v0", {"arrivals": "frozen", "peak_power": 15}),
    ("peakrl/MachineScheduling-v0", {}),
    ("peakrl/MachineScheduling-v0", {"example": 3, "objective": "total_tardiness"}),
]


@pytest.mark.parametrize(("name", "arguments"), MADE)
def test_gymnasiums_checker_finds_nothing_in_registered_environments(name, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(name, **arguments).unwrapped)


@seeds(5)
def test_gymnasiums_checker_finds_nothing_in_any_problem(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "constraint .* sign right")  # random constraints may never be violated
        check_env(to_gymnasium(random_problem(seed)))


@pytest.mark.parametrize("order", ["import peakrl, gymnasium", "import gymnasium, peakrl"])
def test_environments_are_registered_by_importing_peakrl_in_any_order(order):
    code = f"{order}\nprint(gymnasium.spec('peakrl/EnergyHarvesting-v0').id, gymnasium.spec('peakrl/Problem-v0').id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["peakrl/EnergyHarvesting-v0", "peakrl/Problem-v0"]


def test_importing_peakrl_does_not_import_gymnasium():
    code = "import sys, peakrl; print('gymnasium' in sys.modules, 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def frequencies(problem, action_of, episodes=1500):
    """Walk an environment with a fixed rule; return the mean reward and violation of an episode."""
    env, totals = to_gymnasium(problem), np.zeros(2)
    for episode in range(episodes):
        _, info = env.reset(seed=episode)
        over = False
        while not over:
            offered = np.flatnonzero(info["action_mask"])
            _, reward, terminated, truncated, info = env.step(int(offered[action_of(info["step"], len(offered))]))
            assert (info["cost"] == np.maximum(-info["constraints"], 0)).all()
            totals += reward, np.sum(info["cost"])
            over = terminated or truncated
        assert info["step"] == problem.horizon
    return totals / episodes


def test_an_environment_walks_as_its_problem_says():
    problem = random_problem(3, states=3, actions=3, horizon=3, constraints=2, safe_action=False)

    def value(step, state):
        """The exact expectation of the same rule, straight from the definition."""
        if step == problem.horizon:
            return np.zeros(2)
        offered = list(problem.actions(step, state))
        total = np.zeros(2)
        for outcome in problem.outcomes(step, state, offered[step % len(offered)]):
            here = outcome.reward, sum(max(-f, 0.0) for f in outcome.constraints)
            total += outcome.probability * (here + value(step + 1, outcome.next_state))
        return total

    exact = sum(p * value(0, s) for p, s in problem.initial())
    assert frequencies(problem, lambda step, count: step % count) == pytest.approx(exact, rel=0.1)


def test_an_action_that_is_not_on_offer_ends_the_episode_as_fully_violated():
    env = gymnasium.make("peakrl/EnergyHarvesting-v0")
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(40)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info["constraints"] == -env.metadata["peakrl"]["constraint_bounds"][0]


def test_the_horizon_cuts_off_what_is_stationary_and_ends_what_is_not():
    for problem, cut in (
        (random_problem(5, stationary=True, states=3, horizon=3), True),
        (scheduling_example(1), False),
    ):
        env = to_gymnasium(problem)
        _, info = env.reset(seed=1)
        for _ in range(problem.horizon):
            _, _, terminated, truncated, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
        assert (terminated, truncated) == (not cut, cut)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)


def test_observations_speak_of_the_problem():
    harvesting = gymnasium.make("peakrl/EnergyHarvesting-v0", arrivals=[3, 4, 5], horizon=3)
    assert harvesting.reset(seed=0)[0].tolist() == [0, 3]
    assert harvesting.step(1)[0].tolist() == [2, 4]
    scheduling = gymnasium.make("peakrl/MachineScheduling-v0")
    scheduling.reset(seed=0)
    scheduling.step(3)
    observation, reward, *_ = scheduling.step(4)
    assert scheduling.unwrapped.states[observation] == ScheduleState((4, 5), worst=1)
    assert reward == -1.0
    assert scheduling.unwrapped.actions == (1, 2, 3, 4, 5)


# --- Observations and text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shielded", [False, True])
def test_what_an_environment_shows_is_all_that_the_best_policy_asks_for(shielded):
    """Followed by the observation alone, which knows no step of its own, it does what it does by step and state."""
    model = compile_model(random_problem(30, states=3, actions=2, horizon=3, stationary=False))
    best, env = solve(model).policy, to_gymnasium(model, shielded=shielded)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.observation_space == gymnasium.spaces.MultiDiscrete([4, model.num_states])
    rule = {
        (step, model.state_labels.index(state)): model.action_labels.index(action)
        for step in range(3)
        for state, action in best.table(step).items()
    }
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        for step in range(3):
            action = rule[tuple(observation.tolist())]
            assert model.action_labels[action] == best.action(step, env.unwrapped.state)
            observation, *_ = env.step(action)
        assert observation[0] == 3


def test_the_step_is_shown_where_it_is_needed_and_where_it_is_asked_for():
    stationary = random_problem(9, states=3, actions=2, horizon=2, stationary=True)
    assert to_gymnasium(stationary).reset(seed=1)[0] in range(3)
    asked = to_gymnasium(stationary, with_step=True)
    assert asked.reset(seed=1)[0].tolist() == [0, to_gymnasium(stationary).reset(seed=1)[0]]
    layered = random_problem(8, states=3, actions=2, horizon=3, stationary=False)
    assert isinstance(to_gymnasium(layered, with_step=False).observation_space, gymnasium.spaces.Discrete)
    jobs = gymnasium.make("peakrl/MachineScheduling-v0", example=1, with_step=True)
    assert jobs.reset(seed=1)[0][0] == 0
    assert isinstance(gymnasium.make("peakrl/MachineScheduling-v0", example=1).reset(seed=1)[0], int)
    power = gymnasium.make("peakrl/EnergyHarvesting-v0", horizon=2, with_step=True)
    assert power.observation_space.contains(power.reset(seed=1)[0])
    several = gymnasium.vector.SyncVectorEnv([lambda: to_gymnasium(layered)] * 2)
    assert several.reset(seed=1)[0].shape == (2, 2)


def test_text_tells_step_state_and_violations():
    env = gymnasium.make("peakrl/EnergyHarvesting-v0", arrivals=[10, 10], horizon=2, render_mode="ansi")
    env.reset(seed=0)
    env.step(9)
    assert "step 1 of 2: state (1, 10)" in env.render()
    assert "peak power -1 violated" in env.render()
    plain = to_gymnasium(random_problem(1), render_mode="ansi")
    plain.reset(seed=0)
    assert plain.render().startswith("step 0 of")
    with pytest.raises(ProblemError, match="render_mode"):
        to_gymnasium(random_problem(1), render_mode="human")


# --- Policies for use ------------------------------------------------------------------------------------------------


def mixture():
    problem = random_problem(4, states=4, actions=3, horizon=4)
    return averaged_policy(compile_model(problem), random_tables(problem, np.random.default_rng(3), 30))


def dice():
    problem = random_problem(4, states=4, actions=3, horizon=4)
    return chance_policy(compile_model(problem), random_chances(problem, np.random.default_rng(3)))


def test_explain_tells_values_choice_and_what_is_known_to_fail():
    model = compile_model(energy_harvesting(horizon=3, battery=3, max_arrival=3, mean=2, std=1, peak_power=1))
    run = learn(model, SafeQ(), episodes=500)
    views = run.policy.explain(1, (2, 1))
    assert [view.action for view in views] == [0, 1, 2, 3]
    assert [view.violates for view in views] == [False, False, True, True]
    assert max(views, key=lambda view: view.value).probability == 1.0
    assert "violates" in str(views[3])
    assert all(view.value is None for view in solve(model).policy.explain(1, (2, 1)))


def test_explain_on_an_environment_tells_only_what_was_seen():
    env = gymnasium.make("peakrl/EnergyHarvesting-v0", arrivals=[2, 1], horizon=2, peak_power=1, max_arrival=2)
    run = learn(env, SafeQ(), episodes=30)
    first = {view.action: view for view in run.policy.explain(0, np.array([0, 2]))}
    assert first[2].violates is True
    assert first[2].value == -np.inf
    assert first[run.policy.action(0, (0, 2))].violates is None


def test_a_dead_end_is_told_apart_from_a_violation():
    run = learn(gymnasium.make("peakrl/MachineScheduling-v0"), SafeQ(), episodes=300)
    views = [
        view
        for step in range(5)
        for slot in range(*run.model.step_slots[step])
        for view in run.policy.explain(step, run.model.state_of_slot(slot))
    ]
    assert any(view.dead_end and view.value == -np.inf for view in views)
    assert any(view.violates for view in views)
    assert not any(view.dead_end and view.violates for view in views)


def test_an_averaged_policy_follows_the_episode_drawn_at_reset():
    policy = mixture()
    model = policy.model
    with pytest.raises(PolicyError, match="reset"):
        policy.action(0, model.state_of_slot(int(model.first_slot[0])))
    drawn = {policy.reset(seed) for seed in range(200)}
    assert drawn == set(range(1, policy.episodes + 1))
    for seed in range(20):
        plain = policy.policy(policy.reset(seed))
        for step, (first, last) in enumerate(model.step_slots.tolist()):
            for slot in range(first, last):
                if len(model.rows_of_slot(slot)):
                    state = model.state_of_slot(slot)
                    assert policy.action(step, state) == plain.action(step, state)


def test_the_shares_of_an_averaged_policy_are_those_of_its_policies():
    policy = mixture()
    state = policy.model.state_of_slot(int(policy.model.first_slot[0]))
    taken = [policy.policy(k).action(0, state) for k in range(1, policy.episodes + 1)]
    expected = {action: taken.count(action) / len(taken) for action in taken}
    assert policy.probabilities(0, state) == pytest.approx(expected)


def test_a_stochastic_policy_draws_by_its_probabilities():
    policy = dice()
    state = policy.model.state_of_slot(int(policy.model.first_slot[0]))
    with pytest.raises(PolicyError, match="reset"):
        policy.action(0, state)
    policy.reset(1)
    drawn = [policy.action(0, state) for _ in range(2000)]
    for action, probability in policy.probabilities(0, state).items():
        assert drawn.count(action) / 2000 == pytest.approx(probability, abs=0.05)
    policy.reset(1)
    assert [policy.action(0, state) for _ in range(20)] == drawn[:20]


def test_policies_are_exported_whole_with_their_labels(tmp_path):
    model = compile_model(scheduling_example(1))
    best = solve(model).policy
    path = tmp_path / "best.json"
    document = json.loads(best.to_json(path))
    assert json.loads(path.read_text()) == document
    assert document["horizon"] == 5
    assert document["decisions"][0] == {"step": 0, "state": [[], None, 0], "action": 4, "safe": True}
    lines = list(csv.DictReader(io.StringIO(best.to_csv(tmp_path / "best.csv"))))
    assert (
        len(lines) == len(document["decisions"]) == sum(len(model.rows_of_slot(s)) > 0 for s in range(model.num_slots))
    )
    assert lines[0] == {"step": "0", "state": "[[], null, 0]", "action": "4", "safe": "True"}


def test_an_exported_mixture_holds_every_one_of_its_policies():
    policy = mixture()
    lines = json.loads(policy.to_json())["decisions"]
    for k in (1, 2, policy.episodes // 2, policy.episodes):
        latest = {(line["step"], line["state"]): line["action"] for line in lines if line["from_episode"] <= k}
        plain = json.loads(policy.policy(k).to_json())["decisions"]
        assert latest == {(line["step"], line["state"]): line["action"] for line in plain}


def test_an_exported_stochastic_policy_adds_up_to_1():
    policy = dice()
    sums = {}
    for line in csv.DictReader(io.StringIO(policy.to_csv())):
        place = line["step"], line["state"]
        sums[place] = sums.get(place, 0.0) + float(line["probability"])
    assert list(sums.values()) == pytest.approx([1.0] * len(sums))


def test_a_state_that_was_never_met_is_an_error_and_no_guess():
    run = learn(gymnasium.make("peakrl/MachineScheduling-v0"), SafeQ(), episodes=5)
    with pytest.raises(PolicyError, match="was not visited at step 0"):
        run.policy.action(0, {"done": np.array([1, 1, 1, 1, 1]), "time": 3, "worst": 0})
    with pytest.raises(PolicyError, match="step 9"):
        run.policy.action(9, 0)
