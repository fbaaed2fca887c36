"""The certificate of a certified learner, with the counts and returns from which it can be computed again.

Everything follows from the evidence by the formulas of `bounds`, `values`, `gaps` and `phases`;
`certificates.verify_learned` computes it in independent code. Arrays have the names of the tables; nodes and entries
are ordered by step, cells by distribution, and the distribution of the first state is the last one.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peakrl.certificates.certificate import BEST, Certificate, Evidence
from peakrl.certificates.rests_on import DECLARED as DECLARATIONS
from peakrl.certificates.rests_on import on_learning
from peakrl.learners.assumptions import plain
from peakrl.learners.certified.phases import Rounds, shortfall
from peakrl.learners.certified.tables import OPEN, TOP, VIOLATED
from peakrl.learners.infeasibility import DECLARED
from peakrl.learners.space import ModelSpace

#: Why nothing is certified if every action failed after an observation that need not be a state.
ALIKE = (
    "after an observed first observation every action was seen to fail, or to lead to such an observation: no policy "
    "satisfies every constraint if observations are states, which is not declared"
)
#: Why nothing is certified if the aim is a share of nothing.
NO_SHARE = (
    "epsilon is a share of the best safe value, of which no lower bound above 0 is known, since no policy is certain "
    "never to violate: declare a support or a safe_policy, or give epsilon in units of value"
)
#: Tables that are part of the evidence as they are.
PLAIN = ("known", "then_known", "reward", "group_of_row", "tested", "max_violation", "then_max_violation", "row_start")


def certificate(r: Rounds) -> Certificate:
    """Return the certificate for the smallest epsilon that is reached; if none is, one that does not hold."""
    r.settle()
    bounds = r.bounds_now()
    if r.status.dead_first != OPEN:
        bounds = replace(bounds, optimum_high=-math.inf)
    reached = [each for each in r.epsilons if shortfall(bounds, r.in_units(each, bounds)) is None]
    wanted = min(reached, default=r.epsilons[-1])
    epsilon, evidence = r.in_units(wanted, bounds), evidence_of(r, wanted)
    reason = shortfall(bounds, epsilon, BEST[r.facts.safe])
    feasible, safe = bounds.optimum_high > -math.inf, bounds.violation_high == 0.0
    if not feasible and not r.space.observes_states:
        reason = ALIKE
    elif reason is not None and r.relative and epsilon == 0:
        reason = NO_SHARE
    return Certificate(
        holds=reason is None,
        kind="learned",
        epsilon=epsilon,
        failure_probability=r.failure_probability,
        episodes=r.status.episodes,
        rests_on=tuple(on_learning(evidence.plain)),
        reason=reason,
        subject=f"the policy learned on {r.space.states().name!r}",
        declared_safe=r.facts.safe,
        evidence=evidence,
        value_low=bounds.value_low,
        value_high=bounds.optimum_high if feasible and safe else None,
        optimum_high=bounds.optimum_high if feasible else None,
        gap=bounds.gap if feasible else None,
        violation_high=bounds.violation_high,
        violation_probability_high=bounds.violation_probability_high,
    )


def contradiction(r: Rounds) -> str:
    """Return the message about bounds on an environment that cannot both be true."""
    names = [*(["stationary"] if r.space.shared else []), *r.task.assumptions.declared()]
    listed = f"what is declared ({', '.join(dict.fromkeys(names))})" if names else "the assumptions"
    return (
        f"the bounds contradict each other: a policy that never violates earns at least {r.bounds.value_low:.6g}, but "
        f"no such policy can earn more than {r.bounds.optimum_high:.6g}. So {listed} is false, or observations are no "
        f"states, or episodes are not independent; by chance it happens with probability at most "
        f"{r.failure_probability:g}"
    )


def evidence_of(r: Rounds, epsilon: float) -> Evidence:
    """Return the numbers from which the certificate for `epsilon` can be verified."""
    t, facts, status, space, given = r.tables, r.facts, r.status, r.space, r.task.assumptions.declared()
    if isinstance(space, ModelSpace):
        aliased, tolerances = False, space.model.constraint_tolerances
    else:
        aliased, tolerances = space.rules.aliased, space.rules.constraints.tolerances or ()
    numbers: dict[str, Any] = {
        "name": space.states().name,
        "declared": {name: plain(given[name]) for name in DECLARATIONS if given.get(name) not in (None, False)},
        "constraint_tolerances": list(tolerances),
        "aliased": aliased,
        "horizon": t.horizon,
        "stationary": bool(r.space.shared),
        "reward_range": list(map(float, facts.reward_range)),
        "max_reward": float(t.most),
        "constraint_bounds": list(map(float, r.task.sizes.constraint_bounds)),
        "joint": bool(t.joint),
        "certain": facts.certain,
        "safe": facts.safe,
        "deterministic": bool(t.deterministic),
        "states": facts.states,
        "actions": facts.actions if facts.states is not None else None,
        "growing": facts.growing,
        "noises": facts.noises,
        "shared": r.declared.shared,
        "epsilon": float(epsilon),
        "relative": r.relative,
        "policies": status.policies,
        "attempts": status.attempts,
        "violated": int(t.counts[VIOLATED]),
        "top": float(t.scale[TOP]),
    }
    arrays = evidence_arrays(r)
    return Evidence(numbers | {"candidate_digest": digest_of(arrays["candidate"])}, arrays)


def digest_of(array: NDArray[Any]) -> str:
    """Return a digest of the type, the shape and the contents of an array."""
    return hashlib.blake2b(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes()).hexdigest()[:32]


def evidence_arrays(r: Rounds) -> dict[str, NDArray[Any]]:
    """Return the tables of the evidence, in the order of models."""
    t, last = r.tables, int(r.space.shared)  # nodes after the last step
    arrays = {name: getattr(t, name).copy() for name in PLAIN}
    arrays |= {name: np.pad(getattr(t, name).T, ((0, last), (0, 0))).ravel() for name in ("candidate", "gap")}
    arrays["forbidden"] = (t.witness.T == DECLARED).astype(np.int8).ravel()
    arrays["noise_next"] = t.noise_next.ravel()
    arrays["slot_step"] = np.array(r.space.slot_step, np.int64)
    arrays["distribution_of_row"] = t.distribution_of_row - np.int32(1)
    for name in ("returns", "gaps"):
        column = getattr(t, name)
        seen = np.flatnonzero(column)
        arrays |= {f"{name}_index": seen, f"{name}_count": column[seen]}
    arrays |= cell_arrays(r)
    if t.scale[TOP] < 0:  # no gaps were frozen: nothing rests on these
        arrays |= {name: np.zeros_like(arrays[name]) for name in arrays if name.startswith("then_") or name == "gap"}
    return arrays


def cell_arrays(r: Rounds) -> dict[str, NDArray[Any]]:
    """Return the cells and the samples of each distribution; one without samples has an empty cell."""
    t, distributions = r.tables, np.arange(len(r.tables.samples))
    owner = t.cell_distribution[: t.cells[0]].astype(np.int64)
    empty = np.setdiff1d(distributions, owner)
    owner = (np.append(owner, empty) - 1) % len(distributions)  # that of the first state, 0, comes last
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], distributions)
    arrays: dict[str, NDArray[Any]] = {"cell_start": start}
    for name in ("cell_next", "cell_reward", "cell_count", "then_count", "then_before"):
        column = getattr(t, name)[: t.cells[0]]
        arrays[name] = np.append(column, np.zeros(len(empty), column.dtype))[order]
    for name, counts in (("samples", "cell_count"), ("then_samples", "then_count")):
        arrays[name] = np.add.reduceat(arrays[counts], start)
    return arrays
