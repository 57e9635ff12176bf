"""The highest load within a bound, predicted from measured service times, with its interval (pure).

Many runs are replayed at one rate, and the rate is solved for which exactly the allowed share of requests is over the
limit. The interval has two parts: chance in the measured service times (a block bootstrap of the traces, each with its
own solution), and chance in the simulation. A prediction is no peak: only real runs can verify it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Interval, LatencyBound
from harness.serving.arrivals import at_rate, unit_gaps
from harness.serving.batching import BatchPolicy
from harness.serving.replay import ServiceTimes, simulate

RUNS = 60
"""Simulated runs of the prediction."""

RESAMPLES = 24
"""Bootstrap resamples of the service times."""

RUNS_EACH = 8
"""Simulated runs of each resample: all resamples have the same arrivals, so these add little scatter."""

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

    capacity_per_s: every worker always busy with full batches of the best size; no load above it lasts. at_capacity:
    the bound still holds at the capacity within a run of this length, so the capacity is the limit.
    """

    rate_per_s: float
    ci95: Interval | None
    capacity_per_s: float
    at_capacity: bool


def peak_rate(
    services: ServiceTimes,
    policy: BatchPolicy,
    workers: int,
    bound: LatencyBound,
    requests: int,
    seed: int,
    runs: int = RUNS,
    interval: bool = True,
) -> Peak | None:
    """The highest rate at which the share over the limit is as the bound allows; None where no load meets the bound.

    requests: of a run; a run starts with an empty queue, as a real one. interval: without it a quarter of the time.
    """

    def shares(of: Sequence[ServiceTimes], used: NDArray[np.float64]) -> _Shares:
        def at(rates: NDArray[np.float64]) -> NDArray[np.float64]:
            arrivals = np.concatenate([at_rate(used, float(rate)) for rate in rates])
            found = simulate(arrivals, of, policy, workers, (seed,), alike=len(rates))
            over = found.latency_ns > bound.limit_ns
            return np.asarray(over.mean(axis=1)).reshape(-1, len(used))

        return at

    capacity = services.capacity_per_s(policy, workers)
    gaps = np.stack([unit_gaps(requests, (seed, run)) for run in range(runs)])

    measured = shares([services], gaps)
    holds = measured(_TRIED * capacity).mean(axis=1) <= bound.allowed
    if not holds.any():
        return None
    best = int(holds.argmax())
    if best == 0:
        ci95 = _capacity_interval(services, policy, workers, seed) if interval else None
        return Peak(capacity, ci95, capacity, at_capacity=True)
    low, high = float(_TRIED[best]), float(_TRIED[best - 1])
    found = _refined(measured, low, high, capacity, bound)
    if not interval:
        return Peak(found, None, capacity, at_capacity=False)
    resamples = [services.resampled((seed, number)) for number in range(RESAMPLES)]
    width = high / low
    ends = np.full(RESAMPLES, found / capacity / width), np.full(RESAMPLES, min(1.0, found / capacity * width))
    scattered = _solved(shares(resamples, gaps[:RUNS_EACH]), *ends, capacity, bound)
    spread = math.hypot(float(np.log(scattered).std(ddof=1)), _simulation_error(measured, found))
    factor = math.exp(_NORMAL_95 * spread)
    return Peak(found, Interval(low=found / factor, high=min(capacity, found * factor)), capacity, at_capacity=False)


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
    found = [services.resampled((seed, number)).capacity_per_s(policy, workers) for number in range(RESAMPLES)]
    centre, spread = services.capacity_per_s(policy, workers), float(np.log(found).std(ddof=1))
    return Interval(low=centre * math.exp(-_NORMAL_95 * spread), high=centre * math.exp(_NORMAL_95 * spread))
