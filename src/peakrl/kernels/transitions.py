"""The update rules on what a simulator shows: one transition, or one recorded episode, at a time.

Both hand on to the functions that the learners on models are made of, so that the same experience gives the same tables
bit for bit. Tables grow as states are met: for Algorithm 1 a state has a slot of its own for each step at which it is
met; for the practical learner slots and columns are those of `kernels.practical`.
"""

from __future__ import annotations

from peakrl.kernels.arrays import Floats, Layout, Longs
from peakrl.kernels.jit import loop
from peakrl.kernels.learning import GREEDY, NODE_COLUMNS, Bernstein, Hoeffding, Log, Rates, Tables, rescan, update
from peakrl.kernels.practical import learn_path
from peakrl.kernels.practical_tables import Groups, Options, Path, PracticalTables
from peakrl.kernels.sampling import U64


@loop
def learn_transition(
    layout: Layout,
    tables: Tables,
    rates: Rates,
    hoeffding: Hoeffding | None,
    bernstein: Bernstein | None,
    step: int,
    slot: int,
    row: int,
    reward: float,
    following: float,
) -> bool:
    """Learn from taking `row` in `slot`, which earns R = `reward` and W_{h+1}(s') = `following`.

    Returns whether the greedy row changed. The row need not be greedy any more: of environments that are stepped
    together another may have learned meanwhile.
    """
    step_number, slot_number, entry = U64(step), U64(slot), U64(row)
    cell = slot_number * NODE_COLUMNS
    overtaken = tables.choice[cell + GREEDY] != entry
    fell = update(tables, rates, hoeffding, bernstein, step_number, cell, entry, reward, following)
    changed = False
    if fell or overtaken:
        changed = rescan(layout, tables, rates, step_number, slot_number, cell)
    return changed


@loop
def learn_recorded(
    layout: Layout,
    #: [step, 4]: columns as for `learn_practical`; the episode's step is the record.
    payoff: Floats,
    tables: PracticalTables,
    groups: Groups,
    options: Options,
    path: Path,
    before: Longs,
    length: int,
    episode: int,
    log: Log,
) -> int:
    """Learn from a recorded episode; return how many changes were logged."""
    return learn_path(layout, payoff, tables, groups, options, path, before, length, episode, log, 0)
