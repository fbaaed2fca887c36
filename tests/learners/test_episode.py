"""The change log, and the loop over episodes with the hooks of a learner that only counts."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numba
import numpy as np

from helpers.random_problems import random_problem
from peakrl import compile_model
from peakrl.learners.episode import Log, Path, Simulator, note, register, run_episodes
from peakrl.learners.tables import TableStore, table
from peakrl.sampling import draw_first, draw_outcome, seed_state
from peakrl.types import Longs

MODEL = compile_model(random_problem(5, horizon=4))


class Tables(NamedTuple):
    visits: Annotated[Longs, table("row")]
    greedy: Annotated[Longs, table("slot", "column", rows=True)]


def count(tables, layout, path, length, episode, log):
    """Count rows; take the last row of the first state from the second episode on."""
    for step in range(length):
        tables.visits[path.row[step]] += 1
    if episode == 1:
        tables.greedy[path.slot[0], 0] = layout.row_start[path.slot[0] + 1] - 1
        note(log, path.slot[0], tables.greedy[path.slot[0], 0])


def every_fifth(tables, layout):
    """Pause when the number of counted steps is a multiple of five episodes."""
    return tables.visits.sum() % (5 * layout.horizon) == 0


register(Tables, learn=count, pause=every_fifth)
#: Not cached: whoever reads the cache of `run_episodes` imports every type of tables in it, and this one is a test's.
play_episodes = numba.njit(getattr(run_episodes, "py_func", run_episodes))


def begun():
    columns = MODEL.horizon if MODEL.stationary else 1
    made = TableStore(Tables, {"slot": MODEL.num_slots, "row": MODEL.num_rows, "column": columns})
    made.grow()
    made.fill_rows(0, MODEL.layout.row_start)
    payoff = np.stack([MODEL.payoffs.reward, MODEL.record_violation], axis=1)
    return made.tables, Simulator(MODEL.layout, MODEL.sampler, MODEL.payoffs.stride, MODEL.payoffs.row_payoff, payoff)


def test_the_loop_draws_what_a_plain_walk_draws_and_logs_from_the_next_episode_on():
    tables, simulator = begun()
    path, log, experience = Path.of_length(MODEL.horizon, 2), Log.of_size(50), np.zeros((4, 2))
    words, counters = seed_state(np.uint64(3)), np.zeros(2, np.int64)
    assert play_episodes(simulator, tables, path, words, 0, 4, 1, log, experience, counters) == 4
    (other, _), words = begun(), seed_state(np.uint64(3))
    for episode in range(4):
        first = slot = int(draw_first(words, MODEL.sampler))
        earned = violated = 0.0
        for step in range(MODEL.horizon):
            row = int(other.greedy[slot, step if MODEL.stationary else 0])
            distribution = int(MODEL.row_distribution[row])
            begin, end = MODEL.outcome_start[distribution : distribution + 2]
            outcome = (
                int(begin) if end == begin + 1 else int(draw_outcome(words, MODEL.layout, MODEL.sampler, distribution))
            )
            record = MODEL.payoffs.row_payoff[row] + MODEL.payoffs.stride * (outcome - begin)
            other.visits[row] += 1
            earned, violated = earned + MODEL.payoffs.reward[record], violated + MODEL.record_violation[record]
            slot = int(MODEL.outcome_next[outcome])
        if episode == 0:
            other.greedy[first, 0] = MODEL.layout.row_start[first + 1] - 1
            assert list(zip(*log.changes, strict=True)) == [(2, first, other.greedy[first, 0])]
        assert experience[episode].tolist() == [earned, violated]
    assert np.array_equal(tables.visits, other.visits)
    assert counters[0] == np.count_nonzero(experience[:, 1])


def test_the_loop_stops_when_the_learner_pauses_or_the_log_is_full():
    tables, simulator = begun()
    rest = Path.of_length(MODEL.horizon, 2), seed_state(np.uint64(1))
    counters = np.zeros(2, np.int64)
    assert play_episodes(simulator, tables, *rest, 0, 20, 0, Log.of_size(0), np.empty((0, 2)), counters) == 5
    log = Log.of_size(3)
    log.extend(np.zeros(2, np.int64), 1)
    assert play_episodes(simulator, tables, *rest, 5, 20, 2, log, np.empty((0, 2)), counters) == 1


def test_a_log_keeps_its_changes_when_it_gets_more_room_and_one_of_size_0_keeps_nothing():
    log = Log.of_size(2).since(7)
    log.extend(np.array([4, 5]), np.array([1, 2]))
    larger = log.with_room(3)
    assert [each.tolist() for each in larger.changes] == [[7, 7], [4, 5], [1, 2]]
    assert len(larger.node) >= 5
    larger.clear()
    assert len(larger.changes[0]) == 0
    nothing = Log.of_size(0)
    nothing.extend(np.array([4]), 1)
    assert len(nothing.changes[0]) == 0
