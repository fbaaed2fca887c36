"""Sections of the page: a run on a model, a run on an environment, and a sweep.

A run has the parts: result, learning curves, policy, one episode, risk, details. Every number and statement comes from
a certificate or from `peakrl.report.analysis`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from peakrl.certificates.certificate import between, chance, number
from peakrl.errors import SettingsError
from peakrl.report.blocks import (
    Answer,
    Block,
    Chart,
    Fact,
    Mark,
    Part,
    Scale,
    Section,
    Series,
    Settings,
    Table,
    Text,
    shown_state,
    slug,
)
from peakrl.report.charts import curve_blocks, finite, multiplier_chart, proved_chart, thinned
from peakrl.report.policy_blocks import environment_map
from peakrl.sweeps.summary import ENOUGH_SEEDS

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.report.analysis import EnvironmentAnalysis, RunAnalysis
    from peakrl.tabular import TabularModel
    from peakrl.training.trainer import LearningRun

#: Number of lines of a proof on the page.
PROOF_LINES = 500
#: Which episode is shown, by whether the model is deterministic.
EPISODES = {
    False: "The episode of peakrl.rollout(model, run.policy) with seed 0: one random sample of many possible episodes.",
    True: "The problem is deterministic: every episode of this policy is this one.",
}


def run_section(
    path: Path, share: int = 1, model: TabularModel | None = None, table: TabularModel | None = None
) -> Section:
    """Return the section of a run file; `share` is the number of runs that share the limits of the page."""
    from peakrl.training.learn import load_run

    return section_for(load_run(path, model=model), path.name, share, table)


def section_for(run: LearningRun, name: str, share: int = 1, table: TabularModel | None = None) -> Section:
    """Return the section of a run on a model or on an environment, which may show a `table`."""
    from peakrl.report.analysis import EnvironmentAnalysis, RunAnalysis
    from peakrl.tabular import TabularModel

    if not isinstance(run.model, TabularModel):
        return environment_section(EnvironmentAnalysis(run, table), name)
    if table is not None:
        raise SettingsError(f"{name} is a run on a model; pass `table` only for a run on an environment")
    return section_of(RunAnalysis.of(run), name, share)


def section_of(analysis: RunAnalysis, name: str, share: int = 1) -> Section:
    """Return the section of an analysed run on a model."""
    run, model, prefix = analysis.run, analysis.run.model, f"run-{slug(name)}"
    badge = VERDICTS[analysis.verdict.kind]
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} state-action pairs, "
        f"{model.horizon} steps, constraints: {', '.join(model.constraint_names) or 'none'}; "
        f"{run.episodes:,} episodes with seed {run.seed}."
    )
    parts = [part for part in run_parts(analysis, prefix, share) if part.blocks]
    return Section(prefix, f"{name}: {model.name}", lead, (), badge=badge, parts=parts)


def run_parts(analysis: RunAnalysis, prefix: str, share: int) -> list[Part]:
    """Return the parts of the page of a run on a model."""
    from peakrl.report.charts import episode_blocks, picture_blocks, risk_blocks, schedule_blocks
    from peakrl.report.policy_blocks import explorer_blocks, run_map

    episode = [*picture_blocks(analysis, prefix), *episode_blocks(analysis, prefix)]
    does = [
        *schedule_blocks(analysis, prefix),
        *run_map(analysis, prefix, share),
        *explorer_blocks(analysis, prefix, share),
    ]
    return [
        Part(f"{prefix}-story-answer", "Result", "", [answer_of(analysis, prefix)]),
        Part(f"{prefix}-story-curve", "Learning curves", "", curve_blocks(analysis, prefix)),
        Part(f"{prefix}-story-policy", "Policy", "", does),
        Part(f"{prefix}-story-episode", "One episode", EPISODES[analysis.known.model.deterministic], episode),
        Part(f"{prefix}-story-risk", "Risk", "", risk_blocks(analysis, prefix)),
        Part(f"{prefix}-story-details", "Details", "", detail_blocks(analysis, prefix)),
    ]


def detail_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the metrics, and the evidence that the result rests on."""
    run = analysis.run
    return [
        metrics_table(analysis, prefix),
        *proof_blocks(analysis, prefix),
        *certificate_tables(analysis.certificates, prefix),
        *audit_blocks(analysis, prefix),
        Settings(f"{prefix}-settings", "Settings of the learner", run.settings.as_dict()),
    ]


# Metrics ---------------------------------------------------------------------------------------------------------


def metrics_table(analysis: RunAnalysis, prefix: str) -> Table:
    """Return value and violation of the policies compared with the optimum."""
    metrics = {
        "last policy": analysis.last_metrics,
        "averaged policy": analysis.averaged_metrics,
        "optimum": analysis.best_metrics,
    }
    rows = [
        (
            name,
            one.value,
            one.below_optimum,
            analysis.percent(one.below_optimum),
            one.violation,
            one.violation_probability,
        )
        for name, one in metrics.items()
        if one is not None
    ]
    columns = ("policy", "value", "gap to optimum", "gap in %", "violation", "violation probability")
    return Table(f"{prefix}-metrics", "Exact metrics per episode", columns, rows)


def certificate_tables(certificates: Sequence[Certificate], prefix: str) -> list[Block]:
    """Return the certificates of the last policy as tables."""
    blocks: list[Block] = []
    for one in certificates:
        caption = f"Certificate ({one.kind}) of the last policy: {'holds' if one.holds else 'does not hold'}"
        reason = [] if one.reason is None else [("reason", one.reason)]
        blocks.append(Table(f"{prefix}-certificate-{one.kind}", caption, ("", ""), [*reason, *one.rows()], folded=True))
    return blocks


# Evidence -----------------------------------------------------------------------------------------------------


def proof_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the proof of infeasibility, if there is one, and the worst value of every constraint."""
    run = analysis.run
    blocks: list[Block] = [proof_table(run, prefix)] if run.infeasibility_proof else []
    margins = [
        (name, float(margin), bool(margin >= 0))
        for name, margin in zip(run.model.constraint_names, analysis.last.worst_margin, strict=True)
    ]
    caption = "Worst constraint values of the last policy over all possible outcomes (>= 0: satisfied)"
    blocks.append(Table(f"{prefix}-margins", caption, ("constraint", "worst value", "always satisfied"), margins))
    return blocks


def proof_table(run: LearningRun, prefix: str) -> Table:
    """Return the observations that make up the learner's proof of infeasibility."""
    rows = [
        (line.step, shown_state(line.state), repr(line.action), line.violation, dead_end(line.dead_state))
        for line in run.infeasibility_proof[:PROOF_LINES]
    ]
    left = len(run.infeasibility_proof) - len(rows)
    more = f", the first {len(rows):,} of {len(run.infeasibility_proof):,}" if left else ""
    caption = f"Proof of infeasibility: every action that was observed to fail, from the initial state on{more}"
    columns = ("step", "state", "action", "violation", "leads to dead end")
    return Table(f"{prefix}-proof", caption, columns, rows)


def dead_end(label: Any) -> str | None:
    """Return the dead-end state that an action led to as text, or None."""
    return None if label is None else shown_state(label)


def audit_blocks(analysis: RunAnalysis, prefix: str) -> list[Block]:
    """Return the audit of the learner's slack and the paper's assumptions; nothing for learners without a slack."""
    slack, penalty = analysis.run.settings.tolerated()
    answer = analysis.audited(slack, penalty) if slack else None
    if answer is None:
        return []
    rows = [
        ("slack", answer.slack),
        ("penalty", answer.penalty),
        ("optimum V*", answer.optimum.value),
        ("modified optimum W*", answer.modified.value),
        ("violation per episode that is not penalised", answer.free_violation),
        ("value gained by it", answer.value_won),
        ("modified optimum equals optimum", answer.exact),
        ("violations above this never pay off", answer.deterred_violation),
        ("smallest violation in the model", answer.smallest_violation),
    ]
    checks = [(check.name, check.holds, check.detail) for check in answer.checks]
    return [
        Table(f"{prefix}-audit", f"Audit of the learner's slack of {slack:g}", ("quantity", "value"), rows),
        Table(f"{prefix}-assumptions", "The paper's assumptions", ("assumption", "holds", "details"), checks),
    ]


# Runs on environments -----------------------------------------------------------------------------------------------

#: Most decisions that the page lists.
MOST_DECISIONS = 2000


def environment_section(analysis: EnvironmentAnalysis, name: str) -> Section:
    """Return the section of a run on an environment."""
    run, states, prefix = analysis.run, analysis.run.model, f"run-{slug(name)}"
    tone, short, said = verdict(analysis)
    lead = (
        f"{states.name}, an environment: {states.num_states:,} states and {states.num_pairs:,} pairs visited, "
        f"{states.horizon} steps, constraints: {', '.join(states.constraint_names) or 'none'}; "
        f"{run.episodes:,} episodes with seed {run.seed}."
    )
    details: list[Block] = [experience_table(run, prefix)]
    if run.infeasibility_proof:
        details.append(proof_table(run, prefix))
    details += certificate_tables(analysis.certificates, prefix)
    details.append(Settings(f"{prefix}-settings", "Settings of the learner", run.settings.as_dict()))
    went = [*curves(run, prefix), *proved_chart(run, prefix), *multiplier_chart(run, prefix)]
    maps = environment_map(run, prefix)
    parts = [
        Part(f"{prefix}-story-answer", "Result", "", [environment_answer(analysis, prefix, said, tone)]),
        Part(f"{prefix}-story-curve", "Learning curves", "", went),
        Part(f"{prefix}-story-policy", "Policy", "", [*maps, decisions(run, prefix, folded=bool(maps))]),
        Part(f"{prefix}-story-details", "Details", "", details),
    ]
    return Section(prefix, f"{name}: {states.name}", lead, (), badge=(tone, short), parts=parts)


def verdict(analysis: EnvironmentAnalysis) -> tuple[str, str, str]:
    """Return tone, badge and sentence of the verdict."""
    run, exact = analysis.run, analysis.certificate
    if analysis.feasible is False:
        return "bad", "infeasible", sentence(analysis.verdict)
    if (
        exact is not None and exact.violation_probability_high != 0
    ):  # the exact result takes precedence over the learned certificate
        return (*VERDICTS["violates"], sentence(analysis.verdict))
    if run.certificate is not None and run.certificate.holds:
        return "good", "certified", f"Certified: {run.certificate.claim}."
    if exact is not None:
        return (*VERDICTS["safe"], sentence(analysis.verdict))
    return "", "not proved", "Nothing is proved about this policy: " + seen(run)[0][0].lower() + seen(run)[0][1:]


def curves(run: LearningRun, prefix: str) -> list[Block]:
    """Return reward and violation of the episodes, each and on average."""
    history = run.history
    if not len(history):
        return [Text("No history was recorded: learn(..., history=...) says how often.")]
    keep = thinned(len(history))
    x = history.episode[keep].tolist()
    reward = [
        Series("episode", x, finite(history.episode_reward[keep]), None, "grey", mode="markers"),
        Series("mean so far", x, finite(history.averaged_value[keep]), None, "blue"),
    ]
    violation = [Series("total so far", x, finite(history.cumulative_violation[keep]), None, "orange")]
    return [
        Chart(f"{prefix}-value", "Observed reward per episode", "episode", "reward", reward),
        Chart(f"{prefix}-violation", "Cumulative violation", "episode", "violation", violation),
    ]


def experience_table(run: LearningRun, prefix: str) -> Table:
    """Return the counts of a run on an environment."""
    rows: list[tuple[str, object]] = [
        ("episodes", run.episodes),
        ("violating episodes", run.violations),
        ("last violating episode", run.last_violation_episode),
        ("visited states", run.model.num_states),
        ("available state-action pairs", run.model.num_pairs),
    ]
    if len(run.history):
        rows.append(("mean reward per episode", float(run.history.averaged_value[-1])))
    if run.coverage is not None:
        rows.append(("coverage of the last policy", str(run.coverage)))
    if run.infeasible_limits is not None:
        rows.append(("limits", run.infeasible_limits))
    return Table(f"{prefix}-experience", "Observed while learning", ("", ""), rows)


def decisions(run: LearningRun, prefix: str, *, folded: bool = False) -> Table:
    """Return the decisions of the policy in visited states, in the order of steps."""
    columns, rows = run.policy._table()
    first = [tuple(map(shown_cell, columns, row)) for row in itertools.islice(rows, MOST_DECISIONS)]
    more = f", the first {MOST_DECISIONS:,}" if len(first) == MOST_DECISIONS else ""
    return Table(
        f"{prefix}-decisions", f"Decisions of the policy in visited states{more}", columns, first, folded=folded
    )


def shown_cell(column: str, value: object) -> object:
    """Return a cell as readable text."""
    if column == "safe" and value is None:
        return "unknown"
    return shown_state(value) if column == "state" else repr(value) if column == "action" else value


# The result: is it safe, what is its value, what does that rest on --------------------------------------------------

#: Tone and badge of a verdict.
VERDICTS = {"infeasible": ("bad", "infeasible"), "safe": ("good", "no violation"), "violates": ("bad", "may violate")}


def answer_of(analysis: RunAnalysis, prefix: str) -> Answer:
    """Return the result of a run on a model."""
    tone, _ = VERDICTS[analysis.verdict.kind]
    learned = analysis.run.certificate
    certificate = learned or analysis.certificate
    facts = [holds(analysis, learned), worth(analysis, certificate), rests(certificate)]
    if learned is not None:
        facts.append(checked(analysis.certificate))
    return Answer(f"{prefix}-answer", headline(analysis), tone, facts, tuple(scales(analysis)))


def headline(analysis: RunAnalysis) -> str:
    """Return the result in one sentence."""
    limit = "" if analysis.judged is None else f"; {analysis.judged}"
    if analysis.verdict.kind == "infeasible":
        who = "proved by the learner" if analysis.run.feasible is False else "proved by the exact planner"
        return f"Infeasible: no policy satisfies every constraint ({who}){limit}."
    if analysis.verdict.kind == "violates":
        chance_of = analysis.certificate.violation_probability_high
        often = "" if chance_of is None else f" (probability {number(chance_of)} per episode)"
        return f"This policy may violate a constraint{often}{limit}."
    claim, gap = "This policy never violates a constraint", analysis.certificate.gap
    if analysis.optimum is None or gap is None:
        return f"{claim}."
    if gap <= 0:
        return f"{claim} and is optimal among the policies that never do."
    percent = analysis.percent(gap)
    less = number(gap) if percent is None else f"{percent:.2g} %"
    return f"{claim}. Its value is {less} below the best safe policy."


def environment_answer(analysis: EnvironmentAnalysis, prefix: str, said: str, tone: str) -> Answer:
    """Return the answer of a run on an environment: what is proved, and what was merely seen."""
    run, certificate, exact, facts = analysis.run, analysis.run.certificate, analysis.certificate, []
    if certificate is not None:
        facts = [proved(certificate), bounds(certificate), rests(certificate)]
        facts += [] if exact is None else [checked(exact, "the table that the environment shows")]
    elif exact is not None:
        facts = [kept(exact, seen(run)), worth(analysis, exact), rests(exact)]
    else:
        facts.append(Fact("Is it safe?", "Unknown: nothing is proved about this policy.", seen(run)))
        if len(run.history):
            mean = float(run.history.averaged_value[-1])
            text = f"{number(mean)} per episode on average while learning, exploration included."
            facts.append(Fact("What is its value?", text))
        advice = "peakrl.certify(environment, run.policy) or `peakrl certify` bounds both from new episodes."
        facts.append(Fact("What does this rest on?", "On the episodes observed while learning.", (advice,)))
    return Answer(f"{prefix}-answer", said, tone, facts, tuple(bounded(certificate or exact)))


# Safety --------------------------------------------------------------------------------------------------------


def holds(analysis: RunAnalysis, learned: Certificate | None) -> Fact:
    """Return what is known about the constraints."""
    if learned is not None:
        return proved(learned)
    # The planner's reason is long: one line for each part.
    parts = re.split(r"; |(?<=\.) (?=Step by step)", analysis.verdict.text)
    return kept(
        analysis.certificate, [] if analysis.certificate.violation_high == 0 else [sentence(one) for one in parts]
    )


def kept(exact: Certificate, details: Sequence[str]) -> Fact:
    """Return whether the constraints are satisfied, by exact computation."""
    if exact.violation_high == 0:
        said = "Yes. No constraint is violated in any possible outcome."
        return Fact("Is it safe?", said, tuple(details), "good")
    return Fact("Is it safe?", f"No. Violation: {exact.safety}.", tuple(details), "bad")


def proved(certificate: Certificate) -> Fact:
    """Return what the learner's own certificate proves."""
    if certificate.holds:
        return Fact("Is it safe?", f"Yes, proved from observations alone: {certificate.claim}.", (), "good")
    return Fact("Is it safe?", f"Not proved: {certificate.reason}.", (f"Violation: {certificate.safety}.",))


def seen(run: LearningRun) -> tuple[str, ...]:
    """Return what was observed while learning."""
    violated = f"{run.violations:,} of {run.episodes:,} episodes" if run.violations else "no episode"
    last = f" (last: episode {run.last_violation_episode:,})" if run.last_violation_episode else ""
    coverage = () if run.coverage is None else (f"The policy is {run.coverage}.",)
    limits = [sentence(each) for each in (run.settings.aim, run.infeasible_limits) if each is not None]
    return (f"While learning, {violated} violated a constraint{last}.", *coverage, *limits)


# Value -----------------------------------------------------------------------------------------------------------


def worth(analysis: RunAnalysis | EnvironmentAnalysis, certificate: Certificate) -> Fact:
    """Return the value and its gap to the best policy that never violates."""
    if certificate.kind == "learned":
        return bounds(certificate)
    best, gap = certificate.optimum_high, certificate.gap
    value = f"{between(certificate.value_low, certificate.value_high)} per episode"
    if analysis.feasible is False:
        return Fact(
            "What is its value?",
            f"{value}; no policy satisfies every constraint, so there is no safe policy to compare with.",
        )
    if best is None or gap is None or analysis.optimum is None:
        return bounds(certificate)
    if gap < 0:
        return Fact(
            "What is its value?", f"{value}, {number(-gap)} above the best safe policy, since it violates constraints."
        )
    if gap == 0:
        return Fact("What is its value?", f"{value}: optimal among safe policies.", (), "good")
    share = f" ({100 * gap / abs(best):.2g} %)" if best else ""
    return Fact("What is its value?", f"{value}, {number(gap)}{share} below the best safe policy, {number(best)}.")


def bounds(certificate: Certificate) -> Fact:
    """Return the bounds of a certificate on the value."""
    gap = "" if certificate.gap is None else f"At most {number(certificate.gap)} below the best safe policy."
    details = (gap,) if gap else ()
    return Fact("What is its value?", f"{between(certificate.value_low, certificate.value_high)} per episode.", details)


# Evidence and assumptions -------------------------------------------------------------------------------------------


def rests(certificate: Certificate) -> Fact:
    """Return the assumptions of a certificate."""
    sampled = f"{certificate.episodes:,} episodes; wrong with {chance(certificate.failure_probability)}."
    said = sampled if certificate.episodes else "An exact computation on the model, without sampling."
    return Fact("What does this rest on?", said, [sentence(line) for line in certificate.rests_on])


def checked(exact: Certificate, source: str = "the model") -> Fact:
    """Return the exact result, beside the certificate from observations alone."""
    gap = "" if exact.gap is None else f", {number(exact.gap)} below the best safe policy"
    value = f"{between(exact.value_low, exact.value_high)} per episode{gap}"
    return Fact("What is exact?", f"On {source}: {value}; violation: {exact.safety}.")


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else text


# Scales -------------------------------------------------------------------------------------------------------------


def scales(analysis: RunAnalysis) -> Iterator[Scale]:
    """Yield value and violation per episode: of the first policy, on average, of the last policy and of the optimum."""
    history, last, best = analysis.run.history, analysis.last_metrics, analysis.best_metrics
    averaged = analysis.averaged_metrics
    learned = analysis.run.certificate
    for quantity in ("value", "violation"):
        own = getattr(last, quantity)
        begin = [getattr(history, quantity)[0]] if len(history) else []
        marks = [Mark("first policy", float(one), float(one), "grey") for one in begin if isfinite(one)]
        if averaged is not None:
            mean = getattr(averaged, quantity)
            marks.append(Mark("mean while learning", mean, mean, "orange"))
        if learned is not None:
            marks += proved_mark(learned, quantity)
        marks.append(Mark("last policy", own, own, "blue"))
        if best is not None:
            word = "best safe policy" if analysis.feasible is not False else "least violating policy"
            marks.append(Mark(word, getattr(best, quantity), getattr(best, quantity), "ink"))
        yield Scale(f"{quantity.capitalize()} per episode", marks)


def proved_mark(certificate: Certificate, quantity: str) -> list[Mark]:
    """Return the certified interval of a quantity."""
    low, high = certificate.value_low, certificate.value_high
    if quantity == "violation":
        low, high = 0.0, certificate.violation_high
    return [] if low is None or high is None else [Mark("certified interval", low, high, "green")]


def bounded(certificate: Certificate | None) -> Sequence[Scale]:
    """Return the scale of a certificate without an analysis."""
    if certificate is None:
        return ()
    marks = proved_mark(certificate, "value")
    if marks and certificate.optimum_high is not None:
        best = certificate.optimum_high
        marks.append(Mark("best safe policy, at most", best, best, "ink"))
    return (Scale("Value per episode", marks),) if len(marks) > 1 else ()


# Sweeps -------------------------------------------------------------------------------------------------------------

COLOURS = ("blue", "orange", "green", "purple", "sky", "yellow", "grey")
CONFIDENCE = 0.95
#: Columns of a record that are not results.
LEFT_OUT = ("key", "has_curve", "epsilon")


def sweep_sections(folder: Path) -> list[Section]:
    """Return a section for each problem of a sweep, and one with all runs."""
    from peakrl.sweeps.store import Store
    from peakrl.sweeps.summary import read_records, summarize

    store, records = Store.open(folder), read_records(folder)
    groups, comparisons = summarize(records, confidence=CONFIDENCE)
    names = {}
    for kept in reversed(store.kept_names()):
        names.update(kept)
    sections = []
    for problem in dict.fromkeys(record["problem"] for record in records):
        mine = [group for group in groups if group.problem == problem]
        pairs = [one for one in comparisons if one.problem == problem]
        own = [record for record in records if record["problem"] == problem]
        sections.append(problem_section(store, problem, own, mine, pairs))
    return [*sections, runs_section(records, names)]


def problem_section(store: Any, problem: str, records: Sequence[Any], groups: Any, comparisons: Any) -> Section:
    """Return the results of the learners on one problem."""
    prefix = f"sweep-{slug(problem)}"
    seeds = sum(group.seeds for group in groups)
    solved = None if any(group.solved is None for group in groups) else sum(group.solved for group in groups)
    lead = unknown_lead(records) if solved is None else known_lead(records, solved, seeds, groups[0].epsilon)
    charts = list(curve_charts(store, prefix, records))
    # Value beside violation; the tables are too wide for half a page.
    main: list[Block] = list(charts[::2]) or [Text("These runs have no learning curves.")]
    wide: list[Block] = [group_table(prefix, groups)]
    if comparisons:
        wide.append(comparison_table(prefix, comparisons))
    short = f"{seeds} runs, no optimum known" if solved is None else f"{solved} of {seeds} solved"
    return Section(prefix, problem, lead, main, charts[1::2], ("good" if solved == seeds else "", short), wide)


def known_lead(records: Sequence[Any], solved: int, seeds: int, epsilon: float) -> str:
    """Return how many runs reached the optimum."""
    feasible = all(record["problem_feasible"] for record in records)
    return (
        f"{solved} of {seeds} runs end within {epsilon:.4g} of the optimum without avoidable violation. "
        f"The problem is {'feasible' if feasible else 'infeasible (proved by the exact planner)'}; its optimum is "
        f"{records[0]['optimum']:.6g} at violation {records[0]['least_violation']:.6g}."
    )


def unknown_lead(records: Sequence[Any]) -> str:
    """Return what the metrics rest on if the optimum is unknown."""
    violating = sum(record["violation"] > 0 for record in records)
    return (
        "An environment without a transition table: value and violation are means of "
        f"{records[0]['sampled']:,} new episodes of each policy; the optimum is unknown. "
        f"{violating} of {len(records)} policies violated a constraint in them; this does not prove that the others "
        "never do."
    )


def group_table(prefix: str, groups: Any) -> Table:
    """Return the interquartile means with their intervals."""
    columns = (
        "settings", "episodes", "seeds", "value", "value low", "value high", "gap", "gap in %", "violation",
        "violation high", "share solved", "share low", "share high", "episodes to reach",
    )  # fmt: skip
    rows = []
    for group in groups:
        gap = None if group.gap is None else group.gap.value
        best = None if gap is None else group.value.value + gap
        percent = 100.0 * gap / abs(best) if best and gap is not None else None
        share = (None, None, None) if group.share_solved is None else group.share_solved[:3]
        rows.append((
            group.settings, group.episodes, group.seeds, *group.value[:3], gap, percent,
            group.violation.value, group.violation.high, *share, group.episodes_to_reach,
        ))  # fmt: skip
    few = min(group.seeds for group in groups) < ENOUGH_SEEDS
    warning = (
        f"; with fewer than {ENOUGH_SEEDS} seeds the intervals of value and violation are too narrow" if few else ""
    )
    title = f"Interquartile means over seeds with {CONFIDENCE:.0%} intervals{warning}"
    return Table(f"{prefix}-groups", title, columns, rows)


def comparison_table(prefix: str, comparisons: Any) -> Table:
    """Return the probability that a run of one learner is better than one of another."""
    rows = [(one.episodes, one.better, one.worse, *one.probability[:3]) for one in comparisons]
    columns = ("episodes", "a run of", "is better than one of", "with probability", "low", "high")
    return Table(f"{prefix}-pairs", "Comparison: less violation is better, then more value", columns, rows)


def curve_charts(store: Any, prefix: str, records: Sequence[Any]) -> Iterator[Chart]:
    """Yield value and violation over episodes, mean and standard deviation over seeds."""
    for episodes in dict.fromkeys(record["episodes"] for record in records):
        own = [record for record in records if record["episodes"] == episodes and record["has_curve"]]
        if not own:
            continue
        arrays: dict[str, list[Any]] = {}
        for record in own:
            arrays.setdefault(record["settings"], []).append(store.read(record["key"]).arrays)
        for measure, level in (("value", "optimum"), ("violation", "least_violation")):
            series = [
                mean_curve(name, curves, measure, COLOURS[index % len(COLOURS)])
                for index, (name, curves) in enumerate(arrays.items())
            ]
            levels = {record[level] for record in own}
            if len(levels) == 1 and levels != {None}:  # problems that follow the seed have an optimum each
                ends = [series[0].x[0], series[0].x[-1]]
                series.append(
                    Series(level.replace("_", " "), ends, [levels.pop()] * 2, None, "ink", "dash", level=True)
                )
            what = f"{measure.capitalize()} of the policy"
            if any(record["sampled_curve"] for record in own):
                what = f"{measure.capitalize()} of training episodes, exploration included"
            title = f"{what}, {episodes:,} episodes, mean and sd over seeds"
            yield Chart(f"{prefix}-{episodes}-{measure}", title, "episode", measure, series)


def mean_curve(name: str, curves: Sequence[Any], measure: str, colour: str) -> Series:
    """Return the mean and standard deviation of the curves that were recorded at the same episodes."""
    episode = curves[0]["history_episode"]
    alike = [arrays for arrays in curves if np.array_equal(arrays["history_episode"], episode)]
    table = np.stack([arrays[f"history_{measure}"] for arrays in alike])
    keep = thinned(len(episode))
    std = table.std(axis=0, ddof=1)[keep].tolist() if len(alike) > 1 else None
    return Series(name, episode[keep].tolist(), table.mean(axis=0)[keep].tolist(), std, colour)


def runs_section(records: Sequence[Any], names: dict[str, Any]) -> Section:
    """Return every run, and the problems and settings by name."""
    columns = [name for name in records[0] if name not in LEFT_OUT]
    rows = [[record.get(name) for name in columns] for record in records]
    lead = "A sweep stores metrics and curves; `peakrl train ... --out` stores a run with its policy."
    table = Table("sweep-runs", f"All {len(rows):,} runs", [name.replace("_", " ") for name in columns], rows)
    return Section("sweep-all", "Runs", lead, [table, Settings("sweep-settings", "Problems and settings", names)])
