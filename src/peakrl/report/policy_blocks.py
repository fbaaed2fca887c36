"""The policy of a run on the page: a map of its decisions, and an explorer of every action in every state.

Map: for states of one to three fields. The step is a field like the others; the reader selects two fields as axes and
slices along the rest. The page holds the coordinates of each node, (step, state), and one number for each layer:

    cell (x, y) of a layer  =  number of the node with these coordinates, at the selected slice of every other field

Explorer: the page computes values from compact tables. With pi the last policy, D the distribution of the next state
of a state-action pair (many pairs share one), and V the exact value of pi:

    value from here on  =  r(s, a) + sum_s' D(s') V_{h+1}(s')        stored by pair and by (step, distribution)

and the same for the violation. Which actions are safe is stored by (step, pair).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from peakrl.certificates.certify import can_explore
from peakrl.policy.export import in_order
from peakrl.report.blocks import Block, Drawn, Text, packed, run_lengths, shown_state
from peakrl.space import starts_of
from peakrl.specs.registry import part_names

if TYPE_CHECKING:
    from peakrl.policy.tables import Policy
    from peakrl.report.analysis import RunAnalysis
    from peakrl.safety.safe_set import SafeSet
    from peakrl.space import StateSpace
    from peakrl.types import Floats, Longs

#: Most fields of a map beside the step, most nodes, and most values of a field.
MOST_FIELDS, MOST_NODES, LONGEST_FIELD = 3, 60_000, 400
#: Fields that are drawn from top to bottom, as the rows of a grid are.
DOWNWARDS = ("row",)
#: Most actions with a colour each.
MOST_NAMED = 8
#: Note for stochastic policies.
LIKELIEST = " The policy is stochastic; the likeliest action of each state is shown and followed."


def map_blocks(analysis: RunAnalysis, share: int = 1) -> list[Block]:
    """Return the map of a run, if states consist of a few plain fields; `share` runs share the limits of the page."""
    run, model, policy = analysis.run, analysis.run.model, analysis.run.policy.likeliest
    nodes = map_nodes(model, MOST_NODES // share)
    if nodes is None or isinstance(nodes, str):
        return [] if nodes is None else [Text(nodes)]
    never: list[int] = []
    if analysis.on_environment:
        # The action numbers of an environment are labels, not quantities.
        layers = [choices("action of the policy", model, policy, nodes, named=True)]
        title, note = "Map of the policy", "Blank: not visited while learning."
    else:
        layers = policy_layers(analysis, nodes)
        title = "Map of the policy and the safe set" if model.num_constraints else "Map of the policy"
        note = "Blank: not reachable. Click a cell to see its actions in the explorer."
        never = run_lengths((analysis.tables.probability[nodes.nodes] == 0.0).astype(np.int8))
        note += " Faded: the policy never leads there." if 1 in never[::2] else ""
        note += "" if run.policy.deterministic else LIKELIEST
    if run.visits is not None:
        total = np.zeros(model.num_slots)
        np.add.at(total, np.repeat(np.arange(model.num_slots), np.diff(model.row_start)), run.visits)
        together = ", all steps" if model.stationary else ""
        layers.append(amounts(f"training visits{together}", total[nodes.slots], "visits"))
    return [map_block(model, nodes, layers, title, note, never)]


def map_block(
    model: StateSpace, nodes: MapNodes, layers: list[dict[str, Any]], title: str, note: str, never: list[int]
) -> Block:
    """Return a map; `never` are the run lengths of the nodes that are faded."""
    slots, state = np.unique(nodes.slots, return_inverse=True)
    x, y = nodes.axes
    content = {
        "fields": [
            {"name": name, "values": list(values), "down": name in DOWNWARDS}
            for name, values in zip(nodes.names, nodes.values, strict=True)
        ],
        "at": [packed(row, "<u2") for row in nodes.at], "nodes": len(nodes.nodes), "x": x, "y": y,
        "slices": [len(values) // 2 for values in nodes.values], "layers": layers,
        "labels": [state_words(model, model.state_of_slot(int(slot))) for slot in slots], "state": packed(state, "<i4"),
        "never": never,
    }  # fmt: skip
    return Drawn("map", title, "map", content, note)


# Nodes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MapNodes:
    """The reachable decision nodes and their coordinates."""

    nodes: Longs
    slots: Longs
    #: Fields, the step first: names, sorted values, and [field, node] index of the value.
    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    at: Longs

    @property
    def axes(self) -> tuple[int, int]:
        """The initial fields for x and y: two state fields that vary within a step, else the step and one."""
        own = range(1, len(self.names))
        # At one step or more a field has two values if there are more pairs (step, value) than steps.
        steps = len(np.unique(self.at[0]))
        varying = [field for field in own if np.unique(self.at[[0, field]], axis=1).shape[1] > steps] or list(own)
        return (varying[1], varying[0]) if len(varying) > 1 else (0, varying[0])


def map_nodes(model: StateSpace, most: int) -> MapNodes | str | None:
    """Return the nodes of a map; a message if there are too many; None if states have no plain fields."""
    width = field_count(model, model.state_labels[0])
    if width is None or any(field_count(model, label) != width for label in model.state_labels):
        return None
    horizon = model.steps or 1
    per_step = [model.decision_slots(step) for step in range(horizon)]
    steps, slots = np.repeat(np.arange(horizon), [len(here) for here in per_step]), np.concatenate(per_step)
    if not len(slots):
        return None
    if len(slots) > most:
        return f"{len(slots):,} steps and states are too many for a map."
    labels = [fields_of(model, model.state_of_slot(slot)) for slot in slots.tolist()]
    values = [in_order(list(dict.fromkeys(label[field] for label in labels))) for field in range(width)]
    if max(map(len, values)) > LONGEST_FIELD:
        return "A field of the state has too many values for a map."
    positions = [{value: index for index, value in enumerate(own)} for own in values]
    at = [[positions[field][label[field]] for label in labels] for field in range(width)]
    shown = [tuple(map(plain_label, own)) for own in values]
    return MapNodes(
        nodes=steps * model.node_stride + slots,
        slots=slots,
        names=("step", *field_names(model, width)),
        values=(tuple(range(horizon)), *shown),
        at=np.array([steps, *at], np.int64),
    )


def fields_of(model: StateSpace, label: Any) -> tuple[Hashable, ...]:
    """Return the fields of a state, and then what budgets and monitors remember."""
    own, memory = (label[0], label[1:]) if memory_of(model) else (label, ())
    return (*(own if isinstance(own, tuple) else (own,)), *memory)


def memory_of(model: StateSpace) -> list[str]:
    """Return the names of what budgets and monitors added to the states."""
    return [axis.name for axis in getattr(model, "memory", ())]


def field_count(model: StateSpace, label: Any) -> int | None:
    """Return the number of fields of a state; None if there are too many or they are not plain values."""
    fields = fields_of(model, label)
    plain = all(isinstance(field, bool | int | float | str | np.generic) for field in fields)
    return len(fields) if plain and 0 < len(fields) <= MOST_FIELDS else None


def field_names(model: StateSpace, width: int) -> tuple[str, ...]:
    """Return the names of the fields of a state."""
    memory, label = memory_of(model), cast(Any, model.state_labels[0])
    own = getattr(label[0] if memory else label, "_fields", ()) or part_names(getattr(model, "spec", None))
    count = width - len(memory)
    if len(own) != count:
        own = ("state",) if count == 1 else tuple(f"field {index}" for index in range(1, count + 1))
    return (*map(str, own), *memory)


def state_words(model: StateSpace, label: Any) -> str:
    """Return a state as text, with the names of its fields if they have names."""
    fields = fields_of(model, label)
    names = field_names(model, len(fields))
    if len(fields) == 1 or names[0] == "field 1" or hasattr(label, "done"):
        return shown_state(label)
    words = [f"[{' '.join(map(str, one))}]" if isinstance(one, tuple) else plain_label(one) for one in fields]
    return ", ".join(f"{name} {word}" for name, word in zip(names, words, strict=True))


def plain_label(label: Any) -> Any:
    """Return a label as the page writes it; numbers stay numbers."""
    if isinstance(label, np.generic):
        label = label.item()
    return label if isinstance(label, int | float | str) and not isinstance(label, bool) else repr(label)


# Layers --------------------------------------------------------------------------------------------------------------


def policy_layers(analysis: RunAnalysis, nodes: MapNodes) -> list[dict[str, Any]]:
    """Return the actions of the policy and of the optimum, their differences, and the exact numbers of each node."""
    model, optimum, policy = analysis.exact.model, analysis.optimum, analysis.run.policy.likeliest
    layers = [choices("action of the policy", model, policy, nodes)]
    if optimum is not None:
        layers.append(choices("action of the optimum", model, optimum.policy, nodes))
        differs = policy.rows[nodes.nodes] != optimum.policy.rows[nodes.nodes]
        name, labels = "policy and optimum differ", ["equal", "different"]
        layers.append({"name": name, "labels": labels, "runs": run_lengths(differs * 1)})
    if model.num_constraints:
        layers.append(safe_actions(analysis.exact.safe_set, nodes))
    if can_explore(model):
        tables = analysis.tables
        layers += [
            amounts("visit probability", tables.probability[nodes.nodes], "probability"),
            amounts("expected violation from here on", tables.violation[nodes.nodes], "violation"),
            amounts("value from here on", tables.value[nodes.nodes], "value"),
        ]
    return layers


def safe_actions(safe: SafeSet, nodes: MapNodes) -> dict[str, Any]:
    """Return a layer of the number of safe actions."""
    counts = np.array([np.count_nonzero(safe.mask_of(node)) for node in nodes.nodes.tolist()])
    return amounts("number of safe actions", counts, "safe actions")


def choices(name: str, model: StateSpace, policy: Policy, nodes: MapNodes, *, named: bool = False) -> dict[str, Any]:
    """Return a layer of actions, as numbers or labels."""
    action = model.row_action[policy.rows[nodes.nodes]]
    labels = [plain_label(label) for label in model.action_labels]
    if all(isinstance(label, int | float) for label in labels) and len(labels) > (MOST_NAMED if named else 2):
        return amounts(name, np.array(labels, np.float64)[action], "action")
    return {"name": name, "labels": [str(label) for label in labels], "runs": run_lengths(action)}


def amounts(name: str, values: Floats | Longs, unit: str) -> dict[str, Any]:
    """Return a layer of numbers."""
    return {"name": name, "unit": unit, "numbers": packed(np.asarray(values, np.float64), "<f4")}


# Explorer ------------------------------------------------------------------------------------------------------------

#: Most entries (step, state, action) and states that a page embeds.
MOST_ENTRIES, MOST_STATES = 190_000, 20_000
#: Verdict on an action: safe, may violate at once, may lead to a state from which no policy is safe.
SAFE, BREAKS, DEAD_END = 0, 1, 2


def explorer(analysis: RunAnalysis, share: int = 1) -> Block:
    """Return the explorer of a run's last policy; `share` runs share the limits of the page."""
    if not can_explore(analysis.exact.model):
        return Text("The policy is too large for the explorer.")
    run, optimum, model, tables = analysis.run, analysis.optimum, analysis.exact.model, analysis.tables
    kept = kept_slots(analysis, MOST_ENTRIES // share, MOST_STATES // share)
    rows = np.concatenate([np.arange(*model.row_start[[slot, slot + 1]]) for slot in kept])
    distributions, distribution_of_row = np.unique(model.layout.row_distribution[rows], return_inverse=True)
    steps = model.horizon if model.stationary else 1
    nodes = np.arange(steps)[:, None] * model.node_stride + kept
    safe = model.safe.entries.reshape(-1, model.num_rows)
    verdicts = np.where(safe, SAFE, np.where(model.keeps, DEAD_END, BREAKS))

    def chosen(policy: Policy) -> list[int]:
        """Return the index of the action taken at each step and kept state."""
        return run_lengths(policy.rows[nodes] - model.row_start[kept])

    content = {
        "horizon": model.horizon,
        "stationary": model.stationary,
        "slotStep": [] if model.stationary else run_lengths(model.step_of_slot[kept]),
        "labels": [state_words(model, model.state_of_slot(int(slot))) for slot in kept],
        "reachable": run_lengths(np.asarray(model.reachable[nodes], np.int8)),
        "rowStart": starts_of(np.diff(model.row_start)[kept]).tolist(),
        "actions": [str(plain_label(label)) for label in model.action_labels],
        "rowAction": packed(model.row_action[rows], "<i4"),
        "distribution": packed(distribution_of_row, "<i4"),
        "distributions": len(distributions),
        "reward": packed(model.row_reward[rows], "<f4"),
        "violation": packed(model.row_violation[rows].sum(axis=1), "<f4"),
        "margin": packed(model.row_margin[rows], "<f4"),
        "constraints": list(model.constraint_names),
        "valueAfter": packed(tables.after(tables.value, distributions), "<f4"),
        "violationAfter": packed(tables.after(tables.violation, distributions), "<f4"),
        "verdict": run_lengths(verdicts.reshape(steps, -1)[:, rows]),
        "policy": chosen(run.policy.likeliest),
        "optimum": None if optimum is None else chosen(optimum.policy),
        "q": packed(run.q.reshape(steps, -1)[:, rows], "<f4"),
        "witness": None,
        "worst": None,
        "dead": {},
    }
    failures = run.memory()
    if failures is not None:  # by pair and step: the violation that was observed, or the dead end it led to
        witness = failures.witness[rows].T
        dead = np.unique(witness[witness >= 0]).tolist()
        content["witness"], content["worst"] = run_lengths(witness), packed(failures.max_violation[rows], "<f4")
        content["dead"] = {str(slot): state_words(model, model.state_of_slot(slot)) for slot in dead}
    total = int((np.diff(model.row_start) > 0).sum())
    note = "Values and violations are exact: take this action, then follow the last policy."
    note += " An estimate of −∞: the learner has excluded the action."
    note += "" if run.policy.deterministic else LIKELIEST
    if len(kept) < total:
        note += f" The page holds the {len(kept):,} of {total:,} states that the last policy visits most; "
        note += "`Policy.explain` covers all of them."
    return Drawn("explorer", "Policy explorer: select a step and a state", "explorer", content, note)


def kept_slots(analysis: RunAnalysis, most_entries: int, most_states: int) -> Longs:
    """Return the states that the page holds: all, or those that the policy visits most; in their own order."""
    model = analysis.exact.model
    counts = np.diff(model.row_start)
    slots = np.flatnonzero(counts > 0)
    steps = model.horizon if model.stationary else 1
    if counts.sum() * steps <= most_entries and len(slots) <= most_states:
        return slots
    order = slots[np.argsort(-analysis.tables.presence[slots], kind="stable")]
    fits = np.cumsum(counts[order]) * steps <= most_entries
    return np.sort(order[fits][:most_states])
