"""Arrivals, batching and queues against right values from theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.core.errors import UsageError
from harness.core.schemas import LoadCase, ServiceRun
from harness.serving import arrivals, peak_prediction, replay
from harness.serving.batching import BatchPolicy, batch_closes_at, batch_end, prepared_for, prepared_sizes
from harness.serving.load_verdict import parse_bound
from harness.serving.peak_prediction import knee, load_points, peak_rate, policies, policy_map

MS = 1_000_000
ONE = BatchPolicy()


def test_poisson_gaps_are_raw_exponentials_of_their_own_generator() -> None:
    np.random.seed(1)
    first = arrivals.poisson(200, 50_000, 7)
    np.random.seed(2)
    assert np.array_equal(first, arrivals.poisson(200, 50_000, 7))
    gaps = np.diff(first) / MS
    assert gaps.mean() == pytest.approx(5, rel=0.02)
    assert gaps.std() == pytest.approx(5, rel=0.02)
    # The rate that chance gave is not forced to the one that was asked for.
    assert arrivals.rate_of(arrivals.poisson(200, 300, 7)) != pytest.approx(200, rel=1e-3)
    assert arrivals.digest(first) != arrivals.digest(arrivals.poisson(200, 50_000, 8))


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e-9])
def test_a_rate_without_load_is_refused(rate: float) -> None:
    for schedule in (arrivals.poisson, arrivals.loadgen):
        if rate == 1e-9 and schedule is arrivals.loadgen:
            continue
        with pytest.raises(UsageError, match=r"rate|100 days") as error:
            schedule(rate, 100, 1)
        assert "rate" in error.value.hint


def test_lindley_is_the_recursion_exactly() -> None:
    rng = np.random.default_rng(3)
    scheduled = arrivals.poisson(90, 3_000, 4)
    service = (rng.gamma(4, 2.5, 3_000) * MS).astype(np.int64)
    end, ends = 0, []
    for instant, time in zip(scheduled.tolist(), service.tolist(), strict=True):
        end = max(end, instant) + time
        ends.append(end)
    assert replay.queue_completions(scheduled, service).tolist() == ends
    assert replay.replay_recorded(scheduled.tolist(), [1] * 3_000, service.tolist(), ONE, 1).tolist() == ends


def test_mean_wait_of_m_d_1() -> None:
    """Pollaczek and Khinchine for a constant service s: rho s / (2 (1 - rho))."""
    services = replay.ServiceTimes({1: np.full(100, 10 * MS)})
    (point,) = load_points(services, ONE, 1, [60.0], parse_bound("p99<50ms"), 5_000, 1)
    assert point.mean_ns / MS - 10 == pytest.approx(0.6 * 10 / (2 * 0.4), rel=0.03)
    assert point.utilisation == pytest.approx(0.6, rel=0.01)
    assert point.mean_batch == 1


def test_a_batch_closes_when_full_or_after_the_delay_of_its_first() -> None:
    scheduled = [0, 10, 20, 500]
    policy = BatchPolicy(3, 100)
    assert batch_closes_at(scheduled, 0, policy) == 20
    assert batch_closes_at(scheduled, 1, policy) == 110
    assert batch_closes_at(scheduled, 3, policy) == 600  # the schedule ends before it fills
    assert batch_end(scheduled, 0, 10, policy) == 2
    assert batch_end(scheduled, 0, 1_000, policy) == 3
    assert batch_end(scheduled, 3, 600, policy) == 4
    assert prepared_sizes(1) == (1,)
    assert prepared_sizes(6) == (1, 2, 4, 6)
    assert prepared_sizes(8) == (1, 2, 4, 8)
    assert [prepared_for((1, 2, 4, 6), requests) for requests in (1, 3, 5, 6)] == [1, 4, 6, 6]
    with pytest.raises(UsageError, match="empty"):
        BatchPolicy(0)


def one_by_one(
    scheduled: list[int], services: replay.ServiceTimes, policy: BatchPolicy, workers: int
) -> tuple[list[int], list[int], list[int]]:
    """Completions, batch sizes and service times by the policy's two functions, as the timed loop calls them; every
    batch of a size takes the same time."""
    free, before, head = [0] * workers, 0, 0
    ends: list[int] = []
    sizes, times = [], []
    while head < len(scheduled):
        worker = free.index(min(free))
        before = max(free[worker], before, batch_closes_at(scheduled, head, policy))
        taken = batch_end(scheduled, head, before, policy) - head
        times.append(int(services.traces[prepared_for(services.sizes, taken)][0]))
        sizes.append(taken)
        free[worker] = before + times[-1]
        ends += [free[worker]] * taken
        head += taken
    return ends, sizes, times


@pytest.mark.parametrize("policy", [ONE, BatchPolicy(4), BatchPolicy(6, 3 * MS)])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_simulation_of_many_runs_is_the_policy_request_by_request(policy: BatchPolicy, workers: int) -> None:
    services = replay.ServiceTimes({size: np.full(9, (4 + size) * MS) for size in prepared_sizes(policy.max_batch)})
    schedules = np.stack([arrivals.poisson(300, 200, seed) for seed in range(3)])
    result = replay.simulate(schedules, [services], policy, workers, (1,))
    for run, scheduled in enumerate(schedules.tolist()):
        ends, sizes, times = one_by_one(scheduled, services, policy, workers)
        assert (result.latency_ns[run] + schedules[run]).tolist() == ends
        assert (result.batches[run], result.busy_ns[run]) == (len(sizes), sum(times))
        # Only what harness and system add is left of a recorded run: here nothing.
        assert replay.replay_recorded(scheduled, sizes, times, policy, workers).tolist() == ends


def test_the_bootstrap_keeps_neighbours_together() -> None:
    services = replay.ServiceTimes({1: np.arange(1_000, 2_000)})
    alone = np.arange(1, 201)[None, :] * 10_000  # no request waits: the latency is the service time
    entry = replay.simulate(alone, [services], ONE, 1, (5,)).latency_ns[0]
    steps = np.diff(entry)
    assert np.count_nonzero(steps % 1_000 != 1) == 200 // replay.BLOCK - 1


def test_peak_of_a_constant_service() -> None:
    """M/D/1 with p50 <= s: half of the requests must find the queue empty, so rho = 0.5 (the limit is 1% above s)."""
    services = replay.ServiceTimes({1: np.full(200, 10 * MS)})
    result = peak_rate(services, ONE, 1, parse_bound("p50<10.0001ms"), 1_500, 2)
    assert result is not None
    assert result.ci95 is not None
    assert result.rate_per_s == pytest.approx(50, rel=0.02)
    assert result.ci95.low < 50 < result.ci95.high
    assert result.rate_per_s < result.capacity_per_s
    assert peak_rate(services, ONE, 1, parse_bound("p99<9ms"), 300, 2) is None
    endless = peak_rate(services, ONE, 1, parse_bound("p99<100s"), 300, 2)
    assert endless is not None
    assert endless.rate_per_s == endless.capacity_per_s == pytest.approx(100)


def test_long_runs_are_fewer_so_that_they_fit_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    services = replay.ServiceTimes({1: np.full(100, 10_000_000, dtype=np.int64)})
    bound = parse_bound("p99<50ms")
    assert [peak_prediction.runs_together(*sizes) for sizes in ((60, 14 * 4_186), (60, 14 * 348_949), (60, 10**9))] == [
        60,
        8,
        8,
    ]
    assert [peak_prediction.runs_together(8, 24 * requests, least=1) for requests in (4_186, 348_949)] == [8, 1]
    few = (
        load_points(services, ONE, 1, [60.0], bound, 500, 1, runs=12),
        peak_rate(services, ONE, 1, bound, 500, 2, runs=12),
    )
    monkeypatch.setattr(peak_prediction, "MOST_TOGETHER", 12 * 500)
    assert load_points(services, ONE, 1, [60.0], bound, 500, 1, runs=40) == few[0]
    monkeypatch.setattr(peak_prediction, "MOST_TOGETHER", 14 * 12 * 500)
    assert peak_rate(services, ONE, 1, bound, 500, 2, runs=60) == few[1]


def test_of_long_runs_no_load_is_simulated_that_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A low load has a batch for nearly each request: one of 200,000 requests takes longer than all others together."""
    services = replay.ServiceTimes({size: np.full(100, 10 * MS) for size in (1, 2, 4, 8)})
    policy, tried = BatchPolicy(8), list[float]()

    def simulate(schedules: NDArray[np.int64], *others: Any, **more: Any) -> replay.Simulated:
        tried.extend((schedules.shape[1] / schedules[:, -1] * 1e9).tolist())
        return replay.simulate(schedules, *others, **more)

    usual = peak_rate(services, policy, 1, parse_bound("p99<100ms"), 2_000, 2, runs=8, interval=False)
    monkeypatch.setattr(peak_prediction, "simulate", simulate)
    monkeypatch.setattr(peak_prediction, "MOST_TOGETHER", 8 * 2_000)
    assert peak_rate(services, policy, 1, parse_bound("p99<100ms"), 2_000, 2, runs=8, interval=False) == usual
    assert min(tried) > 0.5 * services.capacity_per_s(policy, 1)


def test_the_curve_of_a_fast_service_has_shorter_runs_at_low_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: dict[int, set[int]] = {}

    def points(times: replay.ServiceTimes, policy: BatchPolicy, workers: int, rates: Any, *more: Any) -> Any:
        simulated.setdefault(more[1], set()).update(map(round, rates))
        return load_points(times, policy, workers, rates, more[0], 30, *more[2:])

    monkeypatch.setattr(peak_prediction, "load_points", points)
    monkeypatch.setattr(peak_prediction, "_peak", lambda *_: None)
    rates = (51_000.0, 61_000.0)
    load = LoadCase(
        load_id="l", model="m", slug="m", backend="b", device="cpu", precision="fp32", sequence_length=None,
        weights="seeded", scenario="server", bound=parse_bound("p99<50ms"), rates=rates,
    )  # fmt: skip
    facts: dict[str, Any] = {"settings_id": "0" * 12, "artifacts_id": "a", "environment_id": "e"}
    service = ServiceRun.model_construct(service_ns={1: (12_000,) * 40}, **facts)
    peak_prediction.predict(load, service, "0" * 64, 1, "2026-12-03T00:00:00Z")
    assert simulated[127_500] == {51_000}
    assert simulated[152_500] == {61_000}
    low = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    assert simulated[peak_prediction.CURVE_REQUESTS] == {round(share * 1e9 / 12_000) for share in low}
    assert len(simulated[200_000]) == 3


def test_the_map_has_a_peak_for_each_policy_and_batches_pay_off() -> None:
    services = replay.ServiceTimes({size: np.full(200, (8 + 2 * size) * MS) for size in (1, 2, 4, 8)})
    tried = policies((1, 4, 8), (0, 5 * MS))
    assert tried == (ONE, BatchPolicy(4), BatchPolicy(4, 5 * MS), BatchPolicy(8), BatchPolicy(8, 5 * MS))
    result = policy_map(services, tried, 1, parse_bound("p99<100ms"), (0.25,), 300, 3)
    peaks = [cell.rate_per_s for cell in result if cell.rate_per_s is not None]
    assert len(peaks) == 5
    assert peaks[0] < peaks[1] < peaks[3]
    assert [cell.points[0].rate_per_s for cell in result] == pytest.approx([0.25 * 8 / 0.024] * 5)


def test_the_knee_of_m_d_1() -> None:
    rho = np.linspace(0.05, 0.95, 19)
    assert knee(rho, 1 + rho / (2 * (1 - rho))) == pytest.approx(2 - 2**0.5, rel=0.005)
    assert knee(rho[:5], 1 + rho[:5] / (2 * (1 - rho[:5]))) is None
