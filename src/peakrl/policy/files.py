"""Policy files: `policy.save(path)` writes one, `load_policy` reads it.

The file of a policy that was learned on an environment contains the visited states. For problems the file contains
decisions by index, and the reader passes the problem.
"""

from __future__ import annotations

from pathlib import Path

from peakrl.compile import Target, as_space
from peakrl.errors import StorageError
from peakrl.model_file import restored_space
from peakrl.policy.export import POLICY
from peakrl.policy.fallback import Fallback
from peakrl.policy.mixture import AnyPolicy, AveragedPolicy
from peakrl.policy.tables import Choices, Policy, StochasticPolicy
from peakrl.records import Record
from peakrl.space import StateSpace


def load_policy(path: str | Path, model: Target | None = None) -> AnyPolicy:
    """Load the policy that was saved at `path`.

    `model` is the problem of the policy or its model; a different problem is refused. It is not needed for a policy
    that was learned on an environment. A learner's values and unsafe actions (`Policy.explain`) are stored in the file
    of a run, not of a policy.
    """
    known = None if model is None else as_space(model)
    with POLICY.reading(path) as record:
        problem = record.plain["problem"]
        if known is None:
            if "space" not in record.plain:
                raise StorageError(
                    f"{path} contains a policy of {problem!r} but not that problem: pass the problem or its model "
                    "as the second argument"
                )
            known = restored_space(record.part("space"))
        if record.plain["model"] != known.digest:
            raise StorageError(f"{path} contains a policy of another problem or version, {problem!r}, not of {known!r}")
        return rebuilt(known, record)


def rebuilt(model: StateSpace, record: Record) -> AnyPolicy:
    """Return the policy of a record; the constructors check that it fits the model."""
    form, arrays = record.plain["form"], record.arrays
    if form == "deterministic":
        fallback = None
        if "fallback" in arrays:
            fallback = Fallback(model, arrays["fallback"], limited=record.plain["limited"] is not False)
        return Policy(model, Choices.checked(model, arrays["choices"]), fallback=fallback)
    if form == "stochastic":
        return StochasticPolicy(model, arrays["weights"])
    if form == "averaged":
        columns = (arrays[name] for name in ("first", "change_episode", "change_node", "change_row"))
        return AveragedPolicy(model, int(record.plain["episodes"]), *columns)
    raise ValueError(f"it contains a policy of the unknown form {form!r}")
