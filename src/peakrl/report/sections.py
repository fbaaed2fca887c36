"""Section of a run: result, learning curves, policy, one episode, risk, details.

Every number and statement comes from a certificate or from `peakrl.report.analysis`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from peakrl.certificates.certificate import between, chance, number
from peakrl.errors import SettingsError
from peakrl.report.analysis import RunAnalysis
from peakrl.report.blocks import (
    VERDICTS,
    Answer,
    Block,
    Fact,
    Mark,
    Scale,
    Section,
    Table,
    Text,
    settings_table,
    shown_state,
    slug,
)
from peakrl.report.charts import curve_blocks, episode_blocks, margins_table, risk_blocks
from peakrl.report.endless import run_section
from peakrl.report.policy_blocks import explorer, map_blocks

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.tabular import TabularModel
    from peakrl.training.run import LearningRun

#: Most lines of a proof, and most decisions, on the page.
MOST_LINES, MOST_DECISIONS = 500, 2000
#: Which episode is shown, by whether the model is deterministic.
EPISODES = {
    False: "The episode of peakrl.rollout(model, run.policy) with seed 0: one random sample of many possible episodes.",
    True: "The problem is deterministic: every episode of this policy is this one.",
}


def section_for(run: LearningRun, name: str, share: int = 1, table: TabularModel | None = None) -> Section:
    """Return the section of a run; an environment may show a `table`. `share` runs share the limits of the page."""
    analysis = RunAnalysis.of(run, table=table)
    if table is not None and not analysis.on_environment:
        raise SettingsError(f"{name} is a run on a model; pass `table` only for a run on an environment")
    if run.discount is not None:
        return run_section(analysis, name)
    return section_of(analysis, name, share)


def section_of(analysis: RunAnalysis, name: str, share: int = 1) -> Section:
    """Return the section of an analysed run."""
    run, model, prefix = analysis.run, analysis.run.model, f"run-{slug(name)}"
    sizes = f": {model.num_states:,} states, {model.num_pairs:,} state-action pairs"
    if analysis.on_environment:
        sizes = f", an environment: {model.num_states:,} states and {model.num_pairs:,} pairs visited"
    lead = (
        f"{model.name}{sizes}, {model.horizon} steps, constraints: {', '.join(model.constraint_names) or 'none'}; "
        f"{run.episodes:,} episodes with seed {run.seed}."
    )
    parts: dict[str, Sequence[Block]] = {"Result": [answer_of(analysis)], "Learning curves": curve_blocks(analysis)}
    maps = map_blocks(analysis, share)
    if analysis.on_environment:
        parts["Policy"] = [*maps, decisions(run, folded=bool(maps))]
    else:
        shown = Text(EPISODES[analysis.exact.model.deterministic])
        parts["Policy"] = [*maps, explorer(analysis, share)]
        parts["One episode"] = [shown, *episode_blocks(analysis)]
        parts["Risk"] = risk_blocks(analysis)
    parts["Details"] = detail_blocks(analysis)
    return Section.of_parts(prefix, f"{name}: {model.name}", lead, badge(analysis), parts)


def badge(analysis: RunAnalysis) -> tuple[str, str]:
    """Return tone and words of the verdict; an exact violation takes precedence over the learner's certificate."""
    learned, kind = analysis.run.certificate, analysis.verdict.kind
    if analysis.on_environment and kind == "safe" and learned is not None and learned.holds:
        kind = "certified"
    return VERDICTS[kind]


# Details ----------------------------------------------------------------------------------------------------------


def detail_blocks(analysis: RunAnalysis) -> list[Block]:
    """Return the metrics, and the evidence that the result rests on."""
    run = analysis.run
    blocks: list[Block] = [experience_table(run) if analysis.on_environment else metrics_table(analysis)]
    if run.infeasibility_proof:
        blocks.append(proof_table(run))
    if not analysis.on_environment:
        blocks.append(margins_table(run.model, analysis.last.worst_margin, "last policy"))
    for one in analysis.certificates:
        caption = f"Certificate ({one.kind}) of the last policy: {'holds' if one.holds else 'does not hold'}"
        reason = [] if one.reason is None else [("reason", one.reason)]
        blocks.append(Table(f"certificate-{one.kind}", caption, ("", ""), [*reason, *one.rows()], folded=True))
    if not analysis.on_environment:
        blocks += audit_blocks(analysis)
    return [*blocks, settings_table("settings", "Settings of the learner", run.settings.as_dict())]


def metrics_table(analysis: RunAnalysis) -> Table:
    """Return value and violation of the policies compared with the optimum."""
    names = {"policy": "last policy", "averaged_policy": "averaged policy", "optimum": "optimum"}
    rows = [
        (names[key], value, gap, analysis.percent(gap), violation, probability)
        for key, (value, gap, violation, probability) in analysis.metrics.items()
    ]
    columns = ("policy", "value", "gap to optimum", "gap in %", "violation", "violation probability")
    return Table("metrics", "Exact metrics per episode", columns, rows)


def proof_table(run: LearningRun) -> Table:
    """Return the observations that make up the learner's proof of infeasibility."""
    rows = []
    for line in run.infeasibility_proof[:MOST_LINES]:
        dead = None if line.dead_state is None else shown_state(line.dead_state)
        rows.append((line.step, shown_state(line.state), repr(line.action), line.violation, dead))
    count = len(run.infeasibility_proof)
    more = f", the first {len(rows):,} of {count:,}" if count > len(rows) else ""
    caption = f"Proof of infeasibility: every action that was observed to fail, from the initial state on{more}"
    return Table("proof", caption, ("step", "state", "action", "violation", "leads to dead end"), rows)


def audit_blocks(analysis: RunAnalysis) -> list[Block]:
    """Return the audit of the learner's slack and the paper's assumptions; nothing for learners without a slack."""
    audit = analysis.audit
    if audit is None:
        return []
    values = audit.as_dict()
    checks = [tuple(check.values()) for check in values.pop("checks")]
    return [
        settings_table("audit", f"Audit of the learner's slack of {audit.slack:g}", values),
        Table("assumptions", "The paper's assumptions", ("assumption", "holds", "details"), checks),
    ]


def experience_table(run: LearningRun) -> Table:
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
    return Table("experience", "Observed while learning", ("", ""), rows)


def decisions(run: LearningRun, *, folded: bool = False) -> Table:
    """Return the decisions of the policy in visited states, in the order of steps."""
    columns, rows = run.policy._table()
    first = [tuple(map(shown_cell, columns, row)) for row in itertools.islice(rows, MOST_DECISIONS)]
    more = f", the first {MOST_DECISIONS:,}" if len(first) == MOST_DECISIONS else ""
    title = f"Decisions of the policy in visited states{more}"
    return Table("decisions", title, columns, first, folded=folded)


def shown_cell(column: str, value: object) -> object:
    """Return a cell as readable text."""
    if column == "safe" and value is None:
        return "unknown"
    return shown_state(value) if column == "state" else repr(value) if column == "action" else value


# The result: is it safe, what is its value, what does that rest on --------------------------------------------------

SAFE, VALUE, RESTS = "Is it safe?", "What is its value?", "What does this rest on?"


def answer_of(analysis: RunAnalysis) -> Answer:
    """Return the result of a run: what is proved, and what was merely seen."""
    run, learned = analysis.run, analysis.run.certificate
    tone, _ = badge(analysis)
    if learned is not None:
        facts = [proved(learned), worth(analysis, learned), rests(learned)]
        facts += [] if analysis.known is None else [checked(analysis)]
    elif analysis.known is not None:
        exact = analysis.certificate
        facts = [kept(analysis), worth(analysis, exact), rests(exact)]
    else:
        facts = [Fact(SAFE, "Unknown: nothing is proved about this policy.", seen(run))]
        if len(run.history):
            mean = number(float(run.history.averaged_value[-1]))
            facts.append(Fact(VALUE, f"{mean} per episode on average while learning, exploration included."))
        advice = "peakrl.certify(environment, run.policy) or `peakrl certify` bounds both from new episodes."
        facts.append(Fact(RESTS, "On the episodes observed while learning.", (advice,)))
    drawn = bounded(analysis) if analysis.on_environment else scales(analysis)
    return Answer("answer", headline(analysis), tone, facts, tuple(drawn))


def headline(analysis: RunAnalysis) -> str:
    """Return the result in one sentence."""
    kind, text = analysis.verdict
    if analysis.on_environment:
        if kind == "not proved":
            begin = seen(analysis.run)[0]
            return f"Nothing is proved about this policy: {begin[0].lower()}{begin[1:]}"
        learned = analysis.run.certificate
        return f"Certified: {learned.claim}." if learned and badge(analysis)[1] == "certified" else sentence(text)
    limit = "" if analysis.judged is None else f"; {analysis.judged}"
    if kind == "infeasible":
        who = "proved by the learner" if analysis.run.feasible is False else "proved by the exact planner"
        return f"Infeasible: no policy satisfies every constraint ({who}){limit}."
    if kind == "violates":
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


def kept(analysis: RunAnalysis) -> Fact:
    """Return whether the constraints are satisfied, by exact computation."""
    exact = analysis.certificate
    if analysis.on_environment:
        details = seen(analysis.run)
    elif exact.violation_high == 0:
        details = ()
    else:  # the planner's reason is long: one line for each part
        details = tuple(map(sentence, re.split(r"; |(?<=\.) (?=Step by step)", analysis.verdict.text)))
    if exact.violation_high == 0:
        return Fact(SAFE, "Yes. No constraint is violated in any possible outcome.", details, "good")
    return Fact(SAFE, f"No. Violation: {exact.safety}.", details, "bad")


def proved(certificate: Certificate) -> Fact:
    """Return what the learner's own certificate proves."""
    if certificate.kind == "logged" and certificate.violation_high != 0:
        return Fact(SAFE, f"Not proved. Violation: {certificate.safety}.")
    if certificate.holds:
        return Fact(SAFE, f"Yes, proved from observations alone: {certificate.claim}.", (), "good")
    return Fact(SAFE, f"Not proved: {certificate.reason}.", (f"Violation: {certificate.safety}.",))


def seen(run: LearningRun) -> tuple[str, ...]:
    """Return what was observed while learning."""
    violated = f"{run.violations:,} of {run.episodes:,} episodes" if run.violations else "no episode"
    last = f" (last: episode {run.last_violation_episode:,})" if run.last_violation_episode else ""
    coverage = () if run.coverage is None else (f"The policy: {run.coverage}.",)
    limits = [sentence(each) for each in (run.settings.aim, run.infeasible_limits) if each is not None]
    return (f"While learning, {violated} violated a constraint{last}.", *coverage, *limits)


def worth(analysis: RunAnalysis, certificate: Certificate) -> Fact:
    """Return the value and its gap to the best policy that never violates."""
    best, gap = certificate.optimum_high, certificate.gap
    value = f"{between(certificate.value_low, certificate.value_high)} per episode"
    exact = certificate.kind not in ("learned", "logged")
    if exact and analysis.feasible is False:
        text = "no policy satisfies every constraint, so there is no safe policy to compare with"
        return Fact(VALUE, f"{value}; {text}.")
    if not exact or best is None or gap is None or analysis.optimum is None:
        return Fact(
            VALUE, f"{value}.", () if gap is None else (f"At most {number(gap)} below the {certificate.best}.",)
        )
    if gap < 0:
        return Fact(VALUE, f"{value}, {number(-gap)} above the best safe policy, since it violates constraints.")
    if gap == 0:
        return Fact(VALUE, f"{value}: optimal among safe policies.", (), "good")
    share = f" ({100 * gap / abs(best):.2g} %)" if best else ""
    return Fact(VALUE, f"{value}, {number(gap)}{share} below the best safe policy, {number(best)}.")


def rests(certificate: Certificate) -> Fact:
    """Return the assumptions of a certificate."""
    sampled = f"{certificate.episodes:,} episodes; wrong with {chance(certificate.failure_probability)}."
    said = sampled if certificate.episodes else "An exact computation on the model, without sampling."
    return Fact(RESTS, said, [sentence(line) for line in certificate.rests_on])


def checked(analysis: RunAnalysis) -> Fact:
    """Return the exact result, beside the certificate from observations alone."""
    exact, source = analysis.certificate, "the model"
    if analysis.on_environment:
        source = "the table that the environment shows"
    gap = "" if exact.gap is None else f", {number(exact.gap)} below the best safe policy"
    value = f"{between(exact.value_low, exact.value_high)} per episode{gap}"
    return Fact("What is exact?", f"On {source}: {value}; violation: {exact.safety}.")


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else text


# Scales -------------------------------------------------------------------------------------------------------------


def scales(analysis: RunAnalysis) -> Iterator[Scale]:
    """Yield value and violation per episode: of the first policy, on average, of the last policy and of the optimum."""
    history, metrics, learned = analysis.run.history, analysis.metrics, analysis.run.certificate
    best = "best safe policy" if analysis.feasible is not False else "least violating policy"
    names = {"averaged_policy": ("mean while learning", "orange"), "policy": ("last policy", "blue")}
    names["optimum"] = (best, "ink")
    for quantity in ("value", "violation"):
        first = [float(one) for one in getattr(history, quantity)[:1] if isfinite(one)]
        marks = [Mark("first policy", one, one, "grey") for one in first]
        for key, (name, colour) in names.items():
            if key == "policy" and learned is not None:
                marks += proved_mark(learned, quantity)
            if key in metrics:
                one = getattr(metrics[key], quantity)
                marks.append(Mark(name, one, one, colour))
        yield Scale(f"{quantity.capitalize()} per episode", marks)


def proved_mark(certificate: Certificate, quantity: str) -> list[Mark]:
    """Return the certified interval of a quantity."""
    low, high = certificate.value_low, certificate.value_high
    if quantity == "violation":
        low, high = 0.0, certificate.violation_high
    return [] if low is None or high is None else [Mark("certified interval", low, high, "green")]


def bounded(analysis: RunAnalysis) -> Iterator[Scale]:
    """Yield the scale of the certificate of a run on an environment, if it bounds the optimum."""
    for certificate in analysis.certificates[:1]:
        marks, best = proved_mark(certificate, "value"), certificate.optimum_high
        if marks and best is not None:
            yield Scale("Value per episode", [*marks, Mark(f"{certificate.best}, at most", best, best, "ink")])
