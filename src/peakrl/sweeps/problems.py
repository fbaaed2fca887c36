"""The problems of a sweep: {"kind": ..., "parameters": {...}}, the words of problem files (`peakrl.specs.spec`).

A problem comes with the digest of its compiled model, and with that of the file which it depends on but does not hold
(a table, a function of the user's own), so that results of an older version are not taken for those of the present one,
whatever it was that changed: the file, one that it imports, or peakrl. One that follows the seed takes the run's seed
for its own; its digest is that of seed 0, and where code makes it each run holds the digest of its own model.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peakrl.errors import SweepError
from peakrl.specs.spec import ProblemSpec
from peakrl.tabular import TabularModel


def describe_problem(spec: ProblemSpec, *, follow_seed: bool, folder: Path) -> dict[str, Any]:
    """Return a problem's configuration, checked: it can be built."""
    first = seeded(spec, 0, follow=follow_seed)
    built = first.build(folder)
    # What was read from a file of jobs is part of the problem, and takes the place of the file's name.
    read = {} if spec.runs_code or built.spec is None else built.spec
    config = undigested(spec, follow_seed=follow_seed)
    config["parameters"] = {name: read.get(name, value) for name, value in spec.parameters.items()}
    source = spec.source_digest(folder)
    return config | {"model": first.compile(folder).digest} | ({"source": source} if source else {})


def undigested(spec: ProblemSpec, *, follow_seed: bool) -> dict[str, Any]:
    """Return what can be said of a problem without building it."""
    config = {"kind": spec.kind, "parameters": dict(spec.parameters)}
    return config | ({"follow_seed": True} if follow_seed else {})


def digest_of_run(config: Mapping[str, Any], seed: int, folder: Path) -> dict[str, str]:
    """Return the digest of a run's model by name, where the problem's own does not tell it."""
    if not (config.get("follow_seed") and ProblemSpec(config["kind"], config["parameters"]).runs_code):
        return {}
    return {"model": compiled_problem(config, seed, folder).digest}


def compiled_problem(config: Mapping[str, Any], seed: int, folder: str | Path = ".") -> TabularModel:
    """Return the model that a configuration describes; `seed` is the run's, for problems that follow it."""
    spec = ProblemSpec(config["kind"], config["parameters"])
    if spec.source_digest(folder) != config.get("source"):
        raise changed(spec)
    follow = config.get("follow_seed", False)
    model = seeded(spec, seed, follow=follow).compile(folder)
    if not follow and model.digest != config.get("model", model.digest):
        raise changed(spec)
    return model


def changed(spec: ProblemSpec) -> SweepError:
    """Return what to say of a problem that is no longer what it was."""
    return SweepError(f"what {spec.as_dict()} stands for has changed since the sweep was begun: start it again")


def seeded(spec: ProblemSpec, seed: int, *, follow: bool) -> ProblemSpec:
    """Return the problem of a run."""
    return spec.with_parameters({"seed": seed}) if follow else spec
