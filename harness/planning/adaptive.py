"""Further rounds for the cases whose interval over processes is still too wide (pure)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from harness.core.schemas import Case, Measurement
from harness.measure.rounds import is_wide
from harness.planning.schedule import Turn, one_round

Medians = Mapping[str, Mapping[int, float]]
"""case id → round → process median in ns."""


def further_turns(
    cases: Sequence[Case],
    medians: Medians,
    settings: Measurement,
    seed: int,
    elapsed_s: float,
    failed: Collection[str] = (),
) -> list[Turn]:
    """The next pass of a run: one more round for each case that needs and may have one; empty when all are done.

    failed: ids of cases of which a process failed in this run: they would fail again, in every pass.
    """
    if settings.max_rounds is None or is_over_budget(settings, elapsed_s):
        return []
    found = {case.case_id: medians.get(case.case_id, {}) for case in cases if case.case_id not in failed}
    wanting = [case for case in cases if _wants_more(found.get(case.case_id, {}), settings)]
    numbers = {case.case_id: max(medians[case.case_id]) + 1 for case in wanting}
    order = one_round(wanting, max(numbers.values(), default=0), seed)
    return [(numbers[case.case_id], case) for _, case in order]


def is_over_budget(settings: Measurement, elapsed_s: float) -> bool:
    """True when no further round may begin."""
    return settings.budget_s is not None and elapsed_s >= settings.budget_s


def _wants_more(rounds: Mapping[int, float], settings: Measurement) -> bool:
    if not rounds or settings.max_rounds is None or max(rounds) >= settings.max_rounds:
        return False
    return is_wide(list(rounds.values()), settings)
