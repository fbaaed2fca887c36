"""The stored results of the golden cases, and how others differ from them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

MANIFEST = Path(__file__).with_name("manifest.json")


@cache
def stored():
    """The manifest as it was stored."""
    return json.loads(MANIFEST.read_text())


def recorded(case):
    """Results of a case as JSON holds them."""
    return json.loads(json.dumps(case(), default=lambda value: value.item()))


def differences(name, record):
    """Return a line for each result that is not the stored one."""
    before = stored().get(name, {})
    keys = sorted({*before, *record})
    return [f"{name}: {key} was {before.get(key)}, is {record.get(key)}" for key in keys
            if before.get(key, "absent") != record.get(key, "absent")]  # fmt: skip
