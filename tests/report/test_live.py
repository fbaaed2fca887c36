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
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peakrl
from helpers.commands import TINY, caller
from helpers.report_pages import Corridor, Taken
from helpers.watched_runs import PacedRun
from peakrl import LearnerSettings, compile_model, energy_harvesting, evaluate, learn, load_run, solve
from peakrl.errors import SettingsError
from peakrl.learning.active import ActiveRun
from peakrl.learning.watching import RunView
from peakrl.report.live import LiveView
from peakrl.report.live_server import HEADERS, LiveServer

MODEL = compile_model(energy_harvesting(horizon=4, battery=4, peak_power=3, max_arrival=4, mean=2, std=1))
PATIENCE = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakrl.report.live.LEAST", 0.1)


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


class Fixed:
    """Something to serve."""

    def html(self) -> str:
        return "<p>the page</p>"

    def content(self) -> bytes:
        return b'{"version": 1}'

    def news(self, reader: str = "", seen: int = -1) -> dict[str, Any]:
        return {"reader": reader, "seen": seen}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = LiveServer(Fixed())
    server.start()
    yield server.server_port
    server.stop()


def moment(episodes: int = 30) -> RunView:
    learner = ActiveRun(MODEL, LearnerSettings.practical(), planned=400, seed=0, every=1)
    learner.advance(episodes)
    return RunView(learner, 400)


# The server ----------------------------------------------------------------------------------------------------------


def test_three_paths_are_answered(port: int) -> None:
    assert Answer(port).body == b"<p>the page</p>"
    assert Answer(port, "/content").json == {"version": 1}
    assert Answer(port, "/news?page=abc&seen=7").json == {"reader": "abc", "seen": 7}
    assert Answer(port, "/news").json == {"reader": "", "seen": -1}


@pytest.mark.parametrize(
    "path", ["/index.html", "/..", "/%2e%2e/etc/passwd", "/content/", "/templates/live.js", "http://127.0.0.1/"]
)
def test_no_other_path_is(path: str, port: int) -> None:
    assert Answer(port, path).status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(method: str, port: int) -> None:
    answer = Answer(port, "/", method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_head_tells_the_length_only(port: int) -> None:
    answer = Answer(port, "/", "HEAD")
    assert (answer.status, answer.body, answer.headers["Content-Length"]) == (200, b"", "15")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil", "localhost.evil", "", "*"])
def test_a_request_to_another_name_is_refused(host: str, port: int) -> None:
    for path in ("/", "/news", "/content"):
        assert Answer(port, path, Host=host).status == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:80"])
def test_a_name_of_this_computer_is_not(host: str, port: int) -> None:
    assert Answer(port, "/", Host=host).status == 200


def test_other_sites_learn_nothing(port: int) -> None:
    assert Answer(port, "/news", Sec_Fetch_Site="cross-site").status == 403
    assert Answer(port, "/content", Sec_Fetch_Site="same-site").status == 403
    assert Answer(port, "/", Sec_Fetch_Site="cross-site").status == 200  # a link may lead here
    headers = Answer(port, "/news", Origin="http://evil.example").headers
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert HEADERS.items() <= headers.items()


@given(query=st.text(max_size=60))
@settings(max_examples=30)
def test_any_question_gets_an_answer(query: str, port: int) -> None:
    path = "/news?" + "".join(f"%{byte:02x}" if byte <= 32 or byte > 126 else chr(byte) for byte in query.encode())
    assert Answer(port, path).status == 200


def test_only_this_computer_can_connect(port: int) -> None:
    with socket.socket() as other:
        other.settimeout(2)
        # Loopback has a whole network of addresses; the server is at one of them.
        assert other.connect_ex(("127.0.0.2", port)) != 0


def test_a_port_that_is_taken_is_named(port: int) -> None:
    with pytest.raises(SettingsError, match=f"cannot serve on port {port}"):
        LiveServer(Fixed(), port)
    with pytest.raises(SettingsError, match="from 1 to 65535"):
        LiveServer(Fixed(), 70000)


def test_a_reader_who_goes_away_is_not_missed(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for part in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # hang up hard
            gone.sendall(part)
    assert Answer(port).status == 200
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_a_reader_who_asks_a_byte_at_a_time_is_parted_with(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte every 0.1 s never lets a single wait become long; the whole question must not take longer all the same."""
    monkeypatch.setattr("peakrl.report.live_server.Handler.timeout", 0.5)
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port)) as slow, suppress(ConnectionError):
        slow.settimeout(0.1)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        while time.monotonic() - begun < 20:
            slow.sendall(b"X")
            with suppress(TimeoutError):
                if slow.recv(1000) == b"":
                    break
    assert 0.4 < time.monotonic() - begun < 10
    assert Answer(port).status == 200


# The view ------------------------------------------------------------------------------------------------------------


def port_of(view: LiveView) -> int:
    return int(view.address.rsplit(":", 1)[1].strip("/"))


def news(view: LiveView, **wanted: Any) -> dict[str, Any]:
    """Ask for news as a page does, until they are as wanted."""
    end, seen = time.monotonic() + PATIENCE, 0
    while True:
        found: dict[str, Any] = Answer(port_of(view), f"/news?page=me&seen={seen}").json
        if all(found[name] == value for name, value in wanted.items()):
            return found
        assert time.monotonic() < end, found
        seen = found["version"]


def page_at(view: LiveView, episodes: int) -> dict[str, Any]:
    """Return the content once its curve ends at an episode."""
    end = time.monotonic() + PATIENCE
    while True:
        told = news(view)
        content: dict[str, Any] = Answer(port_of(view), "/content").json
        if content and content["data"]["run-small-gap"]["series"][0]["x"][-1] == episodes:
            assert content["version"] >= told["version"]
            return content
        assert told["done"] <= episodes
        assert time.monotonic() < end, told


def test_the_page_follows_the_run_to_its_end() -> None:
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        assert news(view, state="running")["total"] == 400
        run.go_on_to(50)
        content = page_at(view, 50)
        assert news(view, done=50)["violations"] == run.learner.counters[0]
        whole = Taken(Answer(port_of(view)).body.decode())
        assert whole.data == content["data"]
        assert "connect-src 'self'" in next(found["content"] for _, found in whole.tags if "http-equiv" in found)
        run.go_on_to(400)
        last = news(view, state="finished")
        assert (last["done"], last["total"]) == (400, 400)
        assert page_at(view, 400)["version"] == last["version"]


def test_a_run_without_history_has_a_curve_of_what_was_looked_at() -> None:
    with LiveView("small") as view, PacedRun(view, MODEL, every=0) as run:
        for episodes in (50, 100):
            run.go_on_to(episodes)
            series = page_at(view, episodes)["data"]["run-small-gap"]["series"]
        assert [one["name"] for one in series] == [
            "what an episode followed, trying things out", "what is handed out at the end",
        ]  # fmt: skip
        assert {50, 100} <= set(series[0]["x"])
        exact = evaluate(MODEL, learn(MODEL, LearnerSettings.practical(), episodes=100).policy).value
        assert series[0]["y"][-1] == pytest.approx(solve(MODEL).value - exact, rel=1e-6)


def test_nothing_is_copied_or_built_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []
    monkeypatch.setattr(RunView, "run", lambda self: copies.append(self.episodes))
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        run.go_on_to(200)
        time.sleep(0.5)
    assert copies == []
    assert view.version == 0


def test_a_page_takes_a_tenth_of_the_time_at_most() -> None:
    built: list[tuple[float, float]] = []

    def slow(*_: Any) -> list[Any]:
        begun = time.monotonic()
        time.sleep(0.2)
        built.append((begun, time.monotonic()))
        return []

    with LiveView("small", build=slow) as view:
        standing, end = moment(), time.monotonic() + PATIENCE
        while len(built) < 2 and time.monotonic() < end:
            standing.active.advance(1)
            view.watch(standing)
            view.html()  # somebody opens it again and again
            time.sleep(0.01)
    assert built[1][0] - built[0][1] >= 9 * 0.2


def test_a_page_that_cannot_be_built_does_not_stop_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(*_: Any) -> list[Any]:
        raise RuntimeError("no ink")

    with LiveView("small", build=broken) as view, PacedRun(view, MODEL) as run:
        run.go_on_to(50)
        assert news(view, trouble="RuntimeError: no ink")["state"] == "running"
        run.go_on_to(400)
        assert news(view, state="finished")["done"] == 400
    assert run.wait().episodes == 400
    assert capfd.readouterr().err.count("the live page could not be built (RuntimeError: no ink)") == 1


def test_a_run_that_cannot_be_copied_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: RunView) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(RunView, "run", full)
    with LiveView("small") as view, PacedRun(view, MODEL) as run:
        run.go_on_to(50)
        assert news(view, trouble="MemoryError: no room")["state"] == "running"
    assert run.wait().episodes == 400


@pytest.mark.parametrize(
    ("error", "state"),
    [(None, "finished"), (KeyboardInterrupt, "interrupted"), (SystemExit, "interrupted"), (OSError, "failed")],
)
def test_how_a_run_ended_is_told_before_the_server_goes(error: type[BaseException] | None, state: str) -> None:
    view = LiveView("small")
    told: list[dict[str, Any]] = []

    def follow() -> None:
        while not told or told[-1]["state"] == "running":
            told.append(Answer(port_of(view), "/news?page=me&seen=0").json)

    with view:
        view.watch(RunView(ActiveRun(MODEL, LearnerSettings.practical(), planned=9, seed=0, every=1), 9))
        reader = threading.Thread(target=follow)
        reader.start()
        while not told:
            time.sleep(0.01)
        view.__exit__(error, None, None)
    reader.join(PATIENCE)
    assert told[-1]["state"] == state
    with pytest.raises(ConnectionError):
        Answer(port_of(view))


# The command ---------------------------------------------------------------------------------------------------------


def test_a_run_with_a_page_is_the_same_bit_for_bit(command: Any, tmp_path: Path) -> None:
    assert command("train", "tiny.toml", "--episodes", "1000000", "--out", "plain.run")[0] == 0
    over, versions = threading.Event(), [0]

    def look(port: int) -> None:
        while not over.is_set():
            try:
                versions.append(Answer(port, f"/news?page=me&seen={versions[-1]}").json["version"])
                Answer(port, "/content")
            except OSError:
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
    assert "watch the run on http://127.0.0.1:" in error
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
    address = process.stderr.readline()
    port = int(address.split("127.0.0.1:")[1].split("/")[0])
    while Answer(port, "/news").json["done"] == 0:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "interrupted; a.run holds the run so far" in error
    assert load_run(tmp_path / "a.run").episodes > 0


def test_the_page_follows_a_run_on_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Any] = []
    with LiveView("corridor") as view:

        def watch(moment: RunView) -> None:
            view.watch(moment)
            if moment.episodes:
                view._publish(moment.run())
                told.append(json.loads(view.content()))

        run = learn(Corridor(0.3), episodes=60, horizon=6, reward_range=(0, 1), watch=watch)
        assert view.news()["trouble"] == ""
    assert told[-1]["version"] == len(told) > 0
    assert (
        f"{run.model.num_states:,} states and {run.model.num_pairs:,} pairs of a state and an action were met"
        in told[-1]["html"]
    )
    assert "run-corridor-value" in told[-1]["data"]
