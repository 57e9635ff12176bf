"""Raw records of an endpoint's client → its figures: payload, connections, the server's own report, streams (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas.client_record import ClientFigures, ClientTimes, FailureKind, StreamTimes
from harness.core.schemas.load_record import Replication
from harness.statistics.estimators import percentile

Times = NDArray[np.int64]


def client_figures(records: Sequence[Replication]) -> ClientFigures | None:
    """Over all requests of a point; None where no record is of an endpoint."""
    found = [(record, record.client) for record in records if record.client is not None]
    if not found:
        return None
    clients = [client for _, client in found]
    requests = max(1, sum(len(record.start_ns) for record, _ in found))
    failures: Counter[FailureKind] = Counter()
    for client in clients:
        failures.update({kind: len(one.requests) for kind, one in client.failures.items()})
    first = _joined(found, _first_ns)
    gaps = _joined(found, _gaps_ns)
    return ClientFigures(
        serialise_p50_ns=_middle([client.serialise_ns for client in clients]),
        send_p50_ns=_middle([client.send_ns for client in clients]),
        connections=max(client.connections for client in clients),
        reopened=sum(sum(time > 0 for time in client.connect_ns) for client in clients),
        waited=sum(client.waited for client in clients),
        compared=sum(client.compared for client in clients),
        equal=None if any(client.equal is None for client in clients) else sum(client.equal or 0 for client in clients),
        request_bytes_mean=sum(client.request_bytes for client in clients) / requests,
        answer_bytes_mean=sum(client.answer_bytes for client in clients) / requests,
        failures=dict(failures),
        **_server(clients),
        first_p50_ns=percentile(first, 0.5) if first.size else None,
        first_p99_ns=percentile(first, 0.99) if first.size else None,
        step_p50_ns=percentile(gaps, 0.5) if gaps.size else None,
        step_p99_ns=percentile(gaps, 0.99) if gaps.size else None,
        tokens_per_step=_tokens_per_step(found),
    )


def _middle(parts: Sequence[Sequence[int]]) -> float | None:
    """The median of what was reached and visible."""
    known = np.array([time for part in parts for time in part if time >= 0], dtype=np.int64)
    return percentile(known, 0.5) if known.size else None


def _server(clients: Sequence[ClientTimes]) -> dict[str, float | None]:
    """Means of a request: from the sums of the server where it has them, else from its answers."""
    sums = [client.server for client in clients if client.server is not None]
    requests = sum(one.requests for one in sums)
    if requests:
        executions = sum(one.executions for one in sums)
        compute = sum(one.compute_input_ns + one.compute_infer_ns + one.compute_output_ns for one in sums)
        return {
            "server_queue_ns": sum(one.queue_ns for one in sums) / requests,
            "server_compute_ns": compute / requests,
            "server_batch": requests / executions if executions else None,
        }
    return {
        "server_queue_ns": _mean([client.server_queue_ns for client in clients]),
        "server_compute_ns": _mean([client.server_compute_ns for client in clients]),
        "server_batch": None,
    }


def _mean(parts: Sequence[Sequence[int]]) -> float | None:
    known = [time for part in parts for time in part if time >= 0]
    return sum(known) / len(known) if known else None


Found = Sequence[tuple[Replication, ClientTimes]]


def _joined(found: Found, part: Callable[[Replication, ClientTimes, StreamTimes], Times]) -> Times:
    """A figure of all streams; empty where nothing was streamed."""
    parts = [part(record, client, client.steps) for record, client in found if client.steps is not None]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _complete(record: Replication) -> NDArray[np.intp]:
    failed = frozenset(record.failed)
    return np.array([number for number in range(len(record.start_ns)) if number not in failed], dtype=np.intp)


def _first_ns(record: Replication, client: ClientTimes, _steps: StreamTimes) -> Times:
    """From the scheduled instant (closed loop: from the issue) to the first chunk."""
    since = record.scheduled_ns or record.start_ns
    good = _complete(record)
    return (np.array(client.first_ns, np.int64) - np.array(since, np.int64))[good]


def _gaps_ns(record: Replication, _client: ClientTimes, steps: StreamTimes) -> Times:
    at = np.array(steps.at_ns, np.int64)
    parts = [np.diff(at[steps.offsets[number] : steps.offsets[number + 1]]) for number in _complete(record)]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _tokens_per_step(found: Found) -> float | None:
    """Of the complete streams; None where the server does not say for each of their steps."""
    counts = [
        count
        for record, client in found
        if client.steps is not None
        for number in _complete(record)
        for count in client.steps.tokens[client.steps.offsets[number] : client.steps.offsets[number + 1]]
    ]
    return sum(counts) / len(counts) if counts and min(counts) >= 0 else None
