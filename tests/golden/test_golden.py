"""Results stay what they were: `python tests/golden` says which moved."""

import pytest

from golden.cases import cases
from golden.manifest import differences, recorded, stored

CASES = dict(cases())


@pytest.mark.parametrize("name", CASES)
def test_results_equal_the_golden_manifest(name):
    assert differences(name, recorded(CASES[name])) == []


def test_the_manifest_has_no_other_cases():
    assert sorted(stored()) == sorted(CASES)
