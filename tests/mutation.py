"""Mutation testing: break one place of the code at a time, and see whether a test notices.

    python tests/mutation.py [NUMBER OF MUTANTS FOR EACH MODULE] [MODULE ...]

A mutant swaps a comparison, an operation or a logical word, moves a constant by one, or drops a `not` or a sign. They
are drawn with a fixed seed. Each is tried in a forked process, in which the mutated source takes the place of the file
when it is imported; the JIT is off, so that kernels are plain Python. A mutant that makes its tests fail, or run five
times as long as they should, is killed. Survivors are printed with their line: each lacks a test, or changes nothing
that anybody could notice. Those of the second kind that somebody has looked at are in `mutation_survivors.py`, with the
reason, and are counted by themselves.
"""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
import time
from pathlib import Path

from mutation_survivors import HARMLESS

os.environ["NUMBA_DISABLE_JIT"] = "1"

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
#: Each module with the tests that must notice, the quickest first.
TARGETS = {
    "peakrl/storage.py": ["test_storage.py", "test_failing_disk.py"],
    "peakrl/model/soundness.py": ["model/test_soundness.py", "model/test_model_files.py"],
    "peakrl/learning/practical_checks.py": ["learning/test_forged_runs.py"],
    "peakrl/certificates/bounds.py": ["certificates/test_bounds.py"],
    "peakrl/certificates/verify_exact.py": ["certificates/test_verify.py"],
    "peakrl/certificates/verify_model.py": ["certificates/test_verify.py"],
    "peakrl/certificates/verify_learned.py": ["certificates/test_verify_learned.py", "learning/test_certified.py"],
    "peakrl/planning/exact.py": ["planning/test_planning.py", "planning/test_backward.py"],
    "peakrl/kernels/backward.py": ["planning/test_planning.py", "planning/test_backward.py"],
    "peakrl/kernels/planning.py": ["learning/test_linear.py", "planning/test_budgets.py"],
    "peakrl/kernels/safety.py": ["safety/test_safe_set.py"],
    "peakrl/kernels/sampling.py": ["kernels/test_sampling.py"],
    "peakrl/kernels/evaluation.py": ["evaluation/test_evaluation.py"],
    "peakrl/kernels/learning.py": ["learning/test_learning.py", "learning/test_environments.py"],
    "peakrl/kernels/triple_q.py": ["learning/test_q_tables.py"],
    "peakrl/kernels/untried.py": ["learning/test_untried.py"],
    "peakrl/kernels/certified/bounds.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/values.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/gaps.py": ["kernels/test_certified.py", "learning/test_certified.py"],
    "peakrl/kernels/certified/candidates.py": ["kernels/test_certified.py", "learning/test_certified.py"],
}
#: Tests that take long without the JIT, or start processes of their own, which know nothing of the mutant.
LEFT_OUT = "quantecon or jit_off or compiled or 10_000 or takes_the_memory or make_it_cheaper or cvxpy"
#: Imported before the first fork, so that no mutant has to.
ONCE = (
    "pytest",
    "hypothesis",
    "hypothesis.extra.numpy",
    "numpy",
    "numba",
    "pydantic",
    "safetensors.numpy",
    "scipy.sparse",
)
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def places(tree):
    """Yield (node, field, index) of every place that can be broken; annotations and what is only said are left out."""
    for node in executed(tree):
        if isinstance(node, ast.Compare):
            yield from ((node, "ops", index) for index, op in enumerate(node.ops) if type(op) in SWAPS)
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            if not isinstance(node, ast.BinOp) or not is_text(node):
                yield node, "op", None
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, "value", None
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            yield node, "unary", None


def executed(node):
    """Walk a tree without annotations, error messages and the text of f-strings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child
                yield from executed(child)


def is_text(node):
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in ast.walk(node)
    )


def broken(tree, number):
    """Return a copy with the given place broken, the line, and what was done to it in which function."""
    tree = copy.deepcopy(tree)
    node, field, index = list(places(tree))[number]
    before = ast.unparse(node)
    if field == "ops":
        node.ops[index] = SWAPS[type(node.ops[index])]()
    elif field == "op":
        node.op = SWAPS[type(node.op)]()
    elif field == "value":
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    else:
        node.op, node.operand = ast.UAdd(), node.operand
        if before.startswith("not "):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    change = f"{owner(tree, node)}: {before}  ->  {ast.unparse(node)}"
    return ast.fix_missing_locations(tree), node.lineno, change


def owner(tree, node):
    """Return the innermost function that a node stands in, or "module"."""
    functions = [part for part in ast.walk(tree) if isinstance(part, ast.FunctionDef)]
    around = [part for part in functions if part.lineno <= node.lineno <= (part.end_lineno or 0)]
    return max(around, key=lambda part: part.lineno).name if around else "module"


class Mutated(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds one module, and hands out the mutated tree for it."""

    def __init__(self, name, path, tree):
        super().__init__(name, str(path))
        self.tree = tree

    def find_spec(self, fullname, path=None, target=None):
        if fullname == self.name:
            return importlib.machinery.ModuleSpec(fullname, self, origin=self.path)
        return None

    def get_code(self, fullname):
        return compile(self.tree, self.path, "exec")


def tried(module, tree, tests, seconds):
    """Return whether tests notice, in a process of their own: True also where they take too long."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        import pytest

        name = module.removesuffix(".py").replace("/", ".")
        sys.meta_path.insert(0, Mutated(name, SOURCE / module, tree))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-m", "not slow"]
        for harmless in ("ignore::RuntimeWarning", "ignore:Module already imported"):
            options += ["-W", harmless]
        options += ["-k", f"not ({LEFT_OUT})"]
        os._exit(int(pytest.main([*options, *(str(TESTS / test) for test in tests)])))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def survivors(module, count):
    """Try mutants of a module; return (how many were tried, what survived and changes nothing, what survived)."""
    tests = TARGETS[module]
    tree = ast.parse((SOURCE / module).read_text())
    begun = time.monotonic()
    if tried(module, tree, tests, 600):
        raise SystemExit(f"{module}: its tests fail before anything is broken")
    seconds = 20 + 5 * (time.monotonic() - begun)
    numbers = list(range(len(list(places(tree)))))
    random.Random(7).shuffle(numbers)
    reasons, idle, left = HARMLESS.get(module, {}), [], []
    for number in numbers[:count]:
        mutant, line, change = broken(tree, number)
        if tried(module, mutant, tests, seconds):
            continue
        (idle if change in reasons else left).append(change)
        print(
            f"  {module} line {line} in {change}" + (f"  ({reasons[change]})" if change in reasons else ""), flush=True
        )
    return min(count, len(numbers)), idle, left


def main(count, modules):
    sys.path[:0] = [str(SOURCE), str(TESTS)]
    for package in ONCE:
        importlib.import_module(package)
    found = []
    for module in modules or TARGETS:
        made, idle, left = survivors(module, count)
        found.append((made, len(idle), len(left)))
        print(tally(f"{module}: ", [found[-1]]), flush=True)
    print(tally("in all ", found))


def tally(name, found):
    made, idle, left = (sum(column) for column in zip(*found, strict=True))
    killed = made - idle - left
    return f"{name}{killed} of {made} killed, {idle} change nothing, {left} survive: {killed / (made - idle):.1%}"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40, sys.argv[2:])
