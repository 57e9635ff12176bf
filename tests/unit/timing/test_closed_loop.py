"""The closed loop on a clock that only work moves, the dispatcher, and service times."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.core.errors import CaseError
from harness.timing import repeat_check
from harness.timing import service_times as service
from harness.timing.repeat_check import Rewritable
from harness.timing.request_loops import WorkerThreads, serve_closed
from harness.timing.service_times import Dispatcher
from tests.fixtures.simulated_clock import SimulatedClock, alone, in_place

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    result = in_place(monkeypatch)
    for module in (service, repeat_check):
        monkeypatch.setattr(module, "now_ns", result.now_ns)
    return result


class Backend:
    """Takes `ns`, or `other_ns` on a batch that it had before."""

    shares_outputs = False

    def __init__(self, clock: SimulatedClock, ns: int, repeated_ns: int | None = None) -> None:
        self.clock, self.ns, self.repeated_ns = clock, ns, ns if repeated_ns is None else repeated_ns
        self.calls: list[str] = []
        self.seen: list[int] = []

    def activate(self) -> None:
        self.calls.append("activate")

    def select(self, index: int) -> None:
        self.calls.append("select")
        self.seen.append(index)

    def refresh(self, index: int) -> None:
        """Reads the arrays themselves."""

    def infer(self) -> None:
        self.calls.append("infer")
        again = len(self.seen) > 1 and self.seen[-1] == self.seen[-2]
        self.clock.ns += self.repeated_ns if again else self.ns

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def outputs(self) -> dict[str, NDArray[np.generic]]:
        return {"out": np.array([self.seen[-1]])}

    def issue(self, index: int, done: Callable[[str | None], None]) -> None:
        self.seen.append(index)
        self.clock.ns += self.ns
        done(None)

    def issued(self) -> list[tuple[int, dict[str, NDArray[np.generic]]]]:
        return [(index, {"out": np.array([index])}) for index in self.seen[-2:]]


def test_a_client_sends_its_next_request_when_the_previous_is_complete(clock: SimulatedClock) -> None:
    result = serve_closed([clock.service(lambda number, _: MS * (number + 1))], 8, alone, 4, 1_000 * MS)
    assert result.sizes == (1,) * 4
    assert result.start_ns == result.ready_ns == (0, MS, 3 * MS, 6 * MS)
    assert result.done_ns == (MS, 3 * MS, 6 * MS, 10 * MS)


@pytest.mark.parametrize(("least", "expected"), [(1, 3), (7, 7), (50, 20)])
def test_it_ends_with_its_time_but_not_before_its_least_number(
    least: int, expected: int, clock: SimulatedClock
) -> None:
    result = serve_closed([clock.service(lambda *_: 10 * MS)], 1, alone, 20, 25 * MS, least)
    assert len(result.sizes) == expected


def test_a_failed_request_counts(clock: SimulatedClock) -> None:
    def run(_batch: int) -> None:
        clock.ns += MS
        raise ValueError("no")

    result = serve_closed([run], 1, alone, 100, 1_000 * MS)
    assert (len(result.sizes), result.failed, result.error) == (10, tuple(range(10)), "ValueError: no")


def test_clients_share_the_number_of_requests() -> None:
    threads = WorkerThreads(4)
    result = serve_closed([lambda _batch: None] * 4, 1, threads.all_at_once, 500, 10**12)
    assert len(result.sizes) == 500


def dispatcher(clock: SimulatedClock, sizes: Sequence[int] = (1, 2, 4)) -> tuple[Dispatcher, dict[int, Backend]]:
    backends = {size: Backend(clock, size * MS) for size in sizes}
    return Dispatcher({size: (backend, 8) for size, backend in backends.items()}), backends


def test_a_batch_runs_on_the_smallest_prepared_size_that_holds_it(clock: SimulatedClock) -> None:
    chosen, backends = dispatcher(clock)
    for requests in (1, 2, 3, 4):
        chosen.run(requests)
    assert [len(backends[size].seen) for size in (1, 2, 4)] == [1, 1, 2]
    assert backends[4].calls == ["activate", "select", "infer", "synchronize"] * 2
    with pytest.raises(ValueError, match="at least one"):
        chosen.run(0)


def test_every_input_takes_its_turn_in_an_order_of_the_seed(clock: SimulatedClock) -> None:
    orders = []
    for seed in (1, 1, 2):
        chosen, backends = dispatcher(clock, (1,))
        chosen.reorder(seed)
        for _ in range(16):
            chosen.run(1)
        orders.append(backends[1].seen)
        assert sorted(backends[1].seen[:8]) == list(range(8))
        assert backends[1].seen[:8] == backends[1].seen[8:]
    assert orders[0] == orders[1] != orders[2]
    assert [(size, index) for size, index, _ in chosen.latest()] == [(1, orders[2][-1])]
    chosen.reorder(3)
    assert chosen.latest() == []


def test_outputs_that_another_pass_may_have_overwritten_are_not_read(clock: SimulatedClock) -> None:
    chosen, backends = dispatcher(clock)
    for requests in (1, 2, 4, 2):
        chosen.run(requests)
    assert [size for size, _, _ in chosen.latest()] == [1, 2, 4]
    for backend in backends.values():
        backend.shares_outputs = True
    assert [size for size, _, _ in chosen.latest()] == [2]


def test_issued_batches_take_turns_and_their_latest_outputs_are_compared(clock: SimulatedClock) -> None:
    chosen, backends = dispatcher(clock)
    chosen.reorder(1)
    ended: list[str | None] = []
    for requests in (1, 3, 3, 3):
        chosen.start(requests, ended.append)
    assert ended == [None] * 4
    assert [len(backends[size].seen) for size in (1, 2, 4)] == [1, 0, 3]
    latest = [(size, index) for size, index, _ in chosen.latest()]
    assert latest == [(1, backends[1].seen[0]), *((4, index) for index in backends[4].seen[-2:])]


def test_the_guard_of_order_sees_a_backend_whose_time_depends_on_the_input_before(clock: SimulatedClock) -> None:
    class Follower(Backend):
        """Twice as slow where an input does not follow the one that it followed in the first order."""

        def __init__(self) -> None:
            super().__init__(clock, MS)
            self.after: dict[int, int] = {}

        def infer(self) -> None:
            last, now = ([-1, *self.seen])[-2:]
            first = self.after.setdefault(last, now)
            self.clock.ns += self.ns if first == now else 2 * self.ns

    for backend, least in ((Backend(clock, MS), 1.0), (Follower(), 1.3)):
        result = service.order_guard(Dispatcher({1: (backend, 8)}), 1, seed=1)
        ratios = np.array(result.other_ns) / np.array(result.usual_ns)
        assert len(ratios) == service.GUARD_PAIRS
        assert np.median(ratios) >= least
        assert (np.median(ratios) == 1.0) == (least == 1.0)


def closed(chosen: Dispatcher) -> service.ClosedLoop:
    return lambda size, most, duration_ns, least: serve_closed([chosen.run], size, alone, most, duration_ns, least)


def test_service_times_are_those_of_each_size_in_the_order_measured(clock: SimulatedClock) -> None:
    chosen, _ = dispatcher(clock)
    service_times = service.service_times(closed(chosen), 1, (1, 2, 4), 1.0)
    assert {size: set(times) for size, times in service_times.items()} == {1: {MS}, 2: {2 * MS}, 4: {4 * MS}}
    assert len(service_times[1]) == 1_000  # a second of 1 ms
    assert len(service_times[4]) == 252  # each of the passes ends after its quarter


def test_a_service_that_fails_without_load_is_no_service(clock: SimulatedClock) -> None:
    chosen, backends = dispatcher(clock, (1,))
    backends[1].infer = lambda: (_ for _ in ()).throw(RuntimeError("broken"))  # type: ignore[method-assign]
    with pytest.raises(CaseError, match="A batch of 1 failed: RuntimeError: broken"):
        service.service_times(closed(chosen), 1, (1,), 1.0)


class LargeInputs(Backend):
    """Honest: twice as slow where the input is not the one that the caches have, which was read or written last."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock, 2 * MS, MS)
        self.in_caches = -1

    def refresh(self, index: int) -> None:
        self.in_caches = index

    def infer(self) -> None:
        index = self.seen[-1]
        self.clock.ns += self.repeated_ns if index == self.in_caches else self.ns
        self.in_caches = index


def rewritable(backend: Backend) -> Rewritable:
    def make_ready(index: int) -> None:
        backend.refresh(index)
        backend.select(index)

    batches = [{"in": np.array([float(index)])} for index in range(8)]
    return Rewritable(batches, make_ready, backend.infer, backend.outputs)


def test_the_guards_see_a_backend_that_is_faster_on_a_repeated_input(clock: SimulatedClock) -> None:
    honest, cached = Backend(clock, 2 * MS), Backend(clock, 2 * MS, repeated_ns=MS)
    for backend, ratio in ((honest, 1.0), (cached, 0.5), (LargeInputs(clock), 1.0)):
        result = service.repeat_guard(rewritable(backend), seed=1)
        ratios = np.array(result.other_ns) / np.array(result.usual_ns)
        assert len(ratios) == service.GUARD_PAIRS
        assert np.median(ratios) == pytest.approx(ratio, rel=0.1)
        order = service.order_guard(Dispatcher({1: (backend, 8)}), 1, seed=1)
        assert np.median(np.array(order.other_ns) / np.array(order.usual_ns)) == pytest.approx(1.0)
