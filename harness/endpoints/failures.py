"""Failures of a request to an endpoint, by kind (core/schemas/load_record.py). Each counts as a latency of +∞."""

from __future__ import annotations

import ssl
from typing import get_args

from harness.core import text as sanitize
from harness.core.schemas.load_record import FailureKind

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
