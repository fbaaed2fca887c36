"""Jobs on one machine as a kind of problem, and the paper's three instances of it."""

from __future__ import annotations

from peakrl.specs.registry import Kind, Template

TEMPLATE = """# Jobs on one machine with due times and deadlines. Train it:  peakrl train {name}.toml --out {name}.run

[problem]
kind = "machine_scheduling"       # the others: {others}
# objective: or "total_tardiness", "weighted_late_work", "weighted_completion", "weighted_tardiness"
objective = "max_tardiness"
# jobs = "jobs.csv"               # columns processing, due, deadline and optionally weight, name, release; or:
jobs = [
    # processing: a whole number, a range "2-4" (each number equally likely), or [probability, time] pairs
    {{ name = "saw", processing = 3, due = 22, deadline = 30 }},
    {{ name = "drill", processing = 5, due = 30, deadline = 28 }},
    {{ name = "mill", processing = 7, due = 33, deadline = 35 }},
    {{ name = "paint", processing = 9, due = 15, deadline = 18 }},
    {{ name = "pack", processing = 10, due = 18, deadline = 21 }},
]
"""

KINDS = (
    Kind(
        "machine_scheduling",
        "peakrl.problems.scheduling.problem:machine_scheduling",
        reader="peakrl.problems.scheduling.job_files:with_jobs",
        environment="peakrl/MachineScheduling-v0",
        template=Template("jobs", TEMPLATE, episodes=5_000),
        files=("jobs",),
    ),
    Kind(
        "scheduling_example",
        "peakrl.problems.scheduling.problem:scheduling_example",
        environment="peakrl/SchedulingExample-v0",
        commands={f"scheduling-{number}": {"number": number} for number in (1, 2, 3)},
    ),
)
