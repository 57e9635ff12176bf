"""The ways that a request to an endpoint can fail. Each counts as a latency of +∞; none ends a run."""

from __future__ import annotations

import ssl
from typing import Literal, get_args

from harness.core import text as sanitize

FailureKind = Literal[
    "timeout",
    "refused",
    "closed",
    "network",
    "rejected",
    "server error",
    "redirect",
    "malformed",
    "too large",
    "wrong output",
]
"""timeout       no complete answer before the deadline
refused       no server at the port
closed        the server ended the connection before the answer was complete
network       any other failure of the connection: name, route, TLS
rejected      status 4xx: the server did not accept the request
server error  status 5xx
redirect      status 3xx: never followed, because the other address was not named by the user
malformed     an answer that the protocol does not allow
too large     an answer above the limit of size
wrong output  a complete answer that differs too much from the reference"""

KINDS: tuple[FailureKind, ...] = get_args(FailureKind)

_DETAIL = 300
"""Most characters of a server's own words that are kept."""


class RequestFailureError(Exception):
    """A request without a usable answer. detail: one line, safe to show."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind: FailureKind = kind
        self.detail = sanitize.shortened(sanitize.one_line(detail), _DETAIL)
        super().__init__(f"{kind}: {self.detail}")


def of_socket(error: OSError) -> RequestFailureError:
    """The failure behind an error of a socket."""
    if isinstance(error, TimeoutError):
        return RequestFailureError("timeout", "no answer before the deadline")
    if isinstance(error, ConnectionRefusedError):
        return RequestFailureError("refused", "connection refused")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return RequestFailureError("closed", f"the connection ended: {_words(error)}")
    return RequestFailureError("network", _words(error))


def of_status(status: int, said: str) -> RequestFailureError | None:
    """The failure behind an HTTP status; None for 200. said: the beginning of the answer."""
    if status == 200:
        return None
    kinds: dict[int, FailureKind] = {3: "redirect", 4: "rejected", 5: "server error"}
    return RequestFailureError(kinds.get(status // 100, "malformed"), f"HTTP {status}: {said}")


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
