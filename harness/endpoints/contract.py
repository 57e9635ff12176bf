"""The contract of an endpoint's protocol: check once, then many exchanges, each on a connection of its own thread; and
the failures of a request, by kind (core/schemas/load_record.py), of which each counts as a latency of +∞."""

from __future__ import annotations

import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from harness.core import text as sanitize
from harness.core.errors import InferometerError, UnavailableError
from harness.core.safe_files import SizeLimit
from harness.core.schemas.load_record import FailureKind
from harness.endpoints.target import Target
from harness.timing.clock import now_ns

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


MOST_ANSWER_BYTES: int = SizeLimit.RECORD
"""Largest answer that is read; a larger one is a failure (`too large`)."""

Tensors = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Prompt:
    """A request for completions. new_tokens: asked for. ids: sent instead of the text where the server takes ids."""

    text: str
    new_tokens: int
    ids: tuple[int, ...] | None = None


Sample = Tensors | Prompt
"""Content of one request: a whole batch by input name, or a prompt."""


@dataclass(frozen=True)
class Completion:
    """A complete answer to a prompt. ids: of the tokens where the server reports them; tokens: the server's own count
    (`usage`), None where it gives none; finish: its reason to stop."""

    text: str
    ids: tuple[int, ...] | None
    tokens: int | None
    finish: str | None


Reply = Tensors | Completion


@dataclass(frozen=True)
class EndpointFacts:
    """Facts that a server reports about itself, and how requests reach it.

    server, version: empty where it does not say. form: of the payload (`binary`, `json`, `protobuf`, `text`, `ids`).
    notes: each one line.
    """

    url: str
    server: str
    version: str
    form: str
    loopback: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ServerTotals:
    """A server's own sums since its start (Triton's statistics extension), in requests, executions and ns."""

    requests: int
    failed: int
    executions: int
    """Batches that ran: fewer than requests where the server batches."""
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int

    def since(self, before: ServerTotals) -> ServerTotals:
        """The sums of the time between two readings."""
        names = self.__dataclass_fields__
        return ServerTotals(**{name: getattr(self, name) - getattr(before, name) for name in names})


@dataclass(slots=True)
class Exchange:
    """One request on its way. Instants in ns of the host's clock; 0 was not reached, or cannot be seen.

    issued      its thread begins with it
    serialised  its payload is ready
    sent        its last byte is handed to the kernel (not visible in gRPC)
    first       the head of the answer is there; of a stream, the first chunk with text or tokens
    done        the answer is complete
    ended       its thread is done with it, also where it failed
    """

    issued: int = 0
    serialised: int = 0
    sent: int = 0
    first: int = 0
    done: int = 0
    ended: int = 0
    connect_ns: int = 0
    """Time to open a connection inside this request; 0: an open one was used again."""
    request_bytes: int = 0
    answer_bytes: int = 0
    server_queue_ns: int = -1
    """As the server reports it in this answer; -1: it does not."""
    server_compute_ns: int = -1
    step_at: list[int] = field(default_factory=list)
    """Of a stream: arrival of each chunk with text or tokens."""
    step_tokens: list[int] = field(default_factory=list)
    """Tokens of each of them; -1 where the server does not say."""


class Connection(ABC):
    """One connection, used by one thread, for one request at a time."""

    @abstractmethod
    def establish(self, deadline_ns: int) -> None:
        """Connect now, before anything is timed. Raises RequestFailureError."""

    @abstractmethod
    def exchange(self, sample: Sample, deadline_ns: int, trace: Exchange) -> Reply:
        """Send a request and read the whole answer; fill the trace as far as it gets. deadline_ns: by the host's clock.

        Opens the connection again where the server closed it since the last answer. Raises RequestFailureError, and
        nothing else; the request is never sent twice.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it; a later exchange opens it again."""


class Endpoint(ABC):
    """A running service. Connections are made before the run, and share no state."""

    def __init__(self, target: Target) -> None:
        self.target = target

    @abstractmethod
    def check(self, sample: Sample, timeout_ns: int) -> EndpointFacts:
        """Ask for the service's description, compare it with a sample, and send one request.

        Raises UnavailableError where the service does not answer, UsageError where it serves something else.
        """

    @abstractmethod
    def connect(self) -> Connection:
        """A new connection, not yet open."""

    @abstractmethod
    def totals(self, timeout_ns: int) -> ServerTotals | None:
        """The server's own sums; None where it reports none."""

    def failure_of(self, sample: Sample, timeout_ns: int) -> RequestFailureError | None:
        """The failure of one request on a new connection; None where it has an answer."""
        connection = self.connect()
        try:
            connection.exchange(sample, now_ns() + timeout_ns, Exchange())
        except RequestFailureError as failure:
            return failure
        finally:
            connection.close()
        return None


def unusable(target: Target, failure: RequestFailureError) -> InferometerError:
    """The error of a service that did not answer the check."""
    hints = {
        "refused": "Start the server, or check host and port.",
        "timeout": "Wait until the server has loaded its model, or check host and port.",
        "redirect": "Name the final address: redirects are not followed.",
        "rejected": "Check the model's name, its inputs and, where it needs one, the key in INFEROMETER_API_KEY.",
        "server error": "The server's own log says why.",
        "network": "Check the host's name, its certificate and the route to it.",
        "too large": "The service's outputs are larger than this client reads: measure a smaller batch.",
    }
    hint = hints.get(failure.kind, "Check that the address belongs to a server of this protocol.")
    return UnavailableError(f"{target.url} did not answer a first request ({failure}).", hint)


def text_of(value: object, most: int = 60) -> str:
    """A word of the server's own, safe to show; empty for anything but text."""
    return sanitize.shortened(sanitize.one_line(value), most) if isinstance(value, str) else ""
