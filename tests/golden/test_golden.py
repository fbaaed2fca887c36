"""Results stay what they were: `python tests/golden` says which moved."""

import pytest

from golden.cases import cases, resumed
from golden.manifest import differences, recorded, stored

CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_results_equal_the_golden_manifest(name):
    assert differences(name, recorded(CASES[name])) == []


@pytest.mark.parametrize("name", ["PosteriorSampling", "SafeQ", "ConstrainedQ.published", "Certified", "UCBVI"])
def test_a_run_that_is_resumed_equals_the_whole_run_in_the_manifest(name):
    assert differences(f"{name} on a stationary model", recorded(lambda: resumed(name))) == []


def test_the_manifest_has_no_other_cases():
    assert sorted(stored()) == sorted(CASES)
