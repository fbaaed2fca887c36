"""Kernels as plain Python functions."""

from __future__ import annotations

import contextlib

import pytest


@contextlib.contextmanager
def plain_python(*modules):
    """Put the functions below the compiler in the place of a module's kernels; what else is compiled stays so."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            for name, kernel in list(vars(module).items()):
                if hasattr(kernel, "py_func"):
                    patch.setattr(module, name, kernel.py_func)
        yield
