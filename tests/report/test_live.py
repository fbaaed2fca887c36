"""The page of a run that goes on: what its server answers, to whom, and that the run does not notice."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peakrl
from helpers.commands import TINY, caller
from helpers.report_pages import Corridor, Taken
from peakrl import ConstrainedEnv, compile_model, learn
from peakrl.errors import SettingsError
from peakrl.learners import SafeQ
from peakrl.problems import energy_harvesting
from peakrl.report.live import LiveView
from peakrl.training import load_run
from peakrl.training.run import RunView
from peakrl.training.trainer import Trainer

MODEL = compile_model(energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1))
SETTINGS = SafeQ()
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakrl.report.live.LEAST", 0.0)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    return caller(monkeypatch, capsys, tmp_path)


class Answer:
    """What a server said."""

    def __init__(self, port: int, path: str = "/", method: str = "GET", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        # Closed also where the server is gone before it has answered.
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
            connection.putrequest(method, path, skip_host="Host" in named)
            for name, value in named.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            self.status, self.body, self.headers = answer.status, answer.read(), dict(answer.getheaders())

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def port_of(view: LiveView) -> int:
    return int(view.address.rpartition(":")[2].strip("/"))


def moment(episodes: int = 30) -> RunView:
    learner = Trainer(MODEL, SETTINGS, planned=400, seed=0, every=1)
    learner.advance(episodes)
    return RunView(learner, 400)


def test_an_open_page_follows_the_run_to_its_end() -> None:
    with LiveView("small") as view:
        port = port_of(view)
        assert Answer(port, "/state").json == {"version": 0, "state": "starting"}
        view.watch(moment(30))
        told = Answer(port, "/state").json
        assert told["version"] == 1
        assert told["state"].startswith("30 of 400 episodes")
        page = Taken(Answer(port).body.decode())
        assert page.data["run-small-gap"]["series"][0]["x"][-1] == 30
        assert "connect-src 'self'" in next(found["content"] for _, found in page.tags if "http-equiv" in found)
        view.finish(moment(400).run())
        assert Answer(port, "/state").json["version"] == 2
        assert Answer(port, "/state").json["state"].startswith("finished after 400 episodes")
    with pytest.raises(ConnectionError):
        Answer(port)


def test_nothing_is_built_unless_a_page_is_open() -> None:
    with LiveView("small") as view:
        view.watch(moment())
        view.finish(moment().run())
        assert view.version == 0


def test_a_page_takes_a_tenth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    with LiveView("small") as view:
        Answer(port_of(view), "/state")
        monkeypatch.setattr(view, "_build", lambda _: time.sleep(0.1))
        begun = time.monotonic()
        view.watch(moment())
        assert view._next - begun > 0.99


def test_a_page_that_cannot_be_built_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with LiveView("small") as view:
        monkeypatch.setattr(view, "_section", lambda _: 1 / 0)
        Answer(port_of(view), "/state")
        for _ in range(3):
            view.watch(moment())
        assert "could not be built: division" in Answer(port_of(view), "/state").json["state"]
    assert capfd.readouterr().err.count("division by zero") == 1


@pytest.mark.parametrize("path", ["/index.html", "/..", "/%2e%2e/etc/passwd", "/state/", "http://127.0.0.1/"])
def test_no_other_path_is_answered(path: str) -> None:
    with LiveView("small") as view:
        answer = Answer(port_of(view), path)
        assert (answer.status, answer.body) == (404, b"")


@pytest.mark.parametrize("host", ["evil.example:80", "127.0.0.1.evil.example:80", "", "evil.example"])
def test_a_request_to_another_name_is_refused(host: str) -> None:
    with LiveView("small") as view:
        answer = Answer(port_of(view), Host=host)
        assert (answer.status, answer.body) == (403, b"")


@pytest.mark.parametrize("port", [-1, 1 << 16])
def test_a_port_that_cannot_be_is_named(port: int) -> None:
    with pytest.raises(SettingsError, match=f"port {port}"):
        LiveView("small", port)


def test_a_port_that_is_taken_is_named() -> None:
    with LiveView("small") as view, pytest.raises(SettingsError, match=f"port {port_of(view)}"):
        LiveView("other", port_of(view))


def test_how_a_run_ended_is_told_before_the_server_goes() -> None:
    view, told = LiveView("small"), []
    view.__enter__()
    view.watch(moment())
    Answer(port_of(view), "/state")
    closing_thread = threading.Thread(target=view.__exit__, args=(KeyboardInterrupt,))
    closing_thread.start()
    while closing_thread.is_alive() and not (told and "KeyboardInterrupt" in told[-1]):
        told.append(Answer(port_of(view), "/state").json["state"])
    closing_thread.join(PATIENCE)
    assert told[-1].startswith("ended by KeyboardInterrupt after 30 of 400 episodes")


def test_the_page_follows_a_run_on_an_environment() -> None:
    with LiveView("corridor") as view:
        Answer(port_of(view), "/state")
        run = learn(ConstrainedEnv(Corridor(0.3), horizon=6, reward_range=(0, 1)), episodes=60, watch=view.watch)
        view.finish(run)
        page = Answer(port_of(view)).body.decode()
    assert f"{run.model.num_states:,} states and {run.model.num_pairs:,} pairs visited" in page
    assert "run-corridor-value" in Taken(page).data


# The command ---------------------------------------------------------------------------------------------------------


def test_a_run_with_a_page_is_the_same_bit_for_bit(command: Any, tmp_path: Path) -> None:
    assert command("train", "tiny.toml", "--episodes", "1000000", "--out", "plain.run")[0] == 0
    over, versions = threading.Event(), [0]

    def look(port: int) -> None:
        while not over.is_set():
            with suppress(OSError):
                versions.append(Answer(port, "/state").json["version"])
            time.sleep(0.01)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    reader = threading.Thread(target=look, args=(port,))
    reader.start()
    try:
        arguments = ["--episodes", "1000000", "--out", "live.run", "--live", "--port", str(port), "--json"]
        code, out, error = command("train", "tiny.toml", *arguments)
    finally:
        over.set()
        reader.join(PATIENCE)
    assert code == 0
    assert f"http://127.0.0.1:{port}/" in error
    assert json.loads(out)["episodes"] == 1000000
    assert versions[-1] >= 2  # at least one page was built on the way
    plain, live = load_run("plain.run"), load_run("live.run")
    assert plain.q.tobytes() == live.q.tobytes()
    assert plain.policy.rows.tobytes() == live.policy.rows.tobytes()
    for name, column in plain.history.columns().items():
        assert np.array_equal(column, live.history.columns()[name])
    assert plain.averaged_policy.change_episode.tobytes() == live.averaged_policy.change_episode.tobytes()


def test_a_resumed_run_can_be_watched(command: Any) -> None:
    command("train", "tiny.toml", "--out", "a.run")
    code, _, error = command("train", "--resume", "a.run", "--episodes", "500", "--live")
    assert code == 0
    assert "live page at http://127.0.0.1:" in error
    assert (
        load_run("a.run").q.tobytes()
        == learn(load_run("a.run").model, load_run("a.run").settings, episodes=500).q.tobytes()
    )


def test_the_examples_of_the_documentation_run(command: Any) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: one of the examples needs it")
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    section = page.split("### Watching a run")[1].split("##")[0]
    lines = [line.split()[1:] for line in section.splitlines() if line.startswith("    peakrl train")]
    assert {"--live", "--tensorboard"} <= {word for line in lines for word in line}
    assert command("init", "mine")[0] == 0
    for line in lines:
        assert command(*line, "--episodes", "30", "--overwrite")[0] == 0


def test_a_port_without_a_page_is_refused(command: Any) -> None:
    code, out, error = command("train", "tiny.toml", "--port", "8000")
    assert (code, out) == (2, "")
    assert "--live" in error


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_a_watched_run_and_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    source = str(Path(peakrl.__file__).parents[1])
    arguments = ["train", "tiny.toml", "--episodes", "2000000000", "--out", "a.run", "--live", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from peakrl.cli import main; main()", *arguments],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source},
    )
    assert process.stderr is not None
    overdue = threading.Timer(120, process.kill)
    overdue.start()
    address = process.stderr.readline()
    port = int(address.split("127.0.0.1:")[1].split("/")[0])
    while " of " not in Answer(port, "/state").json["state"]:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    overdue.cancel()
    assert (process.returncode, out) == (130, "")
    assert "interrupted; the run so far is in a.run" in error
    assert load_run(tmp_path / "a.run").episodes > 0
