"""Predictions from measured service times: the highest load within a bound, the curve, the map of policies (pure).

Peak: many runs are replayed at one rate, and the rate is solved for which exactly the allowed share of requests is over
the limit. The interval has two parts: chance in the measured service times (a block bootstrap of the traces, each with
its own solution), and chance in the simulation. A prediction is no peak: only real runs can verify it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Interval, LatencyBound, LoadCase, MapCell, PredictedPoint, Prediction, ServiceRun
from harness.serving.arrivals import at_rate, unit_gaps
from harness.serving.batching import BatchPolicy
from harness.serving.load_case import batch_policy, planned_points, prediction_digest, requests_at_rate
from harness.serving.replay import ServiceTimes, Simulated, simulate

PEAK_RUNS = 60
"""Simulated runs of the prediction."""

RESAMPLES = 24
"""Bootstrap resamples of the service times."""

RUNS_EACH = 8
"""Simulated runs of each resample, fewer of long ones: all resamples have the same arrivals, so these add little."""

MOST_TOGETHER = 5_000_000
"""Simulated requests at the same time: each takes 50 bytes. Runs of models that answer in microseconds have 200,000
requests, and up to 1,000,000 where REQUESTS asks for them."""

LEAST_RUNS = 8
"""Simulated runs, however many requests a run has."""

STEPS = 10
"""Halvings of the bracket, on logarithms: a bracket of 1.8 becomes 1.0006."""

POINTS, REFINEMENTS = 8, 3
"""Rates inside the bracket that are tried together, and how often: a bracket of 1.35 becomes 1.0004."""

_TRIED = np.geomspace(1.0, 0.02, 14)
"""Loads that are tried first, as shares of the capacity, downwards."""

_Shares = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Rates of groups of runs → the share over the limit of each run, a row for each group."""

_NORMAL_95 = 1.959964
"""Two-sided 95% of the normal distribution."""


@dataclass(frozen=True)
class Peak:
    """The predicted peak and its 95% interval, per second; ci95 is None where no interval was asked for.

    capacity_per_s: every worker always busy with full batches of the best size; no load above it lasts. Where the bound
    still holds there within a run of this length, it is the peak.
    """

    rate_per_s: float
    ci95: Interval | None
    capacity_per_s: float


def runs_together(runs: int, requests: int, least: int = LEAST_RUNS) -> int:
    """How many of the runs, of so many requests each, are simulated: a few long ones say as much."""
    return min(runs, max(least, MOST_TOGETHER // requests))


def peak_rate(
    services: ServiceTimes,
    policy: BatchPolicy,
    workers: int,
    bound: LatencyBound,
    requests: int,
    seed: int,
    runs: int = PEAK_RUNS,
    interval: bool = True,
) -> Peak | None:
    """The highest rate at which the share over the limit is as the bound allows; None where no load meets the bound.

    requests: of a run; a run starts with an empty queue, as a real one. interval: without it a quarter of the time.
    """

    def shares(of: Sequence[ServiceTimes], used: NDArray[np.float64]) -> _Shares:
        def at(rates: NDArray[np.float64]) -> NDArray[np.float64]:
            arrivals = np.concatenate([at_rate(used, float(rate)) for rate in rates])
            simulated = simulate(arrivals, of, policy, workers, (seed,), alike=len(rates))
            over = simulated.latency_ns > bound.limit_ns
            return np.asarray(over.mean(axis=1)).reshape(-1, len(used))

        return at

    capacity = services.capacity_per_s(policy, workers)
    together = runs_together(runs, requests * len(_TRIED))
    gaps = np.stack([unit_gaps(requests, (seed, run)) for run in range(together)])

    measured = shares([services], gaps)
    best = _first_that_holds(measured, capacity, bound, max(1, MOST_TOGETHER // gaps.size))
    if best is None:
        return None
    if best == 0:
        ci95 = _capacity_interval(services, policy, workers, seed) if interval else None
        return Peak(capacity, ci95, capacity)
    low, high = float(_TRIED[best]), float(_TRIED[best - 1])
    refined = _refined(measured, low, high, capacity, bound)
    if not interval:
        return Peak(refined, None, capacity)
    resamples = [services.resampled((seed, number)) for number in range(RESAMPLES)]
    width = high / low
    ends = np.full(RESAMPLES, refined / capacity / width), np.full(RESAMPLES, min(1.0, refined / capacity * width))
    each = runs_together(RUNS_EACH, requests * RESAMPLES, least=1)
    scattered = _solved(shares(resamples, gaps[:each]), *ends, capacity, bound)
    spread = math.hypot(float(np.log(scattered).std(ddof=1)), _simulation_error(measured, refined))
    factor = math.exp(_NORMAL_95 * spread)
    return Peak(refined, Interval(low=refined / factor, high=min(capacity, refined * factor)), capacity)


def _first_that_holds(shares: _Shares, capacity: float, bound: LatencyBound, together: int) -> int | None:
    """The place of the highest tried load that meets the bound, or None. together: loads that are tried at the same
    time. A low load has a batch for nearly each request, so those below are tried only where they are needed."""
    for first in range(0, _TRIED.size, together):
        holds = shares(_TRIED[first : first + together] * capacity).mean(axis=1) <= bound.allowed
        if holds.any():
            return first + int(holds.argmax())
    return None


def _refined(shares: _Shares, low: float, high: float, capacity: float, bound: LatencyBound) -> float:
    """One group, many rates at once: a step of the simulation costs nearly the same for few runs and for many."""
    for _ in range(REFINEMENTS):
        inner = np.geomspace(low, high, POINTS + 2)[1:-1]
        fails = shares(inner * capacity).mean(axis=1) > bound.allowed
        first = int(fails.argmax()) if fails.any() else POINTS
        low, high = (float(inner[first - 1]) if first else low), (float(inner[first]) if first < POINTS else high)
    return math.sqrt(low * high) * capacity


def _solved(
    shares: _Shares,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    capacity: float,
    bound: LatencyBound,
) -> NDArray[np.float64]:
    """Bisection of all groups at once: low and high are shares of the capacity."""
    for _ in range(STEPS):
        middle = np.sqrt(low * high)
        holds = shares(middle * capacity).mean(axis=1) <= bound.allowed
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return np.asarray(np.sqrt(low * high) * capacity)


def _simulation_error(shares: _Shares, rate: float) -> float:
    """Standard error of the logarithm of the solved rate that the number of simulated runs leaves."""
    step = 0.02
    before, at, after = (shares(np.array([rate * factor]))[0] for factor in (1 - step, 1.0, 1 + step))
    slope = (float(after.mean()) - float(before.mean())) / math.log((1 + step) / (1 - step))
    return float(at.std(ddof=1)) / math.sqrt(at.size) / slope if slope > 0 else 0.0


def _capacity_interval(services: ServiceTimes, policy: BatchPolicy, workers: int, seed: int) -> Interval:
    """95% interval of the capacity over resamples of the service times."""
    capacities = [services.resampled((seed, number)).capacity_per_s(policy, workers) for number in range(RESAMPLES)]
    centre, spread = services.capacity_per_s(policy, workers), float(np.log(capacities).std(ddof=1))
    return Interval(low=centre * math.exp(-_NORMAL_95 * spread), high=centre * math.exp(_NORMAL_95 * spread))


CURVE_RUNS = 40
"""Simulated runs of a point."""

MAP_RUNS = 20
"""Simulated runs of a point and a peak of the map, which compares many policies on the same arrivals."""

BAND = (0.05, 0.95)
"""Quantiles over runs between which 90% of single runs lie."""


def load_points(
    services: ServiceTimes,
    policy: BatchPolicy,
    workers: int,
    rates: Sequence[float],
    bound: LatencyBound,
    requests: int,
    seed: int,
    runs: int = CURVE_RUNS,
) -> tuple[PredictedPoint, ...]:
    """A point for each rate: runs of `requests` requests with the same arrivals, stretched; of long ones fewer."""
    gaps = np.stack([unit_gaps(requests, (seed, run)) for run in range(runs_together(runs, requests))])

    def point(rate: float) -> PredictedPoint:
        arrivals = at_rate(gaps, rate)
        return _point(rate, arrivals, simulate(arrivals, [services], policy, workers, (seed,)), bound, workers)

    return tuple(map(point, rates))


def _point(
    rate: float, arrivals: NDArray[np.int64], runs: Simulated, bound: LatencyBound, workers: int
) -> PredictedPoint:
    latency = runs.latency_ns
    tails = np.quantile(latency, [0.5, 0.99], axis=1, method="median_unbiased")
    bands = [Interval(low=float(low), high=float(high)) for low, high in np.quantile(tails, BAND, axis=1).T]
    shares = np.mean(latency > bound.limit_ns, axis=1)
    over, count = float(shares.mean()), len(shares)
    return PredictedPoint(
        rate_per_s=rate,
        p50_ns=float(np.median(tails[0])),
        p99_ns=float(np.median(tails[1])),
        p50_band_ns=bands[0],
        p99_band_ns=bands[1],
        mean_ns=float(latency.mean()),
        over_share=over,
        over_error=float(shares.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0,
        goodput_per_s=(1 - over) * latency.size / float(arrivals[:, -1].sum()) * 1e9,
        mean_batch=latency.size / int(runs.batches.sum()),
        utilisation=float(runs.busy_ns.sum()) / (workers * float(runs.length_ns.sum())),
    )


def policies(max_batches: Iterable[int], delays_ns: Sequence[int]) -> tuple[BatchPolicy, ...]:
    """Every combination; a batch of one never waits, so it has one policy whatever the delays."""
    return tuple(BatchPolicy(size, delay) for size in max_batches for delay in (delays_ns if size > 1 else (0,)))


def policy_map(
    services: ServiceTimes,
    policies: Iterable[BatchPolicy],
    workers: int,
    bound: LatencyBound,
    shares: Sequence[float],
    requests: int,
    seed: int,
) -> tuple[MapCell, ...]:
    """Each policy with its predicted peak, without an interval, and points at the same rates for all.

    shares: the rates, as shares of the highest capacity of all policies.
    """
    tried = list(policies)
    highest = max(services.capacity_per_s(policy, workers) for policy in tried)
    rates = [share * highest for share in shares]

    def cell(policy: BatchPolicy) -> MapCell:
        peak = peak_rate(services, policy, workers, bound, requests, seed, MAP_RUNS, interval=False)
        return MapCell(
            max_batch=policy.max_batch,
            max_delay_ns=policy.max_delay_ns,
            rate_per_s=peak.rate_per_s if peak else None,
            points=load_points(services, policy, workers, rates, bound, requests, seed, MAP_RUNS),
        )

    return tuple(map(cell, tried))


def knee(rates: Sequence[float], mean_ns: Sequence[float]) -> float | None:
    """The rate at which rate / mean latency is largest: Kleinrock's power, the knee of a latency-against-load curve.

    L. Kleinrock, Power and deterministic rules of thumb for probabilistic problems in computer communications, ICC
    1979: 0.5 of the capacity for M/M/1, 2 - sqrt(2) for M/D/1. Between three points around the largest a parabola
    through the logarithms. None where the largest is the first or the last rate: the curve does not reach its knee.
    """
    x, y = np.asarray(rates, dtype=np.float64), np.asarray(mean_ns, dtype=np.float64)
    if x.size < 3:
        return None
    power = np.log(x) - np.log(y)
    at = int(power.argmax())
    if at in (0, x.size - 1):
        return None
    bend, slope, _ = np.polyfit(np.log(x[at - 1 : at + 2] / x[at]), power[at - 1 : at + 2], 2)
    return float(x[at] * np.exp(-slope / (2 * bend)))


CURVE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Rates of the curve, as shares of the capacity."""

MAP_SHARES = (0.2, 0.4, 0.6, 0.8)
"""Rates of the map, as shares of the highest capacity of its policies."""

CURVE_REQUESTS, LONG_FROM = 20_000, 0.8
"""Most requests of a run of the curve at loads below this share of the capacity: their queues do not grow with the run,
and of long runs they take the most time, because their batches are small."""

MEASURED_RUNS = 200
"""Simulated runs of a load that is also measured."""

MAP_DELAYS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""Delays of the map, as shares of the bound; the case's own delay is added."""

GUESS_RUNS, GUESS_REQUESTS = 20, 20_000
"""Simulated runs and their longest of the first prediction, which only decides how long a run is."""

MAP_REQUESTS = 500
"""Requests of a run of the map, which compares policies on the same arrivals."""


def predict(load: LoadCase, service: ServiceRun, service_sha256: str, seed: int, now: str) -> Prediction:
    """The prediction of a server case. Its peak is None where no load meets the bound.

    seed: of the simulated arrivals, which must differ from those of the real replications. now: date of the record.
    Raises ValueError for a case without a bound.
    """
    if load.bound is None:
        raise ValueError(f"{load.load_id} has no bound")
    times = replay_times(service)
    bound, policy, workers = load.bound, batch_policy(load), load.parallel
    peak = _peak(times, load, bound, seed)
    capacity = times.capacity_per_s(policy, workers)
    steps = planned_points(load, peak.rate_per_s if peak else None)
    count = requests_at_rate(load, peak.rate_per_s if peak else capacity)
    measured = {step.rate_per_s for step in steps if step.rate_per_s}
    rates = {round(share * capacity, 6) for share in CURVE} - measured
    curve: list[PredictedPoint] = []
    for rate in sorted(rates):
        requests = min(count, CURVE_REQUESTS) if rate < LONG_FROM * capacity else count
        curve += load_points(times, policy, workers, [rate], bound, requests, seed)
    for rate in measured:
        # As long as the real replications, and many: these are also the expectation of their control variate.
        curve += load_points(times, policy, workers, [rate], bound, requests_at_rate(load, rate), seed, MEASURED_RUNS)
    curve.sort(key=lambda point: point.rate_per_s)
    delays = sorted({round(share * bound.limit_ns) for share in MAP_DELAYS} | {load.max_delay_ns})
    every_policy = policies(times.sizes, delays)
    return Prediction(
        load_id=load.load_id,
        settings_id=service.settings_id,
        load_sha256=prediction_digest(load),
        artifacts_id=service.artifacts_id,
        started_at=now,
        environment_id=service.environment_id,
        service_sha256=service_sha256,
        bound=bound,
        seed=seed,
        peak_per_s=peak.rate_per_s if peak else None,
        peak_interval=peak.ci95 if peak else None,
        capacity_per_s=capacity,
        points=tuple(curve),
        map=policy_map(times, every_policy, workers, bound, MAP_SHARES, min(count, MAP_REQUESTS), seed),
    )


def replay_times(service: ServiceRun) -> ServiceTimes:
    """The measured service times as replay takes them."""
    return ServiceTimes({size: np.array(times, dtype=np.int64) for size, times in service.service_ns.items()})


def _peak(times: ServiceTimes, load: LoadCase, bound: LatencyBound, seed: int) -> Peak | None:
    """The peak for runs as long as the real ones: their number of requests depends on the rate itself."""
    policy, workers = batch_policy(load), load.parallel
    most = min(GUESS_REQUESTS, requests_at_rate(load, times.capacity_per_s(policy, workers)))
    guess = peak_rate(times, policy, workers, bound, most, seed, runs=GUESS_RUNS, interval=False)
    if guess is None:
        return None
    return peak_rate(times, policy, workers, bound, requests_at_rate(load, guess.rate_per_s), seed)
