"""One run on the page: exact figures against the optimum, curves, verdict with its proof, audit, policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.model.explore import as_model
from peakrl.report.blocks import Block, Chart, Section, Series, Settings, Table, Text, shown_state, slug

if TYPE_CHECKING:
    from peakrl.auditing import Audit
    from peakrl.evaluation import Evaluation
    from peakrl.learning.run import LearningRun
    from peakrl.model.tabular import TabularModel
    from peakrl.planning import Solution
    from peakrl.policy.tables import AnyPolicy, Policy

#: Above this many outcomes the optimum, and above this many changes times states the averaged policy, is not computed.
MOST_OUTCOMES, MOST_CHANGES = 5e8, 5e9
#: Lines of a proof on the page, and points of a curve.
PROOF_LINES, POINTS = 500, 2000
#: Audited where the learner itself has no slack.
USUAL_SLACK = 0.1
ROUNDING = 1e-12


@dataclass(frozen=True)
class ModelFindings:
    """What is computed of a model alone: a page that is built again while a run goes on keeps it."""

    model: TabularModel

    @cached_property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum; None where the model is too large for that to be quick."""
        from peakrl.planning import solve

        model = self.model
        return solve(model) if model.num_outcomes + model.num_entries <= MOST_OUTCOMES else None

    @cached_property
    def best(self) -> Evaluation | None:
        """The exact figures of the optimum."""
        return None if self.optimum is None else self.evaluated(self.optimum.policy)

    def evaluated(self, policy: AnyPolicy) -> Evaluation:
        """Return the exact figures of a policy."""
        from peakrl.evaluation import evaluate

        return evaluate(self.model, policy)

    @cached_property
    def audits(self) -> dict[tuple[float, float | None], Audit]:
        """Audits so far, by slack and penalty."""
        return {}

    def audited(self, slack: float, penalty: float | None) -> Audit:
        """Return what a slack leaves."""
        from peakrl.auditing import audit

        key = slack, penalty
        if key not in self.audits:
            self.audits[key] = audit(self.model, slack, penalty, relaxed=False)
        return self.audits[key]


@dataclass(frozen=True)
class Findings:
    """A run and what is computed of it, each when it is first asked for."""

    run: LearningRun
    known: ModelFindings
    #: Above this many changes times states the averaged policy is not computed.
    most_changes: float = MOST_CHANGES

    @property
    def optimum(self) -> Solution[Policy] | None:
        """The exact optimum, if known."""
        return self.known.optimum

    @cached_property
    def last(self) -> Evaluation:
        """The exact figures of the last policy."""
        return self.known.evaluated(self.run.policy)

    @property
    def averaged(self) -> tuple[float, float, float | None] | None:
        """Value, violation and its probability of the averaged policy, from the history where that is quicker."""
        run = self.run
        if run._averaged is None:
            return None
        if run.averaged_policy.num_changes * run.model.num_nodes <= self.most_changes:
            found = self.known.evaluated(run.averaged_policy)
            return found.value, found.violation, found.violation_probability
        if not len(run.history) or np.isnan(run.history.averaged_value[-1]):
            return None
        return float(run.history.averaged_value[-1]), float(run.history.averaged_violation[-1]), None


def run_section(path: Path, share: int = 1, model: TabularModel | None = None) -> Section:
    """Return the section of a run file; `share` runs divide the page's room among them."""
    from peakrl.learning.checkpoint import load_run

    return section_of(load_run(path, model=model), path.name, share)


def section_of(
    run: LearningRun,
    name: str,
    share: int = 1,
    known: ModelFindings | None = None,
    most_changes: float = MOST_CHANGES,
) -> Section:
    """Return the section of a run; `known` is what was found out about its model before."""
    from peakrl.report.policy_blocks import policy_blocks

    found, place = Findings(run, known or ModelFindings(as_model(run.model)), most_changes), f"run-{slug(name)}"
    verdict, tone, short = verdict_of(found)
    model = run.model
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} pairs, {model.horizon} steps, "
        f"constraints: {', '.join(model.constraint_names) or 'none'}; {run.episodes:,} episodes with seed {run.seed}."
    )
    main: list[Block] = [Text(verdict, tone), figures_table(found, place), *curves(found, place)]
    wide = policy_blocks(run, found.optimum, place, share)
    aside: list[Block] = [*proof_blocks(found, place), *audit_blocks(found, place)]
    aside.append(Settings(f"{place}-settings", "Settings of the learner", run.settings.as_dict()))
    return Section(place, f"{name}: {model.name}", lead, main, aside, (tone, short), wide)


# Figures ---------------------------------------------------------------------------------------------------------


def figures_table(found: Findings, place: str) -> Table:
    """Return value and violation of the policies against the optimum."""
    last, averaged, optimum = found.last, found.averaged, found.optimum
    rows: list[tuple[Any, ...]] = [
        ("last policy", last.value, *gap(last.value, optimum), last.violation, last.violation_probability)
    ]
    if averaged is not None:
        rows.append(("averaged policy", averaged[0], *gap(averaged[0], optimum), *averaged[1:]))
    best = found.known.best
    if optimum is not None and best is not None:
        rows.append(("optimum", optimum.value, 0.0, 0.0, optimum.violation, best.violation_probability))
    columns = ("policy", "value", "below the optimum", "gap in %", "violation", "probability of any")
    return Table(f"{place}-figures", "Exact figures of an episode", columns, rows)


def gap(value: float, optimum: Solution[Any] | None) -> tuple[float | None, float | None]:
    """Return how far a value lies below the optimum, and in percent of it; rounding counts as 0."""
    if optimum is None:
        return None, None
    below = optimum.value - value
    if abs(below) <= ROUNDING * max(1.0, abs(optimum.value)):
        return 0.0, 0.0
    return below, 100.0 * below / abs(optimum.value) if optimum.value else None


def curves(found: Findings, place: str) -> list[Chart]:
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
    return [*charts, step_chart(found, place)]


def thinned(count: int) -> Any:
    """Return which points of a curve to draw: all, or evenly spaced ones with the last."""
    if count <= POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, POINTS).round().astype(np.int64))


def step_chart(found: Findings, place: str) -> Chart:
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


# Verdict ---------------------------------------------------------------------------------------------------------


def verdict_of(found: Findings) -> tuple[str, str, str]:
    """Return where the problem and the last policy stand: a sentence, its tone, and a few words."""
    run, optimum, last = found.run, found.optimum, found.last
    if run.feasible is False:
        least = f" The least expected violation of any policy is {optimum.violation:.6g}." if optimum else ""
        text = f"Infeasible, proved by the learner: every way out of a first state was seen to fail.{least}"
        return text + (f" The planner agrees: {optimum.reason}" if optimum else ""), "bad", "infeasible"
    if optimum is not None and not optimum.feasible:
        return f"Infeasible: {optimum.reason}", "bad", "infeasible"
    known = "Feasible: the exact planner has a policy that never violates." if optimum else "Feasibility not known."
    if last.violation_probability == 0:
        return f"{known} The last policy never violates a constraint, in any outcome.", "good", "no violation"
    chance = f"{last.violation_probability:.6g}"
    return f"{known} The last policy violates a constraint with probability {chance}.", "bad", "may violate"


def proof_blocks(found: Findings, place: str) -> list[Block]:
    """Return what the verdict rests on: observations where infeasible, margins of every constraint where not."""
    run, blocks = found.run, []
    if run.proof:
        rows = [
            (line.step, shown_state(line.state), repr(line.action), line.violation, dead_end(line.dead_state))
            for line in run.proof[:PROOF_LINES]
        ]
        left = len(run.proof) - len(rows)
        more = f", the first {len(rows):,} of {len(run.proof):,}" if left else ""
        caption = f"Proof: every action that was seen to fail, from the first state on{more}"
        columns = ("step", "state", "action", "violated by", "led to, where all fails")
        blocks.append(Table(f"{place}-proof", caption, columns, rows))
    margins = [
        (name, float(margin), bool(margin >= 0))
        for name, margin in zip(run.model.constraint_names, found.last.worst_margin, strict=True)
    ]
    caption = "The last policy, in every outcome that can come up (0 and above is met)"
    blocks.append(Table(f"{place}-margins", caption, ("constraint", "least value", "always met"), margins))
    return list(blocks)


def dead_end(label: Any) -> str | None:
    """Return a state that an action led to as text, if it led to one."""
    return None if label is None else shown_state(label)


def audit_blocks(found: Findings, place: str) -> list[Block]:
    """Return what the slack leaves, and the paper's assumptions one by one."""
    if found.optimum is None or not found.run.model.num_constraints:
        return []
    tolerated, penalty = found.run.settings.tolerated()
    slack = tolerated or USUAL_SLACK
    answer = found.known.audited(slack, penalty if tolerated else None)
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
