"""One run on the page: exact figures against the optimum, curves, verdict with its proof, audit, policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.report.blocks import Block, Chart, Section, Series, Settings, Table, Text, shown_state, slug

if TYPE_CHECKING:
    from peakrl.certificates import Certificate
    from peakrl.certifying.findings import Figures, RunFindings
    from peakrl.learning.run import LearningRun
    from peakrl.model.tabular import TabularModel

#: Lines of a proof on the page, and points of a curve.
PROOF_LINES, POINTS = 500, 2000
#: Audited where the learner itself has no slack.
USUAL_SLACK = 0.1
#: Tone and badge of a verdict.
VERDICTS = {"infeasible": ("bad", "infeasible"), "safe": ("good", "no violation"), "violates": ("bad", "may violate")}


def run_section(path: Path, share: int = 1, model: TabularModel | None = None) -> Section:
    """Return the section of a run file; `share` runs divide the page's room among them."""
    from peakrl.learning.checkpoint import load_run

    return section_for(load_run(path, model=model), path.name, share)


def section_for(run: LearningRun, name: str, share: int = 1) -> Section:
    """Return the section of a run, on a model or on an environment."""
    from peakrl.certifying.findings import RunFindings
    from peakrl.model.tabular import TabularModel
    from peakrl.report.environment_sections import environment_section

    if not isinstance(run.model, TabularModel):
        return environment_section(run, name)
    return section_of(RunFindings.of(run), name, share)


def section_of(found: RunFindings, name: str, share: int = 1) -> Section:
    """Return the section of a run and what was found out about it."""
    from peakrl.report.policy_blocks import policy_blocks

    run, model, place, verdict = found.run, found.run.model, f"run-{slug(name)}", found.verdict
    tone, short = VERDICTS[verdict.kind]
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} pairs, {model.horizon} steps, "
        f"constraints: {', '.join(model.constraint_names) or 'none'}; {run.episodes:,} episodes with seed {run.seed}."
    )
    said = f"{verdict.text[0].upper()}{verdict.text[1:].rstrip('.')}."
    main: list[Block] = [Text(said, tone), figures_table(found, place), *curves(found, place)]
    wide = policy_blocks(found, place, share)
    aside: list[Block] = [
        *certificate_tables(found.certificates, place),
        *proof_blocks(found, place),
        *audit_blocks(found, place),
    ]
    aside.append(Settings(f"{place}-settings", "Settings of the learner", run.settings.as_dict()))
    return Section(place, f"{name}: {model.name}", lead, main, aside, (tone, short), wide)


# Figures ---------------------------------------------------------------------------------------------------------


def figures_table(found: RunFindings, place: str) -> Table:
    """Return value and violation of the policies against the optimum."""
    figures = {
        "last policy": found.last_figures, "averaged policy": found.averaged_figures, "optimum": found.best_figures
    }  # fmt: skip
    rows = [
        (name, one.value, one.below_optimum, percent(one, found), one.violation, one.violation_probability)
        for name, one in figures.items()
        if one is not None
    ]
    columns = ("policy", "value", "below the optimum", "gap in %", "violation", "probability of any")
    return Table(f"{place}-figures", "Exact figures of an episode", columns, rows)


def percent(one: Figures, found: RunFindings) -> float | None:
    """Return how far a value lies below the optimum, in percent of it."""
    best = found.best_figures
    if best is None or one.below_optimum is None:
        return None
    if one.below_optimum == 0:
        return 0.0
    return 100.0 * one.below_optimum / abs(best.value) if best.value else None


def certificate_tables(certificates: Sequence[Certificate], place: str) -> list[Block]:
    """Return what is certified of the last policy, line by line."""
    blocks: list[Block] = []
    for one in certificates:
        caption = f"Certificate ({one.kind}) of the last policy: {'holds' if one.holds else 'does not hold'}"
        reason = [] if one.reason is None else [("why not", one.reason)]
        blocks.append(Table(f"{place}-certificate-{one.kind}", caption, ("", ""), [*reason, *one.rows()]))
    return blocks


def curves(found: RunFindings, place: str) -> list[Chart]:
    """Return value and violation over the episodes, and over the steps of the last policy."""
    history, optimum = found.run.history, found.optimum
    charts = []
    if len(history):
        keep = thinned(len(history))
        x = history.episode[keep].tolist()

        def series(name: str, values: Any, colour: str, mode: str = "lines") -> Series:
            return Series(name, x, values[keep].tolist(), None, colour, mode=mode)

        value = [series("policy of the episode", history.value, "blue")]
        value.append(series("averaged policy", history.averaged_value, "orange"))
        violation = [series("policy of the episode", history.violation, "blue")]
        violation.append(series("averaged policy", history.averaged_violation, "orange"))
        violation.append(series("as experienced", history.episode_violation, "grey", "markers"))
        # A curve that was not recorded is not drawn.
        value, violation = (
            [one for one in curve if any(isfinite(y) for y in one.y if y is not None)] for curve in (value, violation)
        )
        if optimum is not None:
            ends = [x[0], x[-1]]
            value.append(Series("optimum", ends, [optimum.value] * 2, None, "ink", "dash", level=True))
            violation.append(Series("least possible", ends, [optimum.violation] * 2, None, "ink", "dash", level=True))
        charts.append(Chart(f"{place}-value", "Value over the episodes", "episode", "value", value))
        last = found.run.last_violation_episode
        seen = f"{found.run.violations:,} violating episodes, the last {last:,}" if last else "no violating episode"
        charts.append(Chart(f"{place}-violation", f"Violation: {seen}", "episode", "violation", violation))
    return [*charts, *proof_chart(found, place), step_chart(found, place)]


def proof_chart(found: RunFindings, place: str) -> list[Chart]:
    """Return the gap that a certified learner has proved, beside the true one of its candidate."""
    proved = found.run.proof_history
    if proved is None or not len(proved):
        return []
    keep = thinned(len(proved))
    x = proved.episode[keep].tolist()
    series = [
        Series("certified gap", x, finite(proved.gap[keep]), None, "blue"),
        Series("certified bound on the violation", x, finite(proved.violation[keep]), None, "orange"),
    ]
    gaps = [found.known.below_optimum(value) for value in proved.value[keep].tolist()]
    if any(gap is not None and isfinite(gap) for gap in gaps):
        true = [None if gap is None or not isfinite(gap) else gap for gap in gaps]
        series.append(Series("true gap of the candidate", x, true, None, "ink", "dash"))
    if (certificate := found.run.certificate) is not None and certificate.epsilon is not None:
        series.append(Series("epsilon", [x[0], x[-1]], [certificate.epsilon] * 2, None, "grey", "dash", level=True))
    stopped = "" if found.run.stopped != "certified" else f", certified after {found.run.episodes:,} episodes"
    return [Chart(f"{place}-proved", f"What is proved of the candidate{stopped}", "episode", "gap", series)]


def finite(values: Any) -> list[float | None]:
    """Return numbers for a curve; where there is none, a gap in it."""
    return [value if isfinite(value) else None for value in values.tolist()]


def thinned(count: int) -> Any:
    """Return which points of a curve to draw: all, or evenly spaced ones with the last."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(np.int64))


def step_chart(found: RunFindings, place: str) -> Chart:
    """Return what each step earns and violates."""
    steps = list(range(found.run.model.horizon))
    last, best = found.last, found.known.best
    series = [Series("reward, last policy", steps, last.step_rewards.tolist(), None, "blue", mode="lines+markers")]
    if best is not None:
        series.append(Series("reward, optimum", steps, best.step_rewards.tolist(), None, "ink", "dash"))
    for index, name in enumerate(found.run.model.constraint_names):
        column = last.step_violations[:, index].tolist()
        series.append(Series(f"violation of {name}, last policy", steps, column, None, "orange", mode="lines+markers"))
    return Chart(f"{place}-steps", "Expected reward and violation by step", "step", "by step", series)


# What it rests on -----------------------------------------------------------------------------------------------------


def proof_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return what the verdict rests on: observations where infeasible, margins of every constraint where not."""
    run = found.run
    blocks: list[Block] = [proof_table(run, place)] if run.proof else []
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
        for line in run.proof[:PROOF_LINES]
    ]
    left = len(run.proof) - len(rows)
    more = f", the first {len(rows):,} of {len(run.proof):,}" if left else ""
    caption = f"Proof: every action that was seen to fail, from the first state on{more}"
    columns = ("step", "state", "action", "violated by", "led to, where all fails")
    return Table(f"{place}-proof", caption, columns, rows)


def dead_end(label: Any) -> str | None:
    """Return a state that an action led to as text, if it led to one."""
    return None if label is None else shown_state(label)


def audit_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return what the slack leaves, and the paper's assumptions one by one."""
    tolerated, penalty = found.run.settings.tolerated()
    slack = tolerated or USUAL_SLACK
    answer = found.audited(slack, penalty if tolerated else None)
    if answer is None:
        return []
    own = "the learner's" if tolerated else "the learner has none; for example"
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
        Table(f"{place}-audit", f"What a slack of {slack:g} leaves ({own})", ("quantity", "value"), rows),
        Table(f"{place}-assumptions", "The paper's assumptions", ("assumption", "holds", "what was seen"), checks),
    ]
