"""Problem files: a problem, a learner's settings and a run in one TOML or JSON file.

    [problem]                        # kind: one that `peakrl.problems.registry` lists, or "gymnasium"
    kind = "energy_harvesting"
    peak_power = 8

    [settings]                       # learner: a class of `peakrl.learners`, its settings beside it
    learner = "PosteriorSampling"

    [run]                            # episodes, seed, record, average, checkpoint, checkpoint_every
    episodes = 50_000

Only `problem` is needed (`peakrl.problems.spec`, `peakrl.envs.described`). Paths in a file are relative to the folder
that the file lies in.
"""

from __future__ import annotations

from peakrl.problem_files.reading import ProblemFile, read_problem_file

__all__ = ["ProblemFile", "read_problem_file"]
