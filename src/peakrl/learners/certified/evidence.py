"""The certificate of a certified learner, with the counts and returns from which it can be computed again.

Everything follows from the evidence by the formulas of `bounds`, `values`, `gaps`, `confidence` and `phases`;
`certificates.verify_learned` computes it in independent code. Arrays have the names of the tables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.learners.certified.bounds import FINE
from peakrl.learners.certified.confidence import ATTEMPTS, EPISODES, FROZEN, POLICIES, Counts
from peakrl.learners.certified.environment import GrowingRounds
from peakrl.learners.certified.episodes import PLAYED, VIOLATED
from peakrl.learners.certified.phases import Rounds
from peakrl.learners.certified.tables import OPEN
from peakrl.learners.certified.values import first_value
from peakrl.learners.infeasibility import DECLARED

if TYPE_CHECKING:
    from peakrl.learners.certified.learner import CertifiedLearner

#: Tables in the evidence.
COUNTED = ("distribution", "cell_next", "cell_reward", "cell_count", "known", "reward", "tested", "max_violation")
STRUCTURE = ("row_start", "distribution_of_row", "group_of_row", "cell_start")
#: What each declaration means, for `rests_on`.
WORDS = {
    "shared_transitions": "declared: pairs of one group share the distribution of the next state",
    "constraint_depends_on": "declared: constraints depend on nothing but the {}",
    "rewards": "declared: the rewards",
    "max_reward": "declared: no step without a violation earns more than {}",
    "deterministic": "declared: nothing is random",
    "support": "declared: every possible outcome is in the support; the best policy is among those that are safe by it",
    "safe_policy": "declared: the safe policy is safe; the best policy is among those safe by it and the support",
    "constraints": "declared: the constraints of each step, state and action",
    "dynamics": "declared: how the next state follows from state, action and independent, identically drawn noise",
}


def certificate(learner: CertifiedLearner) -> Certificate:
    """Return the certificate for the smallest epsilon or, if it is not reached, the current bounds."""
    r = learner.rounds
    if isinstance(r, GrowingRounds):
        r.settle()
    bounds = bounds_now(learner)
    epsilon = learner.settings.epsilon[-1]
    if learner.settings.relative:
        epsilon *= max(bounds["value_low"] or 0.0, -(bounds["optimum_high"] or 0.0), 0.0)
    reason = shortfall(learner, bounds, epsilon)
    return Certificate(
        holds=reason is None,
        kind="learned",
        epsilon=epsilon,
        failure_probability=learner.settings.failure_probability,
        episodes=int(r.status[EPISODES]),
        rests_on=rests_on(learner),
        reason=reason,
        subject=f"the policy learned on {learner.space.states().name!r}",
        evidence=evidence_of(learner),
        **bounds,
    )


def bounds_now(learner: CertifiedLearner) -> dict[str, float | None]:
    """Return every bound from the current counts."""
    r = learner.rounds
    high, dead = first_value(r.structure, r.params, r.fresh(apart=True), r.scratch, FINE)
    least = r.goal.least * r.structure.horizon
    low = max(r.return_low(), least) if r.status[FROZEN] else least
    chance = r.chance_high() if r.status[FROZEN] else 1.0
    by_gaps = r.gap_high() if r.status[FROZEN] else math.inf
    feasible = dead == OPEN and learner.feasible() is None
    return {
        "value_low": low,
        "value_high": high if feasible and chance == 0.0 else None,
        "optimum_high": high if feasible else None,
        "gap": min(high - low, by_gaps) if feasible else None,
        "violation_high": chance * r.goal.violation,
        "violation_probability_high": chance,
    }


def shortfall(learner: CertifiedLearner, bounds: dict[str, float | None], epsilon: float) -> str | None:
    """Return why the certificate does not hold, or None."""
    gap, violation = bounds["gap"], bounds["violation_high"]
    if gap is None:
        return "no policy satisfies every constraint: from an observed first state a violation is certain"
    if not gap + learner.rounds.tolerance <= epsilon:
        return f"the policy may lie {gap:.6g} below the best safe one, more than {epsilon:g}"
    if violation is None or not violation <= epsilon:
        return f"the violation may be {violation}, more than {epsilon:g}"
    return None


def rests_on(learner: CertifiedLearner) -> tuple[str, ...]:
    """Return the assumptions of the certificate, a sentence each."""
    states, assumptions = learner.space.states(), learner.task.assumptions
    growing = isinstance(learner.rounds, GrowingRounds)
    known = "horizon" if growing else "states, actions, horizon"
    lines = [
        "episodes are independent, and what follows depends on nothing but step, state and action",
        f"{known} ({states.horizon}), reward range and constraint bounds of {states.name!r}",
        "some policy satisfies every constraint; otherwise only the bound on the violation holds",
        "one failure probability covers one run: of several runs, not the luckiest",
    ]
    if states.stationary:
        lines.append("dynamics, rewards and constraints do not depend on the step")
    if isinstance(learner.rounds, GrowingRounds):
        lines += environment_lines(learner.rounds)
    declared = assumptions.declared()
    return (
        *lines,
        *(text.format(declared[name]) for name, text in WORDS.items() if declared.get(name) not in (None, False)),
    )


def environment_lines(r: GrowingRounds) -> list[str]:
    """Return the assumptions that are specific to environments."""
    lines = ["observations are states (the process is Markov), and resets are independent"]
    if r.declared.states is not None:
        where = "" if r.space.shared else " at a step"
        lines.append(f"there are at most {r.declared.states:,} states{where}")
    else:
        lines.append("the number of states is not bounded")
    if not r.goal.least <= 0.0 <= r.params.most:
        lines.append(f"no episode ends before its {r.structure.horizon} steps: the steps left out would earn 0")
    tolerances = r.space.rules.constraints.tolerances or ()
    if any(tolerances):
        shown = ", ".join(f"{tolerance:g}" for tolerance in tolerances)
        lines.append(f"a constraint counts as satisfied down to {shown} below 0, as declared")
    return lines


def evidence_of(learner: CertifiedLearner) -> Evidence:
    """Return the numbers from which the certificate can be verified."""
    r, goal, space = learner.rounds, learner.rounds.goal, learner.space
    growing = isinstance(r, GrowingRounds)
    plain: dict[str, Any] = {
        "horizon": space.horizon,
        "stationary": bool(space.shared),
        "reward_range": [float(goal.least), float(goal.most)],
        "max_reward": float(r.params.most),
        "constraint_bounds": list(map(float, learner.task.sizes.constraint_bounds)),
        "joint": bool(r.params.joint),
        "certain": bool(goal.certain),
        "safe": bool(goal.safe),
        "deterministic": bool(r.params.deterministic),
        "ends": int(space.ends),
        "complete": bool(r.params.complete),
        "states": r.declared.states if isinstance(r, GrowingRounds) else None,
        "actions": r.actions if isinstance(r, GrowingRounds) and r.declared.states is not None else None,
        "growing": growing,
        "noises": int(r.structure.noises),
        "epsilon": float(learner.settings.epsilon[-1]),
        "relative": learner.settings.relative,
        "frozen": bool(r.status[FROZEN]),
        "policies": int(r.status[POLICIES]),
        "attempts": int(r.status[ATTEMPTS]),
        "played": int(r.evidence.counts[PLAYED]),
        "violated": int(r.evidence.counts[VIOLATED]),
        "top": float(r.evidence.scale[2]),
        "tolerance": float(r.tolerance),
    }
    arrays = {name: array.copy() for name, array in counted(r).items()}
    for name in (
        "distribution",
        "then_distribution",
    ):  # samples; those before the candidate was frozen stand cell by cell
        arrays[name] = np.ascontiguousarray(arrays[name][:, :1])
    arrays["slot_step"] = np.array(space.slot_step, np.int64)
    for name in ("returns", "gaps"):
        column = getattr(r.evidence, name)
        seen = np.flatnonzero(column)
        arrays |= {f"{name}_index": seen, f"{name}_count": column[seen]}
    return Evidence(plain, arrays)


def counted(r: Rounds) -> dict[str, NDArray[Any]]:
    """Return the tables of the evidence, without unused room."""
    if isinstance(r, GrowingRounds):
        compact = r.compact()
        names = (*COUNTED, *STRUCTURE, *Counts._fields, "candidate", "gap")
        forbidden = (compact["witness"] == DECLARED).astype(np.int8)
        return {name: compact[name] for name in names} | {"noise_next": r.noise_next.copy(), "forbidden": forbidden}
    own = {name: getattr(r.tables, name) for name in COUNTED} | {name: getattr(r.structure, name) for name in STRUCTURE}
    own |= {"noise_next": r.structure.noise_next, "candidate": r.candidate, "gap": r.evidence.gap}
    own["forbidden"] = (r.tables.witness == DECLARED).astype(np.int8)
    return own | r.frozen_counts._asdict()


def cells_before(r: Rounds) -> NDArray[np.int64]:
    """[cell]: the samples from before the candidate was frozen, in the same order."""
    return r.compact()["cell_before"] if isinstance(r, GrowingRounds) else r.tables.cell_before
