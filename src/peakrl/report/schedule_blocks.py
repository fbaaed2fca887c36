"""Schedules on the page: the learned order beside DT's, for runs that tell which jobs they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakrl.report.blocks import Block, Drawn, Text

if TYPE_CHECKING:
    from peakrl.report.analysis import RunFindings

#: What a reader must know of an order.
RULES = {
    "DT": "The rule fills the last place first: of the jobs whose deadline allows it there, the one that is least late."
}
#: More bars than these cannot be read.
MOST_JOBS = 60


def schedule_blocks(found: RunFindings, place: str) -> list[Block]:
    """Return the Gantt charts of the learned order and of DT's; nothing where the problem is no schedule."""
    model = found.known.model
    if not found.is_schedule:
        return []
    if not model.deterministic:
        return [
            Text("Processing times are random, so the policy has no single order: the explorer shows what it does.")
        ]
    if model.horizon > MOST_JOBS:
        return [Text(f"{model.horizon} jobs are too many for a chart on a page.")]
    if not found.ordered:
        return [Text("The run does not tell its jobs, so there is no chart of the order.")]
    blocks: list[Block] = []
    for one in found.ordered:
        bars = [
            {"job": str(bar.job), "start": bar.start, "end": bar.end, "deadline": bar.deadline, "due": bar.due}
            for bar in one.schedule.bars
        ]
        words = {"learned": "Learned order", "DT": "Order of the DT rule, to compare with"}[one.maker]
        cost = f"{one.objective.replace('_', ' ').capitalize()} {one.cost:g}"
        missed = f"deadlines missed by {one.schedule.violation} in total"
        note = f"{' → '.join(map(str, one.order))}. {cost}, {missed}. {RULES.get(one.maker, '')}".rstrip()
        blocks.append(Drawn(f"{place}-gantt-{one.maker.lower()}", words, "gantt", {"bars": bars}, note))
    return blocks
