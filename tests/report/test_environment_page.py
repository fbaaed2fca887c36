"""The page of a run on an environment: what was experienced, and no claim beyond what is proved."""

from types import SimpleNamespace

import pytest

import peakrl
from helpers.report_pages import Corridor
from peakrl.report.analysis import RunAnalysis
from peakrl.report.sections import badge as badge_of


def learned(risk=0.0, floor=0.0, **more):
    return peakrl.learn(
        peakrl.ConstrainedEnv(Corridor(risk, floor), horizon=6, reward_range=(0, 1)), episodes=80, **more
    )


def written(source, place):
    return peakrl.write_report(source, place).read_text(encoding="utf-8")


def test_a_run_and_its_file_give_the_same_page_without_the_environment(tmp_path):
    run = learned()
    run.save(tmp_path / "run")
    pages = written(tmp_path / "run", tmp_path / "file.html"), written(run, tmp_path / "run.html")
    wanted = ("80 episodes with seed 0", "Observed while learning", "Decisions of the policy in visited states")
    assert [[text in page for text in wanted] for page in pages] == [[True] * 3] * 2


def test_what_was_merely_unseen_is_not_called_safe(tmp_path):
    run = learned()
    assert run.violations == 0
    page = written(run, tmp_path / "page.html")
    assert "Nothing is proved about this policy: while learning, no episode violated a constraint." in page
    assert "never violates" not in page
    assert 'class="badge good"' not in page


def test_violations_are_told_with_the_last_of_them(tmp_path):
    run = learned(risk=0.5)
    page = written(run, tmp_path / "page.html")
    assert (
        f"{run.violations:,} of 80 episodes violated a constraint (last: episode {run.last_violation_episode:,})"
        in page
    )


def test_a_proof_of_infeasibility_is_shown_with_its_observations(tmp_path):
    run = learned(floor=1.0, assumptions=peakrl.Assumptions(states=100))
    assert run.feasible is False
    page = written(run, tmp_path / "page.html")
    assert "Infeasible, proved by the learner" in page
    assert "every action that was observed to fail" in page


@pytest.mark.parametrize(("chance", "badge"), [(0.25, "may violate"), (0.0, "certified"), (None, "certified")])
def test_a_policy_that_the_table_shows_to_violate_is_not_called_good_whatever_was_certified(chance, badge):
    run = SimpleNamespace(
        certificate=SimpleNamespace(holds=True, claim="within 1 %"), feasible=None, model="an environment",
        settings=SimpleNamespace(judged=lambda _: None), discount=None,
    )  # fmt: skip
    found = RunAnalysis(run, None if chance is None else SimpleNamespace(optimum=None))
    vars(found).update(
        certificate=SimpleNamespace(violation_probability_high=chance), last=SimpleNamespace(step_violations=None)
    )
    assert badge_of(found)[1] == badge


def test_a_run_without_history_says_so(tmp_path):
    assert "No history was recorded" in written(learned(history="none"), tmp_path / "page.html")
