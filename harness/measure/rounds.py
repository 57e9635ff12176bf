"""Does a case need another round, and why has it no more (pure)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from harness.core.schemas import Measurement, Stopped
from harness.measure.stats import median, median_interval, relative_interval_half_width


def is_wide(process_medians: Sequence[float], settings: Measurement) -> bool:
    """True while the 95% interval over processes is wider than the plan asks for, or there is none."""
    interval = median_interval(process_medians)
    if interval is None:
        return True
    return relative_interval_half_width(interval, median(process_medians)) > settings.target_interval


def why_stopped(
    numbers: Collection[int], process_medians: Sequence[float], settings: Measurement, failed: bool
) -> Stopped | None:
    """Why a case has no more rounds, from what is there: run leaves no other trace, and none is needed.

    numbers: rounds that were measured; failed: a round of it failed, so that run gave it no further ones.
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
