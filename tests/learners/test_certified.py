"""The certified learner stops by itself with a certificate that is true, and whose file can be checked."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import peakrl
from helpers import certified_problems as problems
from helpers.model_environment import ModelEnvironment
from helpers.random_problems import random_problem
from peakrl import Assumptions, compile_model, evaluate, learn, solve
from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.certificates.verify import verify
from peakrl.errors import PeakError, SettingsError
from peakrl.gym.constrained_env import adapt
from peakrl.learners import Certified, learner_from
from peakrl.training.trainer import Trainer

PROBLEMS = {
    "jackpot": problems.rare_jackpot(),
    "catastrophe": problems.rare_catastrophe(),
    "tie": problems.near_tie(),
    "first": problems.rare_first(),
    "lottery": compile_model(problems.Lottery()),
}
HARVESTING = compile_model(
    peakrl.problems.energy_harvesting(horizon=4, battery=3, max_arrival=3, mean=1.5, std=1, peak_power=2)
)  # fmt: skip


def certified(model, epsilon=0.1, episodes=200_000, **given):
    """Learn up to a share of the best value, or (`relative=False`) up to epsilon itself."""
    epsilon = problems.share_of_best(model, epsilon) if given.pop("relative", True) else epsilon
    return learn(model, Certified(epsilon), episodes=episodes, **{"history": "none", "average": False} | given)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_stops_with_a_true_certificate_that_verify_accepts(name, tmp_path):
    model = PROBLEMS[name]
    run, best = certified(model), solve(model)
    certificate, judged = run.certificate, evaluate(model, run.policy)
    assert run.stop_reason == "certified"
    assert certificate.holds
    assert certificate.value_low <= judged.value
    assert certificate.optimum_high >= best.value
    assert best.value - judged.value <= certificate.gap <= certificate.epsilon
    assert judged.violation <= certificate.violation_high <= certificate.epsilon
    certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


def test_certificates_on_random_problems_are_true_or_the_problem_is_infeasible(tmp_path):
    for seed in range(5):
        model = compile_model(random_problem(seed))
        run, best = certified(model, 0.3, 30_000, relative=False, seed=seed), solve(model)
        if run.stop_reason == "infeasible":
            assert not best.feasible
            assert run.infeasibility_proof
            assert run.feasible is False
            assert run.certificate.gap is None
        elif run.stop_reason == "certified":
            judged = evaluate(model, run.policy)
            assert not best.feasible or best.value - judged.value <= 0.3
            assert judged.violation <= 0.3
        run.certificate.save(tmp_path / "certificate")
        assert verify(tmp_path / "certificate").holds == run.certificate.holds


def test_without_enough_episodes_there_are_bounds_and_no_certificate(tmp_path):
    run = certified(PROBLEMS["tie"], 0.01, episodes=300)
    assert run.stop_reason is None
    assert not run.certificate.holds
    assert "more than" in run.certificate.reason
    assert run.certificate.optimum_high >= solve(PROBLEMS["tie"]).value
    run.certificate.save(tmp_path / "certificate")
    assert not verify(tmp_path / "certificate").holds


def test_a_certified_policy_is_the_one_handed_out():
    run = certified(PROBLEMS["catastrophe"])
    assert evaluate(PROBLEMS["catastrophe"], run.policy).violation == 0


def test_several_epsilons_are_passed_in_turn():
    algorithm = certified(PROBLEMS["tie"], (0.5, 0.1, 0.2))._trainer.algorithm
    lines = algorithm.issued
    assert [line["episodes"] for line in lines] == sorted(line["episodes"] for line in lines)
    assert len(lines) == 3
    assert lines[0]["epsilon"] > lines[1]["epsilon"] > lines[2]["epsilon"]


def noise(state, action, arrival):
    battery, energy = state
    return min(3, battery + energy - action), arrival


DECLARATIONS = {
    "nothing": Assumptions(),
    "groups": Assumptions(shared_transitions=True),
    "action": Assumptions(constraint_depends_on="action"),
    "rewards": Assumptions(rewards=lambda step, state, action: math.log2(1 + action)),
    "most": Assumptions(max_reward=math.log2(3)),
    "all": Assumptions(shared_transitions=True, constraint_depends_on="action", rewards=True, max_reward=math.log2(3)),
    "map": Assumptions(dynamics=(noise, (0, 1, 2, 3))),
}


def test_declarations_make_it_cheaper_and_are_named(tmp_path):
    best, episodes = solve(HARVESTING).value, {}
    for name, assumptions in DECLARATIONS.items():
        run = certified(HARVESTING, 0.1, assumptions=assumptions)
        certificate = run.certificate
        assert certificate.holds, name
        assert best - evaluate(HARVESTING, run.policy).value <= certificate.epsilon
        named = sum(line.startswith("declared") for line in certificate.rests_on)
        assert named == len(assumptions.declared())
        certificate.save(tmp_path / name)
        assert verify(tmp_path / name).holds
        episodes[name] = run.episodes
    # Measured: 6,655 with nothing; every declaration is knowledge that need not be bought with episodes.
    assert episodes["all"] < episodes["groups"] < episodes["nothing"]
    assert episodes["map"] < episodes["nothing"]


def test_where_nothing_is_random_the_best_policy_is_found_exactly(tmp_path):
    model = compile_model(peakrl.problems.scheduling_example(1))
    run = certified(model, 0.0, assumptions=Assumptions(deterministic=True))
    assert run.episodes <= 60
    assert run.certificate.gap == 0
    assert run.certificate.violation_high == 0
    assert evaluate(model, run.policy).value == solve(model).value == run.certificate.value_low
    run.certificate.save(tmp_path / "certificate")
    assert verify(tmp_path / "certificate").holds


@pytest.mark.parametrize(
    ("assumptions", "says"),
    [
        (Assumptions(deterministic=True), "something is random"),
        (Assumptions(rewards=lambda step, state, action: 0.0), "rewards says 0"),
        (Assumptions(constraint_depends_on="state"), "constraints differ for"),
        (Assumptions(max_reward=0.5), "max_reward is 0.5"),
        (Assumptions(shared_transitions=lambda step, state, action: 0), "shared_transitions"),
        (Assumptions(dynamics=(lambda s, a, e: (0, e), (0, 1, 2, 3))), "dynamics"),
        (Assumptions(dynamics=(lambda s, a, e: (0, 0), (0, 1))), "dynamics"),
        (Assumptions(dynamics=(lambda s, a, e: ("x", e), (0, 1))), "dynamics"),
        (Assumptions(dynamics=(noise, ())), "dynamics names no noises"),
    ],
)
def test_a_false_declaration_is_an_error(assumptions, says):
    with pytest.raises(SettingsError, match=says):
        certified(HARVESTING, 0.1, assumptions=assumptions)


def test_where_nothing_is_random_there_is_no_noise_to_declare():
    model = compile_model(peakrl.problems.scheduling_example(1))
    declared = Assumptions(deterministic=True, dynamics=(lambda state, action, noise: state, (0,)))
    with pytest.raises(SettingsError, match="deterministic says that there is no noise"):
        certified(model, 0.0, assumptions=declared)


@pytest.mark.parametrize("seed", [32, 46])
def test_who_asks_for_the_certificate_does_not_change_how_the_run_goes_on(tmp_path, seed):
    # In these runs the counts show a dead state that the learner, between two reviews, has not concluded yet.
    problem = random_problem(seed, states=5, actions=3, horizon=4, constraints=1, safe_action=False, stationary=True)
    run = certified(compile_model(problem), 0.2, episodes=30, seed=seed)
    for name, before in (("silent", None), ("asked", run)):
        assert before is None or before.certificate is not None
        run.save(tmp_path / name)
    one, other = (peakrl.resume(tmp_path / name, episodes=200) for name in ("silent", "asked"))
    assert np.array_equal(one.q, other.q)
    assert np.array_equal(one.policy.rows, other.policy.rows)


def test_the_most_reward_holds_for_every_outcome_not_for_the_mean_of_a_pair():
    # A ticket earns 1 in 3 of 100: no bet may be capped at 0.5, though its mean is less.
    with pytest.raises(SettingsError, match=r"max_reward is 0.5, but state 'here', action 'ticket' earns 1 "):
        certified(compile_model(problems.Lottery()), 0.1, assumptions=Assumptions(max_reward=0.5))


def test_epsilons_that_cannot_be_are_refused():
    for epsilon in [-1.0, math.nan, math.inf, (), "x", (0.1, -2)]:
        with pytest.raises(SettingsError, match="epsilon"):
            Certified(epsilon)


def test_an_epsilon_of_0_needs_a_declaration():
    with pytest.raises(SettingsError, match="deterministic=True"):
        certified(HARVESTING, 0.0)


def test_a_run_cut_anywhere_and_resumed_is_the_same_bit_for_bit(tmp_path):
    whole = certified(HARVESTING, (0.5, 0.2), history=100, average=True)
    path = tmp_path / "run"
    for cut in (37, 700, 1100):
        settings = Certified(problems.share_of_best(HARVESTING, (0.5, 0.2)))
        learn(HARVESTING, settings, episodes=cut, history=100, average=True).save(path)
        again = peakrl.resume(path, episodes=200_000)
        assert again.episodes == whole.episodes
        assert again.stop_reason == whole.stop_reason == "certified"
        assert (again.policy.rows == whole.policy.rows).all()
        assert again.certificate == whole.certificate
        assert (again.averaged_policy.change_row == whole.averaged_policy.change_row).all()
        for name in ("episode", "value", "violation"):
            assert np.array_equal(getattr(again.history, name), getattr(whole.history, name))


def test_what_the_last_episode_followed_does_not_depend_on_the_pieces_that_a_run_was_made_in():
    def followed(model, piece):
        active = Trainer(model, Certified(1.0), planned=10**6, seed=3, every=0, average=False)
        while active.stop_reason is None:
            active.advance(piece)
        return active.done, active.rows.tolist()

    model = problems.near_tie()
    assert followed(model, 10**6) == followed(model, 97)
    assert followed(adapt(ModelEnvironment(model, 0)), 10**6) == followed(adapt(ModelEnvironment(model, 0)), 97)


def decisions(model, rows):
    """(step, slot, row) of every state that has actions."""
    for step in range(model.horizon):
        for slot in range(*model.step_slots[step]):
            if len(model.rows_of_slot(slot)):
                yield step, slot, int(rows[step * model.node_stride + slot])


def test_the_log_tells_what_every_episode_followed():
    # Learned again and cut after episode k, the run follows pi^(k+1) next: what the change list says of it.
    model = HARVESTING
    policy = certified(model, 0.3, average=True).averaged_policy
    for cut in (1, 49, 50, 66, 67, 84, 100, 234, 500):
        rows = policy.first.copy()
        before = policy.change_episode <= cut + 1
        for node, row in zip(policy.change_node[before], policy.change_row[before], strict=True):
            rows[node] = row
        algorithm = certified(model, 0.3, episodes=cut)._trainer.algorithm
        assert {*decisions(model, algorithm.followed())} == {*decisions(model, rows)}


def test_settings_survive_a_file_and_show_as_their_call():
    settings = Certified((0.05, 0.1), failure_probability=0.01, relative=True)
    assert learner_from(json.loads(json.dumps(settings.as_dict()))) == settings
    assert repr(settings) == "Certified(epsilon=(0.1, 0.05), failure_probability=0.01, relative=True)"


NUMBERS = ("value_low", "optimum_high", "gap", "violation_high", "violation_probability_high", "epsilon")


def test_verify_refuses_altered_numbers(tmp_path):
    generator = np.random.default_rng(0)
    certificate = certified(PROBLEMS["tie"], 0.3).certificate
    evidence = certificate.evidence
    alterable = (
        "samples",
        "cell_next",
        "cell_count",
        "reward",
        "max_violation",
        "returns_count",
        "row_start",
    )  # not the distribution of an action whose upper value is not the largest: nothing rests on it
    accepted = []
    for _ in range(60):
        name = str(generator.choice(alterable))
        arrays = dict(evidence.arrays)
        changed = arrays[name] = arrays[name].copy()
        used = np.flatnonzero(changed.ravel() != 0)
        place = int(generator.choice(used)) if used.size else 0
        by = float(generator.choice([1.0, -1.0])) if changed.dtype.kind == "i" else float(generator.uniform(0.2, 0.9))
        changed.ravel()[place] += changed.dtype.type(by)
        altered = Certificate(**{**certificate.__dict__, "evidence": Evidence(evidence.plain, arrays)})
        altered.save(tmp_path / "altered")
        try:
            holds = verify(tmp_path / "altered").holds
        except PeakError:
            holds = False
        if holds:
            accepted.append((name, place))
    assert not accepted


@pytest.mark.parametrize("name", NUMBERS)
def test_verify_refuses_better_numbers_than_the_evidence_gives(name, tmp_path):
    certificate = certified(PROBLEMS["jackpot"], 0.3).certificate
    better = 1.01 * getattr(certificate, name) if name in ("value_low", "epsilon") else 0.5 * getattr(certificate, name)
    altered = Certificate(**{**certificate.__dict__, name: better})
    altered.save(tmp_path / "altered")
    assert getattr(certificate, name) == 0 or not verify(tmp_path / "altered").holds
