"""Raw records of an endpoint's client → its figures: payload, connections, the server's own report, streams (pure)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas.load_record import ClientFigures, ClientTimes, FailureKind, Replication
from harness.statistics.estimators import percentile


def client_figures(records: Sequence[Replication]) -> ClientFigures | None:
    """Over all requests of a point; None where no record is of an endpoint."""
    pairs = [(record, record.client) for record in records if record.client is not None]
    if not pairs:
        return None
    clients = [client for _, client in pairs]
    requests = max(1, sum(len(record.start_ns) for record, _ in pairs))
    failures: Counter[FailureKind] = Counter()
    for client in clients:
        failures.update({kind: len(failure.requests) for kind, failure in client.failures.items()})
    first = _first_ns(pairs)
    first_p50, first_p99 = (percentile(first, share) if first.size else math.nan for share in (0.5, 0.99))
    gaps = _gaps_ns(pairs)
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
        first_p50_ns=first_p50 if math.isfinite(first_p50) else None,
        first_p99_ns=first_p99 if math.isfinite(first_p99) else None,
        first_p50_infinite=math.isinf(first_p50),
        first_p99_infinite=math.isinf(first_p99),
        step_p50_ns=percentile(gaps, 0.5) if gaps.size else None,
        step_p99_ns=percentile(gaps, 0.99) if gaps.size else None,
        tokens_per_step=_tokens_per_step(pairs),
    )


def _middle(parts: Sequence[Sequence[int]]) -> float | None:
    """The median of what was reached and visible."""
    known = np.array([time for part in parts for time in part if time >= 0], dtype=np.int64)
    return percentile(known, 0.5) if known.size else None


def _server(clients: Sequence[ClientTimes]) -> dict[str, float | None]:
    """Means of a request: from the sums of the server where it has them, else from its answers."""
    sums = [client.server for client in clients if client.server is not None]
    requests = sum(server.requests for server in sums)
    if requests:
        executions = sum(server.executions for server in sums)
        compute = sum(server.compute_input_ns + server.compute_infer_ns + server.compute_output_ns for server in sums)
        return {
            "server_queue_ns": sum(server.queue_ns for server in sums) / requests,
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


Pairs = Sequence[tuple[Replication, ClientTimes]]


def _complete(record: Replication) -> NDArray[np.intp]:
    failed = frozenset(record.failed)
    return np.array([number for number in range(len(record.start_ns)) if number not in failed], dtype=np.intp)


def _first_ns(pairs: Pairs) -> NDArray[np.float64]:
    """Times from the scheduled instant (closed loop: from the issue) to the first chunk, a request each: +∞ where it
    failed. Empty where nothing was streamed."""
    if all(client.steps is None and client.equal is None for _, client in pairs):
        return np.empty(0)
    return np.concatenate([_firsts_ns(record, client) for record, client in pairs])


def _firsts_ns(record: Replication, client: ClientTimes) -> NDArray[np.float64]:
    first = np.array(client.first_ns, np.int64)
    missing = first < 0
    missing[list(record.failed)] = True
    return np.where(missing, np.inf, first - np.array(record.scheduled_ns or record.start_ns, np.int64))


def _gaps_ns(pairs: Pairs) -> NDArray[np.int64]:
    """Between the steps of complete streams; empty where nothing was streamed."""
    parts = [
        np.diff(np.array(steps.at_ns[steps.offsets[number] : steps.offsets[number + 1]], np.int64))
        for record, client in pairs
        if (steps := client.steps) is not None
        for number in _complete(record)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _tokens_per_step(pairs: Pairs) -> float | None:
    """Mean tokens of a step over the complete streams; None where the server does not report them for each step."""
    counts = [
        count
        for record, client in pairs
        if client.steps is not None
        for number in _complete(record)
        for count in client.steps.tokens[client.steps.offsets[number] : client.steps.offsets[number + 1]]
    ]
    return sum(counts) / len(counts) if counts and min(counts) >= 0 else None
