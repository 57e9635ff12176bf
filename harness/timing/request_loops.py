"""The loops of a service that are timed: the open loop on arrivals drawn before the run, and the closed loop of
clients; and the threads of its workers.

Open loop: no thread issues requests. A request that arrives while a worker computes needs no action at its instant: it
is in the queue by arithmetic. So the load is exact whatever the workers do, nothing is dropped, and a latency counts
from the scheduled instant. Only the wake-up of an idle worker can be late; that is the dispatch delay, kept beside the
samples. The policy of batching is that of replay (harness/serving/batching.py). Workers share one position in the
schedule: a free worker takes the lock, waits until the batch closes, takes its requests, frees the lock and computes.

Closed loop: each client sends its next request when its previous one is complete. It has no scheduled instants: a slow
service gets fewer requests, and its queue is never longer than the number of clients. So its latencies say nothing
about a load, and they never share a table with those of an open loop.

Worker threads: a library's objects may belong to the thread that made them, as CUDA contexts and CUDA graphs do, so
each worker loads and runs its own objects on one thread for as long as the process lives.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.core.errors import reason
from harness.serving.batching import BatchPolicy, batch_closes_at, batch_end
from harness.timing.clock import now_ns

SPIN_NS = 200_000
"""The last part of a wait is spent reading the clock: a sleep ends 50 to 100 µs late."""

LEAD_NS = 5_000_000
"""From the call until the schedule's zero, so that every worker waits there."""

MOST_FAILURES = 10
"""After so many failed batches in a row the service counts as broken: the requests left are failures too."""

RunBatch = Callable[[int], None]
"""Runs one batch of so many requests to its end."""

AllAtOnce = Callable[[Sequence[Callable[[], None]]], None]
"""Runs these at the same time, each on the thread of its worker, and returns when all have ended."""


@dataclass(frozen=True)
class Dispatches:
    """The batches of a run, in the order of their requests; instants in ns since the schedule's zero.

    Requests beyond the last batch were not served. failed: places of failed batches; error: why the first failed.
    unseen_ns: by how much each done_ns is late at most, where a thread looks for ends (issuing_thread.py); else empty.
    """

    sizes: tuple[int, ...]
    ready_ns: tuple[int, ...]
    start_ns: tuple[int, ...]
    done_ns: tuple[int, ...]
    worker: tuple[int, ...]
    failed: tuple[int, ...] = ()
    error: str | None = None
    timed_out: bool = False
    unseen_ns: tuple[int, ...] = ()
    zero_ns: int = 0
    """The schedule's zero on the process's clock; 0 in a closed loop."""


@dataclass(frozen=True)
class TimedBatch:
    """One batch as its worker noted it. first: index of its first request; closed_ns: when the policy closed it."""

    first: int
    size: int
    closed_ns: int
    start_ns: int
    done_ns: int
    worker: int
    error: str | None
    unseen_ns: int | None = None
    """Since the look before the one that found it complete; None where an end is noticed otherwise, or failed."""


class _Shared:
    """The state that the workers of a run share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.head = 0
        self.failures = 0
        self.stopped = False
        self.timed_out = False


def serve(
    scheduled: Sequence[int], policy: BatchPolicy, workers: Sequence[RunBatch], all_at_once: AllAtOnce, limit_ns: int
) -> Dispatches:
    """Serve a schedule (sorted, ns since its zero) to its end, or until no batch may start any more at limit_ns.

    An exception of a worker is a failed batch; its requests count, and the next batch runs.
    """
    shared, notes = _Shared(), list[TimedBatch]()
    zero = now_ns() + LEAD_NS

    def body(number: int, run: RunBatch) -> Callable[[], None]:
        return lambda: _work(scheduled, policy, run, shared, notes, zero, zero + limit_ns, number)

    all_at_once([body(number, run) for number, run in enumerate(workers)])
    notes.sort(key=lambda batch: batch.first)
    return replace(dispatches_of(notes, shared.timed_out), zero_ns=zero)


def _work(
    scheduled: Sequence[int],
    policy: BatchPolicy,
    run: RunBatch,
    shared: _Shared,
    notes: list[TimedBatch],
    zero: int,
    end: int,
    number: int,
) -> None:
    requests = len(scheduled)
    while True:
        with shared.lock:
            first = shared.head
            if first >= requests or shared.stopped:
                return
            closed = batch_closes_at(scheduled, first, policy)
            if max(zero + closed, now_ns()) > end:
                shared.stopped = shared.timed_out = True
                return
            wait_until(zero + closed)
            shared.head = after = batch_end(scheduled, first, now_ns() - zero, policy)
        error = None
        start = now_ns()
        try:
            run(after - first)
        except Exception as caught:
            error = reason(caught)
        done = now_ns()
        notes.append(TimedBatch(first, after - first, closed, start - zero, done - zero, number, error))
        shared.failures = 0 if error is None else shared.failures + 1
        if shared.failures >= MOST_FAILURES:
            shared.stopped = True


def wait_until(instant_ns: int) -> None:
    """Sleep, then read the clock until the instant has come; returns at once where it is over."""
    while (left := instant_ns - now_ns()) > 0:
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)


def dispatches_of(batches: Sequence[TimedBatch], timed_out: bool = False) -> Dispatches:
    """The batches as arrays. A batch is ready when it is closed, its worker is free and the batch before has begun."""
    free: dict[int, int] = {}
    ready, before = [], 0
    for batch in batches:
        ready.append(min(batch.start_ns, max(batch.closed_ns, free.get(batch.worker, 0), before)))
        free[batch.worker], before = batch.done_ns, batch.start_ns
    errors = [batch.error for batch in batches if batch.error is not None]
    looked = any(batch.unseen_ns is not None for batch in batches)
    return Dispatches(
        sizes=tuple(batch.size for batch in batches),
        ready_ns=tuple(ready),
        start_ns=tuple(batch.start_ns for batch in batches),
        done_ns=tuple(batch.done_ns for batch in batches),
        worker=tuple(batch.worker for batch in batches),
        failed=tuple(place for place, batch in enumerate(batches) if batch.error is not None),
        error=errors[0] if errors else None,
        timed_out=timed_out,
        unseen_ns=tuple(batch.unseen_ns or 0 for batch in batches) if looked else (),
    )


def serve_closed(
    clients: Sequence[RunBatch],
    batch: int,
    all_at_once: AllAtOnce,
    requests: int,
    duration_ns: int,
    least: int = 1,
) -> Dispatches:
    """Requests of `batch` samples each, from all clients together, until `requests` of them or the duration are over.

    least: fewest requests, also where they take longer than the duration. Each request counts as one: sizes are 1.
    """
    notes, numbers = list[TimedBatch](), itertools.count()
    zero = now_ns() + LEAD_NS

    def body(client: int, run: RunBatch) -> Callable[[], None]:
        return lambda: _ask(client, run, batch, numbers, (least, requests), zero, zero + duration_ns, notes)

    all_at_once([body(client, run) for client, run in enumerate(clients)])
    notes.sort(key=lambda note: note.start_ns)
    return dispatches_of(notes)


def _ask(
    client: int,
    run: RunBatch,
    batch: int,
    numbers: itertools.count[int],
    bounds: tuple[int, int],
    zero: int,
    end: int,
    notes: list[TimedBatch],
) -> None:
    least, most = bounds
    wait_until(zero)
    failures = 0
    # The next number of a count is taken in one step of the interpreter: no client needs a lock for it.
    while (number := next(numbers)) < most and (number < least or now_ns() < end) and failures < MOST_FAILURES:
        error = None
        start = now_ns()
        try:
            run(batch)
        except Exception as caught:
            error = reason(caught)
        done = now_ns()
        notes.append(TimedBatch(number, 1, start - zero, start - zero, done - zero, client, error))
        failures = 0 if error is None else failures + 1


T = TypeVar("T")

SWITCH_S = 1e-4
"""With several workers, how soon the interpreter moves from one thread to another. Its usual 5 ms is as long as a
request: a worker that waits for its instant would hold up one whose library has just returned."""


class WorkerThreads:
    """`count` threads; with one worker the calling thread alone."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pools = [ThreadPoolExecutor(1, f"worker-{number}") for number in range(count)] if count > 1 else []
        if self._pools:
            sys.setswitchinterval(SWITCH_S)

    def all_at_once(self, bodies: Sequence[Callable[[], None]]) -> None:
        """Run a body on each of the first threads at the same time; raises what one of them raised."""
        self.gather(bodies)

    def gather(self, bodies: Sequence[Callable[[], T]]) -> list[T]:
        """Run a body on each of the first threads at the same time; returns their results, or raises what one of
        them raised."""
        if not self._pools:
            return [body() for body in bodies]
        started = [pool.submit(body) for pool, body in zip(self._pools, bodies, strict=False)]
        return [future.result() for future in started]

    def in_turn(self, bodies: Sequence[Callable[[], T]]) -> list[T]:
        """Run the bodies one after the other, each on the thread of its worker."""
        if not self._pools:
            return [body() for body in bodies]
        return [pool.submit(body).result() for pool, body in zip(self._pools, bodies, strict=False)]
