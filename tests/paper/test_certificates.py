"""The experiment `certificates` at a small size."""

import math
from dataclasses import replace

import numpy as np
import pytest

import certified_problems as tiny
from peakrl import LearnerSettings, TabularModel, compile_model, energy_harvesting, learn, scheduling_example, solve
from peakrl.learning.active import ActiveRun
from peakrl.model.explore import as_model
from peakrl.paper.certificate_problems import drawn
from peakrl.paper.certificate_tasks import declared, judge
from peakrl.paper.certificates import DEFAULT, ENERGY, NOTHING, QUICK, limits, measure
from peakrl.paper.records import Request, read_figure
from peakrl.report import draw_figure
from peakrl.runs import Result, Task


def test_certificates_are_counted_beside_theorem_1_and_none_is_false(tmp_path, monkeypatch):
    monkeypatch.setattr("peakrl.paper.certificates.FIRST_SEEDS", 1)
    settings = replace(QUICK, peaks=(), shares=(0.5, 0.2), episodes=50_000, random_problems=1)
    record = measure(Request(tmp_path, workers=1, quick=True), settings)
    by_name = {(row.curve, row.measure): row.mean for row in record.rows}
    # One walk of a deterministic problem is one episode; Theorem 1's number is that of `pac_plan`, above 1e9 here.
    assert by_name["deterministic", "median episodes to 20 %"] <= 60
    assert by_name["deterministic", "median episodes to 20 %"] < by_name[NOTHING, "median episodes to 20 %"]
    assert by_name["Theorem 1", "median episodes to 20 %"] > 1e9
    issued, false, share = record.checks
    assert issued.ours == issued.expected == 12
    assert false.ours == share.ours == 0
    families = ["random problems", "slippery grids"]
    assert record.variants == ["scheduling 1", *families, *(f"{name}, first draws" for name in families)]
    record.write(tmp_path)
    assert read_figure(tmp_path, "certificates").rows == record.rows
    assert all(path.stat().st_size > 5_000 for path in draw_figure("certificates", tmp_path))


def test_every_declaration_of_energy_harvesting_makes_a_task_and_is_true():
    model = compile_model(energy_harvesting(horizon=3, battery=3, max_arrival=3, mean=1.5, std=1, peak_power=2))
    for names in ENERGY.values():
        active = ActiveRun(
            model, LearnerSettings.certified(1.0), planned=1, seed=0, every=0, knowledge=declared(list(names), model)
        )
        assert len(active.learned().task.knowledge.declared()) == len(names)


def test_limits_tell_which_runs_took_too_long():
    def took(*episodes):
        return Result(Task("none:none", {}), {}, {"episodes": np.array(episodes, float)})

    settings = replace(DEFAULT, seeds=1)
    runs = {
        ("energy, peak 8", NOTHING): [took(1, 2, 54_000)],
        ("scheduling 1", "deterministic"): [took(50, 50, 61)],
        ("random problems", NOTHING): [took(1, 2, 11_000), took(1, 2, 12_000), took(1, 2, 120_000)],
        ("slippery grids", NOTHING): [took(1, 2, math.inf), took(1, 2, 3), took(1, 2, math.inf)],
    }
    missed = [check.what for check in limits(settings, runs) if check.within is False]
    assert missed == [
        "scheduling 1, deterministic: most episodes to 1 %",
        "random problems, nothing declared: most episodes to 1 %",
    ]
    shown = {check.what: (check.expected, check.ours) for check in limits(settings, runs) if check.within is None}
    assert shown == {
        "random problems: median episodes to 1 %": (12_000, 12_000),
        "slippery grids: not certified to 1 % within 1,100,000": (1, 2),
    }


def test_drawn_problems_are_as_large_as_they_should_be_and_can_be_kept():
    for number in range(6):
        model = drawn("random", number)
        assert 5 <= model.num_states <= 20
        assert 2 <= model.max_actions <= 5
        assert solve(model).feasible
        assert model.digest == drawn("random", number).digest
    assert drawn("grid", 2).num_states <= 25


HARVESTING = {"horizon": 4, "battery": 3, "max_arrival": 3, "mean": 1.5, "std": 1, "peak_power": 2}
DECLARED = (["groups"], ["groups", "action", "rewards"], ["outcome map"], ["outcome map", "action", "rewards"], [])
TINY = (tiny.rare_jackpot, tiny.rare_catastrophe, tiny.near_tie, tiny.rare_first, tiny.Lottery)


def certified_runs(number):
    """Yield (model, what is declared, shares of the optimum) of one round over all kinds of problems."""
    shares = [0.5, 0.3, 0.2, 0.1, 0.05]
    yield drawn("random", 1000 + number), [], shares
    yield compile_model(energy_harvesting(**HARVESTING)), DECLARED[number % len(DECLARED)], shares
    yield compile_model(scheduling_example(1)), ["deterministic"] if number % 2 else [], shares[:3]
    yield as_model(TINY[number % len(TINY)]()), [], [0.8, 0.6, 0.4, 0.3]


@pytest.mark.slow
def test_of_five_thousand_certificates_none_is_false(capsys):
    # p = 0.05 allows one in twenty; what is proved is wider than what is true, so that none was ever seen to be false.
    issued = dict.fromkeys(["random", "energy harvesting", "scheduling", "tiny"], 0)
    number, false = 0, 0
    while sum(issued.values()) < 5000:
        for kind, (model, told, shares) in zip(issued, certified_runs(number), strict=True):
            made = certify_and_judge(model, shares, declared(told, model), episodes=30_000, seed=number)
            issued[kind] += made["issued"]
            false += made["false"]
        number += 1
    with capsys.disabled():
        print(f"{issued}, {false} false")
    assert false == 0


def test_a_problem_that_no_policy_can_keep_gets_a_proof_and_no_certificate():
    doomed = TabularModel.from_arrays(np.ones((1, 2, 1)), np.ones((1, 2)), -np.ones((1, 1, 2)), 3)
    run = learn(doomed, LearnerSettings.certified(0.5), episodes=5_000)
    assert run.feasible is False
    assert run.certificate is None or not run.certificate.holds


def certify_and_judge(model, shares, knowledge, episodes, seed):
    """Certify to shares of the optimum, 5 % failing at most; the certificates issued, and those that are false."""
    best = solve(model).value
    settings = LearnerSettings.certified([share * abs(best) for share in shares])
    active = ActiveRun(model, settings, planned=episodes, seed=seed, every=0, average=False, knowledge=knowledge)
    return judge(active, model, best, episodes)
