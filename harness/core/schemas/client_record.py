"""What the client of an endpoint recorded of each request, and its figures in a row (harness/endpoints/)."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import MessageText, Record

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
wrong output  a complete answer that cannot be compared with the reference, or a completion of another length"""


class RequestFailures(Record):
    """Failed requests of one kind."""

    requests: tuple[int, ...]
    """Their places in the arrays of the replication."""
    first: MessageText
    """In the words of the server or the system."""


class StreamTimes(Record):
    """Steps of all streams, one after the other; request i has those from offsets[i] to offsets[i + 1]."""

    offsets: tuple[int, ...]
    at_ns: tuple[int, ...]
    """Since the start of the replication."""
    tokens: tuple[int, ...]
    """Of each step; -1 where the server does not say."""


class ServerSums(Record):
    """A server's own sums over the replication (Triton's statistics extension)."""

    requests: int
    failed: int
    executions: int
    """Batches that ran."""
    queue_ns: int
    compute_input_ns: int
    compute_infer_ns: int
    compute_output_ns: int


class ClientTimes(Record):
    """Of each request, in the order of the schedule; -1: not reached, or not visible."""

    serialise_ns: tuple[int, ...]
    """Making the payload."""
    send_ns: tuple[int, ...]
    """Handing it to the kernel."""
    connect_ns: tuple[int, ...]
    """Opening a connection within the request; 0: an open one was used again."""
    first_ns: tuple[int, ...]
    """Since the start of the replication: head of the answer, or the first chunk of a stream."""
    server_queue_ns: tuple[int, ...]
    """As the server reports it in the answer."""
    server_compute_ns: tuple[int, ...]
    request_bytes: int
    """Of all requests together; likewise the answers."""
    answer_bytes: int
    connections: int
    waited: int
    """Requests that were due while the most requests in flight were waiting for answers."""
    most_in_flight: int
    compared: int
    """Answers that were compared with the reference."""
    equal: int | None = None
    """Completions: compared answers with the same tokens, or text, as greedy fp32."""
    failures: dict[FailureKind, RequestFailures] = {}
    steps: StreamTimes | None = None
    server: ServerSums | None = None


class ClientFigures(Record):
    """Figures of the client and of the server's own report, over all requests of a point."""

    serialise_p50_ns: float | None
    send_p50_ns: float | None
    """None where the protocol hides it (gRPC)."""
    connections: int
    """The most of a replication."""
    reopened: int
    """Requests that had to open a connection."""
    waited: int
    compared: int
    equal: int | None = None
    request_bytes_mean: float
    answer_bytes_mean: float
    failures: dict[FailureKind, int] = {}
    server_queue_ns: float | None = None
    """Mean of a request by the server's own report; None where it has none. Likewise the others."""
    server_compute_ns: float | None = None
    server_batch: float | None = None
    """Mean requests of an execution."""
    first_p50_ns: float | None = None
    """Streams: scheduled instant to the first chunk (TTFT where a chunk has one token). A failed request counts with an
    infinite time. None where the percentile is infinite, or where nothing was streamed."""
    first_p99_ns: float | None = None
    first_p50_infinite: bool = False
    first_p99_infinite: bool = False
    step_p50_ns: float | None = None
    """Streams: gap between two chunks (ITL where a chunk has one token)."""
    step_p99_ns: float | None = None
    tokens_per_step: float | None = None
    """None where the server does not say."""
