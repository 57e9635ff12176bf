"""Two rows or two runs: the ratio of their medians with its interval, and how likely chance alone is (pure).

Reasons for these methods: docs/decisions/0006-comparison.md, with simulated error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.schemas import Interval
from harness.statistics.estimators import log_t_interval, median, median_interval
from harness.statistics.significance import contrast_p, rank_p, welch_p

MIN_ROUNDS = 2
"""Processes that each side needs: with one process, the scatter between processes is unknown."""


@dataclass(frozen=True)
class Ratio:
    """One median divided by another, and the 95% interval; None where either median has no interval."""

    value: float
    ci95: Interval | None


@dataclass(frozen=True)
class Change:
    """A ratio of two runs, current / baseline, and how likely chance alone is.

    ci95: of the ratio. t_p, rank_p: of no difference, two-sided, not adjusted. apart: every process of one run is
    faster than every process of the other; with pairs, in every round. rounds: processes of the baseline and of the
    current run.
    """

    value: float
    ci95: Interval
    t_p: float
    rank_p: float
    apart: bool
    rounds: tuple[int, int]


def mean_ratio(ratios: Sequence[float]) -> Ratio:
    """Geometric mean of one ratio per round, and its 95% t interval on logarithms; None with a single round."""
    return Ratio(math.exp(math.fsum(map(math.log, ratios)) / len(ratios)), log_t_interval(ratios))


def ratio_of_medians(over: Sequence[float], under: Sequence[float]) -> Ratio | None:
    """The median of `over` divided by the median of `under`: positive values, one per process.

    None where a side has no value or any <= 0. The only estimator of a ratio here: a reader who divides the two medians
    gets the same.
    """
    if not over or not under or min(*over, *under) <= 0:
        return None
    return ratio_of(median(over), median_interval(over), median(under), median_interval(under))


def ratio_of(over: float, over_ci95: Interval | None, under: float, under_ci95: Interval | None) -> Ratio:
    """The ratio of two positive estimates of separate processes, with an interval from their intervals.

    MOVER on logarithms (Zou and Donner, Statistics in Medicine 27, 2008; Donner and Zou, Statistical Methods in Medical
    Research 21, 2012): each end is as far from the ratio as the two ends on that side are from their estimates,
    squared and added. Skewed intervals give a skewed interval. Its coverage: docs/speed.md.
    """
    return Ratio(over / under, _mover(over, over_ci95, under, under_ci95))


def _mover(over: float, over_ci95: Interval | None, under: float, under_ci95: Interval | None) -> Interval | None:
    if over_ci95 is None or under_ci95 is None or min(over_ci95.low, under_ci95.low) <= 0:
        return None
    down = math.hypot(math.log(over / over_ci95.low), math.log(under_ci95.high / under))
    up = math.hypot(math.log(over_ci95.high / over), math.log(under / under_ci95.low))
    try:
        return Interval(low=over / under * math.exp(-down), high=over / under * math.exp(up))
    except (OverflowError, ValueError):
        return None  # the upper end is beyond a float: unknown


def change_between(baseline: Sequence[float], current: Sequence[float]) -> Change | None:
    """The change between two runs, from their process medians.

    None with fewer than MIN_ROUNDS on a side, a value <= 0, or values that are all equal, whose spread is unknown
    rather than 0.
    """
    if min(len(baseline), len(current)) < MIN_ROUNDS or min(*baseline, *current) <= 0:
        return None
    ratio, p = ratio_of_medians(current, baseline), welch_p(baseline, current)
    if ratio is None or ratio.ci95 is None or p is None:
        return None
    apart = max(baseline) < min(current) or max(current) < min(baseline)
    rounds = len(baseline), len(current)
    return Change(ratio.value, ratio.ci95, p, rank_p(baseline, current), apart, rounds)


def change_of_ratios(
    baseline: tuple[Sequence[float], Sequence[float]], current: tuple[Sequence[float], Sequence[float]]
) -> Change | None:
    """How a ratio of two rows changed between two runs, for machines whose times are not comparable.

    baseline, current: process medians of the row and of the row that it is divided by, in each run. The interval is
    MOVER applied twice, the test is Welch's for a contrast of four means of logarithms. A ratio of separate processes
    has no ranks: rank_p is 1, and `apart` says that the two ratios' intervals do not overlap. None as in
    change_between.
    """
    four = (*baseline, *current)
    if min(map(len, four)) < MIN_ROUNDS or min(map(min, four)) <= 0:
        return None
    before, after = ratio_of_medians(*baseline), ratio_of_medians(*current)
    p = contrast_p([(current[0], 1), (current[1], -1), (baseline[0], -1), (baseline[1], 1)])
    if before is None or after is None or p is None:
        return None
    ratio = ratio_of(after.value, after.ci95, before.value, before.ci95)
    if ratio.ci95 is None or before.ci95 is None or after.ci95 is None:
        return None
    apart = before.ci95.high < after.ci95.low or after.ci95.high < before.ci95.low
    rounds = min(map(len, baseline)), min(map(len, current))
    return Change(ratio.value, ratio.ci95, p, 1.0, apart, rounds)
