"""95% intervals of percentiles from order statistics, for samples that correlate with their neighbours (pure).

Two order statistics around a sample percentile enclose the true one with a probability that the binomial tells,
whatever the distribution (David and Nagaraja, Order Statistics, 3rd ed., 7.1). That holds for independent samples, and
neighbouring iterations are not. So the binomial gets the number of independent samples that would tell as much:
Woodruff's inversion (JASA 47, 1952) of an interval for the share of samples below the percentile, with Korn and
Graubard's effective sample size (Survey Methodology 24, 1998) from batch means.

It covers how well the samples know the percentile of the processes that were measured, and not how far another process
would differ: that is the interval of the median (docs/decisions/0003-intervals.md, with simulated coverage).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from harness.core.schemas import Interval
from harness.measure.stats import CONFIDENCE, PERCENTILE_MIN_SAMPLES, percentile, t_critical

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

BATCHES = 10
"""Stretches of each process: few enough to be longer than the correlation, enough to estimate a variance from."""

MIN_BATCH = 5
"""Fewest samples of a stretch."""

Samples = NDArray[np.float64]


def percentile_intervals(processes: Sequence[Samples]) -> dict[str, Interval]:
    """Interval by percentile of the pooled samples; without those that are withheld or cannot be bounded."""
    count = sum(values.size for values in processes)
    wanted = {name: q for name, q in QUANTILES.items() if count >= PERCENTILE_MIN_SAMPLES.get(q, 1)}
    found = {name: percentile_interval(processes, quantile) for name, quantile in wanted.items()}
    return {name: interval for name, interval in found.items() if interval is not None}


def percentile_interval(processes: Sequence[Samples], quantile: float) -> Interval | None:
    """The interval of one percentile; None where no sample is far enough out to bound it."""
    size = effective_size(processes, quantile)
    ranks = binomial_ranks(size, quantile) if size else None
    if size is None or ranks is None:
        return None
    pooled = np.sort(np.concatenate(processes))
    # Rank r of `size` samples stands at the level r / (size + 1), and so at that share of all of them.
    low, high = (rank / (size + 1) * (pooled.size + 1) for rank in ranks)
    # The tolerance keeps a rank that is whole but for rounding where it is.
    below = max(math.floor(low + 1e-9), 1)
    above = min(math.ceil(high - 1e-9), pooled.size)
    return Interval(low=float(pooled[below - 1]), high=float(pooled[above - 1]))


def binomial_ranks(size: int, quantile: float) -> tuple[int, int] | None:
    """Ranks, from 1, of the order statistics that enclose the percentile of independent samples; None without both.

    The lower one lies above the true percentile only where fewer than `low` samples lie below it: with a probability of
    2.5% or less. The upper one likewise.
    """
    tail = (1 - CONFIDENCE) / 2
    if size < 1 or quantile**size > tail or (1 - quantile) ** size > tail:
        return None
    return _smallest_with(tail, size, quantile), _smallest_with(1 - tail, size, quantile) + 1


def effective_size(processes: Sequence[Samples], quantile: float) -> int | None:
    """Independent samples that would tell as much about a percentile as these; None where that cannot be told.

    Each process is cut into BATCHES stretches in the order of time. The variance of the pooled share below the
    percentile follows from how far the stretches' shares scatter within each process (batch means), and is never taken
    to be smaller than that of independent samples. It is itself an estimate: squared, the ratio of the normal's
    critical value to Student's t pays for it.
    """
    if not processes or min(values.size for values in processes) < BATCHES * MIN_BATCH:
        return None
    pooled = np.concatenate(processes)
    at = percentile(pooled, quantile)
    variance = math.fsum((values.size / pooled.size) ** 2 * _variance_of_share(values <= at) for values in processes)
    independent = quantile * (1 - quantile) / pooled.size
    normal = float(special.ndtri((1 + CONFIDENCE) / 2))
    penalty = (normal / t_critical(len(processes) * (BATCHES - 1))) ** 2
    return math.floor(pooled.size * min(1.0, independent / variance if variance > 0 else 1.0) * penalty)


def _variance_of_share(below: NDArray[np.bool_]) -> float:
    """Variance of the mean of one process's series by batch means (Law and Kelton, Simulation Modeling, 9.5.3)."""
    means = [float(batch.mean()) for batch in np.array_split(below, BATCHES)]
    return float(np.var(means, ddof=1)) / BATCHES


def _smallest_with(probability: float, size: int, quantile: float) -> int:
    """The smallest k with P[Binomial(size, quantile) <= k] >= probability."""
    count = max(math.ceil(float(special.bdtrik(probability, size, quantile))), 0)
    # bdtrik solves for a real number: rounding may leave it one step too far on either side.
    while count > 0 and special.bdtr(count - 1, size, quantile) >= probability:
        count -= 1
    while special.bdtr(count, size, quantile) < probability:
        count += 1
    return count
