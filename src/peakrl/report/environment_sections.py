"""A run on an environment on the page: what was experienced, what is proved, and what it would do now.

Nothing here is exact but what was counted, unless the environment shows a table: the policy is then judged on that too.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from peakrl.report.answer import VERDICTS, environment_answer, seen, sentence
from peakrl.report.blocks import Block, Chart, Part, Section, Series, Settings, Table, Text, shown_state, slug
from peakrl.report.curve_blocks import finite, multiplier_chart, proved_chart, thinned
from peakrl.report.map_blocks import environment_map
from peakrl.report.run_sections import certificate_tables, proof_table

if TYPE_CHECKING:
    from peakrl.report.environment_analysis import EnvironmentFindings
    from peakrl.training.learn import LearningRun

#: Decisions that the page lists.
MOST_DECISIONS = 2000


def environment_section(found: EnvironmentFindings, name: str) -> Section:
    """Return the section of a run on an environment."""
    run, states, place = found.run, found.run.model, f"run-{slug(name)}"
    tone, short, said = verdict(found)
    lead = (
        f"{states.name}, an environment: {states.num_states:,} states and {states.num_pairs:,} pairs of a state and an "
        "action were met, "
        f"{states.horizon} steps, constraints: {', '.join(states.constraint_names) or 'none'}; "
        f"{run.episodes:,} episodes with seed {run.seed}."
    )
    details: list[Block] = [experience_table(run, place)]
    if run.infeasibility_proof:
        details.append(proof_table(run, place))
    details += certificate_tables(found.certificates, place)
    details.append(Settings(f"{place}-settings", "Settings of the learner", run.settings.as_dict()))
    went = [*curves(run, place), *proved_chart(run, place), *multiplier_chart(run, place)]
    maps = environment_map(run, place)
    parts = [
        Part(f"{place}-story-answer", "The answer", "", [environment_answer(found, place, said, tone)]),
        Part(f"{place}-story-curve", "How learning went", "", went),
        Part(f"{place}-story-policy", "What the policy does", "", [*maps, decisions(run, place, folded=bool(maps))]),
        Part(f"{place}-story-details", "In full", "", details),
    ]
    return Section(place, f"{name}: {states.name}", lead, (), badge=(tone, short), parts=parts)


def verdict(found: EnvironmentFindings) -> tuple[str, str, str]:
    """Return tone, badge and sentence: what is proved of the environment and of the policy."""
    run, exact = found.run, found.certificate
    if found.feasible is False:
        return "bad", "infeasible", sentence(found.verdict)
    if exact is not None and exact.violation_probability_high != 0:  # whatever experience has proved
        return (*VERDICTS["violates"], sentence(found.verdict))
    if run.certificate is not None and run.certificate.holds:
        return "good", "certified", f"Certified: {run.certificate.claim}."
    if exact is not None:
        return (*VERDICTS["safe"], sentence(found.verdict))
    return "", "not proved", "Nothing is proved of this policy: " + seen(run)[0][0].lower() + seen(run)[0][1:]


def curves(run: LearningRun, place: str) -> list[Block]:
    """Return what episodes earned and violated, one by one and on average."""
    history = run.history
    if not len(history):
        return [Text("No history was recorded: learn(..., history=...) says how often.")]
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    reward = [
        Series("of the episode", x, finite(history.episode_reward[keep]), None, "grey", mode="markers"),
        Series("mean of all so far", x, finite(history.averaged_value[keep]), None, "blue"),
    ]
    violation = [Series("all so far", x, finite(history.cumulative_violation[keep]), None, "orange")]
    return [
        Chart(f"{place}-value", "Reward of an episode, as experienced", "episode", "reward", reward),
        Chart(f"{place}-violation", "Violation, summed up over the episodes", "episode", "violation", violation),
    ]


def experience_table(run: LearningRun, place: str) -> Table:
    """Return what was counted."""
    rows: list[tuple[str, object]] = [
        ("episodes", run.episodes),
        ("violating episodes", run.violations),
        ("the last of them", run.last_violation_episode),
        ("states met", run.model.num_states),
        ("pairs on offer there", run.model.num_pairs),
    ]
    if len(run.history):
        rows.append(("mean reward of an episode", float(run.history.averaged_value[-1])))
    if run.coverage is not None:
        rows.append(("where its action was never tried", str(run.coverage)))
    if run.infeasible_limits is not None:
        rows.append(("the limits", run.infeasible_limits))
    return Table(f"{place}-experience", "What was experienced", ("", ""), rows)


def decisions(run: LearningRun, place: str, *, folded: bool = False) -> Table:
    """Return what the policy does, in the order of steps; states that were never met are not in it."""
    columns, rows = run.policy._table()
    first = [tuple(map(shown_cell, columns, row)) for row in itertools.islice(rows, MOST_DECISIONS)]
    more = f", the first {MOST_DECISIONS:,}" if len(first) == MOST_DECISIONS else ""
    return Table(
        f"{place}-decisions", f"What the policy does in states that were met{more}", columns, first, folded=folded
    )


def shown_cell(column: str, value: object) -> object:
    """Return a cell for reading."""
    if column == "safe" and value is None:
        return "nobody knows"
    return shown_state(value) if column == "state" else repr(value) if column == "action" else value
