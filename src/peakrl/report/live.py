"""The report page of a run while it learns: `peakrl train FILE --live`.

A thread serves the latest page on this computer only. While a page is open, `watch` builds a new one every few seconds
(at most 10 % of the time); open pages poll the version and reload.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from peakrl.errors import SettingsError
from peakrl.report.analysis import ModelAnalysis, RunAnalysis
from peakrl.report.page import Page
from peakrl.report.sections import section_of
from peakrl.tabular import TabularModel

if TYPE_CHECKING:
    from peakrl.report.blocks import Section
    from peakrl.training.run import LearningRun, RunView

#: Least seconds between two pages; most share of the time for building; seconds since the last request of an open page.
LEAST, SHARE, OPEN = 2.0, 0.1, 5.0
#: Names of this computer, with any port (ssh -L may forward another one).
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)


class LiveView:
    """Serves the page of a run while it learns: pass `watch` to `learn`, and leave the context afterwards."""

    def __init__(self, name: str, port: int = 0) -> None:
        self.name, self.state, self.version = name, "starting", 0
        self._known: ModelAnalysis | None = None
        self._page = Page(f"Live: {name}", name, [], live=0).html().encode()
        self._asked = self._next = 0.0
        self._trouble = ""
        view = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                with suppress(ConnectionError):  # the browser closed the connection
                    view._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise SettingsError(f"cannot serve on port {port} of 127.0.0.1 ({error}); choose another port") from error
        self.address = f"http://127.0.0.1:{self._server.server_port}/"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer `/` and `/state`; refuse requests for another host name (DNS rebinding)."""
        self._asked = time.monotonic()
        state = {"version": self.version, "state": self.state}
        found = {"/": ("text/html", self._page), "/state": ("application/json", json.dumps(state).encode())}
        kind, body = found.get(request.path, ("text/plain", b""))
        known = HOSTS.fullmatch(request.headers.get("Host", "")) is not None
        request.send_response(403 if not known else 200 if body else 404)
        request.send_header("Content-Type", f"{kind}; charset=utf-8")
        request.send_header("Content-Length", str(len(body) if known else 0))
        request.send_header("Cache-Control", "no-store")
        request.send_header("Cross-Origin-Resource-Policy", "same-origin")
        request.send_header("X-Frame-Options", "DENY")
        request.end_headers()
        request.wfile.write(body if known else b"")

    def watch(self, moment: RunView) -> None:
        """Update the progress, and build a page if one is open."""
        done, now = moment.episodes, time.monotonic()
        self.state = f"{done:,} of {moment.goal:,} episodes, {moment.violations:,} with a violation{self._trouble}"
        if done and now >= self._next and now - self._asked < OPEN:
            self._build(moment.run)
            self._next = time.monotonic() + max(LEAST, (time.monotonic() - now) * (1 / SHARE - 1))

    def finish(self, run: LearningRun) -> None:
        """Show the finished run."""
        self.state = f"finished after {run.episodes:,} episodes, {run.violations:,} with a violation"
        if time.monotonic() - self._asked < OPEN:
            self._build(lambda: run)

    def _build(self, copy: Any) -> None:
        try:
            page = Page(f"Live: {self.name}", self.name, [self._section(copy())], live=self.version + 1)
            self._page, self.version, self._trouble = page.html().encode(), self.version + 1, ""
        except Exception as error:  # the run continues in any case
            if not self._trouble:
                print(f"peakrl: the live page could not be built ({error}); learning continues", file=sys.stderr)
            self._trouble = f" (the page could not be built: {error})"

    def _section(self, run: LearningRun) -> Section:
        if isinstance(run.model, TabularModel) and (self._known is None or self._known.model is not run.model):
            self._known = ModelAnalysis(run.model)
        return section_of(RunAnalysis(run, self._known, at_once=True), self.name)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self.state = f"ended by {kind.__name__} after {self.state}"
        if time.monotonic() - self._asked < OPEN:
            time.sleep(2.0)  # let open pages fetch the final state
        self._server.shutdown()
        self._server.server_close()
