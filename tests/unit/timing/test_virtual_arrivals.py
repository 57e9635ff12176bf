"""The open loop on a clock that only waits and work move: Lindley's queue, nothing dropped, failures counted."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from harness.serving.arrivals import poisson
from harness.serving.batching import BatchPolicy
from harness.serving.replay import queue_completions, replay_recorded
from harness.timing import request_loops
from harness.timing.request_loops import Dispatches, WorkerThreads, serve
from tests.fixtures.simulated_clock import SimulatedClock, alone, in_place

MS = 1_000_000
NO_LIMIT = 1 << 60


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimulatedClock:
    return in_place(monkeypatch)


def latency(found: Dispatches, scheduled: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.repeat(np.array(found.done_ns), found.sizes) - np.array(scheduled)


def test_one_worker_without_batching_is_the_lindley_recursion_on_its_own_service_times(clock: SimulatedClock) -> None:
    scheduled = poisson(150, 2_000, seed=3).tolist()
    work = np.random.default_rng(1).gamma(4, 1.2 * MS, 2_000).astype(int).tolist()
    result = serve(scheduled, BatchPolicy(), [clock.service(lambda number, _: work[number])], alone, NO_LIMIT)
    service = np.array(result.done_ns) - np.array(result.start_ns)
    assert service.tolist() == work
    assert (
        latency(result, scheduled).tolist()
        == (queue_completions(np.array(scheduled), service) - np.array(scheduled)).tolist()
    )
    assert result.start_ns == result.ready_ns


def test_the_mean_wait_is_that_of_m_d_1(clock: SimulatedClock) -> None:
    service_ns, load = 2 * MS, 0.7
    waits = []
    for seed in range(12):
        scheduled = poisson(load / service_ns * 1e9, 3_000, seed).tolist()
        result = serve(scheduled, BatchPolicy(), [clock.service(lambda *_: service_ns)], alone, NO_LIMIT)
        waits.append(float(np.mean(np.array(result.start_ns) - np.array(scheduled))))
    # Pollaczek and Khinchine: rho s / (2 (1 - rho)).
    expected = load * service_ns / (2 * (1 - load))
    assert np.mean(waits) == pytest.approx(expected, abs=4 * np.std(waits, ddof=1) / np.sqrt(12))
    assert np.mean(waits) == pytest.approx(expected, rel=0.1)


def test_a_stall_of_half_a_second_is_in_every_latency_behind_it(clock: SimulatedClock) -> None:
    scheduled = [number * 5 * MS for number in range(300)]  # 200 a second
    run = clock.service(lambda number, _: 500 * MS if number == 50 else MS)
    result = latency(serve(scheduled, BatchPolicy(), [run], alone, NO_LIMIT), scheduled)
    assert result[50] == 500 * MS
    # The backlog shrinks by 4 ms each 5 ms: a harness that waits for the stalled answer sees one slow request.
    assert result[51:54].tolist() == [496 * MS, 492 * MS, 488 * MS]
    assert np.quantile(result, 0.99) > 480 * MS
    assert np.count_nonzero(result > 50 * MS) == 113


def test_batches_close_when_they_are_full_or_their_first_request_has_waited(clock: SimulatedClock) -> None:
    scheduled = [0, MS, 2 * MS, 10 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS, 30 * MS]
    policy = BatchPolicy(max_batch=4, max_delay_ns=5 * MS)
    result = serve(scheduled, policy, [clock.service(lambda *_: MS)], alone, NO_LIMIT)
    assert result.sizes == (3, 1, 4, 1)
    assert result.start_ns == (5 * MS, 15 * MS, 30 * MS, 35 * MS)
    service = [done - start for start, done in zip(result.start_ns, result.done_ns, strict=True)]
    assert (
        replay_recorded(scheduled, result.sizes, service, policy, 1).tolist()
        == np.repeat(result.done_ns, result.sizes).tolist()
    )


def test_a_batch_takes_the_requests_that_arrived_while_its_worker_was_busy(clock: SimulatedClock) -> None:
    scheduled = [0, MS, 2 * MS, 3 * MS, 50 * MS]
    result = serve(scheduled, BatchPolicy(max_batch=8), [clock.service(lambda *_: 10 * MS)], alone, NO_LIMIT)
    assert result.sizes == (1, 3, 1)
    assert result.ready_ns == (0, 10 * MS, 50 * MS)


def test_a_failed_batch_counts_and_the_next_one_runs(clock: SimulatedClock) -> None:
    def run(requests: int) -> None:
        clock.ns += MS
        if requests == 2:
            raise RuntimeError("no memory for two")

    result = serve([0, 10 * MS, 10 * MS, 20 * MS], BatchPolicy(max_batch=4), [run], alone, NO_LIMIT)
    assert (result.sizes, result.failed) == ((1, 2, 1), (1,))
    assert result.error == "RuntimeError: no memory for two"


def test_a_service_that_keeps_failing_is_given_up_and_the_rest_is_not_served(clock: SimulatedClock) -> None:
    def run(_requests: int) -> None:
        raise RuntimeError("gone")

    result = serve([MS * number for number in range(100)], BatchPolicy(), [run], alone, NO_LIMIT)
    assert sum(result.sizes) == len(result.failed) == request_loops.MOST_FAILURES


def test_no_batch_begins_after_the_limit(clock: SimulatedClock) -> None:
    scheduled = [MS * number for number in range(100)]
    result = serve(scheduled, BatchPolicy(), [clock.service(lambda *_: 10 * MS)], alone, 200 * MS)
    assert result.timed_out
    assert sum(result.sizes) == 21
    assert max(result.start_ns) == 200 * MS


def test_several_workers_serve_every_request_once_and_in_order() -> None:
    threads, barrier = WorkerThreads(3), threading.Barrier(3, timeout=300)

    def run(_requests: int) -> None:
        barrier.wait()  # only three at work at the same time can pass

    scheduled = [number * 10_000 for number in range(30)]
    result = serve(scheduled, BatchPolicy(), [run] * 3, threads.all_at_once, NO_LIMIT)
    assert result.sizes == (1,) * 30
    assert result.failed == ()
    assert set(result.worker) == {0, 1, 2}
    for worker in range(3):  # of two workers the later one may begin first: the system stops threads where it likes
        starts = [start for start, own in zip(result.start_ns, result.worker, strict=True) if own == worker]
        assert starts == sorted(starts)
    assert all(ready <= start for ready, start in zip(result.ready_ns, result.start_ns, strict=True))
    assert all(start >= due for start, due in zip(result.start_ns, scheduled, strict=True))


def test_a_wait_ends_at_its_instant_on_the_real_clock() -> None:
    instant = request_loops.now_ns() + 300_000
    request_loops.wait_until(instant)
    assert request_loops.now_ns() >= instant
