"""The problems of a sweep: {"kind": ..., "parameters": {...}}, the words of problem files (`peakrl.problems.spec`).

A problem that depends on a file which it does not hold (a table, a function of the user's own) comes with the digest of
that file, so that results of an older version are not taken for those of the present one. One that follows the seed
takes the run's seed for its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peakrl.errors import SweepError
from peakrl.model.tabular import TabularModel
from peakrl.problems.spec import ProblemSpec


def describe_problem(values: Mapping[str, Any], *, follow_seed: bool, folder: Path) -> dict[str, Any]:
    """Return a problem's configuration, checked: it can be built."""
    spec = ProblemSpec.from_dict(values)
    built = seeded(spec, 0, follow=follow_seed).build(folder)
    # What was read from a file of jobs is part of the problem, and takes the place of the file's name.
    read = {} if spec.runs_code or built.spec is None else built.spec
    parameters = {name: read.get(name, value) for name, value in spec.parameters.items()}
    config: dict[str, Any] = {"kind": spec.kind, "parameters": parameters}
    source = spec.source_digest(folder)
    return config | ({"follow_seed": True} if follow_seed else {}) | ({"source": source} if source else {})


def compiled_problem(config: Mapping[str, Any], seed: int, folder: str | Path = ".") -> TabularModel:
    """Return the model that a configuration describes; `seed` is the run's, for problems that follow it."""
    spec = ProblemSpec(config["kind"], config["parameters"])
    if spec.source_digest(folder) != config.get("source"):
        raise SweepError(f"what {spec.parameters} stands for has changed since the sweep was begun: start it again")
    return seeded(spec, seed, follow=config.get("follow_seed", False)).compile(folder)


def seeded(spec: ProblemSpec, seed: int, *, follow: bool) -> ProblemSpec:
    """Return the problem of a run."""
    return spec.with_parameters({"seed": seed}) if follow else spec
