"""The policy of a run on the page: maps by step, an explorer of every action, Gantt charts for schedules.

The explorer embeds what an answer is made of, not the answers. With pi the last policy, D the law of the next state
that a pair has (many pairs share one), and V the exact value of pi:

    value from here on      r(s, a) + sum_s' D(s') V_{h+1}(s')         by pair and by (step, law), never by (step, pair)

and likewise for the violation of pi. What is safe is the safe set's own word, by (step, pair).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.model.explore import as_model
from peakrl.model.space import StateSpace, starts_of
from peakrl.report.blocks import Block, Drawn, Table, Text, packed, run_lengths, shown_state

if TYPE_CHECKING:
    from peakrl.certifying.findings import ModelFindings, RunFindings
    from peakrl.kernels.arrays import Longs
    from peakrl.learning.run import LearningRun
    from peakrl.model.tabular import TabularModel
    from peakrl.planning import Solution
    from peakrl.policy.tables import Policy

#: How much a page embeds of its policies: (step, state, action) entries, states, and cells of maps.
MOST_ENTRIES, MOST_STATES, MOST_CELLS = 190_000, 20_000, 60_000
#: A grid larger than this in one direction cannot be read.
LONGEST_SIDE = 400
NO_WITNESS, VIOLATES = -2, -1
#: Said of a policy that draws its actions.
LIKELIEST = " The policy draws its actions; of each state the likeliest is shown and followed."
#: What the page says of an action: safe, may violate at once, may lead where no policy is safe.
SAFE, BREAKS, DEAD_END = 0, 1, 2


def policy_blocks(found: RunFindings, place: str, share: int = 1) -> list[Block]:
    """Return what shows the policy of a run; `share` runs divide the room among them."""
    from peakrl.report.schedule_blocks import schedule_blocks

    run, optimum = found.run, found.optimum
    blocks: list[Block] = [*schedule_blocks(found, place)]
    blocks += map_blocks(run, optimum, place, MOST_CELLS // share)
    blocks += safe_map_blocks(found.known, place, MOST_CELLS // share)
    blocks.append(safe_counts(found.known, place))
    if found.can_explore:
        blocks.append(explorer(found, place, MOST_ENTRIES // share, MOST_STATES // share))
    else:
        blocks.append(Text("The policy is too large to be explored on a page."))
    return blocks


# Maps ------------------------------------------------------------------------------------------------------------


def map_blocks(run: LearningRun, optimum: Solution[Policy] | None, place: str, most: int) -> list[Block]:
    """Return a map of the policy where its states are one or two whole numbers."""
    model = as_model(run.model)
    grid = grid_of(model)
    if grid is None:
        return []
    frames, shape, cell, names = grid
    if frames * shape[0] * shape[1] > most or max(shape) > LONGEST_SIDE:
        return [Text("The policy has too many states for a map on a page.")]
    labels = [plain_label(label) for label in model.action_labels]
    policies = {"the last policy": run.policy.likeliest}
    if optimum is not None:
        policies["the optimum"] = optimum.policy
    nodes = np.flatnonzero(cell >= 0)
    maps = {}
    for name, policy in policies.items():
        values = np.full(frames * shape[0] * shape[1], -1, np.int64)
        values[cell[nodes]] = model.row_action[policy.rows[nodes]]
        maps[name] = run_lengths(values)
    numeric = all(isinstance(label, int | float) for label in labels)
    if len(maps) == 2 and numeric:
        maps["the last policy minus the optimum"] = []
    content = {
        "frames": frames, "start": frames // 2, "rows": shape[0], "columns": shape[1], "x": names[0], "y": names[1],
        "maps": maps, "actions": labels, "numeric": numeric,
    }  # fmt: skip
    by = f"by {names[1]} and {names[0]}" if frames == 1 else f"by step, {names[1]} and {names[0]}"
    note = (
        "White: no policy can be there."
        if frames == 1
        else "White: no policy can be there. Click a cell to explore it."
    )
    if not run.policy.deterministic:
        note += LIKELIEST
    return [Drawn(f"{place}-map", f"What the policy does, {by}", "heatmap", content, note)]


def safe_map_blocks(known: ModelFindings, place: str, most: int) -> list[Block]:
    """Return a map of how many actions are safe where, for models whose states make a grid that a page can hold."""
    model = known.model
    grid = grid_of(model)
    if grid is None or grid[0] * grid[1][0] * grid[1][1] > most or max(grid[1]) > LONGEST_SIDE:
        return []
    frames, shape, cell, names = grid
    nodes, values = np.flatnonzero(cell >= 0), np.full(frames * shape[0] * shape[1], -1, np.int64)
    values[cell[nodes]] = known.safe_actions(nodes)
    content = {
        "frames": frames, "start": frames // 2, "rows": shape[0], "columns": shape[1], "x": names[0], "y": names[1],
        "maps": {"safe actions": run_lengths(values)}, "actions": list(range(model.max_actions + 1)), "numeric": True,
        "unit": "safe actions",
    }  # fmt: skip
    by = f"by {names[1]} and {names[0]}" if frames == 1 else f"by step, {names[1]} and {names[0]}"
    note = "0: no policy keeps every constraint from there. White: no policy can be there."
    return [Drawn(f"{place}-safe", f"How many actions are safe, {by}", "heatmap", content, note)]


def safe_counts(known: ModelFindings, place: str) -> Table:
    """Return how much is safe at each step, among the states that an episode can be in there."""
    columns = ("step", "states", "safe states", "actions", "safe actions")
    return Table(f"{place}-safe-counts", "How much is safe, by step", columns, known.safe_set.counts)


def grid_of(model: StateSpace) -> tuple[int, tuple[int, int], Longs, tuple[str, str]] | None:
    """Return frames, (rows, columns), the cell of each node (-1: none) and the names of x and y; None if no grid."""
    label = model.state_labels[0]
    width = len(label) if isinstance(label, tuple) else 1
    if width > 2 or any(not whole(one, width) for one in model.state_labels):
        return None
    table = np.array(model.state_labels, np.int64).reshape(len(model.state_labels), width)[model.slot_state]
    energy = model.name.startswith("energy harvesting")
    first, second = ("battery", "arrival") if energy else ("first part of the state", "second part of the state")
    if table.min() < 0:
        return None
    nodes, steps, slots = decision_nodes(model)
    one_dimension = width == 1 or all(
        len(np.unique(table[slots[steps == step], 1])) <= 1 for step in range(model.horizon)
    )
    cell = np.full(model.num_nodes, -1, np.int64)
    if one_dimension:
        height = int(table[:, 0].max()) + 1
        cell[nodes] = table[slots, 0] * model.horizon + steps
        return 1, (height, model.horizon), cell, ("step", first if width == 2 else "state")
    height, length = (int(side) + 1 for side in table.max(axis=0))
    cell[nodes] = (steps * height + table[slots, 0]) * length + table[slots, 1]
    return model.horizon, (height, length), cell, (second, first)


def whole(label: Any, width: int) -> bool:
    """Is a label a whole number, or a plain tuple of `width` of them?"""
    if isinstance(label, tuple):
        return width > 1 and len(label) == width and all(type(part) is int for part in label)
    return width == 1 and type(label) is int


def decision_nodes(model: StateSpace) -> tuple[Longs, Longs, Longs]:
    """Return node, step and slot wherever something is to be decided and an episode can come by."""
    found = [model.decision_slots(step) for step in range(model.horizon)]
    steps, slots = np.repeat(np.arange(model.horizon), [len(here) for here in found]), np.concatenate(found)
    return steps * model.node_stride + slots, steps, slots


# Explorer --------------------------------------------------------------------------------------------------------


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
        "labels": [shown_state(model.state_of_slot(int(slot))) for slot in kept],
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
    if not run.policy.deterministic:
        note += LIKELIEST
    if len(kept) < total:
        note += (
            f" The page holds {len(kept):,} of {total:,} states, those that the last policy comes by most; "
            "`Policy.explain` answers for all of them."
        )
    return Drawn(f"{place}-explorer", "Policy explorer: pick a step and a state", "explorer", content, note)


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
    safe = model.safe[0].reshape(-1, model.num_rows)
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
        "harm": packed(found.harm[rows], "<f4"),
        "dead": {str(slot): shown_state(run.model.state_of_slot(slot)) for slot in dead},
    }


def plain_label(label: Any) -> Any:
    """Return an action as the page writes it: a number stays one."""
    if isinstance(label, np.generic):
        label = label.item()
    return label if isinstance(label, int | float | str) and not isinstance(label, bool) else repr(label)
