"""`certify`: bounds on a policy, exact on a model, or from fresh episodes on models and environments.

Exact, on a model: value, violation and its probability of the policy (`evaluation.exact`), and the best value without
any violation (`planning.solve`). A violation is possible if an outcome of positive probability has one: then it is
never reported as 0.

Sampled, for n fresh episodes with returns R_k in [low, high] and violations Z_k in [0, most], by `evaluation.bounds`
at all n at once, the failure probability p shared evenly between

    value_low <= V,  V <= value_high  (from R_k),   viol <= violation_high  (from Z_k),   P(Z > 0)  (from 1[Z_k > 0]).

As the bounds hold at all n at once, a certificate with an epsilon stops as soon as it holds. Episodes of a policy do
not bound the optimum: on a model V* is computed; on an environment the largest possible return is used instead.
"""

from __future__ import annotations

import math
import secrets
from functools import singledispatch
from typing import Any

import numpy as np

from peakrl.certificates import verify_endless
from peakrl.certificates.certificate import Certificate, Evidence
from peakrl.certificates.episodes import (
    AnyRule,
    EnvironmentEpisodes,
    Episodes,
    ModelEpisodes,
    as_policy,
    model_evidence,
    name_of,
    policy_evidence,
)
from peakrl.certificates.rests_on import on_episodes, on_model
from peakrl.certificates.verify import read_model
from peakrl.certificates.verify_grid import check_grid
from peakrl.checks import check_count, check_fraction, check_number, check_seed, reward_limits
from peakrl.compile import as_model, is_problem
from peakrl.continuous import ContinuousProblem
from peakrl.continuous.files import description
from peakrl.errors import PolicyError, SettingsError, UnknownStateError
from peakrl.evaluation.bounds import lower_mean, upper_mean
from peakrl.evaluation.environments import Unknown
from peakrl.evaluation.exact import Evaluation, evaluate
from peakrl.evaluation.simulation import most_kept
from peakrl.planning import GridPolicy, Solution, solve
from peakrl.planning.backward import threads_for
from peakrl.planning.solution import States, in_set, row_costs, row_rewards
from peakrl.planning.stationary import Task, decisions, proof, proved
from peakrl.policy.export import Exported
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy, model_for
from peakrl.policy.tables import Policy, StochasticPolicy, simplest_policy
from peakrl.safety.safe_set import SafeSet
from peakrl.tabular import TabularModel
from peakrl.types import Floats
from peakrl.viability import FOREVER, steps_kept
from peakrl.visited import VisitedStates

#: Limits of what is computed without a request: outcomes for the optimum (about a second), and changes times nodes for
#: an averaged policy (some seconds).
MOST_OUTCOMES, MOST_CHANGES = 5e8, 5e9
#: The policy explorer has tables of this many nodes at most.
MOST_NODES = 50_000_000


def can_solve(model: TabularModel) -> bool:
    """Return whether the optimum is quick to compute."""
    return model.num_outcomes + model.num_entries <= MOST_OUTCOMES


def can_average(policy: AveragedPolicy) -> bool:
    """Return whether an averaged policy is quick to evaluate."""
    return policy.num_changes * policy.model.num_nodes <= MOST_CHANGES


def can_explore(model: TabularModel) -> bool:
    """Return whether the tables of the policy explorer are small enough for a page."""
    return model.num_nodes <= MOST_NODES


#: The default number of episodes, the number before the first check, and its growth from check to check.
USUAL_EPISODES, FIRST_LOOK, GROWTH = 10_000, 200, 1.5
#: A possible event has a positive probability, also if it underflows.
LEAST = math.ulp(0.0)


@singledispatch
def certify(
    target: Any,
    policy: AnyPolicy | AnyRule,
    *,
    epsilon: float | None = None,
    failure_probability: float = 0.05,
    episodes: int | None = None,
    seed: int | None = None,
    unknown: Unknown = "raise",
    discount: float | None = None,
    reach: States | None = None,
) -> Certificate:
    """Certify a policy on a model, a problem or a Gymnasium environment.

    On a model everything is exact, unless `episodes` is given. On an environment fresh episodes give bounds that hold
    together except with `failure_probability`.

    Parameters
    ----------
    target
        A model, a problem, or an environment (`ConstrainedEnv`).
    policy
        A policy of peakrl, or any function (step, state, actions) -> action; on an environment, whose observations and
        actions may be continuous, also any function observation -> action, or a model of Stable-Baselines3
        (`predict`). It must be fixed before, and must not be selected by its certificate. Behind a shield it may ask
        for unsafe actions; the certificate is about both together. A policy that was learned on an environment can be
        certified on its model: states and actions are matched by label.
    epsilon
        The largest gap and the largest expected violation that are accepted; with it, sampling stops as soon as the
        certificate holds. None: bounds only; on a model the certificate then holds if nothing can be violated.
    failure_probability
        The probability that one of the bounds is wrong; each certificate has its own.
    episodes
        The number of fresh episodes, on an environment 10,000 by default; on a model by default none, and
        everything is exact.
    seed
        Makes the episodes repeatable; by default it is drawn from the system.
    unknown
        What decides on an environment in states that were not visited while learning: "raise" (an error, the default),
        "random", or a function, as for `simulate`. The certificate is about the policy with that.
    discount, reach
        For deterministic policies without an end: the certificate is about discounted rewards, or about the probability
        of reaching these states, as in `solve`; with neither about the average reward of a step.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> import peakrl
    >>> problem = peakrl.problems.energy_harvesting(peak_power=8)
    >>> certificate = peakrl.certify(problem, peakrl.solve(problem).policy, epsilon=0.01)
    >>> certificate.holds
    True
    """
    if epsilon is not None:
        epsilon = check_number(epsilon, "epsilon", least=0.0)
    if episodes is not None:
        episodes = check_count(episodes, "episodes", 1, most_kept())
    failure = check_fraction(failure_probability, "failure_probability", otherwise=", such as 0.05")
    stream = secrets.randbits(64) if seed is None else check_seed(seed)
    if not isinstance(target, TabularModel) and not is_problem(target):
        if discount is not None or reach is not None:
            raise SettingsError(
                "discount= and reach= are for models: the episodes of an environment bound nothing without an end. "
                "Pass its transition table, if it has one: peakrl.from_gymnasium(env)"
            )
        return sampled(EnvironmentEpisodes(target, policy, stream, unknown), None, epsilon, failure, episodes)
    model = as_model(target)
    if model.steps is None or discount is not None or reach is not None:
        if episodes is not None:
            raise SettingsError(f"{model.name!r} has no end: certify a policy exactly, without episodes=")
        return certify_endless(model.with_horizon(None), policy, (discount, reach), epsilon)
    if isinstance(policy, Exported) and policy.model.steps is None:
        raise PolicyError(
            f"the policy has no end, but an episode of {model.name!r} has {model.steps} steps: pass discount= or "
            "reach=, certify its average on model.with_horizon(None), or make it a policy of the model with "
            "Policy.from_rule(model, policy.action)"
        )
    optimum = solve(model) if can_solve(model) else None
    if episodes is not None:
        return sampled(ModelEpisodes(model, policy, stream), optimum, epsilon, failure, episodes)
    if isinstance(getattr(policy, "model", None), VisitedStates):
        policy, filled = filled_on_table(model, policy)
        return certificate_on_model(
            model, policy, evaluate(model, policy), optimum, epsilon, "filled" if filled else "policy"
        )
    followed = as_policy(model, policy)
    table = "policy" if followed is policy else "function"
    return certificate_on_model(model, followed, evaluate(model, followed), optimum, epsilon, table)


# Exact ----------------------------------------------------------------------------------------------------------------


def certificate_on_model(
    model: TabularModel,
    policy: AnyPolicy,
    found: Evaluation,
    optimum: Solution[Policy] | None,
    epsilon: float | None = None,
    table: str = "policy",
) -> Certificate:
    """Return the exact certificate of a policy, from its evaluation and the optimum of its model.

    `table` is how it became a policy of the model, one of `rests_on.TABLES`.
    """
    possible = bool((found.worst_margin < 0).any())
    violation = max(found.violation, LEAST) if possible else 0.0
    changes = policy.num_changes if isinstance(policy, AveragedPolicy) else 0
    highest, how = bounded(optimum, model.horizon * reward_limits(model.reward_range)[1])
    rounding = rounding_of(model, changes, violates=possible)
    gap = None if highest is None else below(found.value, highest, rounding)
    (plain, arrays), (decided, decisions) = model_evidence(model), policy_evidence(policy)
    evidence = Evidence({"model": plain, "optimum": how, "table": table} | decided, arrays | decisions)
    certificate = Certificate(
        holds=True,
        kind="exact",
        epsilon=epsilon,
        failure_probability=0.0,
        value_low=found.value,
        value_high=found.value,
        optimum_high=highest,
        gap=gap,
        violation_high=violation,
        violation_probability_high=max(found.violation_probability, LEAST) if possible else 0.0,
        episodes=0,
        rests_on=tuple(on_model(evidence.plain, rounding)),
        subject=name_of(policy),
        evidence=evidence,
    )
    return judged(certificate, possible, None if optimum is None else optimum.reason)


def certify_endless(
    model: TabularModel, policy: Any, criterion: tuple[float | None, States | None], epsilon: float | None
) -> Certificate:
    """Return the exact certificate of a policy without an end: the numbers that `verify_endless` finds in its evidence.

    The evidence proves each bound by one inequality for every state and action (`planning.stationary.proof`).
    """
    (discount, reach), filled = criterion, False
    if isinstance(getattr(policy, "model", None), VisitedStates):
        policy, filled = filled_on_table(model, policy)
    if not isinstance(policy, Policy):
        raise SettingsError(f"{model.name!r} has no end: certify a deterministic policy")
    if policy.model.steps is not None:
        raise PolicyError(f"the policy has {policy.model.span}: discount= and reach= are for policies without an end")
    own = model_for(model, policy)
    target, start = in_set(own, reach), np.zeros(own.num_slots)
    start[own.first_slot] = own.first_probability
    slot_kept, row_kept = steps_kept(own.one_step, own.keeps, target)
    acts = ~target[own.slot_of_row]
    among = decisions(own, row_rewards(own) if reach is None else np.zeros(own.num_rows))
    taken = acts & np.isin(np.arange(own.num_rows), policy.rows)
    arrays: dict[str, Any] = {"rows": policy.rows, "kept": slot_kept, "target": target.astype(np.int32)}
    with threads_for(own, 1) as share:
        task = Task(own, 1e-9, start, share)
        paid, costs = among.only(taken), among._replace(reward=row_costs(own)).only(taken)
        found, high = proved(task, paid, discount, target)
        low = proof(task, paid._replace(reward=-paid.reward), found.negated, discount)
        violations = high if reach is not None else proved(task, costs, discount, target)[1]
        feasible = bool((slot_kept[own.first_slot] == FOREVER).all())
        safe = among.only(acts & (row_kept == FOREVER))
        best = proved(task, safe, discount, target)[1] if feasible else high
    arrays |= {"low": low, "high": high, "violations": violations, "best": best}
    plain, stored = model_evidence(own)
    evidence = Evidence(
        {"model": plain, "optimum": "residual", "table": ("policy", "completed")[filled], "discount": discount},
        stored | {f"endless.{name}": array for name, array in arrays.items()},
    )
    numbers, possible, _, rests_on = verify_endless.check(read_model(plain, stored), evidence.plain, evidence.arrays)
    what = "average of a step" if discount is None else f"discounted by {discount:g}"
    certificate = Certificate(
        holds=True, kind="exact", epsilon=epsilon, rests_on=rests_on, evidence=evidence, **numbers,
        subject=f"{name_of(policy)}, {what if reach is None else 'probability of reaching the target'}",
    )  # fmt: skip
    return judged(certificate, possible, None if feasible else SafeSet(own).infeasible_reason)


def below(value: float, highest: float, rounding: float) -> float:
    """Return how far a value is below another; rounding counts as 0."""
    gap = highest - value
    return gap if abs(gap) > rounding else 0.0


def rounding_of(model: TabularModel, policies: int = 0, *, violates: bool = True) -> float:
    """Return how far two computations of a value may differ: sums of products, step by step, in any order.

    Policies that violate nothing do not earn what violations pay. The smallest numbers are rounded by a whole one of
    them.
    """
    met = np.all(model.payoffs.constraints >= 0.0, axis=1)
    most = float(np.abs(model.payoffs.reward[slice(None) if violates else met]).max(initial=0.0))
    sizes = (np.diff(model.layout.outcome_start).max(), len(model.first_slot), np.diff(model.row_start).max())
    terms = (model.horizon + 1) * (int(max(sizes)) + policies + 16)
    return terms * (2.0**-52 * (model.horizon + 1) * most + LEAST)


def bounded(optimum: Solution[Policy] | None, most: float) -> tuple[float | None, str]:
    """Return an upper bound for policies that never violate, None if there is no such policy, and its kind."""
    if optimum is None:
        return most, "most reward"
    return (optimum.value if optimum.feasible else None), "solved"


def judged(certificate: Certificate, possible: bool, unsafe: str | None) -> Certificate:
    """Return a certificate with its verdict; `possible`: can it violate? `unsafe`: why no policy is safe."""
    epsilon, gap, violation = certificate.epsilon, certificate.gap, certificate.violation_high
    if unsafe is not None and (epsilon is not None or possible):
        return certificate.refused(f"no policy is safe: {unsafe}")
    if epsilon is None:
        if not possible:
            return certificate
        what = "the policy was observed to violate a constraint; an episode does so with probability at most"
        what = "the policy violates a constraint with probability" if certificate.kind == "exact" else what
        return certificate.refused(f"{what} {certificate.violation_probability_high:.6g}")
    if gap is None or gap > epsilon:
        return certificate.refused(f"the policy may lie {gap:.6g} below the best safe policy, more than {epsilon:g}")
    if violation is None:
        return certificate.refused("the violation is not bounded: pass constraint_bounds=, the most of each constraint")
    if violation > epsilon:
        return certificate.refused(f"the expected violation may be {violation:.6g}, more than {epsilon:g}")
    return certificate


# Sampled --------------------------------------------------------------------------------------------------------------


def sampled(
    source: Episodes, optimum: Solution[Policy] | None, epsilon: float | None, failure: float, episodes: int | None
) -> Certificate:
    """Return the certificate of fresh episodes: all that were requested, or as many as needed for it to hold."""
    most = USUAL_EPISODES if episodes is None else episodes
    count = most if epsilon is None else min(most, FIRST_LOOK)
    returns, violations = source.more(count)
    while True:
        certificate = certificate_of_episodes(source, (returns, violations), optimum, epsilon, failure)
        if certificate.holds or len(returns) >= most:
            return certificate
        further = source.more(min(most - len(returns), math.ceil(len(returns) * (GROWTH - 1))))
        returns, violations = np.concatenate([returns, further[0]]), np.concatenate([violations, further[1]])


def certificate_of_episodes(
    source: Episodes,
    drawn: tuple[Floats, Floats],
    optimum: Solution[Policy] | None,
    epsilon: float | None,
    failure: float,
) -> Certificate:
    """Return the certificate of these episodes."""
    (returns, violations), low, high, most = drawn, source.low, source.high, source.most_violation
    part = failure / (4 if most else 2)
    # An episode's return is a sum of `horizon` rounded numbers, and the bound a mean of them.
    slip = 2.0**-48 * (source.horizon + 16) * max(abs(low), abs(high))
    value_low = max(low, lower_mean(returns, low, part) - slip)
    highest, how = bounded(optimum, high)
    evidence = source.evidence(returns, violations, how)
    certificate = Certificate(
        holds=True,
        kind="sampled",
        epsilon=epsilon,
        failure_probability=failure,
        value_low=value_low,
        value_high=min(high, upper_mean(returns, high, part) + slip),
        optimum_high=highest,
        gap=None if highest is None else highest - value_low,
        violation_high=None if math.isinf(most) else upper_mean(violations, most, part) if most else 0.0,
        violation_probability_high=upper_mean((violations > 0).astype(np.float64), 1.0, part) if most else 0.0,
        episodes=len(returns),
        rests_on=tuple(on_episodes(evidence.plain)),
        subject=source.subject,
        evidence=evidence,
    )
    return judged(certificate, bool((violations > 0).any()), None if optimum is None else optimum.reason)


def policy_on_table(table: TabularModel, policy: Any) -> Policy | StochasticPolicy:
    """Return what a policy does on the table; in states that it does not know, `filled_on_table` decides."""
    return filled_on_table(table, policy)[0]


def filled_on_table(table: TabularModel, policy: Any) -> tuple[Policy | StochasticPolicy, bool]:
    """Return what a policy does on the table, and whether there are states that it does not know.

    In these it draws an action, as in `simulate`; without an end it takes the first one.
    """
    if isinstance(policy, AveragedPolicy):
        raise PolicyError(
            "an averaged policy follows one of its policies for a whole episode, which no table of an environment's "
            "states does: pass run.policy, or simulate it"
        )
    if table.steps is None and policy.model.steps is not None:
        raise PolicyError(f"the policy has {policy.model.span}: discount= and reach= are for policies without an end")
    labels = (table.action_labels, table.state_labels)[: 1 + (policy.model.name == "peakrl/Problem-v0")]
    if policy.model.name.startswith("peakrl/") and any(list(each) != list(range(len(each))) for each in labels):
        raise PolicyError(
            f"the policy was learned on {policy.model.name!r}, which numbers the states and actions of a problem, and "
            f"{table.name!r} has other labels: learn on the problem itself, or certify on the environment"
        )
    firsts = [table.state_of_slot(slot) for slot in table.first_slot.tolist()]
    if not any(policy.model.state_number(state) < policy.model.num_states for state in firsts):
        raise PolicyError(
            f"the policy belongs to {policy.model!r}, where no first state of {table.name!r} was visited: {firsts[0]!r}"
        )
    weights, filled = np.zeros(table.num_entries), False
    first = table.row_start[:-1][np.diff(table.row_start) > 0]
    weights.reshape(-1, table.num_rows)[:, first] = 1.0  # also at steps at which a state cannot be reached
    for step, slot, _ in table.decisions():
        base = step * table.entry_stride
        state, rows = table.state_of_slot(slot), table.rows_of_slot(slot)
        actions = [table.action_of_row(row) for row in rows]
        try:
            known = isinstance(policy, Policy)
            chances = {policy.action(step, state, actions): 1.0} if known else policy.probabilities(step, state)
        except UnknownStateError:
            drawn = actions if table.steps is not None else actions[:1]
            chances, filled = dict.fromkeys(drawn, 1.0 / len(drawn)), True
        weights[base + rows.start : base + rows.stop] = [chances.get(action, 0.0) for action in actions]
    return simplest_policy(table, weights), filled


# Continuous problems --------------------------------------------------------------------------------------------------


@certify.register
def certify_on_grid(problem: ContinuousProblem, policy: Any) -> Certificate:
    """Certify that a policy of `solve(problem, cells=..., discount=...)` never violates from any first state.

    Parameters
    ----------
    problem
        The problem, with a `start` that is a point or a box.
    policy
        The policy.

    Returns
    -------
    Certificate
        Of the kind "grid"; `verify(path, problem)` checks its file, which holds no code.

    Examples
    --------
    >>> import peakrl
    >>> room = peakrl.problems.room_temperature()
    >>> peakrl.certify(room, peakrl.solve(room, cells=60, discount=0.9).policy).violation_high
    0.0
    """
    if not isinstance(policy, GridPolicy) or len(policy.best) > 1:
        raise SettingsError("certify(problem, policy) takes the policy of solve(problem, cells=..., discount=...)")
    plain = {"problem": description(policy.problem), "cells": list(policy.grid.cells)}
    evidence = Evidence(plain, {"choice": policy.best[0].astype(np.int32)})
    found: dict[str, Any] = dict.fromkeys(("epsilon", "value_low", "value_high", "optimum_high", "gap"))
    reason, rests_on = check_grid(problem, evidence.plain, evidence.arrays)
    bound = None if reason else 0.0
    return Certificate(
        holds=reason is None, kind="grid", failure_probability=0.0, violation_high=bound,
        violation_probability_high=bound, episodes=0, rests_on=rests_on, reason=reason,
        subject=f"a policy on {policy.grid.size:,} cells of {problem.name!r}", evidence=evidence, **found,
    )  # fmt: skip
