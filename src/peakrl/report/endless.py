"""Section of a solution without an end, or of a discounted run: value, safety, map, and where time is spent."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from peakrl.certificates.certificate import number
from peakrl.certificates.rests_on import TABLES
from peakrl.errors import SettingsError
from peakrl.evaluation import evaluate
from peakrl.evaluation.endless import EndlessEvaluation
from peakrl.planning import Solution
from peakrl.policy.tables import Policy
from peakrl.report.analysis import RunAnalysis
from peakrl.report.blocks import VERDICTS, Answer, Block, Fact, Section, Table, Text, run_lengths, slug
from peakrl.report.charts import margins_table
from peakrl.report.policy_blocks import (
    MOST_NODES,
    MapNodes,
    amounts,
    choices,
    map_block,
    map_nodes,
    safe_actions,
    state_words,
)
from peakrl.tabular import TabularModel
from peakrl.training.run import LearningRun

#: Most states whose linear equations are solved for a page, and most lines of the table of states.
MOST_SOLVED, MOST_LINES = 100_000, 200


def run_section(analysis: RunAnalysis, name: str) -> Section:
    """Return the section of a discounted run on a model or on the table of an environment: its policy, the optimum."""
    if analysis.optimum is None:
        raise SettingsError(
            f"{name} is a discounted run whose model is unknown or too large to solve, and a page shows its policy "
            "beside the optimum: pass the environment's table (on the command line --problem), or use simulate"
        )
    return endless_section(analysis.optimum, analysis, name)


def endless_section(solution: Solution[Policy], learned: RunAnalysis | None = None, name: str = "solution") -> Section:
    """Return the section of a solution without an end, or of the learned policy of a run, which has a name."""
    model, criterion, run = solution.model, solution.criterion, None if learned is None else learned.run
    policy = solution.policy if learned is None else learned.policy
    found: EndlessEvaluation | None = None
    # What follows after a target is reached is not part of the solution.
    if model.num_slots <= MOST_SOLVED and criterion != "reach":
        found = cast(Any, evaluate(model, policy) if learned is None else learned.last)
    assert isinstance(policy, Policy)  # learners with a discount return deterministic ones
    nodes = map_nodes(model, MOST_NODES)
    drawn = policy_map(solution, policy, found, nodes) if isinstance(nodes, MapNodes) else Text(nodes or "")
    parts = {
        "Result": [answer_of(solution, found, run)],
        "Policy": [drawn],
        "Details": details(model, policy, found),
    }
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} state-action pairs, without an end, "
        f"constraints: {', '.join(model.constraint_names) or 'none'}."
    )
    kind = "safe" if solution.feasible else "infeasible"
    if run is not None:
        lead += f" {run.episodes:,} episodes with seed {run.seed}, {run.violations:,} of them violating."
        lead += f" {TABLES['completed'][0].capitalize()}." if learned is not None and learned.filled else ""
        kind = "not proved" if found is None else "violates" if (found.worst_margin < 0).any() else "safe"
    return Section.of_parts(f"run-{slug(name)}", f"{name}: {model.name}, {criterion}", lead, VERDICTS[kind], parts)


def answer_of(solution: Solution[Policy], found: EndlessEvaluation | None, run: LearningRun | None) -> Block:
    """Return bounds and safety in words."""
    reach = solution.criterion == "reach"
    what = "probability of reaching the target" if reach else f"value ({solution.criterion})"
    bounds = [f"between {solution.value_low!r} and {solution.value_high!r}, rounding included"]
    facts = [Fact(f"What is the {what}?", number(solution.value), bounds)]
    if run is not None:
        best = "of the best policy that never violates" if solution.feasible else "of the policy of least violation"
        facts = [Fact(f"What is the {what} {best}?", number(solution.value), bounds)]
        if found is not None:
            facts.insert(0, Fact(f"What is the {what} of the learned policy?", number(found.value)))
    if solution.expected_time is not None:
        facts.append(Fact("When is the target reached?", f"after {number(solution.expected_time)} steps, expected"))
    if found is not None:
        often, steps = found.violation_probability, found.steps_to_violation
        when = f"after {number(steps)} steps, expected" if np.isfinite(steps) else "it may never happen"
        if solution.criterion != "average":
            facts.append(Fact("What is the average reward of a step?", number(found.gain)))
        chance = f"with probability {number(often)}"
        facts.append(Fact("Does it ever violate a constraint?", chance, [when] if often else []))
    safe = solution.safe_set.counts[0]
    share = f"{safe.safe_states:,} of {safe.states:,} states, {safe.safe_actions:,} of {safe.actions:,} actions"
    facts.append(Fact("What is safe for ever?", share))
    if run is not None and found is None:
        return Answer("answer", "The model is too large to evaluate the learned policy for a page.", "", facts)
    if run is not None and found is not None and (found.worst_margin < 0).any():
        return Answer("answer", "The learned policy may violate a constraint.", "bad", facts)
    if solution.feasible:
        return Answer("answer", "The policy never violates a constraint.", "good", facts)
    facts.append(Fact("For how long can safety be kept?", f"{solution.safe_steps} steps", [solution.reason or ""]))
    return Answer("answer", "No policy is safe for ever; this one violates least.", "bad", facts)


def policy_map(solution: Solution[Policy], policy: Policy, found: EndlessEvaluation | None, nodes: MapNodes) -> Block:
    """Return the map of the policy and of the safe set."""
    model, slots = solution.model, nodes.slots
    layers = [choices("action of the policy", model, policy, nodes)]
    if model.num_constraints:
        layers.append(safe_actions(solution.safe_set, nodes))
    if found is not None:
        layers.append(amounts("share of the steps", found.stationary_distribution[slots], "share"))
    assert solution.state_low is not None
    layers.append(amounts("best value", solution.state_low[slots], "value"))
    unsafe = run_lengths(np.isnan(solution.state_low[slots]).astype(np.int8))
    note = "Blank: not reachable. Faded: no policy is safe for ever from there."
    return map_block(model, nodes, layers, "Map of the policy and the safe set", note, unsafe)


def details(model: TabularModel, policy: Policy, found: EndlessEvaluation | None) -> list[Block]:
    """Return worst constraint values, and the states in which most steps are spent."""
    if found is None:
        return []
    share = found.stationary_distribution
    most = [slot for slot in np.argsort(-share, kind="stable")[:MOST_LINES].tolist() if share[slot] > 0]
    labels = [model.state_of_slot(slot) for slot in most]
    rows = [
        (state_words(model, label), str(policy.action(0, label)), float(share[slot]))
        for slot, label in zip(most, labels, strict=True)
    ]
    caption = "Where the policy spends its steps in the long run (stationary distribution)"
    return [
        margins_table(model, found.worst_margin, "policy"),
        Table("share", caption, ("state", "action", "share of the steps"), rows),
    ]
