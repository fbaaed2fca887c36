"""Many runs: made by any number of workers and stored by content."""

from peakrl.errors import SweepError
from peakrl.runs.engines import Engine
from peakrl.runs.runner import local_workers, run_tasks
from peakrl.runs.tasks import Result, Task

__all__ = ["Engine", "Result", "SweepError", "Task", "local_workers", "run_tasks"]
