"""The open loop that is timed: arrivals drawn before the run, and workers that take what has arrived.

No thread issues requests. A request that arrives while a worker computes needs no action at its instant: it is in the
queue by arithmetic. So the load is exact whatever the workers do, nothing is dropped, and a latency counts from the
scheduled instant. Only the wake-up of an idle worker can be late; that is the dispatch delay, kept beside the samples.

The policy of batching is that of replay (harness/serving/batching.py). Workers share one position in the schedule: a
free worker takes the lock, waits until the batch closes, takes its requests, frees the lock and computes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.core.extensions import reason
from harness.serving.batching import BatchPolicy, closes_at, due
from harness.timing.clock import now_ns

SPIN_NS = 200_000
"""The last part of a wait is spent reading the clock: a sleep ends 50 to 100 µs late."""

LEAD_NS = 5_000_000
"""From the call until the schedule's zero, so that every worker waits there."""

MOST_FAILURES = 10
"""After so many failed batches in a row the service counts as broken: the requests left are failures too."""

Run = Callable[[int], None]
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
class Batch:
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
    """What the workers of a run share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.head = 0
        self.failures = 0
        self.stopped = False
        self.timed_out = False


def serve(
    scheduled: Sequence[int], policy: BatchPolicy, workers: Sequence[Run], all_at_once: AllAtOnce, limit_ns: int
) -> Dispatches:
    """Serve a schedule (sorted, ns since its zero) to its end, or until no batch may start any more at limit_ns.

    An exception of a worker is a failed batch; its requests count, and the next batch runs.
    """
    shared, notes = _Shared(), list[Batch]()
    zero = now_ns() + LEAD_NS

    def body(number: int, run: Run) -> Callable[[], None]:
        return lambda: _work(scheduled, policy, run, shared, notes, zero, zero + limit_ns, number)

    all_at_once([body(number, run) for number, run in enumerate(workers)])
    notes.sort(key=lambda batch: batch.first)
    return replace(joined(notes, shared.timed_out), zero_ns=zero)


def _work(
    scheduled: Sequence[int],
    policy: BatchPolicy,
    run: Run,
    shared: _Shared,
    notes: list[Batch],
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
            closed = closes_at(scheduled, first, policy)
            if max(zero + closed, now_ns()) > end:
                shared.stopped = shared.timed_out = True
                return
            wait_until(zero + closed)
            shared.head = after = due(scheduled, first, now_ns() - zero, policy)
        error = None
        start = now_ns()
        try:
            run(after - first)
        except Exception as caught:
            error = reason(caught)
        done = now_ns()
        notes.append(Batch(first, after - first, closed, start - zero, done - zero, number, error))
        shared.failures = 0 if error is None else shared.failures + 1
        if shared.failures >= MOST_FAILURES:
            shared.stopped = True


def wait_until(instant_ns: int) -> None:
    """Sleep, then read the clock until the instant has come; returns at once where it is over."""
    while (left := instant_ns - now_ns()) > 0:
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)


def joined(batches: Sequence[Batch], timed_out: bool = False) -> Dispatches:
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
