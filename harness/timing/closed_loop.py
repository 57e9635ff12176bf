"""The closed loop that is timed: each client sends its next request when its previous one is complete.

A closed loop has no scheduled instants: a slow service gets fewer requests, and its queue is never longer than the
number of clients. So its latencies say nothing about a load, and they never share a table with those of an open loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from harness.core.extensions import reason
from harness.timing.clock import now_ns
from harness.timing.virtual_arrivals import (
    LEAD_NS,
    MOST_FAILURES,
    AllAtOnce,
    Batch,
    Dispatches,
    Run,
    joined,
    wait_until,
)


def serve_closed(
    clients: Sequence[Run],
    batch: int,
    all_at_once: AllAtOnce,
    requests: int,
    duration_ns: int,
    least: int = 1,
) -> Dispatches:
    """Requests of `batch` samples each, from all clients together, until `requests` of them or the duration are over.

    least: fewest requests, also where they take longer than the duration. Each request counts as one: sizes are 1.
    """
    notes, numbers = list[Batch](), itertools.count()
    zero = now_ns() + LEAD_NS

    def body(client: int, run: Run) -> Callable[[], None]:
        return lambda: _ask(client, run, batch, numbers, (least, requests), zero, zero + duration_ns, notes)

    all_at_once([body(client, run) for client, run in enumerate(clients)])
    notes.sort(key=lambda one: one.start_ns)
    return joined(notes)


def _ask(
    client: int,
    run: Run,
    batch: int,
    numbers: itertools.count[int],
    bounds: tuple[int, int],
    zero: int,
    end: int,
    notes: list[Batch],
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
        notes.append(Batch(number, 1, start - zero, start - zero, done - zero, client, error))
        failures = 0 if error is None else failures + 1
