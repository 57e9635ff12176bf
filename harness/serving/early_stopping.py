"""MLPerf LoadGen's percentile and its early stopping (pure), for verdicts that can be compared with LoadGen's.

Definitions: mlcommons/inference, loadgen/early_stopping.cc and results.cc (6.0.17), computed here from the binomial
distribution. They assume independent latencies, which those of a queue are not (docs/load.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.99
"""LoadGen's constant: n requests with t over the bound are enough when P[Binomial(n, 1 - quantile) <= t] <= 1%."""


def loadgen_percentile(latency_ns: ArrayLike, quantile: float) -> float:
    """LoadGen's estimator: the value at index floor(n x quantile) of the sorted latencies."""
    ordered = np.sort(np.asarray(latency_ns, dtype=np.float64))
    return float(ordered[int(ordered.size * quantile)])


def at_most(over: int, requests: int, quantile: float) -> float:
    """P[Binomial(requests, 1 - quantile) <= over]: how likely so few latencies over the quantile are."""
    if over >= requests:
        return 1.0
    steps = np.arange(1, over + 1, dtype=np.float64)
    ratios = np.log((requests - steps + 1) / steps) + math.log((1 - quantile) / quantile)
    terms = np.concatenate([[0.0], np.cumsum(ratios)])
    largest = float(terms.max())
    total = largest + math.log(float(np.exp(terms - largest).sum()))
    return min(1.0, math.exp(total + requests * math.log(quantile)))


def is_enough(over: int, requests: int, quantile: float) -> bool:
    """Whether `over` latencies above the bound among `requests` show that the quantile is below it, at CONFIDENCE."""
    return at_most(over, requests, quantile) <= 1 - CONFIDENCE


def least_requests(over: int, quantile: float) -> int:
    """Fewest requests that are enough with `over` of them above the bound: 64 for one at p90, 662 at p99."""
    low, high = over, over + 1
    while not is_enough(over, high, quantile):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(over, middle, quantile) else (middle, high)
    return high


def most_over(requests: int, quantile: float) -> int | None:
    """Largest number of latencies above the bound that so many requests allow; None where even none is too many."""
    if not is_enough(0, requests, quantile):
        return None
    low, high = 0, requests
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_enough(middle, requests, quantile) else (low, middle)
    return low


def upper_estimate(latency_ns: ArrayLike, quantile: float) -> float | None:
    """LoadGen's result of SingleStream and MultiStream: the latency at index n - most_over of the sorted latencies.

    None with too few requests, which LoadGen reports as early stopping not satisfied. It needs most_over >= 1.
    """
    ordered = np.sort(np.asarray(latency_ns, dtype=np.float64))
    allowed = most_over(ordered.size, quantile)
    return float(ordered[ordered.size - allowed]) if allowed else None


@dataclass(frozen=True)
class LoadGenVerdict:
    """LoadGen's judgement of a Server run. valid: both conditions are true, and enough requests and time."""

    percentile_ns: float
    over: int
    within_bound: bool
    early_stopping: bool
    least_count: bool
    least_duration: bool

    @property
    def valid(self) -> bool:
        """What its summary prints as `Result is : VALID`."""
        return self.within_bound and self.early_stopping and self.least_count and self.least_duration


def server_verdict(
    scheduled: NDArray[np.int64],
    latency_ns: NDArray[np.float64],
    quantile: float,
    limit_ns: float,
    least_count: int = 0,
    least_duration_ns: int = 0,
) -> LoadGenVerdict:
    """LoadGen's verdict of a Server run, from each request's instant and latency (infinite for a failure)."""
    over = int(np.count_nonzero(latency_ns > limit_ns))
    percentile = loadgen_percentile(latency_ns, quantile)
    return LoadGenVerdict(
        percentile,
        over,
        percentile <= limit_ns,
        is_enough(over, latency_ns.size, quantile),
        latency_ns.size >= least_count,
        int(scheduled[-1]) >= least_duration_ns,
    )
