"""The page of a run while it goes on: `peakrl train FILE --live`.

    the run's thread     watch: notes how far it is; where a page is wanted, copies the run (nothing else waits)
    one more thread      builds pages from copies, while somebody looks, at most a tenth of the time
    a thread a request   `live_server`: the page, the news, the content

Building, serving and looking never stop the run: what fails is told on the page and once on standard error.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from peakrl.certifying.environment_findings import EnvironmentFindings
from peakrl.certifying.findings import ModelFindings, RunFindings
from peakrl.learning.history import History
from peakrl.model.tabular import TabularModel
from peakrl.report.environment_sections import environment_section
from peakrl.report.live_server import LiveServer
from peakrl.report.page import Live, Page
from peakrl.report.run_sections import section_of

if TYPE_CHECKING:
    from peakrl.learning.run import LearningRun
    from peakrl.learning.watching import RunView
    from peakrl.report.blocks import Section

#: Seconds between two pages at least, and the share of the time that copying and building may take.
LEAST, SHARE = 2.0, 0.1
#: Seconds between two looks at whether a page is wanted; that a question for news is held; since the last question
#: during which a page counts as open; that open pages have to fetch the end of a run.
TICK, HELD, OPEN, FAREWELL = 0.1, 1.0, 5.0, 3.0
OVER = ("finished", "interrupted", "failed")

Build = Callable[["LearningRun", str, ModelFindings | None], "list[Section]"]


def build_sections(run: LearningRun, name: str, known: ModelFindings | None) -> list[Section]:
    """Return what the page says of a run; of an environment there is no model that anything is known of."""
    if known is None:
        return [environment_section(EnvironmentFindings(run, None), name)]
    return [section_of(RunFindings.of(run, known, at_once=True), name)]


class LiveView:
    """A page on loopback that follows a run; `watch` goes to `learn`, and leaving the context ends it."""

    def __init__(self, name: str, port: int = 0, build: Build = build_sections) -> None:
        self.name, self._build = name, build
        #: Tells this run from another that may take its port, and one page from the next.
        self.token, self.version = secrets.token_hex(8), 0
        self._page, self._content = self._page_of([]), b"{}"
        self._known: ModelFindings | None = None
        #: Episode, value and violation at each page so far, of a run that keeps no history.
        self._points: list[tuple[int, float, float]] = []
        #: Held for a moment only by all threads, and while a page is built.
        self._change, self._building = threading.Condition(), threading.Lock()
        self._state, self._trouble = "starting", ""
        self._begin, self._done, self._total, self._violations = 0, 0, 0, 0
        self._begun = self._latest = time.monotonic()
        #: Is a copy wanted, and the copy with the seconds that it took.
        self._wanted = False
        self._copy: tuple[float, LearningRun | None] = (0.0, None)
        #: [time of the last question, whether it knows the end] of each open page.
        self._readers: dict[str, tuple[float, bool]] = {}
        self._closed = threading.Event()
        self._server = LiveServer(self, port)
        self._builder = threading.Thread(target=self._build_pages, name="peakrl page builder", daemon=True)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._server.server_port}/"

    # The run's thread ------------------------------------------------------------------------------------------------

    def watch(self, moment: RunView) -> None:
        """Note how far the run is, and copy it where a page is to be built."""
        now = time.monotonic()
        with self._change:
            if self._state == "starting":
                self._state, self._begin, self._begun = "running", moment.episodes, now
                self._change.notify_all()
            self._done, self._total, self._violations = moment.episodes, moment.goal, moment.violations
            self._latest = now
            wanted = self._wanted and moment.episodes > 0
        if not wanted:
            return
        try:
            run = moment.run()
        except Exception as error:  # too little memory for a copy, say: the run itself can go on
            run = None
            self._complain(error)
        with self._change:
            self._wanted, self._copy = False, (time.monotonic() - now, run)
            self._change.notify_all()

    def finish(self, run: LearningRun) -> None:
        """The run is over: build its last page, if anybody looks."""
        with self._change:
            self._done, self._violations = run.episodes, run.violations
            self._total = max(self._total, run.episodes)
        if self._looked_at():
            self._publish(run)
        self._end("finished")

    # Building --------------------------------------------------------------------------------------------------------

    def _build_pages(self) -> None:
        shown, pause = 0, TICK
        while not self._closed.wait(pause):
            pause = TICK
            if not self._looked_at() or self._done == shown:
                continue
            seconds, run = self._take_copy()
            if run is not None and self._state not in OVER:
                begun = time.monotonic()
                self._publish(run)
                shown, seconds = run.episodes, seconds + time.monotonic() - begun
            pause = max(LEAST, seconds * (1 / SHARE - 1))

    def _take_copy(self) -> tuple[float, LearningRun | None]:
        """Ask the run's thread for a copy and wait for it."""
        with self._change:
            self._wanted = True
            self._change.wait_for(lambda: not self._wanted or self._state in OVER)
            copied, self._copy = self._copy, (0.0, None)
            return copied

    def _page_of(self, sections: Sequence[Section]) -> Page:
        return Page(f"Live: {self.name}", self.name, sections, Live(self.token, self.version))

    def _publish(self, run: LearningRun) -> None:
        """Build a page and show it to those who look."""
        with self._building:
            try:
                if not isinstance(run.model, TabularModel):
                    self._known = None
                elif self._known is None or self._known.model is not run.model:
                    self._known = ModelFindings(run.model)
                page = self._page_of(self._build(self._with_curve(run, self._known), self.name, self._known))
                news = {"version": self.version + 1, "html": page.content(), "data": page.data}
                content = json.dumps(news, allow_nan=False, ensure_ascii=False).encode()
            except Exception as error:  # whatever it is: the run goes on
                self._complain(error)
                return
            with self._change:
                if self._state in OVER:
                    return
                self.version += 1
                self._page, self._content, self._trouble = self._page_of(page.sections), content, ""
                self._change.notify_all()

    def _with_curve(self, run: LearningRun, known: ModelFindings | None) -> LearningRun:
        """Return a run whose history, where it keeps none, is made of the policies that were looked at."""
        if len(run.history) or known is None:
            return run
        found = known.evaluated(run.policy)
        self._points.append((run.episodes, found.value, found.violation))
        episode, value, violation = np.array(self._points).T
        unknown = [np.full(len(episode), np.nan) for _ in range(4)]
        return replace(run, history=History(episode.astype(np.int64), value, violation, *unknown))

    def _complain(self, error: Exception) -> None:
        """Tell of a failure: on the page, and on standard error where it is another one than last time."""
        words = f"{type(error).__name__}: {error}"
        with self._change:
            known, self._trouble = self._trouble == words, words
        if not known:
            print(f"peakrl: the live page could not be built ({words}); learning goes on", file=sys.stderr)

    # Answers ---------------------------------------------------------------------------------------------------------

    def _looked_at(self) -> bool:
        """Is a page open?"""
        now = time.monotonic()
        with self._change:
            self._readers = {reader: seen for reader, seen in self._readers.items() if now - seen[0] <= OPEN}
            return bool(self._readers)

    def html(self) -> str:
        """Return the whole page as it stands."""
        with self._change:
            self._readers["a page that is opening"] = (time.monotonic(), True)
        return self._page.html()

    def content(self) -> bytes:
        """Return the latest content, as JSON."""
        return self._content

    def news(self, reader: str = "", seen: int = -1) -> dict[str, Any]:
        """Return how the run stands; a reader who has seen the latest page waits a little for the next."""
        with self._change:
            if reader:
                state = self._state
                self._readers[reader] = (time.monotonic(), False)
                self._change.wait_for(lambda: seen != self.version or state != self._state or state in OVER, HELD)
                self._readers[reader] = (time.monotonic(), seen == self.version and self._state in OVER)
                self._change.notify_all()
            elapsed = self._latest - self._begun
            return {
                "run": self.token,
                "version": self.version,
                "state": self._state,
                "done": self._done,
                "total": self._total,
                "rate": (self._done - self._begin) / elapsed if elapsed > 0 else 0.0,
                "violations": self._violations,
                "trouble": self._trouble,
            }

    # Beginning and end -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._server.start()
        self._builder.start()
        return self

    def _end(self, state: str) -> None:
        """Say how it ended; what was said first stands."""
        with self._change:
            if self._state not in OVER:
                self._state = state
            self._change.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)
        self._end("interrupted" if stopped else "failed" if kind is not None else "finished")
        self._closed.set()
        try:
            if self._looked_at():
                with self._change:
                    self._change.wait_for(lambda: all(told for _, told in self._readers.values()), FAREWELL)
        finally:
            self._server.stop()
            self._builder.join(FAREWELL)
