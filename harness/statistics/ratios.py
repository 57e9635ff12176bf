"""Two rows or two runs: the ratio of their medians with its interval, tests of no difference, Holm's correction (pure).

Reasons for these methods: docs/decisions/0006-comparison.md, with simulated error rates.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from harness.core.schemas import Interval
from harness.statistics import students_t
from harness.statistics.estimators import median, median_interval

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
    p = _contrast_p([(current[0], 1), (current[1], -1), (baseline[0], -1), (baseline[1], 1)])
    if before is None or after is None or p is None:
        return None
    ratio = ratio_of(after.value, after.ci95, before.value, before.ci95)
    if ratio.ci95 is None or before.ci95 is None or after.ci95 is None:
        return None
    apart = before.ci95.high < after.ci95.low or after.ci95.high < before.ci95.low
    rounds = min(map(len, baseline)), min(map(len, current))
    return Change(ratio.value, ratio.ci95, p, 1.0, apart, rounds)


def welch_p(baseline: Sequence[float], current: Sequence[float]) -> float | None:
    """p of Welch's t on the logarithms of positive process medians (Biometrika 34, 1947); None without any spread.

    The runs are separate, so their rounds do not form pairs, and a machine that was restless in one run makes the two
    spreads unequal: hence neither a paired nor a pooled test.
    """
    return _contrast_p([(current, 1), (baseline, -1)])


def _contrast_p(groups: Sequence[tuple[Sequence[float], int]]) -> float | None:
    """p of the hypothesis that a signed sum of the groups' mean logarithms is 0; each group has its own spread."""
    moments = [(sign, len(values), *_mean_and_error(values)) for values, sign in groups]
    variance = math.fsum(error for *_, error in moments)
    if variance <= 0:
        return None
    # Welch-Satterthwaite; shares of the variance, because squares of tiny variances would vanish.
    shares = [(error / variance) ** 2 / (count - 1) for _, count, _, error in moments]
    distance = abs(math.fsum(sign * mean for sign, _, mean, _ in moments)) / math.sqrt(variance)
    return 2 * students_t.below(1 / math.fsum(shares), -distance)


def rank_p(baseline: Sequence[float], current: Sequence[float]) -> float:
    """p of the exact rank test (Mann and Whitney, Annals of Mathematical Statistics 18, 1947), two-sided.

    Needs no shape of the distribution, so that processes of two speeds do not mislead it. A tie counts half; a sum that
    is not whole is rounded towards no difference.
    """
    pairs, before = len(baseline) * len(current), sorted(baseline)
    wins = sum((bisect_left(before, after) + bisect_right(before, after)) / 2 for after in current)
    return _rank_p(len(baseline), len(current))[math.ceil(min(wins, pairs - wins))]


@cache
def _rank_p(ours: int, other: int) -> list[float]:
    """Two-sided p by the smaller of the two rank sums: the share of the orders of the processes with at most that sum.

    The orders with each sum are the coefficients of the Gaussian binomial, the product of (1 - x^(other + i)) /
    (1 - x^i) over i from 1 to `ours`.
    """
    orders = [1, *[0] * (ours * other)]
    for step in range(1, ours + 1):
        for place in range(len(orders) - 1, other + step - 1, -1):
            orders[place] -= orders[place - other - step]
        for place in range(step, len(orders)):
            orders[place] += orders[place - step]
    every, below, doubled = math.comb(ours + other, ours), 0, []
    for count in orders:
        below += count
        doubled.append(min(1.0, 2 * below / every))
    return doubled


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p in the order given (Holm, Scandinavian Journal of Statistics 6, 1979).

    Rejecting where it is < 0.05 gives one or more false alarms in at most 5% of tables, whatever the dependence between
    rows.
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
