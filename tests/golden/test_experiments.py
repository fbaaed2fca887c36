"""The quick version of every experiment gives the numbers that it gave before."""

import pytest

from experiments import EXPERIMENTS
from golden.experiments import numbers, stored


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_gives_the_stored_numbers(name):
    assert numbers(name) == stored()[name]
