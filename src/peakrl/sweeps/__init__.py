"""Run many tasks in worker processes and store their results by content.

    from peakrl.sweeps import Task, local_workers, run_tasks

    tasks = [Task("mine:learn_one", {"seed": seed}) for seed in range(20)]
    with local_workers(2) as engine:
        results = run_tasks(tasks, "results/mine", engine=engine)
    print([result.values["value"] for result in results])

`mine.learn_one(config)` returns a dictionary of numbers (`Result.values`) and arrays (`Result.arrays`). A task whose
result is in the folder is not run again. A task that cannot be run is a `SweepError`.
"""

from peakrl.errors import SweepError
from peakrl.sweeps.executor import local_workers, run_tasks
from peakrl.sweeps.store import Result, Task

__all__ = ["Result", "SweepError", "Task", "local_workers", "run_tasks"]
