"""What the page of a run begins with: does it hold, what is it worth, what does that rest on.

Every word and number is a certificate's or a finding's: nothing is judged here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from peakrl.certificates.certificate import between, chance, number
from peakrl.report.blocks import Answer, Fact, Mark, Scale

if TYPE_CHECKING:
    from peakrl.certificates.certificate import Certificate
    from peakrl.report.analysis import RunFindings
    from peakrl.report.environment_analysis import EnvironmentFindings
    from peakrl.training.learn import LearningRun

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
