"""Whether a case needs another round, and why it has no more (pure)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import stdev

from harness.core.schemas import Measurement, Stopped
from harness.statistics.estimators import median, median_interval, relative_interval_half_width

MANY_ROUNDS = 20
"""Further rounds end here where a plan names no other limit. Twenty processes make the interval of three 3.5 times
narrower; to halve it again takes eighty."""

NARROWING = 3.1
"""Half-width of the interval over n processes, in standard deviations of a process, times the square root of n: median
of 1,500 simulated rows of normal processes for each n, 2.96 to 3.32 for n of 4 to 20. For three it is 4.0. So the
fourth round narrows a row most: from 2.3 to 1.6 standard deviations; the fifth, with order statistics, to 1.5."""


def is_wide(process_medians: Sequence[float], settings: Measurement) -> bool:
    """True while the 95% interval over processes is wider than the plan asks for, or there is none."""
    return half_width(process_medians) > settings.target_interval


def half_width(process_medians: Sequence[float]) -> float:
    """Half-width of the 95% interval over processes, relative to their median; infinite without an interval."""
    interval = median_interval(process_medians)
    return math.inf if interval is None else relative_interval_half_width(interval, median(process_medians))


def rounds_for(process_medians: Sequence[float], target: float) -> int:
    """About how many rounds in all make the interval as narrow as `target`, if processes go on to scatter as they did.

    An estimate from few processes, to plan time. Three with fewer than two processes, whose scatter is unknown.
    """
    count = len(process_medians)
    if count < 2:
        return 3
    scatter = stdev([math.log(value) for value in process_medians])
    return max(count + 1, math.ceil((NARROWING * scatter / target) ** 2))


def why_stopped(
    numbers: Collection[int], process_medians: Sequence[float], settings: Measurement, failed: bool
) -> Stopped | None:
    """Why a case has no more rounds, from its records: run leaves no other trace, and none is needed.

    numbers: rounds that were measured; failed: a round of it failed, so that run gave it no further rounds.
    """
    if not numbers:
        return None
    if settings.max_rounds is None or settings.max_rounds <= settings.rounds:
        return "planned rounds"
    if not is_wide(process_medians, settings):
        return "interval reached"
    if max(numbers) >= settings.max_rounds:
        return "round limit"
    if failed:
        return "failed round"
    return "interrupted" if settings.budget_s is None else "time budget"
