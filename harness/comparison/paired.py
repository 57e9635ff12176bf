"""Two states measured in one run, round by round: the ratio of each round's pair, its interval and tests (pure).

What slows a whole round slows both states and cancels in the round's ratio. Rounds of one machine are still not
independent: what lasts for several of them, and touches one state more than the other, makes their ratios alike. So the
test allows for ratios whose neighbours correlate by CORRELATION, as far as a first-order process has it
(docs/decisions/0029-interleaved.md, with simulated error rates).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from scipy import special

from harness.statistics.estimators import median, median_interval
from harness.statistics.ratios import MIN_ROUNDS, Change

CORRELATION = 0.5
"""Of neighbouring rounds' log ratios, which the test allows for: its rate of false alarms is exact there for normal
ratios, and lower where they correlate less."""

SIGNIFICANCE = 0.04
"""Largest p of a difference: at most 4% of tables alarm where ratios are normal and correlate by CORRELATION, so that
what is neither quite has room below 5%."""

ENOUGH_ROUNDS = 6
"""Rounds for any verdict. Where processes come at two speeds, half and half, all five ratios of an unchanged row are
of one pair of speeds in 0.2% of rows, so in 6% of tables of 30; all six in 1.4% of tables."""


def paired_change(baseline: Sequence[float], current: Sequence[float]) -> Change | None:
    """What the rounds' pairs say about a change: positive latencies of both states, the same rounds in the same order.

    The ratio is the median of the rounds' ratios, with the interval of a median. None with fewer than MIN_ROUNDS, a
    value <= 0, or ratios that do not differ at all, whose spread is unknown rather than 0.
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
    """p of a mean of 0, two-sided, for values in order of time; None without any spread.

    Generalised least squares (Aitken, Proceedings of the Royal Society of Edinburgh 55, 1935) for a first-order
    autoregressive process: from each value its share that the one before explains is taken away (Prais and Winsten,
    Cowles Commission 383, 1954), then Student's t. Exact for normal values that correlate so.
    """
    count = len(values)
    first = math.sqrt(1 - correlation**2)
    rest = [now - correlation * before for before, now in pairwise(values)]
    white = [first * values[0], *rest]
    weights = [first, *[1 - correlation] * (count - 1)]
    power = math.fsum(weight**2 for weight in weights)
    mean = math.fsum(weight * value for weight, value in zip(weights, white, strict=True)) / power
    residual = math.fsum((value - mean * weight) ** 2 for weight, value in zip(weights, white, strict=True))
    # Rounding leaves about 1e-16 of the values' own size behind where all of them are equal.
    if residual <= count * (1e-12 * max(map(abs, values))) ** 2:
        return None
    distance = abs(mean) * math.sqrt(power * (count - 1) / residual)
    return 2 * float(special.stdtr(count - 1, -distance))


def signed_rank_p(values: Sequence[float]) -> float:
    """p of the exact signed-rank test (Wilcoxon, Biometrics Bulletin 1, 1945), two-sided.

    Needs no shape but that a value and its opposite are as likely. Zeros are left out; ties have their middle rank, and
    a sum that is not whole is taken for the next one towards no difference.
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
    """Two-sided p by the smaller of the two sums of ranks: how many choices of signs have such a sum or a smaller."""
    ways = [1, *[0] * (count * (count + 1) // 2)]
    for rank in range(1, count + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    below, found = 0, []
    for number in ways:
        below += number
        found.append(min(1.0, 2 * below / 2**count))
    return found
