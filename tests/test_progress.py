"""Progress where there is no terminal: lines that become rarer, and none while it is quick."""

import io
import sys

import pytest

from peakrl import progress


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_lines_come_after_10_seconds_and_then_after_twice_the_pause_each_time(clock, capsys):
    told = []
    with progress.Progress("Learning", total=1000, unit="episodes") as bar:
        for second in range(1, 801):
            clock.now = float(second)
            bar.reach(second, gap=0.25)
            if line := capsys.readouterr().err:
                told.append((second, line))
    assert [second for second, _ in told] == [10, 30, 70, 150, 310, 610]  # pauses of 20, 40, .. and 300 at most
    assert told[0][1] == "Learning: 10/1,000 episodes  1/s  gap 0.25  0:16:30 left\n"


def test_lanes_that_finish_their_episodes_after_the_last_step_leave_no_time(clock, capsys):
    with progress.Progress("Learning", total=1000, unit="steps") as bar:
        clock.now = 100.0
        bar.reach(1060)
    assert capsys.readouterr().err == "Learning: 1,060/1,000 steps  11/s  0:00:00 left\n"


@pytest.mark.parametrize(("enabled", "seconds"), [(False, 100.0), (True, 9.9)])
def test_what_is_quick_or_not_asked_for_says_nothing(clock, capsys, enabled, seconds):
    with progress.Progress("Compiling", unit="pairs", enabled=enabled) as bar:
        clock.now = seconds
        assert not bar.visible
        bar.reach(10**6)
    assert capsys.readouterr().err == ""


class Abandoned(io.StringIO):
    """A pipe whose reader is gone."""

    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [None, Abandoned(), "closed"])
def test_nobody_who_reads_is_no_reason_to_end_a_run(clock, capsys, monkeypatch, stream):
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    with progress.Progress("Learning", total=1000, unit="episodes") as bar:
        monkeypatch.setattr(sys, "stderr", stream)
        for second in (20.0, 100.0):
            clock.now = second
            bar.reach(int(second))
        monkeypatch.undo()
    assert capsys.readouterr().out == ""
