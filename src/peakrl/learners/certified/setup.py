"""Places, terms and tables of the certified learner on a target, from what is declared of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from peakrl.errors import SettingsError
from peakrl.learners.assumptions.knowledge import Knowledge, check_most_reward, distributions_of_rows, make_groups
from peakrl.learners.certified.confidence import UPPER, Goal
from peakrl.learners.certified.declared import Told, declared_map, declared_rewards, declares_safety
from peakrl.learners.certified.environment import GrowingRounds
from peakrl.learners.certified.phases import Rounds
from peakrl.learners.certified.tables import CELLS, OPEN, Places, Scratch, Tables, Terms
from peakrl.learners.space import GrowingSpace, ModelSpace
from peakrl.tabular import TabularModel
from peakrl.types import Floats, Ints, Longs


@dataclass(frozen=True)
class Declared:
    """What is declared of a target, as arrays by row."""

    #: [row]: pairs of one number share the law of the next state; None: each its own.
    law_of_row: Ints | None = None
    #: [row]: pairs of one number share their constraints.
    group_of_row: Ints | None = None
    #: [row]: the reward, where it is known in advance.
    rewards: Floats | None = None
    most_reward: float | None = None
    deterministic: bool = False
    #: [row, noise]: the next slot.
    noise_next: Ints | None = None
    #: Are constraints told by step, state and action, and is it told what is safe to the end?
    constraints: bool = False
    safe: bool = False


def declared_on_model(model: TabularModel, knowledge: Knowledge) -> Declared:
    """Return what is declared of a model in the form that tables take; what is false is an error."""
    check_most_reward(model, knowledge.most_reward)
    groups = None
    if knowledge.constraint_depends_on is not None:
        groups = make_groups(ModelSpace(model), knowledge.constraint_depends_on, model).of_row
    laws = None if knowledge.outcome_groups is None else distributions_of_rows(model, knowledge)
    if laws is not None and model.payoffs.stride > 0 and not knowledge.deterministic:
        raise SettingsError(
            "outcome_groups is declared, but rewards depend on the outcome: pairs of one group would have to share the "
            "law of reward and next state together, which it does not say. Leave it out"
        )
    return Declared(
        laws, groups, declared_rewards(model, knowledge), knowledge.most_reward, bool(knowledge.deterministic),
        declared_map(model, knowledge), knowledge.constraints is not None, declares_safety(knowledge),
    )  # fmt: skip


def certify_model(
    model: TabularModel, epsilons: tuple[float, ...], failure_probability: float, relative: bool, declared: Declared
) -> Rounds:
    """Return the learner's rounds on a model."""
    places = model_places(model, declared)
    terms = model_terms(model, places, failure_probability, declared)
    tables, scratch = start_tables(places, terms, model.num_nodes, model.num_entries)
    least, most = model.reward_range
    goal = Goal(
        epsilons,
        failure_probability,
        relative,
        least,
        most,
        model.horizon * float(sum(model.constraint_bounds)),
        lower_bets(model, terms.joint),
        not terms.joint or declared.constraints,
        declared.safe,
    )
    if declared.rewards is not None and not terms.joint:
        tables.known[:] = 1
        tables.reward[:] = declared.rewards
    return Rounds(places, terms, tables, scratch, goal, model.num_nodes)


def certify_environment(
    space: GrowingSpace, epsilons: tuple[float, ...], failure_probability: float, relative: bool, told: Told
) -> GrowingRounds:
    """Return the learner's rounds on an environment, whose states come as they are met."""
    rules = space.rules
    least, most = rules.reward_range
    bounds = rules.constraints.bounds or ()
    goal = Goal(
        epsilons,
        failure_probability,
        relative,
        least,
        most,
        rules.horizon * math.fsum(bounds),
        1,
        told.certain,
        told.safe,
    )
    return GrowingRounds(space, told, goal, len(rules.actions))


def lower_bets(model: TabularModel, joint: bool) -> int:
    """Return how many bets the lower values of a policy are."""
    if not model.stationary:
        return model.num_slots
    return max(1, model.num_slots * (model.horizon if joint else model.horizon - 1))


def model_places(model: TabularModel, declared: Declared) -> Places:
    """Return where things stand in a model."""
    layout = model.layout
    rows = model.num_rows
    slot_of_row = np.repeat(np.arange(model.num_slots), np.diff(layout.row_start)).astype(np.int32)
    law = np.arange(rows, dtype=np.int32) if declared.law_of_row is None else declared.law_of_row.astype(np.int32)
    noises = 0
    sizes = np.zeros(int(law.max()) + 1, np.int64)
    # A cell for each outcome: of a law that several stored distributions share, the most that any of them has.
    np.maximum.at(sizes, law, np.diff(layout.outcome_start)[layout.row_distribution])
    if declared.noise_next is not None:
        noises = declared.noise_next.shape[1]
        law, sizes = np.zeros(rows, np.int32), np.array([noises])
    group = np.arange(rows) if declared.group_of_row is None else declared.group_of_row
    start, members = grouped(group)
    return Places(
        model.horizon, layout.node_stride, layout.entry_stride, 0, layout.row_start.copy(),
        *step_slots(model), law, group.astype(np.int32), slot_of_row, start, members,
        np.concatenate([[0], np.cumsum(sizes)[:-1], [sizes.sum()]]).astype(np.int64),
        noises, np.empty(0, np.int32) if declared.noise_next is None else declared.noise_next.astype(np.int32).ravel(),
    )  # fmt: skip


def grouped(group: Ints | Longs) -> tuple[Longs, Ints]:
    """Return where each group's rows begin, and the rows in that order."""
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(np.asarray(group)[order], np.arange(int(group.max()) + 2))
    return start.astype(np.int64), order.astype(np.int32)


def step_slots(model: TabularModel) -> tuple[Longs, Longs, Ints]:
    """Return the slots of each step: first, one past the last, and the slots in that order."""
    ranges = model.layout.step_slots
    return (
        ranges[: model.horizon, 0].copy(),
        ranges[: model.horizon, 1].copy(),
        np.arange(model.num_slots, dtype=np.int32),
    )


def model_terms(model: TabularModel, places: Places, failure_probability: float, declared: Declared) -> Terms:
    """Return the numbers that a model, what is declared of it and p come to."""
    least, most = model.reward_range
    joint = model.payoffs.stride > 0 and not declared.deterministic
    laws = len(places.cell_start) - 1
    bets = model.num_rows if places.noises else laws
    if model.stationary:
        bets *= model.horizon if joint else model.horizon - 1
    share = math.log((bets + 1) / (UPPER * failure_probability))
    most = most if declared.most_reward is None else min(most, declared.most_reward)
    return Terms(least, most, joint, declared.deterministic, True, np.full(laws + 1, share))


def start_tables(places: Places, terms: Terms, nodes: int, entries: int) -> tuple[Tables, Scratch]:
    """Return tables of nothing seen, and room to work in."""
    horizon, rows = places.horizon, len(places.law_of_row)
    laws, cells = len(places.cell_start), int(places.cell_start[-1]) + len(places.row_start)
    most = max(terms.most, 0.0) if places.ends else terms.most
    top = most * np.arange(horizon, -1.0, -1.0)
    groups, guesses = len(places.group_start) - 1, max(laws, rows + 1 if places.noises else 0)
    tables = Tables(
        upper=np.zeros(entries), witness=np.full(entries, OPEN, np.int32), updated=np.zeros(entries, np.int64),
        guess=np.full((horizon + 1, guesses), -math.inf), value=np.zeros(nodes), dead=np.zeros(nodes, np.int8),
        greedy=np.zeros(nodes, np.int32), top=top, known=np.zeros(rows, np.int8), reward=np.zeros(rows),
        tested=np.zeros(groups, np.int8), harm=np.zeros(groups), law=np.zeros((laws, 3), np.int64),
        cell_next=np.zeros(cells, np.int32), cell_reward=np.zeros(cells), cell_count=np.zeros(cells, np.int64),
        cell_before=np.zeros(cells, np.int64),
    )  # fmt: skip
    for step in range(horizon):
        slots = places.slots[places.step_first[step] : places.step_last[step]].astype(np.int64)
        slots = slots[places.row_start[slots] < places.row_start[slots + 1]]
        tables.value[step * places.node_stride + slots] = top[step]
        tables.greedy[step * places.node_stride + slots] = places.row_start[slots]
        for slot in slots.tolist():
            first, last = places.row_start[slot], places.row_start[slot + 1]
            tables.upper[step * places.entry_stride + first : step * places.entry_stride + last] = top[step]
    if places.noises:
        tables.law[0, CELLS] = places.noises
    slot, row, following = (np.zeros(horizon + 1, np.int64) for _ in range(3))
    scratch = Scratch(
        value=np.empty(cells), count=np.empty(cells, np.int64),
        law_step=np.empty(laws, np.int64), law_bound=np.empty(laws), law_dead=np.empty(laws, np.int64),
        slot=slot, row=row, following=following, earned=np.zeros(horizon + 1), violated=np.zeros(horizon + 1),
    )  # fmt: skip
    return tables, scratch
