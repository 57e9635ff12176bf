"""Comparison of two states measured in one run, round by round: median ratio of the pairs, interval, p (pure).

A disturbance of a whole round slows both states and cancels in the round's ratio. Rounds on one machine are still not
independent: a disturbance that lasts several rounds and affects one state more than the other makes their ratios
similar. So the test allows for ratios of neighbouring rounds that correlate by CORRELATION in a first-order process
(docs/decisions/0029-interleaved.md, with simulated error rates).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.statistics.estimators import median, median_interval
from harness.statistics.ratios import MIN_ROUNDS, Change
from harness.statistics.significance import correlated_t_p, signed_rank_p

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
    interval, p = median_interval(ratios), correlated_t_p(logs, CORRELATION)
    if interval is None or p is None:
        return None
    apart = min(logs) > 0 or max(logs) < 0
    rounds = len(baseline), len(current)
    return Change(median(ratios), interval, p, signed_rank_p(logs), apart, rounds)
