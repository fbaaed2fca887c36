"""One episode of a policy step by step, and where a policy may violate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peakrl.report.blocks import Block, Chart, Series, Table, Text, is_number
from peakrl.report.map_blocks import field_count, field_names, fields_of, place_words, plain_label

if TYPE_CHECKING:
    from peakrl.evaluation import RolloutStep
    from peakrl.report.analysis import ModelFindings, RunFindings

#: Steps of an episode that the page lists.
MOST_STEPS = 300
COLOURS = ("orange", "purple", "green", "sky", "yellow", "grey")


def episode_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return an episode of the last policy: what it saw and did, and what came of that."""
    steps = found.episode[:MOST_STEPS]
    names = found.run.model.constraint_names
    apart = field_count(steps[0].state)
    rows = [(one.step, *words(found, one.state, apart), *payoffs(one)) for one in steps]
    fields = ("state",) if apart is None else field_names(found.run.model, apart)
    columns = ("step", *fields, "action", "reward", *(f"{name} (met from 0 on)" for name in names))
    more = f", the first {MOST_STEPS:,} steps" if len(found.episode) > MOST_STEPS else ""
    table = Table(f"{place}-episode", f"Every step of it{more}", columns, rows)
    return [*state_chart(found, place), payoff_chart(found, place), table]


def words(found: RunFindings, state: Any, apart: int | None) -> tuple[Any, ...]:
    """Return a state as cells of a table: one for each of its fields, or one for all where they are no few."""
    if apart is None or field_count(state) != apart:
        return (place_words(found.run.model, state),)
    return tuple(map(plain_label, fields_of(state)))


def payoffs(one: RolloutStep) -> tuple[Any, ...]:
    """Return what was done at a step and what came of it, as cells of a table."""
    return str(one.action), one.reward, *one.constraints


def state_chart(found: RunFindings, place: str) -> list[Block]:
    """Return the fields of the state and the action along the episode, where they are numbers."""
    steps = found.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    width = len(fields_of(steps[0].state))
    if width > len(COLOURS) or any(len(fields_of(one.state)) != width for one in steps):
        return []
    table: list[list[Any]] = [[*fields_of(one.state), one.action] for one in steps]
    if not all(is_number(cell) for row in table for cell in row):
        return []
    series = [
        Series(name, x, [row[column] for row in table], None, COLOURS[column], mode="lines+markers")
        for column, name in enumerate(field_names(found.run.model, width))
    ]
    series.append(Series("action", x, [row[-1] for row in table], None, "blue", mode="lines+markers"))
    return [Chart(f"{place}-path", "What it saw and did", "step", "state and action", series)]


def payoff_chart(found: RunFindings, place: str) -> Chart:
    """Return reward and constraints along the episode."""
    steps = found.episode[:MOST_STEPS]
    x = [one.step for one in steps]
    series = [Series("reward", x, [one.reward for one in steps], None, "blue", mode="lines+markers")]
    for column, name in enumerate(found.run.model.constraint_names):
        values = [one.constraints[column] for one in steps]
        series.append(Series(name, x, values, None, COLOURS[column % len(COLOURS)], mode="lines+markers"))
    if found.run.model.constraint_names:
        series.append(
            Series("a constraint is met from here on", [x[0], x[-1]], [0, 0], None, "ink", "dash", level=True)
        )
    return Chart(f"{place}-payoff", "What came of it", "step", "reward and constraints", series)


def risk_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return where the policy violates, by step and by state, and how much is safe at each step."""
    blocks: list[Block] = []
    if found.certificate.violation_high == 0:
        blocks.append(Text("Nowhere: no state that the policy can come to violates a constraint.", "good"))
    else:
        apart = field_count(found.risks[0].state) if found.risks else None
        fields = ("state",) if apart is None else field_names(found.run.model, apart)
        numbers = ("probability of being there", "violation there", "expected in an episode")
        columns = ("step", *fields, "action", *numbers)
        rows = [(one.step, *words(found, one.state, apart), str(one.action), *one[3:]) for one in found.risks]
        blocks.append(Table(f"{place}-risks", "Where the policy violates most", columns, rows))
        blocks.append(step_chart(found, place))
    return [*blocks, *safe_chart(found.known, place)]


def step_chart(found: RunFindings, place: str) -> Chart:
    """Return the expected violation of each step."""
    steps, last = list(range(found.run.model.horizon)), found.last
    series = []
    for column, name in enumerate(found.run.model.constraint_names):
        values, colour = last.step_violations[:, column].tolist(), COLOURS[column % len(COLOURS)]
        series.append(Series(name, steps, values, None, colour, mode="lines+markers"))
    return Chart(f"{place}-steps", "Expected violation by step", "step", "violation", series)


def safe_chart(known: ModelFindings, place: str) -> list[Chart]:
    """Return how much is safe at each step, among the states that an episode can be in there."""
    if not known.model.num_constraints:
        return []
    counts = known.safe_set.counts
    steps = [count.step for count in counts]
    states = [100 * count.safe_states / max(count.states, 1) for count in counts]
    actions = [100 * count.safe_actions / max(count.actions, 1) for count in counts]
    series = [
        Series("states", steps, states, None, "green", mode="lines+markers"),
        Series("actions", steps, actions, None, "blue", mode="lines+markers"),
    ]
    note = (
        "Of the states that an episode can be in at a step, and of the actions on offer there: from which on, and by "
    )
    note += "which, every constraint can still be kept with certainty."
    return [Chart(f"{place}-safe-share", "How much is safe, by step", "step", "safe (%)", series, note=note)]
