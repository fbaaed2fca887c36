"""Watching a run: what the watcher is told, and that the run does not notice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peakrl import LearningRun, compile_model, learn, resume, to_gymnasium
from peakrl.learners import ConstrainedQ, SafeQ
from peakrl.learners.base import LearnerSettings
from peakrl.problems import energy_harvesting
from peakrl.training import History
from peakrl.training.run import RunView

PROBLEM = energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1)
MODEL = compile_model(PROBLEM)
LEARNERS = [SafeQ(), ConstrainedQ.published(0.1)]


def same_history(one: History, other: History) -> bool:
    pairs = zip(one.columns().values(), other.columns().values(), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def same(one: LearningRun, other: LearningRun) -> bool:
    """Bit for bit."""
    tables = [
        (run.q.tobytes(), run.policy.rows.tobytes(), run.averaged_policy.change_row.tobytes()) for run in (one, other)
    ]
    return tables[0] == tables[1] and same_history(one.history, other.history) and one.violations == other.violations


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the clock every few episodes."""
    monkeypatch.setattr("peakrl.training.trainer.KERNEL_STEPS", (100, 100))
    monkeypatch.setattr("peakrl.training.trainer.SECONDS_A_PIECE", 1e9)  # however long one takes


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_watched_run_is_the_same_and_each_copy_is_the_run_of_that_length(learner: LearnerSettings) -> None:
    seen: list[LearningRun] = []
    told: list[tuple[int, int, int]] = []

    def watch(moment: RunView) -> None:
        told.append((moment.episodes, moment.goal, moment.violations))
        if moment.episodes:
            seen.append(moment.run())

    watched = learn(MODEL, learner, episodes=200, seed=3, watch=watch)
    assert same(watched, learn(MODEL, learner, episodes=200, seed=3))
    assert [one[:2] for one in told] == [(done, 200) for done in range(0, 201, 25)]
    assert told[-1][2] == watched.violations
    # A copy stays as it was while the learner went on.
    assert same(seen[2], learn(MODEL, learner, episodes=75, seed=3))


@pytest.mark.usefixtures("small_pieces")
@given(data=st.data(), every=st.integers(1, 40))
@settings(deadline=None)
def test_history_comes_in_parts_that_join_to_the_whole(data: st.DataObject, every: int) -> None:
    parts: list[History] = []
    last = 0

    def watch(moment: RunView) -> None:
        nonlocal last
        if data.draw(st.booleans()) or moment.episodes == moment.goal:
            part = moment.history_after(last, latest=moment.episodes == moment.goal)
            parts.append(part)
            last = int(part.episode[-1]) if len(part) else last

    run = learn(MODEL, LEARNERS[0], episodes=110, history=every, watch=watch)
    joined = [np.concatenate(column) for column in zip(*(part.columns().values() for part in parts), strict=True)]
    assert same_history(History(*joined), run.history)


def test_a_run_without_history_has_none_to_watch() -> None:
    lengths = []
    learn(
        MODEL,
        LEARNERS[0],
        episodes=10,
        history="none",
        watch=lambda moment: lengths.append(len(moment.history_after(0))),
    )
    assert set(lengths) == {0}


def test_a_resumed_run_is_watched_from_where_it_stood(tmp_path: Path) -> None:
    learn(MODEL, LEARNERS[0], episodes=50, checkpoint=tmp_path / "a.run")
    told: list[int] = []
    resume(tmp_path / "a.run", episodes=80, watch=lambda moment: told.append(moment.episodes))
    assert (told[0], told[-1]) == (50, 80)


def test_an_environment_is_watched_alike() -> None:
    told: list[tuple[int, int, list[int]]] = []

    def watch(moment: RunView) -> None:
        latest = moment.history_after(10, latest=True).episode.tolist()
        told.append((moment.episodes, len(moment.history_after(0)), latest))

    learn(to_gymnasium(PROBLEM), LEARNERS[0], episodes=25, history=10, watch=watch)
    assert told[0] == (0, 0, [])
    assert told[-1] == (25, 2, [20, 25])


def test_what_a_watcher_raises_ends_the_run() -> None:
    def watch(moment: RunView) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        learn(MODEL, LEARNERS[0], episodes=10, watch=watch)


def test_a_slow_environment_is_looked_at_soon() -> None:
    moments: list[int] = []
    learn(to_gymnasium(PROBLEM), "SafeQ", episodes=30, watch=lambda moment: moments.append(moment.steps))
    assert moments[1] <= 64
