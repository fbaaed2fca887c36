"""One place of a source broken at a time: which places there are, what a mutant is called, and how it is put in place.

A mutant swaps a comparison, an operation or a logical word, moves a constant by one, or drops a `not` or a sign. Its
name, "function: before  ->  after", belongs to one place of a module: where a function has several that read alike, the
second ends in " #2" and so on, in the order of the source.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
#: Fields that are read by people and checkers only, or computed when a function is made, with what is around it.
UNREAD = ("annotation", "returns", "decorator_list", "type_params")


@dataclass
class Place:
    """Something that can be broken."""

    node: ast.AST
    field: str
    index: int | None
    #: Names of the classes and of the function that it is computed in; a mutant of no function is one of the module.
    within: tuple[str, ...]

    @property
    def function(self):
        return self.within[-1] if self.within else "module"

    def swap(self):
        """Break the place, and return what mends it."""
        node, before = self.node, dict(vars(self.node))
        if self.field == "ops":
            node.ops = [*node.ops]
            node.ops[self.index] = SWAPS[type(node.ops[self.index])]()
        elif self.field == "op":
            node.op = SWAPS[type(node.op)]()
        elif self.field == "value":
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        elif isinstance(node.op, ast.Not):
            node.operand = ast.fix_missing_locations(ast.copy_location(ast.UnaryOp(ast.Not(), node.operand), node))
        else:
            node.op = ast.UAdd()
        return lambda: vars(node).update(before)


def places(tree):
    """Yield every place that can be broken; annotations, error messages and the text of f-strings are left out."""
    for node, within in executed(tree, ()):
        if isinstance(node, ast.Compare):
            yield from (Place(node, "ops", index, within) for index, op in enumerate(node.ops) if type(op) in SWAPS)
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
            if not isinstance(node, ast.BinOp) or not is_text(node):
                yield Place(node, "op", None, within)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield Place(node, "value", None, within)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            yield Place(node, "unary", None, within)


def executed(node, within):
    """Yield the nodes of a tree that are computed, with the names of what they stand in."""
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        inside = within
        if name in UNREAD:
            continue
        if name == "body" and isinstance(node, FUNCTIONS | ast.ClassDef) and not in_function(within):
            inside = (*within, node.name if isinstance(node, ast.ClassDef) else f"{node.name}()")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, tuple(part.removesuffix("()") for part in inside) if in_function(inside) else ()
                yield from executed(child, inside)


def in_function(within):
    return bool(within) and within[-1].endswith("()")


def is_text(node):
    return any(
        isinstance(part, ast.JoinedStr) or isinstance(getattr(part, "value", None), str) for part in ast.walk(node)
    )


class Source:
    """A module's source, and the places where it can be broken."""

    def __init__(self, path):
        self.path, self.tree = path, ast.parse(path.read_text())
        self.places = list(places(self.tree))

    @cached_property
    def names(self):
        """[place]: what its mutant is called."""
        seen, found = Counter(), []
        for place in self.places:
            before, mend = ast.unparse(place.node), place.swap()
            name = f"{place.function}: {before}  ->  {ast.unparse(place.node)}"
            mend()
            seen[name] += 1
            found.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
        return found

    def code(self, number):
        """Return the module's code with a place broken."""
        mend = self.places[number].swap()
        try:
            return compile(self.tree, str(self.path), "exec")
        finally:
            mend()


def put_in(module, code, within):
    """Give a function of an imported module the code that it has in another version of it."""
    for name in within:
        code = next(part for part in code.co_consts if getattr(part, "co_name", None) == name)
    place = module
    for name in within:
        place = vars(place)[name]
    plain(place).__code__ = code


def plain(function):
    """Return the function below its decorators."""
    for name in ("fget", "func", "__func__", "__wrapped__"):
        if (inner := getattr(function, name, None)) is not None:
            return plain(inner)
    return function
