"""The reference page and the public list of names agree."""

from __future__ import annotations

import re
from pathlib import Path

import peakrl

PAGE = Path(__file__).parents[1] / "docs" / "api.md"


def test_the_reference_describes_every_public_name():
    described = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)", PAGE.read_text(), re.MULTILINE)
    assert sorted(described) == sorted([*peakrl.__all__, *peakrl.learners.LEARNERS])
