"""Learning from a log of transitions: choose a policy on its earlier rows, bound it by the later ones.

The rows before the middle episode choose the policy: greedy on counted transitions with a Bernstein penalty
(`certified.gaps`). Then it is frozen, and later rows bound it, the last step first. With the lower mean m of
`certified.gaps.least_following` over their samples, LL_H = CC_H = 0 and the policy pi_h(a|s),

    LL_h(s) = max( (H-h) lo, sum_a pi_h(a|s) (r' + m[LL_{h+1}]) )     r' = the reward, lo if no row has it
    CC_h(s) = sum_a pi_h(a|s) (1 if a row violated, else -m[-CC_{h+1}])

so that LL_h <= V^pi_h and CC_h bounds the probability of a violation from step h on. If rewards may depend on the
outcome, m is that of r + LL_{h+1}. Unless constraints are declared, a pair without a violating row may violate, and
CC_h is bounded at the last step too; if they are, an untested pair counts as a violation. Upper values of the best safe
policy come from all rows, as in `certified.values`.

p_U = 0.6 p, p_L = p_C = 0.2 p. A policy that was given before the log needs no choice: all rows bound it, its value
from above as well, with p_L / 2 for each side. Theorem and proof: docs/logs.md.

If the behaviour is passed, the policy follows it in states in which no pair has `TRUSTED` samples before the middle,
and in those that were first visited later: bootstrapping from a baseline (Laroche et al.), state by state. It is known
before the later rows, like the plan. Whether it is random in the states that they show is not: all actions count.

References
----------
R. Laroche, P. Trichelair, R. Tachet des Combes. Safe policy improvement with baseline bootstrapping. ICML 2019.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.certificates.rests_on import on_log
from peakrl.checks import ROUNDING
from peakrl.errors import SettingsError
from peakrl.jit import loop
from peakrl.learners.base import LearnerSettings, ProofHistory, Task
from peakrl.learners.certified.bounds import LOWER, ROUGH, VIOLATION
from peakrl.learners.certified.declared import environment_facts
from peakrl.learners.certified.evidence import cell_arrays, evidence_of
from peakrl.learners.certified.gaps import NOT_JOINT, least_following, plan_candidate
from peakrl.learners.certified.learner import Certified, CertifiedLearner
from peakrl.learners.certified.tables import FIRST, JUDGED_BAD, OPEN, Tables
from peakrl.learners.certified.values import LEFT_OUT, first_value, note_noise, note_sample, sweep
from peakrl.learners.episode import Log
from peakrl.learners.infeasibility import DECLARED, VIOLATES
from peakrl.learners.tables import alike
from peakrl.policy.tables import Policy, StochasticPolicy
from peakrl.sampling import Words
from peakrl.types import Bools, Floats, Longs

if TYPE_CHECKING:
    from peakrl.gym.adapter import Rules
    from peakrl.learners.assumptions import Assumptions

#: Rows that are counted at once.
BATCH = 1 << 14
#: The plan needs this many samples of a pair where the behaviour is known; one is enough if nothing is random.
TRUSTED = 4
FROM_LOGS = "Pessimistic learns from logs: pass a peakrl.Logs as the target"


class Pessimistic(LearnerSettings):
    """Settings of the learner for logs (`peakrl.Logs`): a policy with certified bounds, without new episodes.

    The earlier half of the log chooses the policy, the later half bounds its value from below and its violation from
    above; all of it bounds the best safe policy. `run.certificate` has the bounds and what they rest on.

    Examples
    --------
    >>> import peakrl
    >>> table = {"episode": [0, 0, 1, 1], "state": [0, 1, 0, 1], "action": [0, 0, 1, 0], "reward": [1, 0, 0, 1]}
    >>> logs = peakrl.Logs.from_frame(table, horizon=2, reward_range=(0, 1))
    >>> run = peakrl.learn(logs, peakrl.learners.Pessimistic(failure_probability=0.1))
    >>> run.certificate.optimum_high
    2.0
    """

    #: Upper bound on the probability that one of the bounds is wrong.
    failure_probability: float = Field(default=0.05, gt=1e-100, lt=1)
    #: The policy that made the log, followed in states of which the log shows too little: a `Policy`, a randomised one,
    #: or a function (step, state, actions) -> action or {action: probability}. Files do not store it.
    behavior: Any = Field(default=None, exclude=True)

    @field_validator("behavior")
    @classmethod
    def _decides(cls, given: Any) -> Any:
        if not (given is None or callable(given) or isinstance(given, Policy | StochasticPolicy)):
            raise ValueError("it must be a policy, or a function (step, state, actions) -> action")
        return given

    def make(self, task: Task) -> PessimisticLearner:
        """Return the algorithm for a log."""
        if task.model is not None:
            raise SettingsError(FROM_LOGS)
        return PessimisticLearner(task, Certified(1.0, self.failure_probability))

    @property
    def bound_to_plan(self) -> str:
        """The policy is chosen on the first half."""
        return "split of the log"

    def check_environment(self, rules: Rules, assumptions: Assumptions) -> None:
        """Raise if a declaration cannot be used, or bounds are missing."""
        environment_facts(rules, assumptions)


@loop
def count_rows(t: Tables, rows: Longs, following: Longs, reward: Floats, violation: Floats) -> None:
    """Count logged rows; `following` is the next slot, or LEFT_OUT if it is missing."""
    for i in range(len(rows)):
        row = rows[i]
        group, distribution = np.int64(t.group_of_row[row]), np.int64(t.distribution_of_row[row])
        t.tested[group] = 1
        t.max_violation[group] = max(t.max_violation[group], violation[i])
        if not t.joint:
            t.known[row], t.reward[row] = 1, reward[i]
        if following[i] == LEFT_OUT:
            continue
        if t.noises > 0:
            note_noise(t, distribution, row, following[i])
        else:
            note_sample(t, distribution, following[i], reward[i] if t.joint else 0.0)


@loop
def count_first(t: Tables, slots: Longs) -> None:
    """Count first states."""
    for i in range(len(slots)):
        note_sample(t, np.int64(FIRST), slots[i], 0.0)


@loop
def lower_entry(
    t: Tables, chance: bool, certain: bool, step: int, row: int, low: Floats, unmet: float, floor: float, share: float
) -> float:
    """Return the lower bound of reward plus `low` after a row; of minus the chance of a violation with `chance`."""
    distribution = np.int64(t.distribution_of_row[row])
    if chance:
        group = t.group_of_row[row]
        if t.max_violation[group] > 0.0 or (certain and not t.tested[group]):
            return -1.0
        fixed = not (certain and t.complete)
        under = -1.0 if fixed else floor
        return least_following(t, distribution, step, row, low, NOT_JOINT, certain, unmet, under, fixed, share)
    own: float = 0.0 if t.joint else t.reward[row] if t.known[row] else t.least
    under, fixed = (t.least if t.joint else 0.0) + (floor if t.complete else unmet), not t.complete
    return own + least_following(t, distribution, step, row, low, t.joint, not t.joint, unmet, under, fixed, share)


@loop
def bound_policy(
    t: Tables,
    #: [row, column]: how likely the policy takes it; it is not defined where all are 0.
    weights: Floats,
    chance: bool,
    certain: bool,
    #: [distribution]: log(1/d) of one bet.
    log_share: Floats,
    low: Floats,
) -> float:
    """Set LL [slot, column] of a policy, or minus CC with `chance`; return the lower bound of its mean at the start."""
    floor, unmet, lowest = 0.0, 0.0, 0.0
    for step in range(t.horizon - 1, -1, -1):
        lowest, column = math.inf, step * t.shift
        least = -1.0 if chance else t.least * (t.horizon - step)
        for i in range(t.step_slots[step, 0], t.step_slots[step, 1]):
            slot = np.int64(t.slots[i])
            total, used = 0.0, 0.0
            for row in range(t.row_start[slot], t.row_start[slot + 1]):
                if weights[row, column] > 0.0:
                    share = log_share[t.distribution_of_row[row]]
                    entry = lower_entry(t, chance, certain, step, row, low, unmet, floor, share)
                    total += weights[row, column] * entry
                    used += weights[row, column]
            low[slot, column] = max(least, total) if used > 0.0 else least
            lowest = min(lowest, low[slot, column])
        floor, unmet = min(lowest, 0.0) if t.ends > 0 else lowest, least
    floor, first = lowest if t.complete else unmet, np.int64(-1)  # no episode begins at its end
    fixed = not t.complete
    return least_following(
        t, np.int64(FIRST), first, first, low, NOT_JOINT, NOT_JOINT, unmet, floor, fixed, log_share[FIRST]
    )


def is_random(weights: Floats) -> bool:
    """Return whether a policy may take several actions in a state."""
    return bool(((weights > 0.0) & (weights < 1.0)).any())


@dataclass
class LogFacts:
    """What is known of a log beside its rows: all of it is part of what a certificate rests on."""

    #: Number of actions if the log names them, 0 if they are declared.
    inferred: int = 0
    #: Rows without a next state.
    missing: int = 0
    #: Was the policy given before the log? Not in runs.
    given: bool = False
    #: Does the given policy violate nothing, by every outcome of the declared support?
    kept: bool = False
    #: May the given policy take several actions in states that the log does not show?
    random: bool = False


class PessimisticLearner(CertifiedLearner):
    """The tables and results of the certified learner, filled from a log."""

    def __init__(self, task: Task, settings: Certified) -> None:
        super().__init__(task, settings)
        self.log = LogFacts()
        #: [row, column]: the given policy, or the chosen one if a behaviour was passed; None: the candidate.
        self.weights: Floats | None = None
        #: [slot, column]: does the chosen policy follow the behaviour?
        self.follows: Bools = np.zeros((0, self.columns), np.bool_)

    def count(self, first: Longs, rows: Longs, following: Longs, reward: Floats, violation: Floats) -> None:
        """Count rows of the log and their first states, and update what follows from them."""
        self.settle()
        for part in range(0, max(len(rows), len(first)), BATCH):
            now = slice(part, part + BATCH)
            self.store.reserve(2 * BATCH)
            count_first(self.tables, first[now])
            count_rows(self.tables, rows[now], following[now], reward[now], violation[now])
        t = self.tables
        bad = (t.max_violation > 0)[t.group_of_row]
        t.witness[bad] = np.where(t.witness[bad] == OPEN, VIOLATES, t.witness[bad])
        self.sort_cells()
        sweep(t, ROUGH)
        _, dead = first_value(t, ROUGH)
        self.status.dead_first = int(dead)

    def choose(self, behavior: Floats | None = None) -> None:
        """Choose the policy by what was counted so far, and the weights [row, column] of a behaviour; freeze it."""
        t = self.tables
        rows, value, estimate = t.candidate.copy(), np.zeros_like(t.value), np.zeros_like(t.value)
        if not self.log.given:
            fewest = 0 if behavior is None else 1 if t.deterministic else TRUSTED
            plan_candidate(t, rows, value, estimate, wide=True, fewest=fewest)
        if behavior is not None:
            self.follows = (rows < 0) & self.allowed(behavior, t.witness == OPEN)
        self.freeze(np.where(rows < 0, ~rows, rows))

    def follow(self, behavior: Floats) -> None:
        """Follow a behaviour where `choose` decided to, and in states that were first visited since."""
        t = self.tables  # in new states, what later rows show must not decide
        bad = (t.judged[t.group_of_row] == JUDGED_BAD)[:, None]
        follows = self.allowed(behavior, ~bad & (t.witness != DECLARED))
        follows[: len(self.follows)] = self.follows
        self.weights = np.where(follows[t.slot_of_row], behavior, self.policy_weights())
        row, column = np.nonzero(self.weights)
        order = np.argsort(self.weights[row, column], kind="stable")  # the likeliest row is set last
        t.candidate[t.slot_of_row[row[order]], column[order]] = row[order]

    def allowed(self, behavior: Floats, may: Bools) -> Bools:
        """[slot, column]: does the behaviour decide there, and take only rows that it may [row, column]?"""
        found = np.zeros((self.space.slots, self.columns))
        np.add.at(found, self.tables.slot_of_row, np.where(may, behavior, 0.0))
        return np.asarray(found > 1 - ROUNDING)

    def policy_weights(self) -> Floats:
        """[row, column]: how likely the policy takes each row."""
        if self.weights is not None:
            return self.weights
        t = self.tables
        weights = np.zeros((len(t.reward), self.columns))
        weights[t.candidate[t.slots], np.arange(self.columns)] = 1.0
        return weights

    @property
    def behaves(self) -> bool:
        """Was a behaviour passed, which the policy may follow?"""
        return self.weights is not None and not self.log.given

    @property
    def several(self) -> bool:
        """May the policy take several actions in a state?"""
        # With weights by visits, whether a bet is made on every action must not depend on the states that were visited.
        by_visits = self.log.random and self.declared.bets is None
        return self.behaves or by_visits or is_random(self.policy_weights())

    def log_shares(self, part: float) -> Floats:
        """[distribution]: log(1/d) of a bet, for this part of p."""
        return self.bet_logs(self.several) - math.log(part * self.failure_probability)

    def mean_low(self, tables: Tables, part: float, *, chance: bool = False) -> float:
        """Return the lower bound of the mean value of the policy, or of minus the chance of a violation."""
        low = np.zeros_like(tables.value)
        return bound_policy(tables, self.policy_weights(), chance, self.facts.certain, self.log_shares(part), low)

    def return_low(self) -> float:
        """Return the lower bound of the policy's value."""
        return self.mean_low(self.tables, LOWER / (1 + self.log.given))

    def return_high(self) -> float:
        """Return the upper bound of the value of a given policy: the lower one with all signs changed."""
        t, (least, most) = self.tables, self.facts.reward_range
        changed = t._replace(least=-most, most=-least, reward=-t.reward, cell_reward=-t.cell_reward)
        return min(self.tolerance - self.mean_low(changed, LOWER / 2), most * self.space.horizon)

    def chance_high(self) -> float:
        """Return the upper bound on the probability that an episode of the policy violates."""
        sound = self.log.kept if self.log.given else self.stays()
        if not self.facts.violation or sound or self.keeps():
            return 0.0
        return min(1.0, -self.mean_low(self.tables, VIOLATION, chance=True))

    def stays(self) -> bool:
        """Return whether the policy is safe by declaration, in every state that is not dead."""
        t = self.tables
        forbidden = (t.witness == DECLARED) & (t.dead[t.slot_of_row, : self.columns] == 0)
        return self.facts.safe and not bool((forbidden & (self.policy_weights() > 0)).any())

    def keeps(self) -> bool:
        """Return whether every pair that the policy can take was tested and satisfied the constraints."""
        t, weights = self.tables, self.policy_weights()
        if not (self.facts.certain and t.complete):
            return False
        used = weights.any(axis=1)
        everywhere = bool((np.add.reduceat(weights, t.row_start[t.slots], axis=0) > 0).all())
        groups = t.group_of_row[used]
        return everywhere and bool(t.tested[groups].all() and not t.max_violation[groups].any())

    def chances(self) -> Floats | None:
        """[entry]: action probabilities of the policy; None if it is deterministic."""
        random = self.weights is not None and is_random(self.weights)
        return self.space.entries_of(self.policy_weights()) if random else None

    def gap_high(self) -> float:
        """Return infinity: gaps state by state are not bounded."""
        return math.inf

    def begin(self, episode: int, generator: Words, log: Log) -> None:
        """Raise: it plays no episodes."""
        raise SettingsError(FROM_LOGS)

    def finish(self, episodes: int) -> None:
        """Note that the log is over."""
        self.status.episodes, self.status.left, self.stop_reason = episodes, 1, self.enough()

    def proof_history(self) -> ProofHistory | None:
        """Return None: there are no reviews."""
        return None

    def fields(self) -> dict[str, Any]:
        """Return nothing: there is no progress to show."""
        return {}

    def certificate(self) -> Certificate:
        """Return the bounds on the policy."""
        log = self.log
        self.settle()
        bounds = self.bounds_now()
        feasible, safe = bounds.optimum_high > -math.inf, bounds.violation_high == 0.0
        highs = [bounds.optimum_high] * bool(feasible and safe) + [self.return_high()] * log.given
        false, evidence = feasible and safe and bounds.value_low > bounds.optimum_high, self._evidence()
        return Certificate(
            holds=not false,
            kind="logged",
            epsilon=None,
            failure_probability=self.failure_probability,
            value_low=bounds.value_low,
            value_high=min(highs, default=None),
            optimum_high=bounds.optimum_high if feasible else None,
            gap=bounds.gap if feasible else None,
            violation_high=bounds.violation_high,
            violation_probability_high=bounds.violation_probability_high,
            episodes=self.status.episodes,
            rests_on=tuple(on_log(evidence.plain)),
            reason="the bounds contradict each other: something that they rest on is false" if false else None,
            subject=f"the policy {'given for' if log.given else 'learned from'} the log {self.space.states().name!r}",
            declared_safe=self.facts.safe,
            evidence=evidence,
        )

    def _evidence(self) -> Evidence:
        """Return the numbers from which the certificate can be verified."""
        t, log, weights = self.tables, self.log, self.policy_weights()
        evidence = evidence_of(self, self.epsilons[-1])
        plain = {"given": log.given, "inferred": log.inferred, "missing": log.missing, "kept": log.kept}
        plain |= {"of_episodes": self.status.episodes, "several": self.several, "behavior": self.behaves}
        t.then_count[:], t.then_before[:] = t.cell_count, t.cell_before
        arrays = {**evidence.arrays, **cell_arrays(self), "weights": weights.T.ravel()}
        return Evidence({**evidence.plain, **plain}, arrays)

    # Files ---------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all tables by name."""
        weights = {} if self.weights is None else {"weights": self.weights}
        return super().arrays() | {"log": np.array([self.log.inferred, self.log.missing])} | weights

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""
        super().load(arrays)
        self.log = LogFacts(*alike(self.arrays()["log"], arrays["log"], "engine.log").tolist())
        if min(self.log.inferred, self.log.missing) < 0:
            raise ValueError("engine.log is out of range")
        if "weights" in arrays:
            self.weights = alike(self.policy_weights(), arrays["weights"], "engine.weights")
            if not ((self.weights >= 0) & (self.weights <= 1)).all():
                raise ValueError("engine.weights is out of range")
