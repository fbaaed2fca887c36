"""Seeds of random problems."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st


def seeds(count):
    """Call a test with `count` values of its argument `seed`, the same ones in every run."""

    def decorate(test):
        return settings(max_examples=count, derandomize=True, database=None)(given(seed=st.integers(0, 9999))(test))

    return decorate
