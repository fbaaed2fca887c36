"""What mutation testing relies on: every mutant differs from the code, and one that is called harmless is one place."""

from __future__ import annotations

import ast
from types import ModuleType

import pytest

from mutants import Source, put_in
from mutation import SOURCE, TARGETS, TESTS
from mutation_survivors import HARMLESS

CODE = """
LIMIT = 3

class Box:
    @property
    def full(self):
        return not self.size < LIMIT

def total(values: list[int] = [1]):
    found = 0
    for value in values:
        found += value if value > 0 and value != 7 else -value
    if found > 100 + LIMIT:
        raise ValueError(f"{found + 1} is too much")
    return found
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    return Source(tmp_path / "code.py")


def test_a_mutant_is_one_change_and_the_source_stays_as_it_was(source):
    before = ast.unparse(source.tree)
    broken = {ast.dump(ast.parse(before))}
    for number, place in enumerate(source.places):
        mend = place.swap()
        broken.add(ast.dump(ast.parse(ast.unparse(source.tree))))
        mend()
        source.code(number)
        assert ast.unparse(source.tree) == before
    assert len(broken) == len(source.places) + 1 == len(set(source.names)) + 1


def test_messages_and_annotations_are_not_broken(source):
    assert source.names == [
        "module: 3  ->  4",
        "full: not self.size < LIMIT  ->  not not self.size < LIMIT",
        "full: self.size < LIMIT  ->  self.size <= LIMIT",
        "module: 1  ->  2",
        "total: 0  ->  1",
        "total: found += value if value > 0 and value != 7 else -value  ->  "
        "found -= value if value > 0 and value != 7 else -value",
        "total: value > 0 and value != 7  ->  value > 0 or value != 7",
        "total: value > 0  ->  value >= 0",
        "total: 0  ->  1 #2",
        "total: value != 7  ->  value == 7",
        "total: 7  ->  8",
        "total: -value  ->  +value",
        "total: found > 100 + LIMIT  ->  found >= 100 + LIMIT",
        "total: 100 + LIMIT  ->  100 - LIMIT",
        "total: 100  ->  101",
    ]


def test_a_mutant_takes_the_place_of_a_function_that_is_imported_already(source):
    module = ModuleType("code")
    exec(CODE, vars(module))
    for name, value in (("full: self.size < LIMIT  ->  self.size <= LIMIT", False), ("total: -value  ->  +value", 5)):
        number = source.names.index(name)
        put_in(module, source.code(number), source.places[number].within)
        box = module.Box()
        box.size = 3
        assert (box.full if name.startswith("full") else module.total([7, -2])) == value


def test_a_harmless_mutant_is_one_place_of_a_module_that_is_tried():
    for module, reasons in HARMLESS.items():
        assert not set(reasons) - set(Source(SOURCE / module).names), module
        assert module in TARGETS
    assert all((TESTS / test).exists() for tests in TARGETS.values() for test in tests)
