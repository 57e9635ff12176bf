"""Latency against load, and the map of batching policies, replayed from measured service times (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.core.schemas import Interval, LatencyBound
from harness.serving.arrivals import at_rate, unit_gaps
from harness.serving.batching import BatchPolicy
from harness.serving.peak import Peak, peak_rate
from harness.serving.replay import ServiceTimes, Simulated, simulate

RUNS = 40
"""Simulated runs of a point."""

MAP_RUNS = 20
"""Simulated runs of a point and a peak of the map, which compares many policies on the same arrivals."""

BAND = (0.05, 0.95)
"""Quantiles over runs between which 90% of single runs lie."""


@dataclass(frozen=True)
class Replayed:
    """One load, replayed: medians over runs, in ns, and the band in which 90% of single runs lie.

    mean_ns: mean latency. share_over: of requests over the bound; share_error: its standard error over runs.
    goodput_per_s: requests within it, per second of the schedule. mean_batch: requests of a batch. utilisation: busy
    share of the workers.
    """

    rate_per_s: float
    p50_ns: float
    p99_ns: float
    p50_band: Interval
    p99_band: Interval
    mean_ns: float
    share_over: float
    share_error: float
    goodput_per_s: float
    mean_batch: float
    utilisation: float


@dataclass(frozen=True)
class PolicyPeak:
    """One policy of the map: its predicted peak without an interval, None where no load meets the bound; its loads."""

    policy: BatchPolicy
    peak: Peak | None
    points: tuple[Replayed, ...]


def load_points(
    services: ServiceTimes,
    policy: BatchPolicy,
    workers: int,
    rates: Sequence[float],
    bound: LatencyBound,
    requests: int,
    seed: int,
    runs: int = RUNS,
) -> tuple[Replayed, ...]:
    """A point for each rate: `runs` runs of `requests` requests with the same arrivals, stretched."""
    gaps = np.stack([unit_gaps(requests, (seed, run)) for run in range(runs)])
    found = []
    for rate in rates:
        arrivals = at_rate(gaps, rate)
        found.append(_point(rate, arrivals, simulate(arrivals, [services], policy, workers, (seed,)), bound, workers))
    return tuple(found)


def _point(rate: float, arrivals: NDArray[np.int64], runs: Simulated, bound: LatencyBound, workers: int) -> Replayed:
    latency = runs.latency_ns
    tails = np.quantile(latency, [0.5, 0.99], axis=1, method="median_unbiased")
    bands = [Interval(low=float(low), high=float(high)) for low, high in np.quantile(tails, BAND, axis=1).T]
    shares = np.mean(latency > bound.limit_ns, axis=1)
    over, runs_made = float(shares.mean()), len(shares)
    return Replayed(
        rate,
        float(np.median(tails[0])),
        float(np.median(tails[1])),
        bands[0],
        bands[1],
        float(latency.mean()),
        over,
        float(shares.std(ddof=1)) / math.sqrt(runs_made) if runs_made > 1 else 0.0,
        (1 - over) * latency.size / float(arrivals[:, -1].sum()) * 1e9,
        latency.size / int(runs.batches.sum()),
        float(runs.busy_ns.sum()) / (workers * float(runs.length_ns.sum())),
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
) -> tuple[PolicyPeak, ...]:
    """Each policy with its predicted peak, and points at the same rates for all.

    shares: the rates, as shares of the highest capacity of all policies.
    """
    tried = list(policies)
    highest = max(services.capacity_per_s(policy, workers) for policy in tried)
    rates = [share * highest for share in shares]
    return tuple(
        PolicyPeak(
            policy,
            peak_rate(services, policy, workers, bound, requests, seed, MAP_RUNS, interval=False),
            load_points(services, policy, workers, rates, bound, requests, seed, MAP_RUNS),
        )
        for policy in tried
    )


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
