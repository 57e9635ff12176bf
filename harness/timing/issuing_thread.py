"""The open and the closed loop on one issuing thread, for libraries that compute batches asynchronously.

The thread goes through the schedule: it waits until a batch is closed and a place is free, reads the clock, hands the
batch to the library and goes on. So as many batches are in flight as there are places, with one thread of ours.
Schedule, policy and records are those of workers (request_loops.py), with a place in the part of a worker; start -
ready is the lateness of this thread. Two ways to notice that a batch is complete:

CalledBack  The library computes on threads of its own (OpenVINO, ONNX Runtime on a CPU) and calls back.
OnStreams   On a GPU each place has backend objects with a stream of their own, and an event behind each batch. The
            issuing thread looks at the events whenever it waits, without sleeping while a batch is in flight. A thread
            that waits for events would take the interpreter's lock from it, and a callback of the stream would delay
            the next batch there: both change what is timed. While a batch is being launched, no thread looks. So done
            is late by less than the time since the look before, which is kept for each batch (unseen_ns).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from harness.core.errors import reason
from harness.serving.batching import BatchPolicy, batch_closes_at, batch_end
from harness.timing.clock import now_ns
from harness.timing.request_loops import LEAD_NS, MOST_FAILURES, SPIN_NS, Dispatches, TimedBatch, dispatches_of

Done = Callable[[str | None], None]
"""Called once when a batch is complete, from any thread, with the reason where it failed."""

Start = Callable[[int, Done], None]
"""Starts one batch of so many requests and returns."""

LOST = "it was not complete before the time limit"


class IssuingPlace(Protocol):
    """A place that computes one batch at a time on a stream of its own (harness/timing/service_times.py has it)."""

    def launch(self, requests: int) -> None:
        """Enqueue one batch for so many requests and return."""

    def mark(self) -> None:
        """Enqueue an event behind it."""

    def passed(self) -> bool:
        """Whether the GPU passed that event; raises what the GPU reports."""


def issue(
    scheduled: Sequence[int], policy: BatchPolicy, flight: Flight, limit_ns: int, grace_ns: int = 0
) -> Dispatches:
    """Serve a schedule (sorted, ns since its zero) to its end, or until no batch may start any more at limit_ns.

    A batch that fails counts, and the next one is issued. One that is not complete grace_ns after the limit has failed.
    """
    zero, head = now_ns() + LEAD_NS, 0
    end, timed_out = zero + limit_ns, False
    while head < len(scheduled) and flight.failures < MOST_FAILURES:
        closed = batch_closes_at(scheduled, head, policy)
        place = None if zero + closed > end else flight.place_by(end)
        if place is None or now_ns() > end:
            timed_out = True
            break
        flight.wait_until(zero + closed)
        after = batch_end(scheduled, head, now_ns() - zero, policy)
        flight.send(place, head, after - head, closed, after - head, zero)
        head = after
    lost = flight.land(end + grace_ns)
    return dispatches_of(flight.batches(), timed_out or lost)


def issue_closed(flight: Flight, batch: int, requests: int, duration_ns: int, least: int = 1) -> Dispatches:
    """Requests of `batch` samples each, as many in flight as there are places, until `requests` of them or the duration
    are over.

    least and sizes: as in serve_closed.
    """
    zero, number = now_ns() + LEAD_NS, 0
    flight.wait_until(zero)
    while number < requests and flight.failures < MOST_FAILURES:
        place = flight.place_by(None)
        if place is None or (number >= least and now_ns() >= zero + duration_ns):
            break
        flight.send(place, number, 1, None, batch, zero)
        number += 1
    flight.land(None)
    return dispatches_of(flight.batches())


@dataclass(frozen=True)
class _Sent:
    """A batch that was issued; instants in ns since the schedule's zero."""

    first: int
    size: int
    closed_ns: int
    start_ns: int
    place: int


class Flight(ABC):
    """The places of one run, and its batches."""

    def __init__(self) -> None:
        self._sent: list[_Sent] = []
        self._ended: dict[int, tuple[int, str | None, int | None]] = {}
        self._zero = 0
        self.failures = 0

    @abstractmethod
    def place_by(self, end_ns: int | None) -> int | None:
        """The place that has been free for longest, as soon as there is one; None where there is none by then."""

    @abstractmethod
    def wait_until(self, instant_ns: int) -> None:
        """Return at an instant of the process's clock, and notice what is complete meanwhile."""

    @abstractmethod
    def _begin(self, place: int, first: int, requests: int) -> None:
        """Start a batch; raises where that fails."""

    def send(self, place: int, first: int, size: int, closed_ns: int | None, requests: int, zero: int) -> None:
        """Start a batch. first, size: as noted; closed_ns: since zero, None where it is the start."""
        self._zero = zero
        began_ns = now_ns() - zero
        self._sent.append(_Sent(first, size, began_ns if closed_ns is None else closed_ns, began_ns, place))
        try:
            self._begin(place, first, requests)
        except Exception as caught:
            self._note(first, now_ns(), reason(caught))
            self._release(place)

    def land(self, end_ns: int | None) -> bool:
        """Wait for the batches in flight; True where one was not complete by then."""
        while len(self._ended) < len(self._sent):
            if self.place_by(end_ns) is None:
                return True
        return False

    def batches(self) -> list[TimedBatch]:
        """All batches in the order of their start; one that is not complete has failed now."""
        lost = now_ns() - self._zero, LOST, None
        batches = []
        for sent in self._sent:
            done_ns, error, unseen_ns = self._ended.get(sent.first, lost)
            batches.append(
                TimedBatch(sent.first, sent.size, sent.closed_ns, sent.start_ns, done_ns, sent.place, error, unseen_ns)
            )
        return batches

    def _note(self, first: int, ended: int, error: str | None, unseen_ns: int | None = None) -> None:
        self._ended[first] = ended - self._zero, error, unseen_ns
        self.failures = 0 if error is None else self.failures + 1

    @abstractmethod
    def _release(self, place: int) -> None:
        """A place is free again."""


class CalledBack(Flight):
    """Callbacks of the library's threads free places and note ends. places: most batches in flight."""

    def __init__(self, start: Start, places: int) -> None:
        super().__init__()
        self._start = start
        self._free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self._free.put(place)

    def place_by(self, end_ns: int | None) -> int | None:
        """Sleeps until a callback."""
        try:
            return self._free.get(timeout=None if end_ns is None else max(0, end_ns - now_ns()) / 1e9)
        except Empty:
            return None

    def wait_until(self, instant_ns: int) -> None:
        """Sleep, then read the clock until the instant has come, and let callbacks run between two looks."""
        while (left := instant_ns - now_ns()) > 0:
            time.sleep(max(0, left - SPIN_NS) / 1e9)

    def _begin(self, place: int, first: int, requests: int) -> None:
        def done(error: str | None) -> None:
            self._note(first, now_ns(), error)
            self._release(place)

        self._start(requests, done)

    def _release(self, place: int) -> None:
        self._free.put(place)


class OnStreams(Flight):
    """The issuing thread looks at the events of its places whenever it waits."""

    def __init__(self, places: Sequence[IssuingPlace]) -> None:
        super().__init__()
        self._places = places
        self._free = deque(range(len(places)))
        self._flying: dict[int, int] = {}
        self._unseen_since: dict[int, int] = {}

    def place_by(self, end_ns: int | None) -> int | None:
        """Looks until an event has passed."""
        while True:
            late = end_ns is not None and now_ns() > end_ns
            self._look()
            if self._free:
                return self._free.popleft()
            if late:
                return None

    def wait_until(self, instant_ns: int) -> None:
        """Sleep where nothing is in flight, else look; then read the clock until the instant has come."""
        while True:
            self._look()
            left = instant_ns - now_ns()
            if left <= 0:
                return
            if not self._flying:
                time.sleep(max(0, left - SPIN_NS) / 1e9)

    def _begin(self, place: int, first: int, requests: int) -> None:
        chosen = self._places[place]
        chosen.launch(requests)
        self._unseen_since[place] = now_ns()
        chosen.mark()
        self._flying[place] = first

    def _look(self) -> None:
        for place, first in list(self._flying.items()):
            looked, error = now_ns(), None
            try:
                passed = self._places[place].passed()
            except Exception as caught:
                passed, error = True, reason(caught)
            if not passed:
                self._unseen_since[place] = looked
                continue
            ended = now_ns()
            del self._flying[place]
            self._note(first, ended, error, ended - self._unseen_since[place])
            self._release(place)

    def _release(self, place: int) -> None:
        self._free.append(place)
