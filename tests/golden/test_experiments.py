"""The quick version of every experiment gives the numbers that it gave before."""

import pytest

from experiments import EXPERIMENTS
from golden.experiments import numbers, stored

#: How far sums may be off: linear programmes with several optima return another one on another machine.
LOOSE = {"neighbours": 0.02}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_gives_the_stored_numbers(name):
    found, before = numbers(name), stored()[name]
    assert found.keys() == before.keys()
    for measure, sums in before.items():
        assert found[measure] == pytest.approx(sums, rel=LOOSE.get(name, 1e-6), abs=1e-9, nan_ok=True), measure
