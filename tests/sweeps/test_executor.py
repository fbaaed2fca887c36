"""Making the missing runs of a folder, whatever happens to workers and drivers."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from peakrl.errors import SettingsError, StorageError, SweepError
from peakrl.records import Record
from peakrl.sweeps import Result, Task, local_workers, run_tasks
from peakrl.sweeps.executor import Call, InProcess, complete, perform_here
from peakrl.sweeps.store import FOLDER, MARKER, Store

HERE, TESTS = str(Path(__file__).parent), str(Path(__file__).parents[1])


def squares(count: int, **config: Any) -> list[Task]:
    return [Task("helpers.sweep_runs:square", {"x": x, **config}) for x in range(count)]


def digests(results: list[Result]) -> dict[str, str]:
    return {result.task.key: result.digest for result in results}


@pytest.fixture(scope="module")
def engine() -> Iterator[Executor]:
    """Two worker processes for all tests: to start one takes a second."""
    with local_workers(2) as engine:
        yield engine


def test_results_come_in_the_order_of_the_tasks_each_run_made_once(tmp_path: Path) -> None:
    tasks = squares(5, log=str(tmp_path / "log"))
    random.Random(1).shuffle(tasks)
    results = run_tasks([*tasks, tasks[0]], tmp_path / "out", workers=1)
    assert [result.values["square"] for result in results] == [task.config["x"] ** 2 for task in [*tasks, tasks[0]]]
    assert len((tmp_path / "log").read_text().splitlines()) == 5


def test_only_missing_runs_are_made(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_tasks(squares(3, log=str(log)), tmp_path / "out", workers=1)
    done = complete(squares(5, log=str(log)), tmp_path / "out", workers=1)
    assert (done.found, done.made) == (3, 2)
    assert log.read_text().split("\n") == ["run 0", "run 1", "run 2", "run 3", "run 4", ""]


def test_no_tasks_need_no_folder(tmp_path: Path) -> None:
    assert run_tasks([], tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


def test_results_do_not_depend_on_workers_or_order(engine: Executor, tmp_path: Path) -> None:
    tasks = squares(12)
    alone = run_tasks(tasks, tmp_path / "one", workers=1)
    random.Random(0).shuffle(tasks)
    assert digests(run_tasks(tasks, tmp_path / "two", engine=engine)) == digests(alone)


def test_workers_are_processes_with_one_thread(engine: Executor, tmp_path: Path) -> None:
    tasks = [Task("helpers.sweep_runs:threads", {"x": x}) for x in range(4)]
    results = run_tasks(tasks, tmp_path, engine=engine)
    assert {(result.values["numba"], result.values["blas"]) for result in results} == {(1, "1")}
    assert len({result.values["process"] for result in results}) == 2


def test_kept_workers_serve_one_call_after_another_and_end_with_the_block(tmp_path: Path) -> None:
    def processes(batch: int) -> set[int]:
        tasks = [Task("helpers.sweep_runs:threads", {"x": x, "batch": batch}) for x in range(4)]
        return {int(result.values["process"]) for result in run_tasks(tasks, tmp_path, engine=engine)}

    with local_workers(2, prepare="no_such_module:f") as engine:  # a favour: its failure is no one's
        first = processes(0)
        assert len(first) == 2
        assert processes(1) == first
        os.kill(min(first), signal.SIGKILL)
        assert len(processes(2) - first) <= 1
        last = processes(3)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{process}").exists() for process in last) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{process}").exists() for process in last)
    with local_workers(1) as engine:
        run_tasks(squares(1), tmp_path, engine=engine)
        assert type(engine).__name__ == "InProcess"


def test_any_executor_of_processes_makes_runs_and_is_left_open(tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        results = run_tasks(squares(6), tmp_path / "out", engine=executor, search=TESTS)
        assert executor.submit(abs, -1).result() == 1
    assert digests(results) == digests(run_tasks(squares(6), tmp_path / "alone", workers=1))


def test_an_executor_that_breaks_is_named_and_finished_runs_are_kept(tmp_path: Path) -> None:
    deadly = Task("helpers.sweep_runs:die", {"log": str(tmp_path / "log"), "times": 1})
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        run_tasks(squares(2), tmp_path / "out", engine=executor, search=TESTS)
        with pytest.raises(SweepError, match="the executor accepts no more runs"):
            run_tasks([deadly], tmp_path / "out", engine=executor, search=TESTS)
    assert complete(squares(2), tmp_path / "out", workers=1).found == 2


def test_what_a_run_prints_and_reads_does_not_disturb_its_worker(engine: Executor, tmp_path: Path) -> None:
    task = Task("helpers.sweep_runs:talk", {})
    assert run_tasks([task], tmp_path, engine=engine)[0].values == {"heard": ""}


def test_a_death_costs_its_own_run_which_is_tried_again(engine: Executor, tmp_path: Path) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    deadly = Task("helpers.sweep_runs:die", {"log": str(log), "times": 2})
    results = run_tasks([deadly, *squares(6, log=str(other), seconds=0.05)], tmp_path / "out", engine=engine)
    assert results[0].values == {"survived": True}
    assert log.read_text().count("die") == 3
    assert Counter(other.read_text().splitlines()) == {f"run {x}": 1 for x in range(6)}


def test_failures_are_listed_when_all_else_is_done(engine: Executor, tmp_path: Path) -> None:
    deadly = Task("helpers.sweep_runs:die", {"log": str(tmp_path / "deaths"), "times": 99})
    wrong = Task("helpers.sweep_runs:fail", {"log": str(tmp_path / "wrong"), "error": "value"})
    unlucky = Task("helpers.sweep_runs:fail", {"log": str(tmp_path / "unlucky"), "error": "disk"})
    tasks = [deadly, wrong, unlucky, *squares(4)]
    with pytest.raises(SweepError, match="3 runs failed") as caught:
        run_tasks(tasks, tmp_path / "out", engine=engine)
    lines = {line.split()[0]: line for line in str(caught.value).splitlines()[1:] if "fail " not in line}
    assert "the worker process died: SIGKILL(-9)" in lines["helpers.sweep_runs:die"]
    assert "(tried 3 times)" in lines["helpers.sweep_runs:die"]
    assert "ValueError: no such luck (sweep_runs.py" in str(caught.value)
    # What a run raises it will raise again; what a machine does to it may pass.
    assert (tmp_path / "wrong").read_text().count("fail") == 1
    assert (tmp_path / "unlucky").read_text().count("fail") == 3
    assert complete(squares(4), tmp_path / "out", workers=1).found == 4


def test_the_reason_of_a_retry_is_shown(engine: Executor, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deadly = Task("helpers.sweep_runs:die", {"log": str(tmp_path / "log"), "times": 1}, "deadly")
    run_tasks([deadly], tmp_path / "out", engine=engine, progress=True)
    assert capsys.readouterr().err == "deadly: the worker process died: SIGKILL(-9); trying again\n"


def test_the_message_of_a_result_that_cannot_be_stored_names_it(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"helpers\.sweep_runs:odd_result returned 'list' as list"):
        run_tasks([Task("helpers.sweep_runs:odd_result", {})], tmp_path, workers=1)


@pytest.mark.parametrize("name", ["no_such_module:f", "helpers.sweep_runs:no_such_function"])
def test_a_function_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=name):
        run_tasks([Task(name, {})], tmp_path, workers=1)


def test_another_version_of_the_kernels_is_not_passed_off_as_this_one() -> None:
    (task,) = squares(1)
    outcome = perform_here(Call("0" * 40, task.function, dict(task.config), None))
    assert "different versions" in outcome.message
    assert outcome.payload is None


def test_a_run_that_another_sweep_has_made_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    first, second = squares(2, log=str(tmp_path / "log"))
    store = Store.create(tmp_path / "out")

    class Elsewhere(InProcess):
        """After the first run, the second one is there."""

        def submit(self, fn: Any, /, *args: Any, **options: Any) -> Any:
            future = super().submit(fn, *args, **options)
            store.write(Result.of(second, {"square": 1}, 0.0))
            return future

    done = complete([first, second], store.folder, engine=Elsewhere())
    assert (done.found, done.made) == (1, 1)
    assert (tmp_path / "log").read_text() == "run 0\n"


def test_progress_counts_the_runs_that_were_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peakrl.progress.FIRST_LINE", 0.0)
    run_tasks(squares(2), tmp_path, workers=1)
    run_tasks(squares(4), tmp_path, workers=1, progress=True, title="Squares")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["3/4", "4/4"]
    assert all(line.startswith("Squares: ") and "failed 0" in line for line in lines)


def test_nothing_runs_in_a_folder_of_another_schema(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out")
    FOLDER._replace(schema=0).write(store.folder / MARKER, Record({}, {}))
    with pytest.raises(StorageError, match="schema 0"):
        run_tasks(squares(1, log=str(tmp_path / "log")), store.folder, workers=1)
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"engine": "spark"}, "engine is 'spark'; it must be a concurrent.futures.Executor"),
        ({"retries": -1}, "retries is -1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], culprit: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=culprit):
        run_tasks(squares(1), tmp_path / "out", **options)


def test_modules_of_the_current_folder_do_not_replace_installed_ones_in_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random", "numpy", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the current folder was run')")
    (tmp_path / "beside.py").write_text("def double(config):\n    return {'value': 2 * config['number']}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    tasks = [Task("beside:double", {"number": number}) for number in range(2)]
    results = run_tasks(tasks, tmp_path / "out", workers=2)
    assert [result.values["value"] for result in results] == [0, 2]
