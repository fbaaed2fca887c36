"""The server behind a live page: three paths, on loopback only.

    /           the page, complete
    /news       how the run stands and which version of the page is the latest (JSON)
    /content    the latest sections and their data, for a page that is open already (JSON)

It answers GET and HEAD. A request must be addressed to this computer by one of its own names: a foreign name that was
made to lead here (DNS rebinding) is refused. News and content are told to the page itself only, not to other sites.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from peakrl.errors import SettingsError

LOOPBACK = "127.0.0.1"
#: Names of this computer; a port that is forwarded (ssh -L) may have any number.
HOSTS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
READER = re.compile(r"[a-z0-9]{1,16}")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class View(Protocol):
    """What there is to serve."""

    def html(self) -> str:
        """Return the whole page."""
        ...

    def content(self) -> bytes:
        """Return the latest content, as JSON."""
        ...

    def news(self, reader: str = "", seen: int = -1) -> dict[str, Any]:
        """Return how the run stands."""
        ...


class LiveServer(ThreadingHTTPServer):
    """Serves a view until it is stopped, each request in a thread of its own."""

    daemon_threads = True

    def __init__(self, view: View, port: int = 0) -> None:
        self.view = view
        if not 0 <= port < 1 << 16:
            raise SettingsError(f"port is {port}; it must be from 1 to 65535, or 0 for any free one")
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            raise SettingsError(
                f"cannot serve on port {port} of {LOOPBACK}: {error.strerror or error}; name another port, or none"
            ) from error
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="peakrl page server", daemon=True)

    def server_bind(self) -> None:
        """Take the port; unlike its parent this asks nobody what the computer is called."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Serve no more."""
        if self._thread.is_alive():
            self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of readers who went away; anything else gets a line."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"peakrl: the live page did not answer ({type(error).__name__}: {error})", file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: LiveServer
    #: Seconds that a reader may take to ask, and to take the answer.
    timeout = 10

    def setup(self) -> None:
        """Begin: a request must be complete in time, however many bytes it comes in."""
        super().setup()
        self._clock = threading.Timer(self.timeout, self.cut)
        self._clock.daemon = True
        self._clock.start()

    def parse_request(self) -> bool:
        """Read the rest of the request; then the reader has asked."""
        complete = super().parse_request()
        self._clock.cancel()
        return complete

    def finish(self) -> None:
        """End."""
        self._clock.cancel()
        super().finish()

    def cut(self) -> None:
        """Part with a reader who takes too long to ask."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer, or say why not."""
        if not self.asked_here():
            self.refuse(HTTPStatus.MISDIRECTED_REQUEST, "this server answers to 127.0.0.1 and localhost only")
            return
        address = urlsplit(self.path) if self.path.startswith("/") else None
        if address is None or address.path not in ("/", "/news", "/content"):
            self.refuse(HTTPStatus.NOT_FOUND, "there is /, /news and /content")
        elif address.path == "/":
            self.send_page()
        elif self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            self.refuse(HTTPStatus.FORBIDDEN, "news and content are for the page itself")
        elif address.path == "/content":
            self.send(HTTPStatus.OK, "application/json", self.server.view.content())
        else:
            self.send(HTTPStatus.OK, "application/json", json.dumps(self.news(address.query)).encode())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Refuse: there is nothing to change here."""
        self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def asked_here(self) -> bool:
        """Is the request addressed to this computer by a name of its own?"""
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and HOSTS.fullmatch(hosts[0].strip()) is not None

    def news(self, query: str) -> dict[str, Any]:
        """Return the news that a reader asks for: page=NAME&seen=VERSION."""
        try:
            found = parse_qs(query, max_num_fields=8)
            reader, seen = found.get("page", [""])[0], int(found.get("seen", ["-1"])[0])
        except ValueError:
            reader, seen = "", -1
        if self.command == "HEAD" or not READER.fullmatch(reader):
            reader = ""
        return self.server.view.news(reader, seen)

    def send_page(self) -> None:
        """Send the whole page; where it cannot be built, say so."""
        try:
            html = self.server.view.html().encode()
        except Exception as error:  # whatever it is: the run goes on, and the next look may be luckier
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the page could not be built ({error}); the run goes on")
        else:
            self.send(HTTPStatus.OK, "text/html", html)

    def refuse(self, status: HTTPStatus, words: str) -> None:
        """Say in a line what is wrong."""
        self.send(status, "text/plain", f"{words}\n".encode())

    def send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """Return what the header `Server` says."""
        return "peakrl"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: the terminal belongs to the run."""
