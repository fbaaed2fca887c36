"""One run on the page, told as a story: the answer, how learning went, what the policy does, one episode, the risk."""

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
    from peakrl.report.analysis import EnvironmentFindings, RunFindings
    from peakrl.tabular import TabularModel
    from peakrl.training.trainer import LearningRun

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
    from peakrl.training.learn import load_run

    return section_for(load_run(path, model=model), path.name, share, table)


def section_for(run: LearningRun, name: str, share: int = 1, table: TabularModel | None = None) -> Section:
    """Return the section of a run, on a model or on an environment, which may show a `table`."""
    from peakrl.report.analysis import EnvironmentFindings, RunFindings
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
    from peakrl.report.charts import episode_blocks, picture_blocks, risk_blocks, schedule_blocks
    from peakrl.report.policy_blocks import explorer_blocks, run_map

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


# ------------------------------------------------------------
# A run on an environment on the page: what was experienced, what is proved, and what it would do now.
#
# Nothing here is exact but what was counted, unless the environment shows a table: the policy is then judged on that too.

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


# ------------------------------------------------------------
# What the page of a run begins with: does it hold, what is it worth, what does that rest on.
#
# Every word and number is a certificate's or a finding's: nothing is judged here.

#: Tone and badge of a verdict.
VERDICTS = {"infeasible": ("bad", "infeasible"), "safe": ("good", "no violation"), "violates": ("bad", "may violate")}


def answer_of(found: RunFindings, place: str) -> Answer:
    """Return the answer of a run on a model."""
    tone, _ = VERDICTS[found.verdict.kind]
    learned = found.run.certificate
    certificate = learned or found.certificate
    facts = [holds(found, learned), worth(found, certificate), rests(certificate)]
    if learned is not None:
        facts.append(checked(found.certificate))
    return Answer(f"{place}-answer", headline(found), tone, facts, tuple(scales(found)))


def headline(found: RunFindings) -> str:
    """Return the answer in a sentence."""
    limit = "" if found.judged is None else f"; {found.judged}"
    if found.verdict.kind == "infeasible":
        who = "as the learner has proved" if found.run.feasible is False else "as the exact planner shows"
        return f"No policy keeps every constraint here, {who}{limit}."
    if found.verdict.kind == "violates":
        chance_of = found.certificate.violation_probability_high
        often = "" if chance_of is None else f": an episode does with probability {number(chance_of)}"
        return f"This policy may violate a constraint{often}{limit}."
    says, gap = "This policy never violates a constraint", found.certificate.gap
    if found.optimum is None or gap is None:
        return f"{says}."
    if gap <= 0:
        return f"{says}, and no policy that never does earns more."
    percent = found.percent(gap)
    less = number(gap) if percent is None else f"{percent:.2g} %"
    return f"{says}, and earns {less} less than the best that never does."


def environment_answer(found: EnvironmentFindings, place: str, said: str, tone: str) -> Answer:
    """Return the answer of a run on an environment: what is proved, and what was merely seen."""
    run, certificate, exact, facts = found.run, found.run.certificate, found.certificate, []
    if certificate is not None:
        facts = [proved(certificate), bounds(certificate), rests(certificate)]
        facts += [] if exact is None else [checked(exact, "the table that the environment shows")]
    elif exact is not None:
        facts = [kept(exact, seen(run)), worth(found, exact), rests(exact)]
    else:
        facts.append(Fact("Does it hold?", "Nobody knows: nothing is proved of this policy.", seen(run)))
        if len(run.history):
            mean = float(run.history.averaged_value[-1])
            text = f"{number(mean)} an episode on average while learning, exploration included."
            facts.append(Fact("What is it worth?", text))
        advice = "peakrl.certify(environment, run.policy), or `peakrl certify`, bounds both from fresh episodes."
        facts.append(Fact("What does that rest on?", "On what was counted, and on nothing else.", (advice,)))
    return Answer(f"{place}-answer", said, tone, facts, tuple(bounded(certificate or exact)))


# Does it hold? ------------------------------------------------------------------------------------------------------


def holds(found: RunFindings, learned: Certificate | None) -> Fact:
    """Return what is known of the constraints."""
    if learned is not None:
        return proved(learned)
    # The planner's reason is long: a line for each of its parts.
    parts = re.split(r"; |(?<=\.) (?=Step by step)", found.verdict.text)
    return kept(found.certificate, [] if found.certificate.violation_high == 0 else [sentence(one) for one in parts])


def kept(exact: Certificate, details: Sequence[str]) -> Fact:
    """Return whether constraints are kept, by computation."""
    if exact.violation_high == 0:
        said = "Yes. No constraint is ever violated, in any outcome that can come up."
        return Fact("Does it hold?", said, tuple(details), "good")
    return Fact("Does it hold?", f"No. Violation: {exact.safety}.", tuple(details), "bad")


def proved(certificate: Certificate) -> Fact:
    """Return what a learner has proved by itself."""
    if certificate.holds:
        return Fact("Does it hold?", f"Yes, proved from experience alone: {certificate.claim}.", (), "good")
    return Fact("Does it hold?", f"Not proved: {certificate.reason}.", (f"Violation: {certificate.safety}.",))


def seen(run: LearningRun) -> tuple[str, ...]:
    """Return what learning met."""
    violated = f"{run.violations:,} of {run.episodes:,} episodes violated" if run.violations else "no episode violated"
    last = f", the last of them episode {run.last_violation_episode:,}" if run.last_violation_episode else ""
    untried = () if run.coverage is None else (f"The policy is {run.coverage}.",)
    limits = [sentence(each) for each in (run.settings.aim, run.infeasible_limits) if each is not None]
    return (f"While learning {violated}{last}.", *untried, *limits)


# What is it worth? --------------------------------------------------------------------------------------------------


def worth(found: RunFindings | EnvironmentFindings, certificate: Certificate) -> Fact:
    """Return the value, and how far it lies below the best policy that never violates."""
    if certificate.kind == "learned":
        return bounds(certificate)
    best, gap = certificate.optimum_high, certificate.gap
    value = f"{between(certificate.value_low, certificate.value_high)} an episode"
    if found.feasible is False:
        return Fact("What is it worth?", f"{value}; there is no policy that never violates to compare it with.")
    if best is None or gap is None or found.optimum is None:
        return bounds(certificate)
    if gap < 0:
        return Fact("What is it worth?", f"{value}, {number(-gap)} more than the best safe policy: violating pays.")
    if gap == 0:
        return Fact("What is it worth?", f"{value}: the optimum, no policy that never violates earns more.", (), "good")
    share = f" ({100 * gap / abs(best):.2g} %)" if best else ""
    return Fact("What is it worth?", f"{value}, {number(gap)}{share} below the best safe policy, {number(best)}.")


def bounds(certificate: Certificate) -> Fact:
    """Return the value that a certificate from experience bounds."""
    gap = "" if certificate.gap is None else f"At most {number(certificate.gap)} below the best safe policy."
    details = (gap,) if gap else ()
    return Fact("What is it worth?", f"{between(certificate.value_low, certificate.value_high)} an episode.", details)


# What does it rest on? ----------------------------------------------------------------------------------------------


def rests(certificate: Certificate) -> Fact:
    """Return what must be true for the rest to be."""
    drawn = f"{certificate.episodes:,} episodes; wrong with {chance(certificate.failure_probability)}."
    said = drawn if certificate.episodes else "A computation on the model, in which nothing was drawn."
    return Fact("What does that rest on?", said, [sentence(line) for line in certificate.rests_on])


def checked(exact: Certificate, source: str = "the model") -> Fact:
    """Return what a computation says beside what was learned from experience alone."""
    gap = "" if exact.gap is None else f", {number(exact.gap)} below the best safe policy"
    value = f"{between(exact.value_low, exact.value_high)} an episode{gap}"
    return Fact("And in truth?", f"By {source}: {value}; violation: {exact.safety}.")


def sentence(text: str) -> str:
    """Return words as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else text


# The picture --------------------------------------------------------------------------------------------------------


def scales(found: RunFindings) -> Iterator[Scale]:
    """Yield value and violation of an episode: when learning began, on average, of what came out, and of the best."""
    history, last, best = found.run.history, found.last_figures, found.best_figures
    averaged = found.averaged_figures
    learned = found.run.certificate
    for quantity in ("value", "violation"):
        own = getattr(last, quantity)
        begin = [getattr(history, quantity)[0]] if len(history) else []
        marks = [Mark("when learning began", float(one), float(one), "grey") for one in begin if isfinite(one)]
        if averaged is not None:
            mean = getattr(averaged, quantity)
            marks.append(Mark("while learning, on average", mean, mean, "orange"))
        if learned is not None:
            marks += proved_mark(learned, quantity)
        marks.append(Mark("this policy", own, own, "blue"))
        if best is not None:
            word = "the best safe policy" if found.feasible is not False else "the least violating policy"
            marks.append(Mark(word, getattr(best, quantity), getattr(best, quantity), "ink"))
        yield Scale(f"{quantity.capitalize()} of an episode", marks)


def proved_mark(certificate: Certificate, quantity: str) -> list[Mark]:
    """Return what a certificate says that the policy's number lies between."""
    low, high = certificate.value_low, certificate.value_high
    if quantity == "violation":
        low, high = 0.0, certificate.violation_high
    return [] if low is None or high is None else [Mark("proved of this policy", low, high, "green")]


def bounded(certificate: Certificate | None) -> Sequence[Scale]:
    """Return the picture of a certificate alone."""
    if certificate is None:
        return ()
    marks = proved_mark(certificate, "value")
    if marks and certificate.optimum_high is not None:
        best = certificate.optimum_high
        marks.append(Mark("the best safe policy, at most", best, best, "ink"))
    return (Scale("Value of an episode", marks),) if len(marks) > 1 else ()


# ------------------------------------------------------------
# A sweep on the page: what each learner reached and how surely, curves over seeds, every run.

COLOURS = ("blue", "orange", "green", "purple", "sky", "yellow", "grey")
CONFIDENCE = 0.95
#: Columns of a run's record that say how it was made, not what came out.
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
    """Return what the learners reached on one problem."""
    place = f"sweep-{slug(problem)}"
    seeds = sum(group.seeds for group in groups)
    solved = None if any(group.solved is None for group in groups) else sum(group.solved for group in groups)
    lead = unknown_lead(records) if solved is None else known_lead(records, solved, seeds, groups[0].epsilon)
    charts = list(curve_charts(store, place, records))
    # Value beside violation; the tables have too many columns for half a page.
    main: list[Block] = list(charts[::2]) or [Text("These runs kept no curves.")]
    wide: list[Block] = [group_table(place, groups)]
    if comparisons:
        wide.append(comparison_table(place, comparisons))
    short = f"{seeds} runs, no optimum known" if solved is None else f"{solved} of {seeds} solved"
    return Section(place, problem, lead, main, charts[1::2], ("good" if solved == seeds else "", short), wide)


def known_lead(records: Sequence[Any], solved: int, seeds: int, epsilon: float) -> str:
    """Return how the runs stand to an optimum that is known."""
    feasible = all(record["problem_feasible"] for record in records)
    return (
        f"{solved} of {seeds} runs end within {epsilon:.4g} of the optimum without avoidable violation. "
        f"The problem is {'feasible' if feasible else 'infeasible, as the exact planner proves'}; its optimum is "
        f"{records[0]['optimum']:.6g} at violation {records[0]['least_violation']:.6g}."
    )


def unknown_lead(records: Sequence[Any]) -> str:
    """Return what the figures of runs on an environment rest on that shows no table."""
    violating = sum(record["violation"] > 0 for record in records)
    return (
        "An environment that shows no table: value and violation are means of "
        f"{records[0]['sampled']:,} fresh episodes of each policy, nothing is exact, and no optimum is known. "
        f"{violating} of {len(records)} policies were seen to violate a constraint; that the others never do is not "
        "shown."
    )


def group_table(place: str, groups: Any) -> Table:
    """Return the interquartile means with their intervals."""
    columns = (
        "settings", "episodes", "seeds", "value", "value from", "value to", "gap", "gap in %", "violation",
        "violation to", "share solved", "share from", "share to", "episodes to reach",
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
    warning = f"; under {ENOUGH_SEEDS} seeds those of value and violation are too narrow" if few else ""
    title = f"Interquartile means over seeds with {CONFIDENCE:.0%} intervals{warning}"
    return Table(f"{place}-groups", title, columns, rows)


def comparison_table(place: str, comparisons: Any) -> Table:
    """Return how likely a run of one learner is better than one of another."""
    rows = [(one.episodes, one.better, one.worse, *one.probability[:3]) for one in comparisons]
    columns = ("episodes", "a run of", "is better than one of", "with probability", "from", "to")
    return Table(f"{place}-pairs", "Who is better: less violation, or as much with more value", columns, rows)


def curve_charts(store: Any, place: str, records: Sequence[Any]) -> Iterator[Chart]:
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
                mean_curve(name, found, measure, COLOURS[place_of % len(COLOURS)])
                for place_of, (name, found) in enumerate(arrays.items())
            ]
            levels = {record[level] for record in own}
            if len(levels) == 1 and levels != {None}:  # problems that follow the seed have an optimum each
                ends = [series[0].x[0], series[0].x[-1]]
                series.append(
                    Series(level.replace("_", " "), ends, [levels.pop()] * 2, None, "ink", "dash", level=True)
                )
            what = f"{measure.capitalize()} of the policy"
            if any(record["sampled_curve"] for record in own):
                what = f"{measure.capitalize()} of episodes of learning, exploration included"
            title = f"{what}, {episodes:,} episodes, mean and sd over seeds"
            yield Chart(f"{place}-{episodes}-{measure}", title, "episode", measure, series)


def mean_curve(name: str, found: Sequence[Any], measure: str, colour: str) -> Series:
    """Return the mean and standard deviation of curves; of runs that were recorded alike."""
    episode = found[0]["history_episode"]
    alike = [arrays for arrays in found if np.array_equal(arrays["history_episode"], episode)]
    table = np.stack([arrays[f"history_{measure}"] for arrays in alike])
    keep = thinned(len(episode))
    std = table.std(axis=0, ddof=1)[keep].tolist() if len(alike) > 1 else None
    return Series(name, episode[keep].tolist(), table.mean(axis=0)[keep].tolist(), std, colour)


def runs_section(records: Sequence[Any], names: dict[str, Any]) -> Section:
    """Return every run, and what problems and settings are."""
    columns = [name for name in records[0] if name not in LEFT_OUT]
    rows = [[record.get(name) for name in columns] for record in records]
    lead = (
        "A sweep keeps figures and curves; `peakrl train ... --out` keeps a run whose policy can be explored as well."
    )
    table = Table("sweep-runs", f"All {len(rows):,} runs", [name.replace("_", " ") for name in columns], rows)
    return Section("sweep-all", "Runs", lead, [table, Settings("sweep-settings", "Problems and settings", names)])
