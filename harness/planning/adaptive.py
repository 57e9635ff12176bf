"""Further rounds for the cases whose interval over processes is still too wide (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Case, Measurement
from harness.measure.stats import log_t_interval, median, relative_interval_half_width
from harness.planning.schedule import Turn, one_round

Medians = Mapping[str, Mapping[int, float]]
"""case id → round → process median in ns."""


def further_turns(
    cases: Sequence[Case], medians: Medians, settings: Measurement, seed: int, elapsed_s: float
) -> list[Turn]:
    """The next pass of a run: one more round for each case that needs and may have one; empty when all are done."""
    if settings.max_rounds is None or (settings.budget_s is not None and elapsed_s >= settings.budget_s):
        return []
    wanting = [case for case in cases if _wants_more(medians.get(case.case_id, {}), settings)]
    numbers = {case.case_id: max(medians[case.case_id]) + 1 for case in wanting}
    order = one_round(wanting, max(numbers.values(), default=0), seed)
    return [(numbers[case.case_id], case) for _, case in order]


def _wants_more(rounds: Mapping[int, float], settings: Measurement) -> bool:
    if not rounds or settings.max_rounds is None or max(rounds) >= settings.max_rounds:
        return False
    values = list(rounds.values())
    interval = log_t_interval(values)
    return interval is None or relative_interval_half_width(interval, median(values)) > settings.target_interval
