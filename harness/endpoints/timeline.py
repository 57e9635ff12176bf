"""The timeline of all requests of a run: instants, sizes and failures as arrays, counts, and records (pure).

Instants are int64 in ns after the zero of the schedule, durations int64 in ns; -1: not reached, or not visible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas.load_record import ClientTimes, FailureKind, RequestFailures, ServerSums, StreamTimes
from harness.endpoints.contract import KINDS, Exchange, Reply, ServerTotals

Instants = NDArray[np.int64]


@dataclass(frozen=True)
class StreamSteps:
    """Steps of all streams, one after the other: request i has those from offsets[i] to offsets[i + 1].

    at: arrival; tokens: of each step, -1 where the server does not say. offsets: (requests + 1,).
    """

    offsets: Instants
    at: Instants
    tokens: Instants


@dataclass(frozen=True)
class Timeline:
    """One run of a client against a service. Arrays have the shape (requests,).

    scheduled: in a closed loop the same as issued. waited: requests whose thread was not free at their instant, because
    the limit of requests in flight was reached. replies: of the requests that were kept, by number.
    """

    open_loop: bool
    scheduled: Instants
    issued: Instants
    serialised: Instants
    sent: Instants
    first: Instants
    done: Instants
    ended: Instants
    connect_ns: Instants
    request_bytes: Instants
    answer_bytes: Instants
    server_queue_ns: Instants
    server_compute_ns: Instants
    sample: Instants
    failures: tuple[FailureKind | None, ...]
    details: Mapping[FailureKind, str]
    """The first failure of each kind, in the words of the server or the system."""
    steps: StreamSteps
    replies: Mapping[int, Reply]
    connections: int
    """Opened before or during the run."""
    reopened: int
    """Requests that had to open their connection again."""
    waited: int
    most_in_flight: int

    @property
    def failed(self) -> NDArray[np.bool_]:
        """Requests without a usable answer."""
        return np.array([kind is not None for kind in self.failures], dtype=np.bool_)

    def latency_ns(self) -> NDArray[np.float64]:
        """Times from the scheduled instant to the complete answer; +∞ for a failure. In a closed loop from the
        issue."""
        return np.where(self.failed, np.inf, (self.done - self.scheduled).astype(np.float64))

    def payload_ns(self) -> tuple[Instants, Instants]:
        """Time to make the payload, and to hand it to the kernel; -1 where not reached or not visible."""
        opened = np.maximum(self.connect_ns, 0)
        made = np.where(self.serialised < 0, -1, self.serialised - self.issued)
        return made, np.where(self.sent < 0, -1, self.sent - self.serialised - opened)

    def first_ns(self) -> NDArray[np.float64]:
        """Times from the scheduled instant to the first chunk of a stream (TTFT where it has one token); +∞ for a
        failure."""
        missing = self.failed | (self.first < 0)
        return np.where(missing, np.inf, (self.first - self.scheduled).astype(np.float64))

    def counts(self) -> dict[FailureKind, int]:
        """Failures by kind, in the order of KINDS."""
        counter = Counter(kind for kind in self.failures if kind is not None)
        return {kind: counter[kind] for kind in KINDS if kind in counter}

    def step_gaps_ns(self) -> Instants:
        """Gaps between the steps of each complete stream, pooled. Failed streams count in the latency instead."""
        good = np.flatnonzero(~self.failed)
        parts = [np.diff(self.steps.at[self.steps.offsets[i] : self.steps.offsets[i + 1]]) for i in good]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def with_wrong(self, wrong: Sequence[int], detail: str) -> Timeline:
        """The run with further failures: requests whose answers are too far from the reference."""
        if not wrong:
            return self
        bad = frozenset(wrong)
        failures = tuple(
            "wrong output" if kind is None and number in bad else kind for number, kind in enumerate(self.failures)
        )
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Timeline(**given | {"failures": failures, "details": {**self.details, "wrong output": detail}})

    def reordered(self, order: NDArray[np.intp]) -> Timeline:
        """The requests in another order, as by their issue in a closed loop."""
        place = {int(old): new for new, old in enumerate(order)}
        parts = [slice(self.steps.offsets[old], self.steps.offsets[old + 1]) for old in order]
        lengths = np.diff(self.steps.offsets)[order]
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        arrays = {name: value[order] for name, value in given.items() if isinstance(value, np.ndarray)}
        at, tokens = (
            np.concatenate([values[part] for part in parts]) if parts else values
            for values in (self.steps.at, self.steps.tokens)
        )
        others = {
            "failures": tuple(self.failures[old] for old in order),
            "replies": {place[number]: reply for number, reply in self.replies.items()},
            "steps": StreamSteps(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), at, tokens),
        }
        return Timeline(**given | arrays | others)


def timeline_of(
    traces: Sequence[Exchange],
    scheduled: Instants,
    zero_ns: int,
    *,
    open_loop: bool,
    sample: Instants,
    failures: Sequence[FailureKind | None],
    details: Mapping[FailureKind, str],
    replies: Mapping[int, Reply],
    connections: int,
    waited: int,
    most_in_flight: int,
) -> Timeline:
    """The timeline of traces whose instants are of the host's clock. scheduled: after zero_ns, or empty when closed."""

    def instants(name: str) -> Instants:
        raw = np.fromiter((getattr(trace, name) for trace in traces), np.int64, len(traces))
        return np.where(raw == 0, -1, raw - zero_ns)

    def plain(name: str) -> Instants:
        return np.fromiter((getattr(trace, name) for trace in traces), np.int64, len(traces))

    issued = instants("issued")
    lengths = np.fromiter((len(trace.step_at) for trace in traces), np.int64, len(traces))
    steps = StreamSteps(
        offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        at=np.array([at for trace in traces for at in trace.step_at], np.int64) - zero_ns,
        tokens=np.array([count for trace in traces for count in trace.step_tokens], np.int64),
    )
    connect_ns = plain("connect_ns")
    return Timeline(
        open_loop=open_loop,
        scheduled=scheduled if open_loop else issued,
        issued=issued,
        serialised=instants("serialised"),
        sent=instants("sent"),
        first=instants("first"),
        done=instants("done"),
        ended=instants("ended"),
        connect_ns=connect_ns,
        request_bytes=plain("request_bytes"),
        answer_bytes=plain("answer_bytes"),
        server_queue_ns=plain("server_queue_ns"),
        server_compute_ns=plain("server_compute_ns"),
        sample=sample,
        failures=tuple(failures),
        details=dict(details),
        steps=steps,
        replies=dict(replies),
        connections=connections,
        reopened=int(np.count_nonzero(connect_ns)),
        waited=waited,
        most_in_flight=most_in_flight,
    )


def client_times(run: Timeline, compared: int, equal: int | None, server: ServerTotals | None) -> ClientTimes:
    """The client's record. compared: answers held against the reference; equal: completions equal to it; server: the
    service's own sums over this run."""
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


def end_instants(run: Timeline) -> Instants:
    """When each request was over: its complete answer, or the moment in which it failed."""
    return np.where(run.failed | (run.done < 0), run.ended, run.done)


def _failures(run: Timeline) -> dict[FailureKind, RequestFailures]:
    kinds = run.counts()
    return {
        kind: RequestFailures(
            requests=tuple(number for number, failure in enumerate(run.failures) if failure == kind),
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
