"""The policy of a run on the page, to be asked: an explorer of every action at every step and state.

It embeds what an answer is made of, not the answers. With pi the last policy, D the law of the next state
that a pair has (many pairs share one), and V the exact value of pi:

    value from here on      r(s, a) + sum_s' D(s') V_{h+1}(s')         by pair and by (step, law), never by (step, pair)

and likewise for the violation of pi. What is safe is the safe set's own word, by (step, pair).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peakrl.report.blocks import Block, Drawn, Text, packed, run_lengths
from peakrl.report.map_blocks import LIKELIEST, place_words, plain_label
from peakrl.space import StateSpace, starts_of

if TYPE_CHECKING:
    from peakrl.policy.tables import Policy
    from peakrl.report.analysis import RunFindings
    from peakrl.tabular import TabularModel
    from peakrl.training.learn import LearningRun
    from peakrl.types import Longs

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
        "harm": packed(found.harm[rows], "<f4"),
        "dead": {str(slot): place_words(run.model, run.model.state_of_slot(slot)) for slot in dead},
    }
