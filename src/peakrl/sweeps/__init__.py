"""Many runs: described in one file, made by any number of workers, stored by content, summed up honestly."""

from peakrl.errors import SweepError
from peakrl.sweeps.runner import run_tasks
from peakrl.sweeps.tasks import Result, Task

__all__ = ["Result", "SweepError", "Task", "run_tasks"]
