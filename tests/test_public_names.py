"""The one public list of names."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import peakrl


def test_the_list_is_sorted_and_every_name_has_a_home():
    assert sorted(peakrl.__all__) == peakrl.__all__
    assert set(peakrl._HOMES) | set(peakrl._NAMESPACES) == set(peakrl.__all__)
    assert dir(peakrl) == sorted([*peakrl.__all__, "__version__"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(peakrl._HOMES))
def test_every_public_name_may_be_the_first_that_is_used(name):
    subprocess.run([sys.executable, "-c", f"import peakrl; peakrl.{name}"], check=True)


def test_shield_may_be_the_first_name_that_is_used():  # it imports Gymnasium, when environments are registered
    subprocess.run([sys.executable, "-c", "import peakrl; peakrl.shield"], check=True)


def test_a_public_name_is_what_its_module_defines():
    for name in peakrl._HOMES:
        assert getattr(peakrl, name) is getattr(importlib.import_module(peakrl._HOMES[name]), name), name


def test_no_public_name_is_also_a_module_that_would_shadow_it():
    for name in peakrl._HOMES:
        assert importlib.util.find_spec(f"peakrl.{name}") is None, name


def test_a_namespace_offers_every_name_that_it_lists():
    for namespace in filter(inspect.ismodule, (getattr(peakrl.problems, name) for name in dir(peakrl.problems))):
        assert sorted(namespace.__all__) == namespace.__all__
        for each in namespace.__all__:
            assert getattr(namespace, each).__name__ == each


def test_problems_offers_every_name_that_it_lists():
    assert sorted(peakrl.problems.__all__) == peakrl.problems.__all__ == dir(peakrl.problems)
    for name in peakrl.problems.__all__:
        assert getattr(peakrl.problems, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match=r"module 'peakrl\.problems' has no attribute 'nonsense'"):
        _ = peakrl.problems.nonsense


def test_a_package_offers_every_name_that_it_lists():
    for package in ("evaluation", "planning", "policy", "safety", "specs", "theory", "training"):
        module = importlib.import_module(f"peakrl.{package}")
        assert sorted(module.__all__) == module.__all__
        for name in module.__all__:
            assert getattr(module, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = peakrl.nonsense


def test_importing_peakrl_imports_nothing_heavy():
    code = "import sys, peakrl; print([m for m in ('numpy', 'numba', 'scipy', 'pydantic', 'rich') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
