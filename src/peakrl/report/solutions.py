"""Section of a solution with a horizon: value, safety, map, and what is safe at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from peakrl.certificates.certificate import number
from peakrl.evaluation import Evaluation, evaluate
from peakrl.planning import Solution
from peakrl.report.analysis import ModelAnalysis, PolicyTables
from peakrl.report.blocks import VERDICTS, Answer, Block, Fact, Section, Text, run_lengths
from peakrl.report.charts import budget_charts, margins_table, safe_chart
from peakrl.report.policy_blocks import (
    LIKELIEST,
    MOST_NODES,
    MapNodes,
    amounts,
    choices,
    map_block,
    map_nodes,
    safe_actions,
)


def horizon_section(solution: Solution[Any]) -> Section:
    """Return the section of a solution with a horizon."""
    model, known, nodes = solution.model, ModelAnalysis(solution.model), map_nodes(solution.model, MOST_NODES)
    # What follows after a target is reached is not part of the solution.
    found = evaluate(model, solution.policy) if solution.criterion is None else None
    drawn = policy_map(solution, found, nodes) if isinstance(nodes, MapNodes) else Text(nodes) if nodes else None
    parts: dict[str, Sequence[Block]] = {
        "Result": [answer_of(solution, found)],
        "Policy": [] if drawn is None else [drawn],
        "Safe set": [*safe_chart(known), *budget_charts(known)],
        "Details": [] if found is None else [margins_table(model, found.worst_margin, "policy")],
    }
    lead = (
        f"{model.name}: {model.num_states:,} states, {model.num_pairs:,} state-action pairs, {model.horizon} steps, "
        f"constraints: {', '.join(model.constraint_names) or 'none'}."
    )
    badge = VERDICTS["violates" if violates(solution, found) else "safe"]
    return Section.of_parts("solution", f"{model.name}: solution", lead, badge, parts)


def violates(solution: Solution[Any], found: Evaluation | None) -> bool:
    """Is a violation possible, up to a target if there is one?"""
    return solution.violation > 0 if found is None else bool((found.worst_margin < 0).any())


def answer_of(solution: Solution[Any], found: Evaluation | None) -> Answer:
    """Return value and safety in words."""
    what, until = "value", ""
    if found is None:
        what, until = "probability of reaching the target", " before the target is reached"
    safe = solution.safe_set.counts[0]
    share = f"{safe.safe_states:,} of {safe.states:,} states, {safe.safe_actions:,} of {safe.actions:,} actions"
    facts = [Fact(f"What is the {what}?", number(solution.value)), Fact("What is safe at the first step?", share)]
    if not violates(solution, found):
        return Answer("answer", f"The policy never violates a constraint{until}.", "good", facts)
    often = "" if found is None else f" with probability {number(found.violation_probability)}"
    facts.append(Fact("How large is the violation of an episode?", number(solution.violation)))
    facts += [] if solution.reason is None else [Fact("Why?", solution.reason)]
    return Answer("answer", f"The policy may violate a constraint{until}{often}.", "bad", facts)


def policy_map(solution: Solution[Any], found: Evaluation | None, nodes: MapNodes) -> Block:
    """Return the map of the policy and of the safe set."""
    model, policy, note, never = solution.model, solution.policy.likeliest, "Blank: not reachable.", list[int]()
    layers = [choices("action of the policy", model, policy, nodes)]
    if model.num_constraints:
        layers.append(safe_actions(solution.safe_set, nodes))
    if found is not None:
        visited = PolicyTables(model, policy).probability[nodes.nodes]
        layers.append(amounts("visit probability", visited, "probability"))
        never, note = run_lengths((visited == 0.0).astype(np.int8)), f"{note} Faded: the policy never leads there."
    layers.append(amounts("value from here on", solution.node_values[nodes.nodes], "value"))
    note += "" if solution.policy.deterministic else LIKELIEST
    return map_block(model, nodes, layers, "Map of the policy and the safe set", note, never)
