"""`Certificate`: bounds on a policy, the assumptions they rest on, and the evidence to check them.

With V the value of the policy, V* that of the best policy that never violates (if `declared_safe`, of the best that
declarations show to be safe), and viol its expected violation:

    value_low <= V <= value_high,   V* <= optimum_high,   V* - V <= gap,   viol <= violation_high,
    P(an episode violates anything) <= violation_probability_high

all at once, except with probability `failure_probability` over the episodes that were drawn (0 if none were). The
claim, which `holds` reports:

    epsilon given   gap <= epsilon and violation_high <= epsilon
    epsilon None    exact: no violation is possible; sampled: none was observed; logged: the bounds themselves
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from peakrl.errors import PeakError
from peakrl.records import FileKind, Record

Kind = Literal["exact", "sampled", "learned", "logged", "grid"]
KINDS: tuple[str, ...] = get_args(Kind)
#: What a kind is called in the first line.
SHOWN = {
    "exact": "exact for the given model", "sampled": "sampled", "learned": "learned", "logged": "from a log",
    "grid": "proved on a grid",
}  # fmt: skip
#: What a policy is compared with, by `declared_safe`.
BEST = {False: "best safe policy", True: "best policy that the declarations show to be safe"}
#: The file of a certificate.
CERTIFICATE = FileKind("certificate", schema=4)


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers from which a certificate can be recomputed: plain JSON values, and arrays by name."""

    plain: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


@dataclass(frozen=True, repr=False)
class Certificate:
    """Bounds on a policy, their failure probability, and what they rest on; `print` shows a summary.

    Made by `certify`, and by certified learners as `run.certificate`; `save(path)` writes a file for `verify`.

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> certificate = peakrl.certify(problem, peakrl.solve(problem).policy)
    >>> certificate.holds, certificate.kind, certificate.violation_high
    (True, 'exact', 0.0)
    """

    #: Whether the claim holds. With an epsilon: gap and violation are within it. Without: see `claim`.
    holds: bool
    #: "exact" (computed on a model), "sampled" (fresh episodes), "learned" (by a learner that stops by itself),
    #: "logged" (from a log of transitions) or "grid" (proved for the cells of a continuous problem).
    kind: Kind
    #: The requested accuracy; None if only bounds were requested.
    epsilon: float | None
    #: The probability that one of the bounds is wrong, over the drawn episodes; 0 if none were drawn.
    failure_probability: float
    #: The policy earns at least this in an episode, on average; None if nothing is known.
    value_low: float | None
    #: The policy earns at most this.
    value_high: float | None
    #: No policy that never violates earns more; None if there is none, or nothing is known.
    optimum_high: float | None
    #: How far the policy lies below the best that never violates, at most; below 0 if violating pays.
    gap: float | None
    #: Expected violation of an episode, at most; 0 only where no violation can happen. None where nothing is known.
    violation_high: float | None
    #: Probability that an episode violates anything, at most; None where nothing is known.
    violation_probability_high: float | None
    #: How many were drawn for it; 0 where it is exact.
    episodes: int
    #: What must be true for it to be: a sentence each.
    rests_on: tuple[str, ...]
    #: Why it does not hold; None where it does.
    reason: str | None = None
    #: Which policy, of what.
    subject: str = ""
    #: Is the optimum only that of policies which `Assumptions(support=...)` or `safe_policy=` show to be safe? Then
    #: a safe policy that these do not permit may earn more.
    declared_safe: bool = False
    #: The numbers to check it by, which `save` keeps.
    evidence: Evidence | None = field(default=None, compare=False)

    @property
    def best(self) -> str:
        """What the policy is compared with."""
        return BEST[self.declared_safe]

    @property
    def claim(self) -> str:
        """What it claims, in a sentence."""
        if self.epsilon is not None:
            return f"within {self.epsilon:g} of the {self.best}, and at most {self.epsilon:g} violated on average"
        if self.kind in ("exact", "grid"):
            return "no constraint is ever violated"
        if self.kind == "logged":
            often = f"violates with probability at most {number(self.violation_probability_high or 0.0)}"
            never = "never violates" if self.violation_high == 0 else often
            return f"the policy earns at least {number(self.value_low or 0.0)} on average and {never}"
        return "the bounds below, and no violation among the episodes"

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the evidence as plain JSON-ready values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "evidence"}
        return plain | {"rests_on": list(self.rests_on), "claim": self.claim}

    def refused(self, reason: str) -> Certificate:
        """Return the same certificate, not holding."""
        return replace(self, holds=False, reason=reason)

    # Reading -------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else f"does not hold: {self.reason}"
        return f"<Certificate ({SHOWN[self.kind]}) {verdict}; {self.claim}>"

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"does NOT hold: {self.reason}"
        lines = [f"Certificate ({SHOWN[self.kind]}) {verdict}"]
        lines += [f"  {name:<12}{text}" for name, text in self.rows()]
        return "\n".join(lines)

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the summary: a label, and its text."""
        rows = [("of", self.subject)] if self.subject else []
        rows += [("claim", self.claim), ("value", between(self.value_low, self.value_high))]
        if self.optimum_high is not None:
            below = "" if self.gap is None else f": at most {number(self.gap)} more"
            among = ", among those that the declarations show to be safe" if self.declared_safe else ""
            rows.append(("best safe", f"at most {number(self.optimum_high)}{below}{among}"))
        rows.append(("violation", self.safety))
        if self.episodes:
            rows.append(("episodes", f"{self.episodes:,}"))
        rows.append(("fails with", chance(self.failure_probability)))
        rows += [("rests on" if index == 0 else "", line) for index, line in enumerate(self.rests_on)]
        return rows

    @property
    def safety(self) -> str:
        """How much, and how often, constraints are violated."""
        if self.violation_high == 0:
            return "none, in any outcome"
        average = "not bounded" if self.violation_high is None else f"at most {number(self.violation_high)} on average"
        often = self.violation_probability_high
        return average + ("" if often is None else f"; any at all with probability at most {number(often)}")

    # Files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write it with its evidence to one file, for `Certificate.load` and `peakrl.verify`."""
        if self.evidence is None:
            raise PeakError("this certificate has no evidence, so a file of it could not be checked")
        plain = {"certificate": self.as_dict(), "evidence": dict(self.evidence.plain)}
        CERTIFICATE.write(path, Record(plain, dict(self.evidence.arrays)))

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Return the certificate of a file, unchecked: `peakrl.verify` checks it."""
        with CERTIFICATE.reading(path) as record:
            evidence = Evidence(dict(record.plain["evidence"]), record.arrays)
            return certificate_of(record.plain["certificate"], evidence)


def certificate_of(stored: Mapping[str, Any], evidence: Evidence) -> Certificate:
    """Return the certificate of a file; a ValueError names what is invalid."""
    numbers = {
        name: None if stored[name] is None else finite(stored[name], name)
        for name in ("epsilon", "value_low", "value_high", "optimum_high", "gap", "violation_high",
                     "violation_probability_high")
    }  # fmt: skip
    kind, episodes, holds, reason = stored["kind"], stored["episodes"], stored["holds"], stored["reason"]
    failure = finite(stored["failure_probability"], "failure_probability")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, not one of {', '.join(KINDS)}")
    declared_safe = stored["declared_safe"]
    if type(declared_safe) is not bool or (declared_safe and kind not in ("learned", "logged")):
        raise ValueError(f"declared_safe is {declared_safe!r}, which no {kind} certificate is")
    if type(holds) is not bool or type(episodes) is not int or episodes < 0 or not 0 <= failure < 1:
        raise ValueError("holds, episodes or failure_probability is invalid")
    ranges = {"epsilon": inf, "violation_high": inf, "violation_probability_high": 1.0}
    for name, most in ranges.items():
        if not 0.0 <= (numbers[name] or 0.0) <= most:
            raise ValueError(f"{name} is {numbers[name]}, out of range")
    if not isinstance(reason, str | None) or not isinstance(stored["subject"], str):
        raise ValueError("reason or subject is not a string")
    if not all(isinstance(line, str) for line in stored["rests_on"]):
        raise ValueError("rests_on contains something that is not a string")
    rests_on = tuple(stored["rests_on"])
    return Certificate(
        holds=holds, kind=kind, failure_probability=failure, episodes=episodes, rests_on=rests_on, reason=reason,
        subject=stored["subject"], declared_safe=declared_safe, evidence=evidence, **numbers,
    )  # fmt: skip


def finite(given: Any, name: str) -> float:
    """Return a finite number or raise."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given):
        raise ValueError(f"{name} is {given!r}, not a number")
    return float(given)


# Text --------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with six digits; a positive bound is never shown as 0."""
    return f"{value:.6g}"


def between(low: float | None, high: float | None) -> str:
    """Return an interval, or the one number that it is."""
    if low is not None and high is not None:
        return number(low) if low == high else f"{number(low)} to {number(high)}"
    if low is not None:
        return f"at least {number(low)}"
    return "not bounded" if high is None else f"at most {number(high)}"


def chance(probability: float) -> str:
    """Return a failure probability as text."""
    return f"probability at most {probability:g}" if probability else "probability 0: nothing was drawn"
