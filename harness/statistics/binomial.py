"""Counts among independent trials: how likely a count is, and the rates that a count does not exclude (pure).

The limits are those of Clopper and Pearson (Biometrika 26(4), 1934): exact, also where no trial or every trial counts.
"""

from __future__ import annotations

import math

import numpy as np


def probability_at_most(count: int, trials: int, rate: float) -> float:
    """P[Binomial(trials, rate) <= count]."""
    if count >= trials or rate <= 0:
        return 1.0
    if count < 0 or rate >= 1:
        return 0.0
    steps = np.arange(1, count + 1, dtype=np.float64)
    ratios = np.log((trials - steps + 1) / steps) + math.log(rate) - math.log1p(-rate)
    terms = np.concatenate([[0.0], np.cumsum(ratios)])
    largest = float(terms.max())
    total = largest + math.log(float(np.exp(terms - largest).sum()))
    return min(1.0, math.exp(total + trials * math.log1p(-rate)))


def upper_limit(count: int, trials: int, confidence: float) -> float:
    """The rate above which every rate is excluded, one-sided; without a count 1 - (1 - confidence)^(1 / trials)."""
    low, high = 0.0, 1.0
    while trials > count and low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _may_be(count, trials, middle, confidence) else (low, middle)
    return high


def lower_limit(count: int, trials: int, confidence: float) -> float:
    """The rate below which every rate is excluded, one-sided."""
    return 1 - upper_limit(trials - count, trials, confidence)


def widened(low: float, high: float, count: int, trials: int, confidence: float) -> tuple[float, float]:
    """Ends of an interval for a rate, moved to the limits of the count where they lie inside these: runs that are equal
    by chance have an interval without width."""
    if _may_be(count, trials, high, confidence):
        high = max(high, upper_limit(count, trials, confidence))
    if _may_be(trials - count, trials, 1 - low, confidence):
        low = min(low, lower_limit(count, trials, confidence))
    return low, high


def _may_be(count: int, trials: int, rate: float, confidence: float) -> bool:
    """Whether so low a count does not exclude the rate."""
    return probability_at_most(count, trials, rate) > 1 - confidence
