"""Comparison of two states measured in one run, round by round: median ratio of the pairs, interval, tests (pure).

A disturbance of a whole round slows both states and cancels in the round's ratio. Rounds on one machine are still not
independent: a disturbance that lasts several rounds and affects one state more than the other makes their ratios
similar. So the test allows for ratios of neighbouring rounds that correlate by CORRELATION in a first-order process
(docs/decisions/0029-interleaved.md, with simulated error rates).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from harness.statistics import students_t
from harness.statistics.estimators import median, median_interval
from harness.statistics.ratios import MIN_ROUNDS, Change

CORRELATION = 0.5
"""Correlation of neighbouring rounds' log ratios that the test allows for. With this correlation its rate of false
alarms is exact for normal ratios; with less correlation it is lower."""

SIGNIFICANCE = 0.04
"""Largest p of a difference. At most 4% of tables raise a false alarm where ratios are normal and correlate by
CORRELATION. Ratios that meet neither condition exactly have room up to 5%."""

ENOUGH_ROUNDS = 6
"""Rounds for any verdict. Where processes run at two speeds, half at each, all five ratios of an unchanged row have the
same pair of speeds in 0.2% of rows, so in 6% of tables of 30 rows; all six ratios in 1.4% of tables."""


def paired_change(baseline: Sequence[float], current: Sequence[float]) -> Change | None:
    """The change between two states: latencies of both, of the same rounds in the same order.

    The ratio is the median of the rounds' ratios, with the interval of a median. None with fewer than MIN_ROUNDS, with
    a value <= 0, or where all ratios are equal: their spread is then unknown, not 0.
    """
    if len(baseline) < MIN_ROUNDS or min(*baseline, *current) <= 0:
        return None
    ratios = [after / before for before, after in zip(baseline, current, strict=True)]
    logs = [math.log(ratio) for ratio in ratios]
    interval, p = median_interval(ratios), correlated_t_p(logs)
    if interval is None or p is None:
        return None
    apart = min(logs) > 0 or max(logs) < 0
    rounds = len(baseline), len(current)
    return Change(median(ratios), interval, p, signed_rank_p(logs), apart, rounds)


def correlated_t_p(values: Sequence[float], correlation: float = CORRELATION) -> float | None:
    """Two-sided p of a mean of 0, for values in order of time; None where they have no spread.

    Generalised least squares (Aitken, Proceedings of the Royal Society of Edinburgh 55, 1935) for a first-order
    autoregressive process: the share that the previous value explains is subtracted from each value (Prais and Winsten,
    Cowles Commission 383, 1954), then Student's t. Exact for normal values with this correlation.
    """
    count = len(values)
    first = math.sqrt(1 - correlation**2)
    rest = [now - correlation * before for before, now in pairwise(values)]
    white = [first * values[0], *rest]
    weights = [first, *[1 - correlation] * (count - 1)]
    power = math.fsum(weight**2 for weight in weights)
    mean = math.fsum(weight * value for weight, value in zip(weights, white, strict=True)) / power
    residual = math.fsum((value - mean * weight) ** 2 for weight, value in zip(weights, white, strict=True))
    # Where all values are equal, rounding leaves a residual of about 1e-16 of their size.
    if residual <= count * (1e-12 * max(map(abs, values))) ** 2:
        return None
    distance = abs(mean) * math.sqrt(power * (count - 1) / residual)
    return 2 * students_t.below(count - 1, -distance)


def signed_rank_p(values: Sequence[float]) -> float:
    """Two-sided p of the exact signed-rank test (Wilcoxon, Biometrics Bulletin 1, 1945).

    Assumes only that a value and its opposite are equally likely. Zeros are left out; ties get their middle rank. A sum
    that is not whole is rounded up, towards no difference.
    """
    sizes = sorted(abs(value) for value in values if value)
    if not sizes:
        return 1.0
    positive = math.fsum(
        (bisect_left(sizes, value) + bisect_right(sizes, value) + 1) / 2 for value in values if value > 0
    )
    every = len(sizes) * (len(sizes) + 1) / 2
    return _signed_rank_p(len(sizes))[math.ceil(min(positive, every - positive))]


@cache
def _signed_rank_p(count: int) -> list[float]:
    """Two-sided p by the smaller of the two sums of ranks: the share of sign choices with at most that sum."""
    ways = [1, *[0] * (count * (count + 1) // 2)]
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    below, shares = 0, []
    for number in ways:
        below += number
        shares.append(min(1.0, 2 * below / 2**count))
    return shares
