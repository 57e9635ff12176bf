"""Two runs of one case: ratio, interval and p, and Holm's correction over a table (pure).

Why Welch's test and no other: docs/decisions/0006-comparison.md, with simulated error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from harness.core.schemas import Interval
from harness.measure.stats import CONFIDENCE, median

MIN_ROUNDS = 2
"""Processes that each side needs: with one, how far another would differ is not known."""


@dataclass(frozen=True)
class Ratio:
    """current / baseline.

    value: ratio of the headlines, which are medians of process medians, so that one disturbed process does not move it.
    ci95: t on logarithms, centred on the geometric means (as stats.ratio_of_rounds has it). p: of no difference,
    two-sided, not adjusted.
    """

    value: float
    ci95: Interval
    p: float


def welch(baseline: Sequence[float], current: Sequence[float]) -> Ratio | None:
    """Welch's t on the logarithms of process medians (Welch, Biometrika 34, 1947).

    The runs are separate, so no round of one belongs to a round of the other, and a machine that was restless in one
    of them makes the two spreads unequal: hence neither a paired nor a pooled test. None with fewer than MIN_ROUNDS on
    a side, a value <= 0, or values that do not differ at all, whose spread is unknown rather than 0.
    """
    if min(len(baseline), len(current)) < MIN_ROUNDS or min(*baseline, *current) <= 0:
        return None
    before, after = _mean_and_error(baseline), _mean_and_error(current)
    variance = before[1] + after[1]
    if variance <= 0:
        return None
    # Welch-Satterthwaite; shares of the variance, because squares of tiny variances would vanish.
    shares = ((before[1] / variance) ** 2 / (len(baseline) - 1), (after[1] / variance) ** 2 / (len(current) - 1))
    freedom = 1 / math.fsum(shares)
    difference, error = after[0] - before[0], math.sqrt(variance)
    half = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    try:
        interval = Interval(low=math.exp(difference - half), high=math.exp(difference + half))
    except (OverflowError, ValueError):
        return None  # the upper end is beyond a float: nothing is known
    p = 2 * float(special.stdtr(freedom, -abs(difference) / error))
    return Ratio(value=median(current) / median(baseline), ci95=interval, p=p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given (Holm, Scandinavian Journal of Statistics 6, 1979).

    Rejecting where it is < 0.05 raises a false alarm, one or many, in at most 5% of tables, however rows depend on
    each other.
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the logarithms, and its squared standard error."""
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    return mean, math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1) / len(logs)
