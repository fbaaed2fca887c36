from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from helpers.random_problems import random_problem
from helpers.report_pages import HOSTILE, Taken, save_runs
from helpers.safe_problems import BUILT_IN
from peakrl import (
    Budget,
    Outcome,
    Problem,
    SafeSet,
    TabularModel,
    compile_model,
    learn,
    safe_set,
    solve,
    with_budget,
    write_report,
)
from peakrl.cli import app
from peakrl.errors import SettingsError, StorageError
from peakrl.learners import ConstrainedQ, PosteriorSampling, SafeQ
from peakrl.learners.infeasibility import NO_WITNESS
from peakrl.problems import energy_harvesting, scheduling_example
from peakrl.report import policy_blocks
from peakrl.report.analysis import RunAnalysis
from peakrl.report.blocks import Section, Table, Text, exactly, run_lengths, shown
from peakrl.report.charts import safe_chart
from peakrl.report.page import Page, default_place, embedded, make_page, write_page
from peakrl.report.policy_blocks import explorer, field_count, kept_slots, map_blocks
from peakrl.report.sections import answer_of, section_of
from peakrl.sweeps.grid import read_plan
from peakrl.sweeps.learning import learn_run
from peakrl.sweeps.store import Result, Store
from peakrl.sweeps.summary import read_records
from peakrl.training import load_run
from peakrl.training.spec_file import read_problem_file

OWN_LABELS = """
from dataclasses import dataclass
import peakrl

@dataclass(frozen=True)
class State:
    left: int

class Mine(peakrl.Problem):
    horizon, constraint_names = 2, ("enough",)
    def initial(self):
        return [(1.0, State(1))]
    def actions(self, step, state):
        return (0, 1)
    def outcomes(self, step, state, action):
        return [peakrl.Outcome(1.0, State(state.left - action), float(action), (state.left - action,))]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    save_runs(folder)
    return folder


@pytest.fixture(scope="module")
def taken(results: Path) -> Taken:
    return Taken(make_page(results).html())


# The page as a whole -------------------------------------------------------------------------------------------------


def test_a_page_refers_to_nothing_outside_itself(taken: Taken) -> None:
    assert all(reference.startswith(("#", "data:")) for reference in taken.references)
    policy = next(found["content"] for tag, found in taken.tags if "Content-Security" in str(found.get("http-equiv")))
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy


def test_a_page_has_plotly_once_and_stays_under_8_megabytes(results: Path) -> None:
    html = make_page(results).html()
    assert html.count("plotly.js v") == 1
    assert len(html.encode()) < 8_000_000


def test_every_part_of_a_page_has_its_own_id(taken: Taken) -> None:
    ids = [found["id"] for _, found in taken.tags if "id" in found]
    assert len(ids) == len(set(ids))
    named = [found["aria-labelledby"] for _, found in taken.tags if "aria-labelledby" in found]
    assert set(named) <= set(ids)
    assert {reference[1:] for reference in taken.references if reference.startswith("#")} <= set(ids)


def test_no_label_can_escape_from_the_page() -> None:
    blocks = [Text(HOSTILE), Table("t", HOSTILE, [HOSTILE], [[HOSTILE]])]
    found = Taken(Page(HOSTILE, HOSTILE, [Section("s", HOSTILE, HOSTILE, blocks)]).html())
    assert not [tag for tag, attributes in found.tags if tag == "img" or "onerror" in attributes]
    assert found.tables["t"] == [[HOSTILE], [HOSTILE]]


def test_no_state_can_escape_from_the_data() -> None:
    class Named(Problem):
        name, horizon, constraint_names = HOSTILE, 1, (HOSTILE,)
        reward_range, constraint_bounds, stationary = (0.0, 1.0), (1.0,), True

        def initial(self) -> Any:
            return [(1.0, HOSTILE)]

        def actions(self, step: int, state: Any) -> Any:
            return [HOSTILE]

        def outcomes(self, step: int, state: Any, action: Any) -> Any:
            return [Outcome(1.0, HOSTILE, 1.0, (-1.0,))]

    run = learn(compile_model(Named()), SafeQ(), episodes=3)
    found = Taken(Page("a", "b", [section_of(RunAnalysis.of(run), HOSTILE)]).html())
    assert not [tag for tag, attributes in found.tags if tag == "img" or "onerror" in attributes]
    explorer = next(value for key, value in found.data.items() if key.endswith("-explorer"))
    assert explorer["actions"] == [HOSTILE]
    assert explorer["constraints"] == [HOSTILE]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_embedded_data_comes_back_and_holds_no_markup(value: Any) -> None:
    text = embedded(value)
    assert json.loads(text) == value
    assert not set(text) & set("<>&\u2028\u2029")


def test_shown_numbers_are_for_people_and_exact_ones_for_files() -> None:
    assert [shown(cell) for cell in (1234567, 0.1 + 0.2, True, None, 1e-17, float("inf"))] == [
        "1,234,567",
        "0.3",
        "yes",
        "",
        "1e-17",
        "∞",
    ]
    assert exactly(np.float64(0.1) + 0.2) == "0.30000000000000004"


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_is_told_with_its_gap_to_the_optimum(results: Path, taken: Taken) -> None:
    run = load_run(results / "energy.run")
    best = solve(run.model).value
    rows = {row[0].strip(): row for row in taken.tables["run-energy-run-metrics"][1:]}
    value = float(rows["last policy"][1])
    assert float(rows["optimum"][1]) == best
    assert float(rows["last policy"][2]) == pytest.approx(best - value, abs=1e-12)
    assert float(rows["last policy"][3]) == pytest.approx(100 * (best - value) / best, abs=1e-9)


def test_an_infeasible_problem_is_told_with_the_proof_of_the_learner() -> None:
    run = learn(compile_model(scheduling_example(3)), SafeQ(), episodes=1500)
    assert run.feasible is False
    section = section_of(RunAnalysis.of(run), "infeasible")
    assert section.badge == ("bad", "infeasible")
    proof = next(block for block in section.blocks if isinstance(block, Table) and block.id.endswith("-proof"))
    assert len(proof.rows) == len(run.infeasibility_proof)
    assert section.blocks[0].headline == "Infeasible: no policy satisfies every constraint (proved by the learner)."  # type: ignore[union-attr]


# Maps and the explorer -----------------------------------------------------------------------------------------------


def unrun(pairs: list[int]) -> list[int]:
    return [value for value, count in zip(pairs[::2], pairs[1::2], strict=True) for _ in range(count)]


def floats(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), "<f4")


def integers(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(base64.b64decode(text), "<i4")


@given(st.lists(st.integers(-3, 3)))
def test_run_lengths_say_every_number(values: list[int]) -> None:
    assert unrun(run_lengths(np.array(values, np.int64))) == values


def layer(content: Any, name: str) -> Any:
    """The numbers or labels of a layer, place by place."""
    (found,) = [one for one in content["layers"] if one["name"] == name]
    return [found["labels"][code] for code in unrun(found["runs"])] if "labels" in found else floats(found["numbers"])


def positions(content: Any) -> list[tuple[Any, ...]]:
    """Step and fields of each place."""
    at = [np.frombuffer(base64.b64decode(text), "<u2").tolist() for text in content["at"]]
    values = [field["values"] for field in content["fields"]]
    return [tuple(own[place] for own, place in zip(values, one, strict=True)) for one in zip(*at, strict=True)]


def test_a_map_shows_what_is_done_safe_met_and_risked_wherever_an_episode_can_come_by() -> None:
    model = compile_model(energy_harvesting(horizon=3, battery=3, peak_power=2, max_arrival=3, mean=1, std=1))
    run = learn(model, SafeQ(), episodes=200)
    found, best, safe = RunAnalysis.of(run), solve(model), safe_set(model)
    (block,) = map_blocks(found)
    content: Any = block.data  # type: ignore[union-attr]
    places = positions(content)
    assert [field["name"] for field in content["fields"]] == ["step", "battery", "arrival"]
    assert (content["x"], content["y"]) == (2, 1)
    assert sorted(places) == sorted((step, *model.state_of_slot(slot)) for step, slot, _ in model.decisions())
    columns = {
        "action of the policy": [run.policy.action(step, state) for step, state in map(pair, places)],
        "action of the optimum": [best.policy.action(step, state) for step, state in map(pair, places)],
        "number of safe actions": [len(safe.actions(state, step)) for step, state in map(pair, places)],
    }
    for name, expected in columns.items():
        assert list(layer(content, name)) == expected
    differ = [("equal", "different")[mine != other] for mine, other in zip(*list(columns.values())[:2], strict=True)]
    assert layer(content, "policy and optimum differ") == differ
    for (step, *fields), value, total in zip(
        places, layer(content, "value from here on"), layer(content, "expected violation from here on"), strict=True
    ):
        slot = model.slot_of(step, tuple(fields))
        row = run.policy.row(step, slot)
        assert value == pytest.approx(total_from(model, run.policy, step, slot, row, model.row_reward), rel=1e-5)
        violation = model.row_violation.sum(axis=1)
        assert total == pytest.approx(total_from(model, run.policy, step, slot, row, violation), rel=1e-5)
    met = layer(content, "visit probability")
    assert [sum(met[i] for i, place in enumerate(places) if place[0] == step) for step in range(3)] == pytest.approx(
        [1.0] * 3
    )
    # Faded: where no walk along the policy arrives.
    arrived = {(0, slot) for slot in model.first_slot.tolist()}
    for step in range(2):
        now = [slot for at, slot in arrived if at == step]
        arrived |= {(step + 1, there) for slot in now for there in model.next_slots(run.policy.row(step, slot))}
    never = [(step, model.slot_of(step, tuple(fields))) not in arrived for step, *fields in places]
    assert unrun(content["never"]) == never
    assert True in never


def pair(place: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Step and state of a place."""
    return place[0], place[1:]


def test_visits_on_the_map_are_what_the_learner_counted() -> None:
    model = compile_model(scheduling_example(1))
    assert learn(model, SafeQ(), episodes=50).visits.sum() == 50 * model.horizon  # type: ignore[union-attr]
    small = compile_model(energy_harvesting(horizon=3, battery=3, peak_power=2, max_arrival=3, mean=1, std=1))
    for settings_of in (PosteriorSampling(), ConstrainedQ.published(slack=0.1)):
        run = learn(small, settings_of, episodes=40)
        (block,) = map_blocks(RunAnalysis.of(run))
        counts = layer(block.data, "training visits, all steps")  # type: ignore[union-attr]
        states = {place[1:]: count for place, count in zip(positions(block.data), counts, strict=True)}  # type: ignore[union-attr]
        assert sum(states.values()) == 40 * 3


def test_risks_add_up_to_the_violation_of_an_episode() -> None:
    rng = np.random.default_rng(5)
    for stationary in (True, False):
        model = compile_model(random_problem(rng, stationary=stationary))
        found = RunAnalysis.of(learn(model, ConstrainedQ.published(slack=0.5), episodes=3))
        every = found.tables.risks(10**6)
        assert sum(one.contribution for one in every) == pytest.approx(found.last.violation)
        assert found.tables.risks() == every[:12]
        assert all(one.contribution == pytest.approx(one.probability * one.violation) for one in every)


def test_states_of_more_fields_than_three_or_that_are_no_plain_values_have_no_map() -> None:
    model = compile_model(random_problem(np.random.default_rng(0)))
    labels = (3, "a", (1, 2), (1, "b", True), (1, 2, 3, 4), ((1, 2), 3), None)
    assert [field_count(model, label) for label in labels] == [1, 1, 2, 3, None, None, None]


def test_what_a_budget_remembers_is_a_field_of_the_map_under_its_name() -> None:
    problem = energy_harvesting(horizon=3, battery=3, peak_power=2, max_arrival=3, mean=1, std=1)
    model = compile_model(with_budget(problem, Budget("peaks", limit=2, cost={2: 1})))
    (block,) = map_blocks(RunAnalysis.of(learn(model, episodes=3)))
    fields = block.data["fields"]  # type: ignore[union-attr]
    assert [field["name"] for field in fields] == ["step", "field 1", "field 2", "peaks"]
    assert fields[3]["values"] == [0, 1, 2]


def test_the_answer_is_the_word_of_the_certificate() -> None:
    model = compile_model(energy_harvesting(horizon=3, battery=3, peak_power=2, max_arrival=3, mean=1, std=1))
    learned = learn(model, SafeQ(), episodes=400)
    careless = learn(model, ConstrainedQ.published(slack=0.5), episodes=3)
    for run in (learned, careless):
        found = RunAnalysis.of(run)
        answer, certificate = answer_of(found), found.certificate
        assert ("never violates" in answer.headline) == (certificate.violation_high == 0) == certificate.holds
        assert (answer.tone == "good") == certificate.holds
        rests_on = answer.facts[2].details
        assert [line[1:] for line in rests_on] == [f"{line.rstrip('.')}."[1:] for line in certificate.rests_on]
        marks = {mark.name: mark.low for mark in answer.scales[0].marks}
        assert marks["last policy"] == certificate.value_low
        assert marks["best safe policy"] == certificate.optimum_high


def total_from(model: TabularModel, policy: Any, step: int, slot: int, row: int, payoff: Any) -> float:
    """What follows from an action, by plain recursion over every outcome."""
    layout, distribution = model.layout, model.row_distribution[row]
    total = float(payoff[row])
    if step + 1 == model.horizon:
        return total
    for outcome in range(layout.outcome_start[distribution], layout.outcome_start[distribution + 1]):
        after = int(layout.outcome_next[outcome])
        chosen = policy.row(step + 1, after)
        if chosen >= 0:
            chance = float(layout.outcome_probability[outcome])
            total += chance * total_from(model, policy, step + 1, after, chosen, payoff)
    return total


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=15)
def test_the_explorer_embeds_exact_values_and_violations_of_every_action(seed: int, stationary: bool) -> None:
    model = compile_model(random_problem(np.random.default_rng(seed), stationary=stationary))
    run = learn(model, SafeQ(), episodes=20)
    content: Any = explorer(RunAnalysis.of(run)).data
    violation = model.row_violation.sum(axis=1)
    kept = np.flatnonzero(np.diff(model.row_start) > 0)
    policy, distribution = unrun(content["policy"]), integers(content["distribution"])
    for step in range(model.horizon):
        column = step if model.stationary else 0
        for place, slot in enumerate(kept.tolist()):
            if not model.stationary and not model.step_slots[step, 0] <= slot < model.step_slots[step, 1]:
                continue
            rows = model.rows_of_slot(slot)
            assert rows[policy[column * len(kept) + place]] == run.policy.row(step, slot)
            for number, row in enumerate(rows):
                mine = content["rowStart"][place] + number
                for own, after, payoff in (
                    ("reward", "valueAfter", model.row_reward),
                    ("violation", "violationAfter", violation),
                ):
                    there = column * content["distributions"] + distribution[mine]
                    told = floats(content[own])[mine] + floats(content[after])[there]
                    assert told == pytest.approx(
                        total_from(model, run.policy, step, slot, row, payoff), rel=1e-4, abs=1e-4
                    )


@pytest.mark.parametrize("problem", BUILT_IN.values(), ids=list(BUILT_IN))
def test_the_page_calls_safe_what_the_safe_set_does(problem: Problem) -> None:
    model = compile_model(problem)
    found = RunAnalysis.of(learn(model, SafeQ(), episodes=5))
    content: Any = explorer(found).data
    told, safe = unrun(content["verdict"]), safe_set(model)
    assert len(told) == model.num_entries
    for step, (first, last) in enumerate(model.layout.step_slots.tolist()):
        for row in range(int(model.layout.row_start[first]), int(model.layout.row_start[last])):
            slot = int(np.searchsorted(model.layout.row_start, row, side="right")) - 1
            reason = safe.reason(model.state_of_slot(slot), model.action_of_row(row), step)
            entry = step * model.layout.entry_stride + row
            assert told[entry] == (0 if reason is None else 1 if reason.violates else 2)
    (chart,) = safe_chart(found.exact)
    told = [[round(share * 1e6) for share in series.y] for series in chart.series]  # type: ignore[operator]
    counts = [[len(part) for part in counted(safe, step)] for step in range(model.horizon)]
    assert told == [[round(1e8 * count[2 * kind + 1] / count[2 * kind]) for count in counts] for kind in (0, 1)]


def counted(safe: SafeSet, step: int) -> tuple[list[Any], ...]:
    """States, safe states, actions and safe actions at a step, from the answers to single questions."""
    model = safe.model
    states = [model.state_of_slot(slot) for slot in model.decision_slots(step)]
    offered = [row for state in states for row in model.rows_of_slot(model.slot_of(step, state))]
    allowed = [action for state in states for action in safe.actions(state, step)]
    return states, [s for s in states if safe.contains(s, step)], offered, allowed


def test_the_explorer_knows_what_the_learner_has_seen_fail() -> None:
    model = compile_model(scheduling_example(1))
    run = learn(model, SafeQ(), episodes=300)
    content: Any = explorer(RunAnalysis.of(run)).data
    seen = np.array(unrun(content["witness"]))
    known = run._learned.memory().witness[:, 0] != NO_WITNESS  # type: ignore[union-attr]
    assert np.array_equal(seen != -2, known)
    assert np.isneginf(floats(content["q"])[known]).all()
    assert set(map(str, seen[seen >= 0])) == set(content["dead"])


def test_a_large_policy_is_cut_to_where_it_goes_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = compile_model(scheduling_example(2))
    run = learn(model, SafeQ(), episodes=50)
    kept = kept_slots(RunAnalysis.of(run), 200, 1000)
    assert np.diff(model.row_start)[kept].sum() <= 200
    slot, path = int(model.first_slot[0]), []
    for step in range(model.horizon):
        path.append(slot)
        row = run.policy.row(step, slot)
        slot = int(model.outcome_next[model.outcome_start[model.row_distribution[row]]])
    assert set(path) <= set(kept.tolist())
    assert RunAnalysis.of(run).tables.presence[path].tolist() == [1.0] * model.horizon
    monkeypatch.setattr(policy_blocks, "MOST_ENTRIES", 200)
    assert f"The page holds the {len(kept):,} of" in explorer(RunAnalysis.of(run)).note  # type: ignore[union-attr]


def test_states_that_are_no_numbers_have_no_map() -> None:
    run = learn(compile_model(scheduling_example(1)), SafeQ(), episodes=5)
    assert map_blocks(RunAnalysis.of(run)) == []


# The command ---------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_into_the_folder_and_tells_what_is_on_it(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    answer = CliRunner().invoke(app, ["report", str(results), "--out", str(out), "--json"])
    assert answer.exit_code == 0
    told = json.loads(answer.stdout)
    assert told["bytes"] == out.stat().st_size
    assert [part["id"] for part in told["sections"]] == ["run-energy-run", "run-jobs-run"]


def test_a_page_goes_into_its_folder_or_beside_its_file(results: Path) -> None:
    assert default_place(results) == results / "report.html"
    assert default_place(results / "jobs.run") == results / "jobs.html"


@pytest.mark.parametrize(("name", "message"), [("", "contains no runs"), ("none", "does not exist")])
def test_nothing_to_report_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        write_page(tmp_path / name)


def test_a_folder_of_folders_names_those_that_may_be_meant(tmp_path: Path) -> None:
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "figure-2.json").write_text("{}")
    with pytest.raises(StorageError, match=r"contains no runs: name one of its subfolders, such as .*quick$"):
        write_page(tmp_path)


def test_a_run_that_does_not_hold_its_model_is_reported_with_its_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN_LABELS)
    Path("mine.toml").write_text('[problem]\nkind = "python"\nfunction = "mine.py:Mine"\n[run]\nepisodes = 5\n')
    assert CliRunner().invoke(app, ["train", "mine.toml", "--trust", "--out", "mine.run"]).exit_code == 0
    with pytest.raises(StorageError, match=r"on the command line: --problem FILE"):
        write_page("mine.run")
    answer = CliRunner().invoke(app, ["report", "mine.run", "--problem", "mine.toml", "--trust"])
    assert answer.exit_code == 0
    assert "State(left=1)" in Path("mine.html").read_text()
    with pytest.raises(SettingsError, match="single run file"):
        write_page(tmp_path, model=load_run("mine.run", read_problem_file("mine.toml", trust=True).model()).model)


def test_a_run_is_reported_from_python_as_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = learn(compile_model(scheduling_example(1)), SafeQ(), episodes=60)
    run.save("run")
    place = write_report(run)
    assert place == Path("report.html")
    from_file = write_report("run")
    assert from_file == Path("run.html")
    one, other = (Taken(found.read_text()) for found in (place, from_file))
    assert one.tables == other.tables
    assert one.data == other.data
    (tmp_path / "folder").mkdir()
    assert write_report(Path("run"), "folder") == Path("folder/report.html")
    assert write_report(tmp_path / "run", out=Path("new/page.html")) == Path("new/page.html")


def test_a_report_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="source is 7; it must be a run, a solution, the safe set"):
        write_report(7)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="out is 7"):
        write_report(tmp_path, 7)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="contains no runs"):
        write_report(tmp_path)


def test_a_sweep_is_told_run_by_run_and_its_curves_are_means_over_seeds(tmp_path: Path) -> None:
    plan = read_plan({
        "name": "small", "seeds": 3, "episodes": 60, "points": 20,
        "problems": [{"kind": "scheduling_example", "number": 1}], "settings": [{"learner": "SafeQ"}],
    })  # fmt: skip
    store = Store.create(tmp_path)
    runs = [Result.of(task, learn_run(dict(task.config)), 1.0) for task in plan.tasks]
    for run in runs:
        store.write(run)
    taken = Taken(make_page(tmp_path).html())
    records = read_records(tmp_path)
    head, *rows = taken.tables["sweep-runs"]
    assert [row[head.index("averaged gap")] for row in rows] == [repr(record["averaged_gap"]) for record in records]
    (chart,) = (value for key, value in taken.data.items() if key.endswith("-value"))
    mean = np.mean([run.arrays["history_value"] for run in runs], axis=0)
    assert chart["series"][0]["y"] == pytest.approx(mean.tolist(), rel=1e-6)
    assert chart["series"][1]["y"] == [records[0]["optimum"]] * 2
