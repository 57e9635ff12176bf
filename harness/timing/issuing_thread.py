"""The open and the closed loop on one issuing thread, for libraries that compute batches asynchronously.

The thread goes through the schedule: it waits until a batch is closed and a place is free, reads the clock, hands the
batch to the library and goes on. The library computes on threads of its own and calls back when the batch is complete.
So as many batches are in flight as there are places, with one thread of ours. Schedule, policy and records are those
of workers (virtual_arrivals.py), with a place in the part of a worker; start - ready is the lateness of this thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from harness.core.extensions import reason
from harness.serving.batching import BatchPolicy, closes_at, due
from harness.timing.clock import now_ns
from harness.timing.virtual_arrivals import LEAD_NS, MOST_FAILURES, SPIN_NS, Batch, Dispatches, joined

Done = Callable[[str | None], None]
"""Called once when a batch is complete, from any thread, with the reason where it failed."""

Start = Callable[[int, Done], None]
"""Starts one batch of so many requests and returns."""

LOST = "it was not complete before the time limit"


def issue(
    scheduled: Sequence[int], policy: BatchPolicy, start: Start, places: int, limit_ns: int, grace_ns: int = 0
) -> Dispatches:
    """Serve a schedule (sorted, ns since its zero) to its end, or until no batch may start any more at limit_ns.

    places: most batches in flight. A batch that fails counts, and the next one is issued. One that is not complete
    grace_ns after the limit has failed.
    """
    flight, zero, head = _Flight(start, places), now_ns() + LEAD_NS, 0
    end, timed_out = zero + limit_ns, False
    while head < len(scheduled) and flight.failures < MOST_FAILURES:
        closed = closes_at(scheduled, head, policy)
        place = None if zero + closed > end else flight.place_by(end)
        if place is None or now_ns() > end:
            timed_out = True
            break
        _wait_until(zero + closed)
        after = due(scheduled, head, now_ns() - zero, policy)
        flight.send(place, head, after - head, closed, after - head, zero)
        head = after
    lost = flight.land(end + grace_ns)
    return joined(flight.batches(), timed_out or lost)


def issue_closed(start: Start, batch: int, places: int, requests: int, duration_ns: int, least: int = 1) -> Dispatches:
    """Requests of `batch` samples each, `places` of them in flight, until `requests` of them or the duration are over.

    least and sizes: as in serve_closed.
    """
    flight, zero, number = _Flight(start, places), now_ns() + LEAD_NS, 0
    _wait_until(zero)
    while number < requests and flight.failures < MOST_FAILURES:
        place = flight.place()
        if number >= least and now_ns() >= zero + duration_ns:
            break
        flight.send(place, number, 1, None, batch, zero)
        number += 1
    flight.land(None)
    return joined(flight.batches())


class _Flight:
    """The places of one run and its batches. Callbacks of the library's threads free places and note ends."""

    def __init__(self, start: Start, places: int) -> None:
        self._start = start
        self._free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self._free.put(place)
        self._sent: list[tuple[int, int, int, int, int]] = []
        self._ended: dict[int, tuple[int, str | None]] = {}
        self._zero = 0
        self.failures = 0

    def place(self) -> int:
        """The place that has been free for longest, as soon as there is one."""
        return self._free.get()

    def place_by(self, end_ns: int) -> int | None:
        """The same; None where there is none by then."""
        try:
            return self._free.get(timeout=max(0, end_ns - now_ns()) / 1e9)
        except Empty:
            return None

    def send(self, place: int, first: int, size: int, closed_ns: int | None, requests: int, zero: int) -> None:
        """Start a batch. first, size: as noted; closed_ns: since zero, None where it is the start."""
        began = now_ns()
        began_ns = began - zero
        self._zero = zero
        self._sent.append((first, size, began_ns if closed_ns is None else closed_ns, began_ns, place))

        def done(error: str | None) -> None:
            ended = now_ns()
            self._ended[first] = ended - zero, error
            self.failures = 0 if error is None else self.failures + 1
            self._free.put(place)

        try:
            self._start(requests, done)
        except Exception as caught:
            done(reason(caught))

    def land(self, end_ns: int | None) -> bool:
        """Wait for the batches in flight; True where one was not complete by then."""
        while len(self._ended) < len(self._sent):
            if end_ns is None:
                self.place()
            elif self.place_by(end_ns) is None:
                return True
        return False

    def batches(self) -> list[Batch]:
        """All batches in the order of their start; one that is not complete has failed now."""
        lost = now_ns() - self._zero, LOST
        found = []
        for first, size, closed, start, place in self._sent:
            done, error = self._ended.get(first, lost)
            found.append(Batch(first, size, closed, start, done, place, error))
        return found


def _wait_until(instant_ns: int) -> None:
    """Sleep, then read the clock until the instant has come, and let callbacks run between two looks."""
    while (left := instant_ns - now_ns()) > 0:
        time.sleep(max(0, left - SPIN_NS) / 1e9)
