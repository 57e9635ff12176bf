"""A timeline as the records of load have it (pure)."""

from __future__ import annotations

import numpy as np

from harness.core.schemas.client_record import ClientTimes, FailureKind, RequestFailures, ServerSums, StreamTimes
from harness.endpoints.contract import ServerTotals
from harness.endpoints.timeline import Instants, Timeline


def client_times(run: Timeline, compared: int, equal: int | None, server: ServerTotals | None) -> ClientTimes:
    """What the client recorded. compared: answers held against the reference; equal: of completions those like it;
    server: the service's own sums over this run."""
    made, sent = run.payload_ns()
    streamed = len(run.steps.at) > 0
    return ClientTimes(
        serialise_ns=_numbers(made),
        send_ns=_numbers(sent),
        connect_ns=_numbers(run.connect_ns),
        first_ns=_numbers(run.first),
        server_queue_ns=_numbers(run.server_queue_ns),
        server_compute_ns=_numbers(run.server_compute_ns),
        request_bytes=int(run.request_bytes.sum()),
        answer_bytes=int(run.answer_bytes.sum()),
        connections=run.connections,
        waited=run.waited,
        most_in_flight=run.most_in_flight,
        compared=compared,
        equal=equal,
        failures=_failures(run),
        steps=_steps(run) if streamed else None,
        server=None if server is None else ServerSums(**{name: getattr(server, name) for name in _SUMS}),
    )


_SUMS = tuple(ServerSums.model_fields)


def ended(run: Timeline) -> Instants:
    """When each request was over: its complete answer, or the moment in which it failed."""
    return np.where(run.failed | (run.done < 0), run.ended, run.done)


def _failures(run: Timeline) -> dict[FailureKind, RequestFailures]:
    kinds = run.counts()
    return {
        kind: RequestFailures(
            requests=tuple(number for number, found in enumerate(run.failures) if found == kind),
            first=run.details.get(kind, ""),
        )
        for kind in kinds
    }


def _steps(run: Timeline) -> StreamTimes:
    return StreamTimes(
        offsets=_numbers(run.steps.offsets), at_ns=_numbers(run.steps.at), tokens=_numbers(run.steps.tokens)
    )


def _numbers(values: Instants) -> tuple[int, ...]:
    return tuple(values.tolist())
