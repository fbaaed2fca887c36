"""Maps of a run: for states of one to three fields, what the policy does where, and what is safe, met and risky there.

The step is a field like the others. The reader picks two fields as axes and slices along the rest. A place (node) is a
step and a state; the page holds for each place its position in every field, and for each layer one number:

    cell (x, y) of a layer  =  the number of the place that stands at x and y, and at the slice of every other field
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.report.blocks import Block, Drawn, Text, packed, run_lengths, shown_state
from peakrl.space import StateSpace, starts_of
from peakrl.specs.registry import part_names

if TYPE_CHECKING:
    from peakrl.policy.tables import Policy
    from peakrl.report.analysis import RunFindings
    from peakrl.space import StateSpace
    from peakrl.tabular import TabularModel
    from peakrl.training.trainer import LearningRun
    from peakrl.types import Floats, Longs

#: A map has this many fields beside the step, places, and values along a field, at most.
MOST_FIELDS, MOST_PLACES, LONGEST_FIELD = 3, 60_000, 400
#: Fields that are counted from the top where they are drawn upright, as the rows of a grid are.
DOWNWARDS = ("row",)
#: So many actions can have a colour each.
MOST_NAMED = 8
#: Said of a policy that draws its actions.
LIKELIEST = " The policy draws its actions; of each state the likeliest is shown and followed."


@dataclass(frozen=True)
class Places:
    """Where something is to be decided and an episode can come by, and where that lies in each field."""

    nodes: Longs
    steps: Longs
    slots: Longs
    #: Of the fields, the step first: names, values in order, and [field, place] which of them.
    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    at: Longs

    @property
    def axes(self) -> tuple[int, int]:
        """Which fields x and y are at first: two of the state that vary within a step, else the step and one."""
        own = range(1, len(self.names))
        varying = [field for field in own if self._varies(field)] or list(own)
        return (varying[1], varying[0]) if len(varying) > 1 else (0, varying[0])

    def _varies(self, field: int) -> bool:
        """Are there two values of a field at one step?"""
        pairs = np.unique(self.at[[0, field]], axis=1)
        return bool(pairs.shape[1] > len(np.unique(pairs[0])))


def run_map(found: RunFindings, place: str, share: int = 1) -> list[Block]:
    """Return the map of a run on a model; nothing where states are no few fields of plain values."""
    run, model = found.run, found.known.model
    there = places_of(model, MOST_PLACES // share)
    if there is None or isinstance(there, str):
        return [] if there is None else [Text(there)]
    layers = policy_layers(found, there)
    if found.can_explore:
        tables = found.node_tables
        layers += [
            amounts("how often the policy comes by", tables.presence[there.nodes], "probability"),
            amounts("expected violation from here on", tables.violation[there.nodes], "violation"),
            amounts("value from here on", tables.value[there.nodes], "value"),
        ]
    layers += visit_layers(run, there)
    note = "Blank: no policy can be there. Click a cell to see every action that is on offer there."
    title = "The policy and the safe set as a map" if model.num_constraints else "The policy as a map"
    return [drawn(model, there, layers, place, title, note + ("" if run.policy.deterministic else LIKELIEST))]


def environment_map(run: LearningRun, place: str) -> list[Block]:
    """Return the map of a run on an environment, of the states that were met."""
    there = places_of(run.model, MOST_PLACES)
    if there is None or isinstance(there, str):
        return [] if there is None else [Text(there)]
    # The numbers of an environment's actions are names, and no amounts.
    does = choices("what the policy does", run.model, run.policy.likeliest, there, named=True)
    layers = [does, *visit_layers(run, there)]
    return [drawn(run.model, there, layers, place, "The policy as a map", "Blank: never met while learning.")]


def drawn(
    model: StateSpace, there: Places, layers: Sequence[dict[str, Any]], place: str, title: str, note: str
) -> Drawn:
    """Return the block."""
    slots, state = np.unique(there.slots, return_inverse=True)
    x, y = there.axes
    content = {
        "fields": [
            {"name": name, "values": list(values), "down": name in DOWNWARDS}
            for name, values in zip(there.names, there.values, strict=True)
        ],
        "at": [packed(row, "<u2") for row in there.at], "places": len(there.nodes), "x": x, "y": y,
        "slices": [len(values) // 2 for values in there.values], "layers": list(layers),
        "labels": [place_words(model, model.state_of_slot(int(slot))) for slot in slots], "state": packed(state, "<i4"),
    }  # fmt: skip
    return Drawn(f"{place}-map", title, "map", content, note)


# Places --------------------------------------------------------------------------------------------------------------


def places_of(model: StateSpace, most: int) -> Places | str | None:
    """Return the places of a map, why there is none although states have fields, or None where they have not."""
    width = field_count(model.state_labels[0])
    if width is None or any(field_count(label) != width for label in model.state_labels):
        return None
    found = [model.decision_slots(step) for step in range(model.horizon)]
    steps, slots = np.repeat(np.arange(model.horizon), [len(here) for here in found]), np.concatenate(found)
    if not len(slots):
        return None
    if len(slots) > most:
        return f"{len(slots):,} steps and states are too many for a map on a page."
    labels = [fields_of(model.state_of_slot(slot)) for slot in slots.tolist()]
    values = [ordered({label[field] for label in labels}) for field in range(width)]
    if max(map(len, values)) > LONGEST_FIELD:
        return "A field of the state has too many values for a map on a page."
    positions = [{value: place for place, value in enumerate(own)} for own in values]
    at = [[positions[field][label[field]] for label in labels] for field in range(width)]
    names = ("step", *field_names(model, width))
    shown = tuple(tuple(map(plain_label, own)) for own in values)
    table = np.array([steps, *at], np.int64)
    return Places(steps * model.node_stride + slots, steps, slots, names, (tuple(range(model.horizon)), *shown), table)


def fields_of(label: Any) -> tuple[Hashable, ...]:
    """Return the fields of a state."""
    return label if isinstance(label, tuple) else (label,)


def field_count(label: Any) -> int | None:
    """Return how many fields a state has; None where they are too many, or no plain values."""
    fields = fields_of(label)
    plain = all(isinstance(field, bool | int | float | str | np.generic) for field in fields)
    return len(fields) if plain and 0 < len(fields) <= MOST_FIELDS else None


def ordered(values: set[Any]) -> list[Any]:
    """Return the values of a field in order: numbers by size, others by their names."""
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=str)


def field_names(model: StateSpace, width: int) -> tuple[str, ...]:
    """Return what the fields of a state are called."""
    label = model.state_labels[0]
    own = tuple(getattr(label, "_fields", ())) or part_names(getattr(model, "spec", None))
    if len(own) == width:
        return tuple(map(str, own))
    return ("state",) if width == 1 else tuple(f"field {place}" for place in range(1, width + 1))


def place_words(model: StateSpace, label: Any) -> str:
    """Return a state with the names of its fields, where they have names."""
    fields = fields_of(label)
    names = field_names(model, len(fields))
    if len(fields) == 1 or names[0] == "field 1" or hasattr(label, "done"):
        return shown_state(label)
    return ", ".join(f"{name} {field_words(value)}" for name, value in zip(names, fields, strict=True))


def field_words(value: Any) -> str:
    """Return a field of a state, which may be a list: of jobs, say."""
    if isinstance(value, tuple):
        return f"[{' '.join(map(str, value))}]"
    return str(plain_label(value))


def plain_label(label: Any) -> Any:
    """Return a label as the page writes it: a number stays one."""
    if isinstance(label, np.generic):
        label = label.item()
    return label if isinstance(label, int | float | str) and not isinstance(label, bool) else repr(label)


# Layers --------------------------------------------------------------------------------------------------------------


def policy_layers(found: RunFindings, there: Places) -> list[dict[str, Any]]:
    """Return what the policy and the optimum do, where they differ, and how many actions are safe."""
    model, optimum = found.known.model, found.optimum
    layers = [choices("what the policy does", model, found.run.policy.likeliest, there)]
    if optimum is not None:
        best = choices("what the optimum does", model, optimum.policy, there)
        same = found.run.policy.likeliest.rows[there.nodes] == optimum.policy.rows[there.nodes]
        differs = {"name": "where the two differ", "labels": ["alike", "different"], "runs": run_lengths(~same * 1)}
        layers += [best, differs]
    if model.num_constraints:
        counts = found.known.safe_actions(there.nodes)
        layers.append(amounts("how many actions are safe", counts, "safe actions"))
    return layers


def choices(name: str, model: StateSpace, policy: Policy, there: Places, *, named: bool = False) -> dict[str, Any]:
    """Return a layer of actions: numbers where they are, else labels."""
    action = model.row_action[policy.rows[there.nodes]]
    labels = [plain_label(label) for label in model.action_labels]
    if all(isinstance(label, int | float) for label in labels) and len(labels) > (MOST_NAMED if named else 2):
        return amounts(name, np.array(labels, np.float64)[action], "action")
    return {"name": name, "labels": [str(label) for label in labels], "runs": run_lengths(action)}


def amounts(name: str, values: Floats | Longs, unit: str) -> dict[str, Any]:
    """Return a layer of numbers."""
    return {"name": name, "unit": unit, "numbers": packed(np.asarray(values, np.float64), "<f4")}


def visit_layers(run: LearningRun, there: Places) -> list[dict[str, Any]]:
    """Return how often the learner was in each state, at any step where it counts them together."""
    visits = run.visits
    if visits is None:
        return []
    model = run.model
    total = np.zeros(model.num_slots)
    np.add.at(total, np.repeat(np.arange(model.num_slots), np.diff(model.row_start)), visits)
    together = ", all steps together" if model.stationary else ""
    return [amounts(f"visits while learning{together}", total[there.slots], "visits")]


# ------------------------------------------------------------
# The policy of a run on the page, to be asked: an explorer of every action at every step and state.
#
# It embeds what an answer is made of, not the answers. With pi the last policy, D the law of the next state
# that a pair has (many pairs share one), and V the exact value of pi:
#
#     value from here on      r(s, a) + sum_s' D(s') V_{h+1}(s')         by pair and by (step, law), never by (step, pair)
#
# and likewise for the violation of pi. What is safe is the safe set's own word, by (step, pair).

#: How much a page embeds of its policies: (step, state, action) entries, and states.
MOST_ENTRIES, MOST_STATES = 190_000, 20_000
#: What the page says of an action: safe, may violate at once, may lead where no policy is safe.
SAFE, BREAKS, DEAD_END = 0, 1, 2


def explorer_blocks(found: RunFindings, place: str, share: int = 1) -> list[Block]:
    """Return the explorer of a run; `share` runs divide the room among them."""
    if not found.can_explore:
        return [Text("The policy is too large to be explored on a page.")]
    return [explorer(found, place, MOST_ENTRIES // share, MOST_STATES // share)]


def explorer(found: RunFindings, place: str, most_entries: int, most_states: int) -> Drawn:
    """Return the explorer of a run's last policy."""
    run, optimum, model = found.run, found.optimum, found.known.model
    kept = kept_slots(found, most_entries, most_states)
    rows = np.concatenate([np.arange(*model.row_start[[slot, slot + 1]]) for slot in kept])
    laws, law_of_row = np.unique(model.layout.row_distribution[rows], return_inverse=True)
    steps = model.horizon if model.stationary else 1
    values, violations = found.after_laws(laws)
    starts = starts_of(np.diff(model.row_start)[kept])
    content = {
        "horizon": model.horizon,
        "stationary": model.stationary,
        "slotStep": [] if model.stationary else run_lengths(model.step_of_slot[kept]),
        "labels": [place_words(model, model.state_of_slot(int(slot))) for slot in kept],
        "reachable": run_lengths(reachable(model, kept, steps)),
        "rowStart": starts.tolist(),
        "actions": [str(plain_label(label)) for label in model.action_labels],
        "rowAction": packed(model.row_action[rows], "<i4"),
        "law": packed(law_of_row, "<i4"),
        "laws": len(laws),
        "reward": packed(model.row_reward[rows], "<f4"),
        "violation": packed(model.row_violation[rows].sum(axis=1), "<f4"),
        "margin": packed(model.row_margin[rows], "<f4"),
        "constraints": list(model.constraint_names),
        "lawValue": packed(values, "<f4"),
        "lawViolation": packed(violations, "<f4"),
        "verdict": run_lengths(verdicts(model).reshape(steps, -1)[:, rows]),
        "policy": chosen(model, run.policy.likeliest, kept, steps),
        "optimum": None if optimum is None else chosen(model, optimum.policy, kept, steps),
        "q": packed(run.q.reshape(steps, -1)[:, rows], "<f4"),
        **memory(run, rows),
    }
    total = int((np.diff(model.row_start) > 0).sum())
    note = "Values and violations are exact: take this action, then follow the last policy."
    note += " An estimate of −∞: the learner takes that action no more."
    if not run.policy.deterministic:
        note += LIKELIEST
    if len(kept) < total:
        note += (
            f" The page holds {len(kept):,} of {total:,} states, those that the last policy comes by most; "
            "`Policy.explain` answers for all of them."
        )
    return Drawn(f"{place}-explorer", "Ask the policy: pick a step and a state", "explorer", content, note)


def kept_slots(found: RunFindings, most_entries: int, most_states: int) -> Longs:
    """Return the states that the page holds: all, or those that the policy comes by most; in their own order."""
    model = found.known.model
    counts = np.diff(model.row_start)
    slots = np.flatnonzero(counts > 0)
    steps = model.horizon if model.stationary else 1
    if counts.sum() * steps <= most_entries and len(slots) <= most_states:
        return slots
    order = slots[np.argsort(-found.presence[slots], kind="stable")]
    fits = np.cumsum(counts[order]) * steps <= most_entries
    return np.sort(order[fits][:most_states])


def verdicts(model: TabularModel) -> NDArray[np.int8]:
    """[entry]: SAFE, BREAKS or DEAD_END."""
    safe = model.safe.entries.reshape(-1, model.num_rows)
    return np.where(safe, SAFE, np.where(model.keeps, DEAD_END, BREAKS)).astype(np.int8).ravel()


def chosen(model: StateSpace, policy: Policy, kept: Longs, steps: int) -> list[int]:
    """Return for each step and kept state which of its actions is taken, in run lengths."""
    nodes = np.arange(steps)[:, None] * model.node_stride + kept
    return run_lengths(policy.rows[nodes] - model.row_start[kept])


def reachable(model: StateSpace, kept: Longs, steps: int) -> NDArray[np.int8]:
    """[step, kept state]: 1 where an episode can come by."""
    nodes = np.arange(steps)[:, None] * model.node_stride + kept
    return np.asarray(model.reachable[nodes], np.int8)


def memory(run: LearningRun, rows: Longs) -> dict[str, Any]:
    """Return what the learner has seen fail: by pair and step, with the violation or the state it led to."""
    found = run.memory()
    if found is None:
        return {"witness": None, "harm": None, "dead": {}}
    mine = found.witness[rows].T
    dead = np.unique(mine[mine >= 0]).tolist()
    return {
        "witness": run_lengths(mine),
        "harm": packed(found.max_violation[rows], "<f4"),
        "dead": {str(slot): place_words(run.model, run.model.state_of_slot(slot)) for slot in dead},
    }
