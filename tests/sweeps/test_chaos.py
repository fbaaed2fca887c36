"""Sweeps under fire: workers, drivers and nodes that go while runs are under way, and what a run costs at least."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from peakrl.sweeps import Task, run_tasks
from peakrl.sweeps.executor import complete
from peakrl.sweeps.grid import read_plan
from peakrl.sweeps.store import Store

pytestmark = pytest.mark.slow

HERE, TESTS = str(Path(__file__).parent), str(Path(__file__).parents[1])
SWEEP: dict[str, Any] = {
    "seeds": 5,
    "episodes": [500, 2000],
    "problems": [
        {"kind": "scheduling_example", "grid": {"number": [1, 3]}},
        {"kind": "energy_harvesting", "horizon": 5, "battery": 5, "max_arrival": 5, "mean": 3, "peak_power": 3},
    ],
    "settings": [{"learner": "SafeQ"}, {"learner": "ConstrainedQ", "preset": "published", "slack": 0.1}],
}


def squares(count: int, seconds: float = 0.0) -> list[Task]:
    return [Task("helpers.sweep_runs:square", {"x": x, "seconds": seconds}) for x in range(count)]


def digests(folder: Path) -> dict[str, str]:
    store = Store.open(folder)
    return {result.task.key: result.digest for result in map(store.read, store.keys())}


def driver(call: str) -> subprocess.Popen[bytes]:
    """Start a sweep in a process of its own."""
    code = f"import sys; sys.path[:0] = {[TESTS, HERE, *sys.path]!r}\nfrom test_chaos import *\n{call}\n"
    return subprocess.Popen([sys.executable, "-c", code])


def workers_of(process: int) -> list[int]:
    """Return the worker processes of a driver (its children that serve)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            parent = path.read_text().partition("PPid:")[2].split()[0]
            command = (path.parent / "cmdline").read_bytes()
            if int(parent) == process and b"peakrl.sweeps.executor" in command:
                found.append(int(path.parent.name))
    return found


def alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Observer(threading.Thread):
    """Watches a folder from outside and counts how often each result is put in place."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.seen, self.done = folder, {}, threading.Event()
        self.seen: dict[str, set[tuple[int, int]]] = {}

    def run(self) -> None:
        while not self.done.wait(0.003):
            for path in self.folder.glob("runs/??/*.run"):
                status = path.stat()
                self.seen.setdefault(path.stem, set()).add((status.st_ino, status.st_mtime_ns))

    def most(self) -> int:
        """Return how often the most often completed run was completed."""
        return max(map(len, self.seen.values()))


def test_200_runs_survive_30_killed_workers_and_a_killed_driver(tmp_path: Path) -> None:
    tasks, folder = squares(200, seconds=0.1), tmp_path / "out"
    run_tasks(tasks, tmp_path / "calm", workers=1)
    observer, chance = Observer(folder), random.Random(0)
    observer.start()
    call = f"run_tasks(squares(200, seconds=0.1), {str(folder)!r}, workers=2, retries=30)"
    process, kills, orphans = driver(call), 0, []
    while process.poll() is None:
        time.sleep(chance.uniform(0.0, 0.4))
        if kills == 15 and not orphans:
            orphans = workers_of(process.pid)
            process.kill()
            process.wait()
            process = driver(call)
        elif kills < 30 and (victims := workers_of(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
                kills += 1
    time.sleep(0.1)
    observer.done.set()
    observer.join()
    assert (process.returncode, kills) == (0, 30)
    assert digests(folder) == digests(tmp_path / "calm")
    assert observer.most() == 1
    assert len(observer.seen) == 200
    deadline = time.monotonic() + 20
    while any(map(alive, orphans)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert orphans
    assert not any(map(alive, orphans))


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_sweep_keeps_what_is_done_and_leaves_no_worker(tmp_path: Path) -> None:
    plan = read_plan(SWEEP)
    complete(plan.tasks, tmp_path / "one", workers=1)
    complete(plan.tasks, tmp_path / "two", workers=2)
    for attempt in range(5):
        folder = tmp_path / f"out {attempt}"
        process = driver(f"complete(read_plan(SWEEP).tasks, {str(folder)!r}, workers=2)")
        while len(Store(folder).keys()) < 5:
            assert process.poll() is None
            time.sleep(0.002)
        workers = workers_of(process.pid)
        process.send_signal(signal.SIGINT)
        if process.wait(timeout=30) != 0:
            break
        assert len(digests(folder)) == len(plan.tasks)  # on a busy machine all may be done before the interrupt comes
    assert not any(map(alive, workers))
    kept = digests(folder)
    assert 5 <= len(kept) < len(plan.tasks)
    done = complete(plan.tasks, folder, workers=2)
    assert (done.found, done.made) == (len(kept), len(plan.tasks) - len(kept))
    assert digests(folder) == digests(tmp_path / "one") == digests(tmp_path / "two")
