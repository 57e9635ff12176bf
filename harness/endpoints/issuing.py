"""Issues requests at their scheduled instants, each on a thread of its own with a connection of its own.

Each thread claims the next request of the schedule, sleeps until its absolute instant, sends it and waits for the
answer. So no queue and no hand-over lies between the schedule and the socket, and a slow answer delays no other
request. A number of threads always waits ahead; more are started, away from the timed path, when fewer wait. Nothing is
dropped: with every thread at work, missed requests are issued late and in order, and their latency still counts from
their scheduled instant.

A thread that sleeps wakes up to 50 µs late by the kernel's default (timer slack, prctl(2)); here the slack is 1 ns.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from harness.core.errors import UsageError
from harness.core.schemas.load_record import FailureKind
from harness.endpoints.contract import Connection, Endpoint, Exchange, Reply, RequestFailureError, Sample
from harness.endpoints.timeline import Instants, Timeline, timeline_of
from harness.timing.clock import now_ns

MOST_IN_FLIGHT = 1024
"""Threads, and so requests in flight, of an open loop."""
AHEAD = 16
"""Threads that wait ahead for the next requests."""
KEPT_BYTES = 256 << 20
"""Answers that are kept for the comparison with the reference: all where they fit, else every k-th."""

_LEAD_NS = 20_000_000
"""From the last preparation to the zero of the schedule; a closed loop has none and begins at once."""
_MOST_OPENING_NS = 1_000_000_000
"""For a connection that is opened before its first request."""
_SET_TIMER_SLACK = 29
"""PR_SET_TIMERSLACK of <linux/prctl.h>."""


def issue_open_loop(
    endpoint: Endpoint,
    samples: Sequence[Sample],
    order: Sequence[int] | Instants,
    schedule_ns: Instants,
    timeout_ns: int,
    *,
    most_in_flight: int = MOST_IN_FLIGHT,
    keep_every: int = 1,
) -> Timeline:
    """An open loop: request i sends samples[order[i]] at schedule_ns[i] (sorted, from 0), whatever became of others.

    timeout_ns: from the issue of a request. keep_every: the reply of each such request is kept. Needs `endpoint.check`
    before it.
    """
    schedule = np.asarray(schedule_ns, np.int64)
    if len(schedule) != len(order) or np.any(np.diff(schedule) < 0) or (len(schedule) and schedule[0] < 0):
        raise ValueError("the schedule is not sorted, begins before 0 or has not one instant for each request")
    return _Run(endpoint, samples, order, schedule, timeout_ns, most_in_flight, keep_every).run()


def issue_closed_loop(
    endpoint: Endpoint,
    samples: Sequence[Sample],
    order: Sequence[int] | Instants,
    concurrency: int,
    timeout_ns: int,
    *,
    keep_every: int = 1,
) -> Timeline:
    """A closed loop: each of `concurrency` threads sends its next request when its previous one is answered."""
    return _Run(endpoint, samples, order, None, timeout_ns, concurrency, keep_every).run()


def kept_step(requests: int, answer_bytes: int, most_bytes: int = KEPT_BYTES) -> int:
    """k, so that each k-th answer of that size fits into most_bytes: 1 keeps all of them."""
    return max(1, -(-requests * max(answer_bytes, 1) // most_bytes))


class _Run:
    """One run. What threads share changes under one lock."""

    def __init__(
        self,
        endpoint: Endpoint,
        samples: Sequence[Sample],
        order: Sequence[int] | Instants,
        schedule: Instants | None,
        timeout_ns: int,
        most_threads: int,
        keep_every: int,
    ) -> None:
        if timeout_ns <= 0 or most_threads <= 0:
            raise UsageError("A time-out or a number of requests in flight is not above 0.", "Name a larger one.")
        self._endpoint = endpoint
        self._samples = samples
        self._order = [int(index) for index in order]
        self._schedule = schedule
        self._timeout_ns = timeout_ns
        self._most_threads = most_threads
        self._keep_every = keep_every
        count = len(self._order)
        self._traces = [Exchange() for _ in range(count)]
        self._failures: list[FailureKind | None] = [None] * count
        self._details: dict[FailureKind, str] = {}
        self._replies: dict[int, Reply] = {}
        self._lock = threading.Lock()
        self._head = 0
        self._ahead = 0
        self._in_flight = 0
        self._most_in_flight = 0
        self._waited = 0
        self._stopped = False
        self._start = threading.Event()
        self._wanted = threading.Event()
        self._ready = threading.Semaphore(0)
        self._starting = 0
        self._due: list[int] = []
        self._zero = 0
        self._crash: BaseException | None = None

    def run(self) -> Timeline:
        """Start threads, wait for the last answer, and put the traces together."""
        enough = self._most_threads if self._schedule is None else min(self._most_threads, 2 * AHEAD)
        threads = [self._thread() for _ in range(min(enough, len(self._order)))]
        for _ in threads:
            self._ready.acquire()
        collecting = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            self._zero = now_ns() + (0 if self._schedule is None else _LEAD_NS)
            self._due = [] if self._schedule is None else (self._schedule + self._zero).tolist()
            self._start.set()
            if self._schedule is not None:
                self._recruit(threads)
            for thread in threads:
                thread.join()
        finally:
            self._stopped = True
            self._start.set()
            if collecting:
                gc.enable()
        if self._crash is not None:
            raise self._crash
        return timeline_of(
            self._traces,
            self._schedule if self._schedule is not None else np.empty(0, np.int64),
            self._zero,
            open_loop=self._schedule is not None,
            sample=np.array(self._order, np.int64),
            failures=self._failures,
            details=self._details,
            replies=self._replies,
            connections=len(threads),
            waited=self._waited,
            most_in_flight=self._most_in_flight,
        )

    def _thread(self) -> threading.Thread:
        with self._lock:
            self._starting += 1
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        return thread

    def _recruit(self, threads: list[threading.Thread]) -> None:
        """Start a thread whenever fewer than AHEAD wait for their request, until the last request is claimed."""
        while self._more() and len(threads) < self._most_threads:
            self._wanted.wait()
            self._wanted.clear()
            while self._more() and self._ahead + self._starting < AHEAD and len(threads) < self._most_threads:
                threads.append(self._thread())

    def _more(self) -> bool:
        return self._head < len(self._order) and not self._stopped

    def _work(self) -> None:
        _wake_on_time()
        connection = self._endpoint.connect()
        # Where it fails, the first request of this thread connects again, and counts.
        with suppress(RequestFailureError):
            connection.establish(now_ns() + min(self._timeout_ns, _MOST_OPENING_NS))
        self._ready.release()
        self._start.wait()
        with self._lock:
            self._starting -= 1
        try:
            while (number := self._claim()) is not None:
                self._exchange(number, connection)
        except BaseException as error:
            self._crash = error
            self._stopped = True
        finally:
            self._wanted.set()
            connection.close()

    def _claim(self) -> int | None:
        """The number of the next request, once its instant has come; None after the last one."""
        with self._lock:
            number = self._head
            if not self._more():
                return None
            self._head = number + 1
            if self._schedule is None:
                self._begin()
                return number
            wait_ns = self._due[number] - now_ns()
            if wait_ns <= 0:
                self._waited += 1
                self._begin()
                return number
            self._ahead += 1
        while wait_ns > 0 and not self._stopped:
            time.sleep(wait_ns / 1e9)
            wait_ns = self._due[number] - now_ns()
        with self._lock:
            self._ahead -= 1
            self._begin()
        return number

    def _begin(self) -> None:
        self._in_flight += 1
        self._most_in_flight = max(self._most_in_flight, self._in_flight)
        if self._ahead < AHEAD:
            self._wanted.set()

    def _exchange(self, number: int, connection: Connection) -> None:
        trace = self._traces[number]
        sample = self._samples[self._order[number]]
        trace.issued = now_ns()
        try:
            reply = connection.exchange(sample, trace.issued + self._timeout_ns, trace)
            if number % self._keep_every == 0:
                self._replies[number] = reply
        except RequestFailureError as failure:
            connection.close()
            self._failures[number] = failure.kind
            self._details.setdefault(failure.kind, failure.detail)
        finally:
            trace.ended = now_ns()
            with self._lock:
                self._in_flight -= 1


def _wake_on_time() -> None:
    """Ask the kernel to wake this thread without slack; elsewhere than on Linux it stays as it is."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)
