"""One run on the page, told as a story: the answer, how learning went, what the policy does, one episode, the risk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakrl.errors import SettingsError
from peakrl.report.answer import VERDICTS, answer_of
from peakrl.report.blocks import Block, Part, Section, Settings, Table, shown_state, slug
from peakrl.report.curve_blocks import curve_blocks

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.report.analysis import RunFindings
    from peakrl.tabular import TabularModel
    from peakrl.training.learn import LearningRun

#: Lines of a proof on the page.
PROOF_LINES = 500
#: Which episode it is, by whether nothing is random.
EPISODES = {
    False: "The first that peakrl.rollout(model, run.policy) shows: drawn by chance, one of many that can come up.",
    True: "Nothing is random here: every episode of this policy is this one.",
}


def run_section(
    path: Path, share: int = 1, model: TabularModel | None = None, table: TabularModel | None = None
) -> Section:
    """Return the section of a run file; `share` runs divide the page's room among them."""
    from peakrl.training.run_file import load_run

    return section_for(load_run(path, model=model), path.name, share, table)


def section_for(run: LearningRun, name: str, share: int = 1, table: TabularModel | None = None) -> Section:
    """Return the section of a run, on a model or on an environment, which may show a `table`."""
    from peakrl.report.analysis import RunFindings
    from peakrl.report.environment_analysis import EnvironmentFindings
    from peakrl.report.environment_sections import environment_section
    from peakrl.tabular import TabularModel

    if not isinstance(run.model, TabularModel):
        return environment_section(EnvironmentFindings(run, table), name)
    if table is not None:
        raise SettingsError(f"{name} is a run on a model, which it holds; a table is for a run on an environment")
    return section_of(RunFindings.of(run), name, share)


def section_of(found: RunFindings, name: str, share: int = 1) -> Section:
    """Return the section of a run and what was found out about it."""
    run, model, place = found.run, found.run.model, f"run-{slug(name)}"
    badge = VERDICTS[found.verdict.kind]
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} pairs of a state and an action, "
        f"{model.horizon} steps, constraints: {', '.join(model.constraint_names) or 'none'}; "
        f"{run.episodes:,} episodes with seed {run.seed}."
    )
    parts = [part for part in story(found, place, share) if part.blocks]
    return Section(place, f"{name}: {model.name}", lead, (), badge=badge, parts=parts)


def story(found: RunFindings, place: str, share: int) -> list[Part]:
    """Return the parts of the page of a run on a model."""
    from peakrl.report.episode_blocks import episode_blocks, risk_blocks
    from peakrl.report.map_blocks import run_map
    from peakrl.report.policy_blocks import explorer_blocks
    from peakrl.report.problem_pictures import picture_blocks
    from peakrl.report.schedule_blocks import schedule_blocks

    episode = [*picture_blocks(found, place), *episode_blocks(found, place)]
    does = [*schedule_blocks(found, place), *run_map(found, place, share), *explorer_blocks(found, place, share)]
    return [
        Part(f"{place}-story-answer", "The answer", "", [answer_of(found, place)]),
        Part(f"{place}-story-curve", "How learning went", "", curve_blocks(found, place)),
        Part(f"{place}-story-policy", "What the policy does", "", does),
        Part(f"{place}-story-episode", "One episode, step by step", EPISODES[found.known.model.deterministic], episode),
        Part(f"{place}-story-risk", "Where the risk is", "", risk_blocks(found, place)),
        Part(f"{place}-story-details", "In full", "", detail_blocks(found, place)),
    ]


def detail_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return the figures and all that the answer rests on."""
    run = found.run
    return [
        figures_table(found, place),
        *proof_blocks(found, place),
        *certificate_tables(found.certificates, place),
        *audit_blocks(found, place),
        Settings(f"{place}-settings", "Settings of the learner", run.settings.as_dict()),
    ]


# Figures ---------------------------------------------------------------------------------------------------------


def figures_table(found: RunFindings, place: str) -> Table:
    """Return value and violation of the policies against the optimum."""
    figures = {
        "last policy": found.last_figures, "averaged policy": found.averaged_figures, "optimum": found.best_figures
    }  # fmt: skip
    rows = [
        (name, one.value, one.below_optimum, found.percent(one.below_optimum), one.violation, one.violation_probability)
        for name, one in figures.items()
        if one is not None
    ]
    columns = ("policy", "value", "below the optimum", "gap in %", "violation", "probability of any violation")
    return Table(f"{place}-figures", "Exact figures of an episode", columns, rows)


def certificate_tables(certificates: Sequence[Certificate], place: str) -> list[Block]:
    """Return what is certified of the last policy, line by line."""
    blocks: list[Block] = []
    for one in certificates:
        caption = f"Certificate ({one.kind}) of the last policy: {'holds' if one.holds else 'does not hold'}"
        reason = [] if one.reason is None else [("why not", one.reason)]
        blocks.append(Table(f"{place}-certificate-{one.kind}", caption, ("", ""), [*reason, *one.rows()], folded=True))
    return blocks


# What it rests on -----------------------------------------------------------------------------------------------------


def proof_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return what the verdict rests on: observations where infeasible, margins of every constraint where not."""
    run = found.run
    blocks: list[Block] = [proof_table(run, place)] if run.infeasibility_proof else []
    margins = [
        (name, float(margin), bool(margin >= 0))
        for name, margin in zip(run.model.constraint_names, found.last.worst_margin, strict=True)
    ]
    caption = "The last policy, in every outcome that can come up (0 and above is met)"
    blocks.append(Table(f"{place}-margins", caption, ("constraint", "least value", "always met"), margins))
    return blocks


def proof_table(run: LearningRun, place: str) -> Table:
    """Return the observations that a learner's proof of infeasibility consists of."""
    rows = [
        (line.step, shown_state(line.state), repr(line.action), line.violation, dead_end(line.dead_state))
        for line in run.infeasibility_proof[:PROOF_LINES]
    ]
    left = len(run.infeasibility_proof) - len(rows)
    more = f", the first {len(rows):,} of {len(run.infeasibility_proof):,}" if left else ""
    caption = f"Proof: every action that was seen to fail, from the first state on{more}"
    columns = ("step", "state", "action", "violated by", "led to, where all fails")
    return Table(f"{place}-proof", caption, columns, rows)


def dead_end(label: Any) -> str | None:
    """Return a state that an action led to as text, if it led to one."""
    return None if label is None else shown_state(label)


def audit_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return what the slack of a learner leaves, and the paper's assumptions one by one; nothing where it has none."""
    slack, penalty = found.run.settings.tolerated()
    answer = found.audited(slack, penalty) if slack else None
    if answer is None:
        return []
    rows = [
        ("slack", answer.slack),
        ("penalty", answer.penalty),
        ("optimum V*", answer.optimum.value),
        ("modified optimum W*", answer.modified.value),
        ("violation left free, an episode", answer.free_violation),
        ("value won by it", answer.value_won),
        ("the modified optimum is the optimum", answer.exact),
        ("violations that never pay are above", answer.deterred_violation),
        ("smallest violation in the model", answer.smallest_violation),
    ]
    checks = [(check.name, check.holds, check.detail) for check in answer.checks]
    return [
        Table(f"{place}-audit", f"What the learner's slack of {slack:g} leaves", ("quantity", "value"), rows),
        Table(f"{place}-assumptions", "The paper's assumptions", ("assumption", "holds", "what was seen"), checks),
    ]
