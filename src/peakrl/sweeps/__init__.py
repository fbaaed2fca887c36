"""Many runs: described in one file, made by any number of workers, stored by content, summed up honestly."""

from peakrl.errors import SweepError
from peakrl.sweeps.engines import Engine
from peakrl.sweeps.runner import local_workers, run_tasks
from peakrl.sweeps.tasks import Result, Task

__all__ = ["Engine", "Result", "SweepError", "Task", "local_workers", "run_tasks"]
