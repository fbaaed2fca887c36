"""Models in the PRISM language, built by Storm."""

from __future__ import annotations

import importlib.util
import json

import pytest

from helpers.storm_models import FOLDER, MODELS, answers, rewards, source
from peakrl import PeakError, read_prism, read_umb

needs_storm = pytest.mark.skipif(importlib.util.find_spec("stormpy") is None, reason="stormpy is not installed")


@needs_storm
@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_prism_model_is_that_of_the_umb_file_and_has_storms_values(name, tmp_path):
    path, constants = source(name, tmp_path)
    reward = rewards(name)[0]
    stored = read_umb(FOLDER / f"{name}.umb", "bad", reward, 4)
    assert read_prism(path, constants, never="bad", reward=reward, horizon=4).digest == stored.digest
    assert json.loads(json.dumps(answers(name, tmp_path))) == json.loads((FOLDER / f"{name}.json").read_text())


@needs_storm
@pytest.mark.slow
def test_what_storm_refuses_is_named_with_the_file(tmp_path):
    path, _ = source("machine", tmp_path)
    with pytest.raises(PeakError, match=r"machine\.prism: Storm reports .*constant"):
        read_prism(path, horizon=1)


def test_without_storm_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "stormpy", None)
    with pytest.raises(PeakError, match=r"pip install '\.\[storm\]'"):
        read_prism(source("die", tmp_path)[0], horizon=1)


@needs_storm
def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(PeakError, match=r"cannot read .*none\.prism: No such file"):
        read_prism(tmp_path / "none.prism", horizon=1)
