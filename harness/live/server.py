"""The HTTP server of the live page, for this machine only: GET of five fixed paths, bound to 127.0.0.1.

Pages of other sites must not read it either. A browser sends the requested name as Host, so the server refuses a name
that was made to point here (DNS rebinding). No header lets another origin read a response.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

from harness.core import cli
from harness.core.errors import InferometerError, UsageError
from harness.live.progress import CaseProgress, Progress
from harness.live.terminal_view import NO_PLAN
from harness.timing.clock import now_ns

LOOPBACK = "127.0.0.1"
_HOSTS = (LOOPBACK, "localhost")
_HERE = Path(__file__).parent
_FILES = {
    "/": (_HERE / "assets/watch.html", "text/html; charset=utf-8"),
    "/palette.css": (_HERE.parent / "reporting/palette.css", "text/css; charset=utf-8"),
    "/watch.css": (_HERE / "assets/watch.css", "text/css; charset=utf-8"),
    "/watch.js": (_HERE / "assets/watch.js", "text/javascript; charset=utf-8"),
}
MAX_ROWS = 2_000
"""Cases that the page gets: a browser draws the table again at each look."""
_STATE = "/state.json"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StateSource(Protocol):
    """The source of the state."""

    pause_s: float
    """Seconds until the next look."""

    def look(self) -> Progress | None:
        """The state; None while there is none."""


class PageServer(ThreadingHTTPServer):
    """Serves the page of a watched folder. port 0: a free port. Raises UsageError where the port is taken."""

    daemon_threads = True

    def __init__(self, watched: StateSource, port: int) -> None:
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"Port {port} cannot be opened: {error.strerror}.", "Name another one, or PORT=0 for a free one."
            ) from error
        self._watched = watched
        self._lock = threading.Lock()
        self._answer = HTTPStatus.SERVICE_UNAVAILABLE, b""
        self._until_ns = 0
        self.address = f"http://{LOOPBACK}:{self.server_port}/"

    def state(self) -> tuple[HTTPStatus, bytes]:
        """The state as JSON; without a state, a problem and a hint. Until the next look every request gets the same."""
        with self._lock:
            if now_ns() >= self._until_ns:
                self._answer = _encoded(self._watched)
                self._until_ns = now_ns() + int(0.9e9 * self._watched.pause_s)
            return self._answer


def _encoded(watched: StateSource) -> tuple[HTTPStatus, bytes]:
    try:
        state = watched.look()
    except InferometerError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, _trouble(error.problem, error.hint)
    if state is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, _trouble(NO_PLAN, "")
    return HTTPStatus.OK, most_urgent(state).model_dump_json().encode()


def _trouble(problem: str, hint: str) -> bytes:
    return json.dumps({"problem": cli.typed(problem), "hint": cli.typed(hint)}).encode()


def most_urgent(progress: Progress) -> Progress:
    """The state with at most MAX_ROWS cases, which a browser can show: running, failed and void ones first, then
    those with results, in the plan's order."""
    if len(progress.rows) <= MAX_ROWS:
        return progress
    order = {"running": 0, "failed": 1, "partly": 3, "done": 4}
    places = sorted(range(len(progress.rows)), key=lambda at: _urgency(progress.rows[at], order))
    kept = [progress.rows[at] for at in sorted(places[:MAX_ROWS])]
    count = len(progress.rows)
    note = f"{MAX_ROWS:,} of {count:,} cases are shown: those at work, failed or void, then those with results."
    return progress.model_copy(update={"rows": tuple(kept), "notes": (*progress.notes, note)})


def _urgency(row: CaseProgress, order: Mapping[str, int]) -> int:
    return 2 if any("void" in remark for remark in row.remarks) else order.get(row.state, 5)


class _Handler(BaseHTTPRequestHandler):
    """Supports GET only: the library answers every other method with 501."""

    server: PageServer
    timeout = 10
    """Seconds that a connection may be silent."""

    def do_GET(self) -> None:
        # Any port: a tunnel (ssh -L) has another port at its other end.
        if re.sub(r":\d+\Z", "", self.headers.get("Host", "")) not in _HOSTS:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"This page is for this machine alone.\n")
        elif self.path == _STATE:
            status, body = self.server.state()
            self._answer(status, body, "application/json")
        elif self.path in _FILES:
            path, kind = _FILES[self.path]
            self._answer(HTTPStatus.OK, path.read_bytes(), kind)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is no such page.\n")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Add _HEADERS to every response, also to errors of the library."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def version_string(self) -> str:
        """The name without versions, which no client needs."""
        return "inferometer"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name for it
        """Print nothing: a line per second would hide the other output on the terminal."""
