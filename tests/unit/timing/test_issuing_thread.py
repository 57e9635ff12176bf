"""One issuing thread on a simulated clock, library and GPU: as a queue of servers, its lateness, lost batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty
from types import SimpleNamespace

import numpy as np
import pytest

from harness.serving.arrivals import poisson
from harness.serving.batching import BatchPolicy
from harness.serving.replay import replay_recorded
from harness.timing import issuing_thread
from harness.timing.issuing_thread import CalledBack, Done, OnStreams, issue, issue_closed
from harness.timing.request_loops import LEAD_NS, MOST_FAILURES, Dispatches
from tests.fixtures.simulated_clock import SimulatedClock, in_place

MS = 1_000_000
NO_LIMIT = 1 << 60


class Library:
    """Computes any number of batches at the same time: each ends work_ns(number, requests) after its start.

    None: its callback never comes. The clock stops at each end on its way, as threads of a library would interrupt it.
    """

    def __init__(self, clock: SimulatedClock, work_ns: Callable[[int, int], int | None], late_ns: int = 0) -> None:
        self.clock, self.work_ns, self.late_ns = clock, work_ns, late_ns
        self.ends: list[tuple[int, int, Done]] = []
        self.started = 0
        self.most = 0

    def start(self, requests: int, done: Done) -> None:
        took = self.work_ns(self.started, requests)
        if took is not None:
            self.ends.append((self.clock.ns + took, self.started, done))
        self.started += 1
        self.most = max(self.most, len(self.ends))

    def move_to(self, instant_ns: int) -> None:
        while self.ends and min(self.ends)[0] <= instant_ns:
            end = min(self.ends)
            self.ends.remove(end)
            self.clock.ns = max(self.clock.ns, end[0])
            end[2](None)
        self.clock.ns = max(self.clock.ns, instant_ns)

    def sleep(self, seconds: float) -> None:
        self.move_to(self.clock.ns + max(1, round(seconds * 1e9)) + self.late_ns)


class Queue:
    """SimpleQueue of a simulated world: waiting moves the clock to the next end."""

    library: Library

    def __init__(self) -> None:
        self.items: list[int] = []

    def put(self, item: int) -> None:
        self.items.append(item)

    def get(self, timeout: float | None = None) -> int:
        until = None if timeout is None else self.library.clock.ns + round(timeout * 1e9)
        while not self.items:
            ends = [end for end, *_ in self.library.ends]
            if not ends or (until is not None and min(ends) > until):
                if until is None:
                    raise AssertionError("it would wait for ever")
                self.library.move_to(until)
                raise Empty
            self.library.move_to(min(ends))
        return self.items.pop(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


@pytest.fixture
def library(clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Library]:
    """Makes the library of a test."""

    def make(work_ns: Callable[[int, int], int | None], late_ns: int = 0) -> Library:
        result = Library(clock, work_ns, late_ns)
        monkeypatch.setattr(Queue, "library", result, raising=False)
        monkeypatch.setattr(issuing_thread, "SimpleQueue", Queue)
        monkeypatch.setattr(issuing_thread, "now_ns", clock.now_ns)
        monkeypatch.setattr(issuing_thread, "SPIN_NS", 0)
        monkeypatch.setattr(issuing_thread, "time", SimpleNamespace(sleep=result.sleep))
        return result

    return make


def ends(found: Dispatches) -> list[int]:
    return np.repeat(np.array(found.done_ns), found.sizes).tolist()


@pytest.mark.parametrize("places", [1, 2, 3])
def test_batches_in_flight_are_the_queue_of_as_many_servers(places: int, library: Callable[..., Library]) -> None:
    scheduled = poisson(150 * places, 2_000, seed=3).tolist()
    work = np.random.default_rng(1).gamma(4, 1.4 * MS, 2_000).astype(int).tolist()
    own = library(lambda number, _: work[number])
    policy = BatchPolicy(max_batch=4, max_delay_ns=2 * MS)
    result = issue(scheduled, policy, CalledBack(own.start, places), NO_LIMIT)
    assert own.most == places
    assert sum(result.sizes) == 2_000
    assert max(result.sizes) == 4
    service = [done - start for start, done in zip(result.start_ns, result.done_ns, strict=True)]
    assert service == work[: len(service)]
    assert ends(result) == replay_recorded(scheduled, result.sizes, service, policy, places).tolist()
    assert result.start_ns == result.ready_ns
    assert (result.failed, result.timed_out) == ((), False)


def test_the_lateness_of_the_thread_lies_between_ready_and_start(library: Callable[..., Library]) -> None:
    scheduled = [number * 10 * MS for number in range(20)]
    own = library(lambda *_: MS, late_ns=30_000)
    result = issue(scheduled, BatchPolicy(), CalledBack(own.start, 2), NO_LIMIT)
    late = [start - ready for start, ready in zip(result.start_ns, result.ready_ns, strict=True)]
    assert late == [30_000] * 20
    assert result.ready_ns == tuple(scheduled)


def test_a_batch_that_fails_counts_and_the_next_one_is_issued(library: Callable[..., Library]) -> None:
    own = library(lambda *_: MS)

    def start(requests: int, done: Done) -> None:
        if own.started == 1:
            own.started += 1
            raise RuntimeError("no memory")
        if own.started == 3:
            own.start(requests, lambda _: done("NaN in layer 3"))
        else:
            own.start(requests, done)

    result = issue([10 * MS * number for number in range(6)], BatchPolicy(), CalledBack(start, 2), NO_LIMIT)
    assert result.sizes == (1,) * 6
    assert (result.failed, result.error) == ((1, 3), "RuntimeError: no memory")


def test_a_library_that_never_calls_back_loses_that_batch_alone(library: Callable[..., Library]) -> None:
    own = library(lambda number, _: None if number == 2 else MS)
    scheduled = [10 * MS * number for number in range(8)]
    result = issue(scheduled, BatchPolicy(), CalledBack(own.start, 2), 200 * MS, 50 * MS)
    assert result.sizes == (1,) * 8
    assert (result.failed, result.error, result.timed_out) == ((2,), issuing_thread.LOST, True)
    assert result.done_ns[2] == 250 * MS
    alone = issue(scheduled, BatchPolicy(), CalledBack(library(lambda *_: None).start, 1), 200 * MS)
    assert (alone.sizes, alone.failed, alone.timed_out) == ((1,), (0,), True)


def test_no_batch_begins_after_the_limit(library: Callable[..., Library]) -> None:
    own = library(lambda *_: 20 * MS)
    result = issue([MS * number for number in range(100)], BatchPolicy(), CalledBack(own.start, 2), 200 * MS, 50 * MS)
    assert result.timed_out
    assert max(result.start_ns) == 200 * MS
    assert result.failed == ()


def test_a_service_that_fails_again_and_again_is_given_up(library: Callable[..., Library]) -> None:
    def start(_requests: int, _done: Done) -> None:
        raise RuntimeError("gone")

    library(lambda *_: MS)
    result = issue([MS * number for number in range(100)], BatchPolicy(), CalledBack(start, 2), NO_LIMIT)
    assert sum(result.sizes) == len(result.failed) == MOST_FAILURES


@pytest.mark.parametrize(("least", "expected"), [(1, 6), (9, 9), (50, 20)])
def test_the_closed_loop_keeps_every_place_at_work(least: int, expected: int, library: Callable[..., Library]) -> None:
    own = library(lambda *_: 10 * MS)
    result = issue_closed(CalledBack(own.start, 2), 4, 20, 25 * MS, least)
    assert len(result.sizes) == expected
    assert own.most == 2
    assert result.start_ns[:4] == (0, 0, 10 * MS, 10 * MS)


def test_several_batches_are_in_flight_on_real_threads() -> None:
    barrier = threading.Barrier(3, timeout=300)

    def start(_requests: int, done: Done) -> None:
        def compute() -> None:
            barrier.wait()  # only three in flight at the same time can pass
            done(None)

        threading.Thread(target=compute).start()

    scheduled = [number * 10_000 for number in range(30)]
    result = issue(scheduled, BatchPolicy(), CalledBack(start, 3), NO_LIMIT)
    assert result.sizes == (1,) * 30
    assert (result.failed, set(result.worker)) == ((), {0, 1, 2})
    assert list(result.start_ns) == sorted(result.start_ns)
    assert all(
        due <= ready <= start for due, ready, start in zip(scheduled, result.ready_ns, result.start_ns, strict=True)
    )


LAUNCH_NS, RECORD_NS, LOOK_NS = 20_000, 2_000, 10_000


class Gpu:
    """Streams that run side by side, and the one thread that submits to them and looks: each call moves its clock.

    work_ns(number of the batch, requests): until its event is passed; None: never. A RuntimeError is raised as the
    launch's, or with `broken` by the first look after the end.
    """

    def __init__(self, clock: SimulatedClock, work_ns: Callable[[int, int], int | None], late_ns: int = 0) -> None:
        self.clock, self.work_ns, self.late_ns = clock, work_ns, late_ns
        self.broken: set[int] = set()
        self.number = 0
        self.flying: dict[int, int] = {}
        self.most = self.slept_while_flying = 0
        self.true_ends: list[int] = []
        self.order: list[int] = []

    def places(self, count: int) -> OnStreams:
        return OnStreams([Stream(self, place) for place in range(count)])

    def sleep(self, seconds: float) -> None:
        self.slept_while_flying += bool(self.flying)
        self.clock.ns += max(1, round(seconds * 1e9)) + self.late_ns


class Stream:
    """A place."""

    def __init__(self, gpu: Gpu, place: int) -> None:
        self.gpu, self.place = gpu, place
        self.end: int | None = None

    def launch(self, requests: int) -> None:
        gpu = self.gpu
        assert self.place not in gpu.flying
        self.batch, gpu.number = gpu.number, gpu.number + 1
        gpu.clock.ns += LAUNCH_NS
        took = gpu.work_ns(self.batch, requests)
        self.end = None if took is None else gpu.clock.ns + took
        gpu.order.append(self.place)

    def mark(self) -> None:
        self.gpu.clock.ns += RECORD_NS
        self.gpu.flying[self.place] = self.batch
        self.gpu.most = max(self.gpu.most, len(self.gpu.flying))
        self.gpu.true_ends.append(-1 if self.end is None else max(self.end, self.gpu.clock.ns))

    def passed(self) -> bool:
        seen = self.gpu.clock.ns
        self.gpu.clock.ns += LOOK_NS
        if self.end is None or self.end > seen:
            return False
        del self.gpu.flying[self.place]
        if self.batch in self.gpu.broken:
            raise RuntimeError("an illegal memory access")
        return True


@pytest.fixture
def gpu(clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gpu]:
    """Makes the GPU of a test."""

    def make(work_ns: Callable[[int, int], int | None], late_ns: int = 0) -> Gpu:
        result = Gpu(clock, work_ns, late_ns)
        monkeypatch.setattr(issuing_thread, "now_ns", clock.now_ns)
        monkeypatch.setattr(issuing_thread, "SPIN_NS", 0)
        monkeypatch.setattr(issuing_thread, "time", SimpleNamespace(sleep=result.sleep))
        return result

    return make


@pytest.mark.parametrize("places", [1, 2, 3])
def test_streams_are_the_queue_of_as_many_servers_and_no_end_is_noticed_later_than_said(
    places: int, clock: SimulatedClock, gpu: Callable[..., Gpu]
) -> None:
    scheduled = poisson(150 * places, 500, seed=3).tolist()
    work = np.random.default_rng(1).gamma(4, 1.4 * MS, 500).astype(int).tolist()
    own = gpu(lambda number, _: work[number])
    policy = BatchPolicy(max_batch=4, max_delay_ns=2 * MS)
    zero = clock.ns + LEAD_NS
    result = issue(scheduled, policy, own.places(places), NO_LIMIT)
    assert (own.most, sum(result.sizes), max(result.sizes)) == (places, 500, 4)
    assert result.worker == tuple(own.order)
    assert len(result.unseen_ns) == len(result.sizes)
    for done, unseen, end in zip(result.done_ns, result.unseen_ns, own.true_ends, strict=True):
        assert 0 <= done - (end - zero) <= unseen
    # While nothing is launched, the time between two looks is that of the looks of all places.
    assert min(result.unseen_ns) <= (places + 1) * LOOK_NS
    assert max(result.unseen_ns) <= places * (LAUNCH_NS + RECORD_NS + (places + 1) * LOOK_NS)
    late = np.array(result.start_ns) - np.array(result.ready_ns)
    assert late.min() >= 0
    assert late.max() <= places * (LAUNCH_NS + RECORD_NS + (places + 1) * LOOK_NS)
    service = [done - start for start, done in zip(result.start_ns, result.done_ns, strict=True)]
    added = np.array(ends(result)) - replay_recorded(scheduled, result.sizes, service, policy, places)
    assert added.min() >= 0
    assert np.median(added) <= places * (LAUNCH_NS + RECORD_NS)


def test_the_thread_sleeps_only_while_no_batch_is_in_flight(gpu: Callable[..., Gpu]) -> None:
    own = gpu(lambda *_: MS, late_ns=30_000)
    scheduled = [number * 10 * MS for number in range(20)]
    result = issue(scheduled, BatchPolicy(), own.places(2), NO_LIMIT)
    late = [start - ready for start, ready in zip(result.start_ns, result.ready_ns, strict=True)]
    assert late == [30_000] * 20
    assert own.slept_while_flying == 0
    assert own.order == [0, 1] * 10  # the place that has been free for longest
    busy = gpu(lambda *_: 25 * MS, late_ns=30_000)
    assert issue(scheduled, BatchPolicy(), busy.places(3), NO_LIMIT).start_ns[1:] != result.start_ns[1:]
    assert (busy.slept_while_flying, busy.most) == (0, 3)


def test_a_launch_that_fails_and_a_gpu_that_reports_an_error_fail_that_batch_alone(gpu: Callable[..., Gpu]) -> None:
    def work(number: int, _requests: int) -> int:
        if number == 1:
            raise RuntimeError("no memory")
        return MS

    own = gpu(work)
    own.broken = {4}
    result = issue([10 * MS * number for number in range(6)], BatchPolicy(), own.places(2), NO_LIMIT)
    assert result.sizes == (1,) * 6
    assert (result.failed, result.error, result.timed_out) == ((1, 4), "RuntimeError: no memory", False)
    alone = gpu(lambda *_: MS)
    alone.broken = {0}
    assert issue([0], BatchPolicy(), alone.places(1), NO_LIMIT).error == "RuntimeError: an illegal memory access"


def test_a_gpu_that_always_fails_is_given_up(gpu: Callable[..., Gpu]) -> None:
    own = gpu(lambda *_: MS)
    own.broken = set(range(100))
    result = issue([10 * MS * number for number in range(100)], BatchPolicy(), own.places(2), NO_LIMIT)
    # The end of the tenth is noticed while the thread waits for the eleventh, which is then launched.
    assert len(result.sizes) == len(result.failed) == MOST_FAILURES + 1


def test_a_batch_whose_event_is_never_passed_is_lost_at_the_time_limit(gpu: Callable[..., Gpu]) -> None:
    own = gpu(lambda number, _: None if number == 2 else MS)
    result = issue([10 * MS * number for number in range(8)], BatchPolicy(), own.places(2), 200 * MS, 50 * MS)
    assert result.sizes == (1,) * 8
    assert (result.failed, result.error, result.timed_out) == ((2,), issuing_thread.LOST, True)
    assert 250 * MS < result.done_ns[2] <= 250 * MS + 2 * LOOK_NS
    alone = issue([10 * MS * number for number in range(8)], BatchPolicy(), gpu(lambda *_: None).places(1), 200 * MS)
    assert (alone.sizes, alone.failed, alone.timed_out) == ((1,), (0,), True)


def test_no_batch_is_launched_after_the_limit(gpu: Callable[..., Gpu]) -> None:
    own = gpu(lambda *_: 20 * MS)
    result = issue([MS * number for number in range(100)], BatchPolicy(), own.places(2), 200 * MS, 50 * MS)
    assert (result.timed_out, result.failed) == (True, ())
    assert max(result.start_ns) <= 200 * MS


@pytest.mark.parametrize(("least", "expected"), [(1, 6), (9, 9), (50, 20)])
def test_the_closed_loop_keeps_every_stream_at_work(least: int, expected: int, gpu: Callable[..., Gpu]) -> None:
    own = gpu(lambda *_: 10 * MS)
    result = issue_closed(own.places(2), 4, 20, 25 * MS, least)
    assert (len(result.sizes), own.most) == (expected, 2)
    assert own.order == ([0, 1] * 10)[:expected]
    assert [round(start / MS) for start in result.start_ns[:4]] == [0, 0, 10, 10]
