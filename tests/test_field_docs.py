"""Every field of a public class has its own line in the reference: a comment that begins with `#:` right above it."""

import ast
import dataclasses
import inspect

import peakrl
import peakrl.evaluation
import peakrl.policy
import peakrl.specs
import peakrl.training

PACKAGES = (peakrl, peakrl.evaluation, peakrl.policy, peakrl.specs, peakrl.theory, peakrl.training)
CLASSES = [
    value
    for value in (getattr(package, name) for package in PACKAGES for name in package.__all__)
    if inspect.isclass(value)
    and (dataclasses.is_dataclass(value) or hasattr(value, "_fields") or hasattr(value, "model_fields"))
]


def test_every_field_has_a_description():
    for owner in (*CLASSES, peakrl.Problem):
        lines = inspect.getsource(owner).splitlines()
        (body,) = ast.parse("\n".join(lines)).body
        bare = [
            statement.target.id
            for statement in body.body
            if isinstance(statement, ast.AnnAssign)
            and not statement.target.id.startswith("_")
            and not lines[statement.lineno - 2].strip().startswith("#:")
        ]
        assert not bare, owner
