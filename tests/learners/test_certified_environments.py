"""The certified learner on environments: the model path on the same draws, true certificates, ends, lanes, files."""

from __future__ import annotations

from dataclasses import astuple, replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import peakrl
from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import (
    Assumptions,
    ConstrainedEnv,
    Outcome,
    Policy,
    Problem,
    TabularModel,
    compile_model,
    evaluate,
    learn,
    solve,
)
from peakrl.certificates.verify import verify
from peakrl.errors import PolicyError, SettingsError, TargetError
from peakrl.gym.adapter import Observed
from peakrl.learners import Certified
from peakrl.learners.certified.tables import CANDIDATE, CHALLENGE, GAUGED, OPTIMISTIC, TOP
from peakrl.learners.episode import Log
from peakrl.training.trainer import Trainer

LAKE = {
    "horizon": 5,
    "reward_range": (0, 1),
    "constraint": lambda step: 1.0,
    "constraint_bounds": (1.0,),
}
#: So many states are as good as not known.
UNKNOWN = Assumptions(states=2**21)


class Lottery(problems.Lottery):
    """With actions in the order of their names, as the environment has them."""

    def actions(self, step, state):
        return sorted(super().actions(step, state))


MODELS = {
    "jackpot": problems.rare_jackpot(0.2),
    "catastrophe": problems.rare_catastrophe(0.2),
    "tie": problems.near_tie(),
    "first": problems.rare_first(),
    "lottery": compile_model(Lottery(wins=0.2)),
}


def certified(env, epsilon=0.3, episodes=6000, relative=True, **given):
    """Learn up to a share of the best value, or (`relative=False`) up to epsilon itself."""
    epsilon = (
        problems.share_of_best(getattr(env.unwrapped, "model", compile_model(WalkProblem())), epsilon)
        if relative
        else epsilon
    )
    return learn(env, Certified(epsilon), episodes=episodes, **{"history": "none", "average": False} | given)


def on_model(model, policy, labels=None):
    """A policy of an environment on its model; in states never met it takes the first action, as the learner says."""
    labels = labels or (lambda state: model.state_labels.index(state))
    actions = sorted(model.action_labels)

    def rule(step, state):
        try:
            return actions[policy.action(step, labels(state))]
        except PolicyError:
            return model.action_of_row(model.rows_of_slot(model.slot_of(step, state))[0])

    return Policy.from_rule(model, rule)


# --- The same draws -------------------------------------------------------------------------------------------------


def like_environment(model, met, seed, episodes):
    """The learner on a model that is declared as little as on an environment: no states, rewards that may be random."""
    settings, env = met.settings, met._trainer
    model = replace(model, reward_range=env.space.rules.rewards)  # with the margin for rounding
    active = Trainer(model, settings, planned=episodes, seed=seed, every=0, average=False)
    rounds, theirs = active.algorithm, env.algorithm
    shares, lower = rounds.tables.log_share, np.full(model.num_rows + 1, 50.0)
    shares[:] = 50.0
    weights = theirs.bet_logs()
    for _, _, _, rows in pairs(model, env):
        for row, own in rows:
            distribution = theirs.tables.distribution_of_row[row]
            shares[own + 1], lower[own + 1] = theirs.tables.log_share[distribution], weights[distribution]
    shares[0] = theirs.tables.log_share[0]
    rounds.store.set(complete=False, joint=True)
    rounds.facts = replace(rounds.facts, certain=False)
    rounds.bet_logs = lambda: lower
    active.advance(episodes)
    return active


def pairs(model, env):
    """(slot of the environment, step, slot of the model, their rows) of every state that was met and can be reached."""
    space, actions = env.space, sorted(model.action_labels)
    for slot in range(space.ends, space.slots):
        step, state = int(space.slot_step[slot]), model.state_labels[space.labels[slot]]
        if not model.stationary and step == model.horizon:
            continue
        place = model.slot_of(step, state) if not model.stationary else model.state_labels.index(state)
        own = {model.action_of_row(row): row for row in model.rows_of_slot(place)}
        starts = space.layout.row_start
        rows = [(row, own[actions[space.action_of_row(row)]]) for row in range(starts[slot], starts[slot + 1])]
        yield slot, step, place, rows


def different(model, env, active, apart=0.0):
    """What differs between the tables of the two, by more than `apart`, in all states that were met."""
    mine, theirs, found = active.algorithm, env.algorithm, []

    def numbers(rounds):
        issued = [value for line in rounds.issued for value in line.values()]
        *status, dead_first = astuple(rounds.status)  # slots have numbers of their own
        return np.array([*status, dead_first >= 0, *astuple(rounds.bounds), *issued])

    own, other = numbers(mine), numbers(theirs)
    if own.shape != other.shape or not np.allclose(own, other, rtol=apart, atol=apart):
        found.append((own, other))
    for name in ("counts", "returns", "gaps", "scale"):
        same = np.allclose(getattr(mine.tables, name), getattr(theirs.tables, name), rtol=apart, atol=apart)
        found += [] if same else [name]
    for slot, step, place, rows in pairs(model, env):
        for h in range(model.horizon) if model.stationary else [step]:
            if not model.reachable[h * model.layout.node_stride + place]:
                continue
            column, one, two = h * model.stationary, mine.tables, theirs.tables
            tables = [(one.value[place, column], two.value[slot, column])]
            tables += [(one.dead[place, column], two.dead[slot, column])]
            if one.scale[TOP] >= 0:  # gaps have been frozen
                tables += [(one.gap[place, column], two.gap[slot, column])]
            tables += [(one.upper[own, column], two.upper[row, column]) for row, own in rows]
            found += [(h, place, pair) for pair in tables if abs(pair[0] - pair[1]) > apart]
    return found


def compare(model, seed, episodes, apart=0.0):
    run = certified(ModelEnvironment(model, seed), 0.5, episodes, relative=False, assumptions=UNKNOWN)
    return different(model, run._trainer, like_environment(model, run, seed, run.episodes), apart)


@pytest.mark.parametrize("name", MODELS)
def test_the_tables_equal_those_of_the_compiled_path_bit_for_bit(name):
    assert compare(MODELS[name], 4, 800) == []


def test_the_tables_are_equal_on_random_problems_with_steps_of_their_own_or_shared():
    for seed in range(10):
        assert compare(compile_model(random_problem(seed)), seed, 250) == []


@pytest.mark.slow
def test_the_tables_stay_equal_on_many_random_problems():
    for seed in range(100, 300):
        model = compile_model(random_problem(seed))
        if model.stationary and model.horizon > 1 and not np.diff(model.layout.row_start).all():
            # A state of the horizon alone has no actions, so that the environment ends there. Where steps share their
            # samples, those of last steps are then left out (`last_following`), which the model does not do.
            continue
        # Where steps have states of their own, all that follows the last step is one end: sums and their margin for
        # rounding, which counts the next states of a pair, are others.
        assert compare(model, seed, 1500, apart=1e-11) == []


# --- Certificates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assumptions", [Assumptions(), UNKNOWN], ids=["number known", "unknown"])
@pytest.mark.parametrize("name", ["catastrophe", "tie", "lottery"])
def test_it_stops_with_a_true_certificate_that_verify_accepts(name, assumptions, tmp_path):
    model = MODELS[name]
    run, best = certified(ModelEnvironment(model, 1), 0.4, assumptions=assumptions), solve(model)
    certificate, judged = run.certificate, evaluate(model, on_model(model, run.policy))
    assert run.stop_reason == "certified"
    assert certificate.holds
    assert certificate.value_low <= judged.value
    assert certificate.optimum_high >= best.value
    assert best.value - judged.value <= certificate.gap <= certificate.epsilon
    assert judged.violation <= certificate.violation_high <= certificate.epsilon
    said = " ".join(certificate.rests_on)
    assert ("the number of states is not bounded" in said) == (assumptions is UNKNOWN)
    certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


def test_certificates_on_random_environments_are_true_or_the_problem_is_infeasible(tmp_path):
    for seed in range(5):
        model = compile_model(random_problem(seed))
        run, best = certified(ModelEnvironment(model, seed), 0.5, 1500, relative=False), solve(model)
        if run.stop_reason == "infeasible":
            assert not best.feasible
            assert run.infeasibility_proof
        elif run.stop_reason == "certified":
            judged = evaluate(model, on_model(model, run.policy))
            assert not best.feasible or best.value - judged.value <= 0.5
            assert judged.violation <= 0.5
        run.certificate.save(tmp_path / "certificate")
        assert verify(tmp_path / "certificate").holds == run.certificate.holds


class Walk(gymnasium.Env):
    """A walk on 0..4 from 2: right pays 0.3 and may end the episode, left pays 0.1; 4 is out of bounds."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)
    metadata = {  # noqa: RUF012  Gymnasium has it so
        "peakrl": {"horizon": 4, "reward_range": (0.0, 0.3), "constraint_bounds": (1.0,), "stationary": True}
    }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 2
        return self.place, {}

    def step(self, action):
        self.place = max(0, min(4, self.place + (1 if action else -1)))
        ends = action == 1 and self.np_random.random() < 0.25
        return self.place, 0.3 if action else 0.1, bool(ends), False, {"constraints": 1.0 if self.place < 4 else -1.0}


class WalkProblem(Problem):
    """The same as a problem: an episode that has ended stays where it is and earns nothing."""

    horizon, reward_range, stationary = 4, (0.0, 0.3), True
    constraint_names, constraint_bounds = ("bounds",), (1.0,)

    def initial(self):
        return [(1.0, 2)]

    def actions(self, step, state):
        return [0, 1] if state != "over" else [0]

    def outcomes(self, step, state, action):
        if state == "over":
            return [Outcome(1.0, "over", 0.0, (1.0,))]
        place = max(0, min(4, state + (1 if action else -1)))
        limit = (1.0 if place < 4 else -1.0,)
        stays = [Outcome(0.75 if action else 1.0, place, 0.3 if action else 0.1, limit)]
        return [*stays, Outcome(0.25, "over", 0.3, limit)] if action else stays


def test_episodes_that_end_early_are_certified_too(tmp_path):
    model = compile_model(WalkProblem())
    run = certified(Walk(), 0.3, 60_000)
    judged = evaluate(model, on_model(model, run.policy, labels=lambda state: state))
    assert run.stop_reason == "certified"
    assert solve(model).value - judged.value <= run.certificate.epsilon
    assert judged.violation <= run.certificate.violation_high
    run.certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


# --- What is declared -----------------------------------------------------------------------------------------------


def test_declarations_are_used_and_named(tmp_path):
    model = MODELS["tie"]
    declared = {
        "nothing": Assumptions(),
        "rewards": Assumptions(rewards=True),
        "groups": Assumptions(
            rewards=lambda step, state, action: [[0.0, 0.0], [1.0, 1.0], [0.0, 0.1]][state][action],
            shared_transitions=lambda step, state, action: action if state == 0 else "back",
            constraint_depends_on="action",
        ),
    }
    for name, assumptions in declared.items():
        run = certified(ModelEnvironment(model, 2), 0.3, 20_000, assumptions=assumptions)
        judged = evaluate(model, on_model(model, run.policy))
        assert run.certificate.holds, name
        assert solve(model).value - judged.value <= run.certificate.epsilon
        assert sum(line.startswith("declared") for line in run.certificate.rests_on) == len(assumptions.declared())
        run.certificate.save(tmp_path / name)
        assert verify(tmp_path / name).holds


def test_where_nothing_is_random_the_best_policy_is_found_exactly():
    model = compile_model(peakrl.problems.scheduling_example(1))
    run = certified(
        peakrl.to_gymnasium(peakrl.problems.scheduling_example(1)),
        0.0,
        200,
        assumptions=Assumptions(deterministic=True),
    )
    assert run.episodes <= 60
    assert (run.certificate.gap, run.certificate.violation_high) == (0, 0)
    assert run.certificate.value_low == solve(model).value


def test_an_episode_whose_gap_is_the_largest_there_can_be_is_counted_however_that_is_rounded(tmp_path):
    # 3 * 1.3 - (-1 - 2) is 6.9, 3 * (1.3 + 1) is less by one digit: the rare first state has the former as its gap.
    distributions = np.zeros((2, 2, 2))
    distributions[0, :, 0] = distributions[1, :, 1] = 1.0
    model = TabularModel.from_arrays(
        distributions, [[1.2, -1.0], [1.0, 0.9]], np.ones((1, 2, 2)), 3, initial=[0.99, 0.01], reward_range=(-1.0, 1.3)
    )
    run = certified(ModelEnvironment(model, 1), 0.4, 3000, relative=False, seed=1, assumptions=UNKNOWN)
    tables = run._trainer.algorithm.tables
    assert tables.gap.max() == tables.scale[TOP] > 3 * (1.3 + 1.0)
    assert tables.gaps.sum() == tables.counts[GAUGED] > 0
    run.save(tmp_path / "run")
    assert peakrl.load(tmp_path / "run").episodes == run.episodes


@pytest.mark.parametrize("tolerance", [0.0, 1e-6])
def test_a_certificate_says_what_it_forgives(tolerance):
    env = ConstrainedEnv(ModelEnvironment(MODELS["tie"], 1), constraint_tolerances=[tolerance])
    lines = certified(env, 0.4, 60, relative=False).certificate.rests_on
    assert any("counts as satisfied down to 1e-06 below 0" in line for line in lines) == (tolerance > 0)


@pytest.mark.parametrize("reward_range", [(-1.0, -0.1), (-1.0, 1.0)])
def test_a_certificate_says_where_it_rests_on_episodes_that_do_not_end_early(reward_range):
    model = TabularModel.from_arrays(np.ones((1, 1, 1)), [[-0.5]], np.ones((1, 1, 1)), 2, reward_range=reward_range)
    lines = certified(ModelEnvironment(model, 1), 0.4, 60, relative=False).certificate.rests_on
    assert ("no episode ends before its 2 steps: the steps left out would earn 0" in lines) == (reward_range[1] < 0)


@pytest.mark.parametrize(
    ("assumptions", "says"),
    [
        (Assumptions(deterministic=True), "led to .*deterministic is declared"),
        (Assumptions(rewards=lambda step, state, action: 0.05), "by the declared rewards 0.05"),
        (Assumptions(states=2), "one more than the 2 declared states"),
        (Assumptions(max_reward=0.2), "max_reward is 0.2"),
        (Assumptions(constraints=lambda step, state, action: False), "returned False for step 0.*must return a number"),
    ],
)
def test_what_contradicts_a_declaration_ends_the_run_with_the_observation(assumptions, says):
    with pytest.raises(TargetError, match=rf"episode \d+, step \d.*{says}"):
        certified(Walk(), 0.05, 2000, assumptions=assumptions)


@pytest.mark.parametrize(
    ("assumptions", "says"),
    [
        (Assumptions(shared_transitions=True, rewards=True), "that a model stores.*give a function"),
        (Assumptions(shared_transitions=lambda step, state, action: 0), "declare rewards as well"),
    ],
)
def test_what_only_a_model_can_bear_out_is_refused(assumptions, says):
    with pytest.raises(SettingsError, match=says):
        certified(Walk(), 0.1, 100, assumptions=assumptions)


def test_without_constraint_bounds_nothing_can_be_certified():
    with pytest.raises(SettingsError, match="constraint_bounds"):
        certified(ConstrainedEnv(gymnasium.make("FrozenLake-v1"), horizon=5, reward_range=(0, 1)), 0.1, 100)


# --- Lanes and files ------------------------------------------------------------------------------------------------


def test_lanes_that_run_together_are_certified_and_learned_from_in_the_order_of_their_start(tmp_path):
    model = compile_model(WalkProblem())
    run = certified(SyncVectorEnv([Walk] * 3), 0.4, 60_000)
    judged = evaluate(model, on_model(model, run.policy, labels=lambda state: state))
    assert run.stop_reason == "certified"
    assert solve(model).value - judged.value <= run.certificate.epsilon
    run.certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


@pytest.mark.parametrize("make", [Walk, lambda: peakrl.to_gymnasium(random_problem(3))], ids=["walk", "layered"])
def test_a_run_cut_anywhere_and_resumed_is_the_same_bit_for_bit(make, tmp_path):
    path, settings = tmp_path / "run", Certified((0.3, 0.1), relative=False)
    whole = learn(make(), settings, episodes=700, seed=2, history=50)
    for cut in (1, 60, 333, 600):
        learn(make(), settings, episodes=cut, seed=2, history=50).save(path)
        again = peakrl.resume(path, env=make(), episodes=700)
        assert (again.episodes, again.stop_reason) == (whole.episodes, whole.stop_reason)
        assert again.certificate == whole.certificate
        assert again.q.tobytes() == whole.q.tobytes()
        assert (again.policy.rows == whole.policy.rows).all()
        for name in ("change_episode", "change_node", "change_row"):
            assert np.array_equal(getattr(again.averaged_policy, name), getattr(whole.averaged_policy, name))


def decisions(states, rows):
    """{(step, state): action} of a table of rows."""
    return {
        (step, states.state_of_slot(slot)): states.action_of_row(int(rows[step * states.node_stride + slot]))
        for step in range(states.horizon)
        for slot in range(*states.step_slots[step])
    }


def test_the_log_tells_what_every_episode_followed():
    policy = certified(Walk(), 0.1, 700, average=True, relative=False).averaged_policy
    for cut in (1, 49, 50, 66, 67, 100, 234, 500):
        rows = policy.first.copy()
        before = policy.change_episode <= cut + 1
        for node, row in zip(policy.change_node[before], policy.change_row[before], strict=True):
            rows[node] = row
        run = certified(Walk(), 0.1, cut, relative=False)
        followed = decisions(run.model, run._trainer.algorithm.followed())
        assert followed.items() <= decisions(policy.model, rows).items()


@pytest.mark.parametrize("kind", [OPTIMISTIC, CHALLENGE, CANDIDATE])
def test_what_is_done_in_a_state_that_waits_is_what_is_done_there_once_it_is_entered(kind):
    env, known = ConstrainedEnv(gymnasium.make("FrozenLake-v1"), **LAKE), Assumptions(states=200)
    learner = certified(env, 0.5, 60, relative=False, assumptions=known)._learned
    learner.status.kind = kind
    for state, offer in ((100, (0, 1, 2, 3)), (101, (2,)), (102, (1, 3))):
        slot = learner.space.add(2, Observed(state, offer))
        taken = learner.space.starts[slot] + min(learner.place_when_new, len(offer) - 1)
        learner.grow(slot, Log.of_size(0))
        assert learner.row(2, slot) == taken
