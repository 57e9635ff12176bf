"""Further rounds for the cases whose interval over processes is still too wide (pure).

A pass gives each of them one round, the widest first, so that a budget that ends within it was spent on those. One
round each, not two for half of them: the fourth process narrows an interval more than the fifth
(harness/measure/rounds.py), and rounds of one case stay apart in time. A case is measured for its own interval; the
baseline of its speed-up is wide itself or needs no round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from harness.core.schemas import Case, Measurement
from harness.measure.rounds import half_width, is_wide
from harness.planning.schedule import Turn

Medians = Mapping[str, Mapping[int, float]]
"""case id → round → process median in ns."""


def further_turns(
    cases: Sequence[Case],
    medians: Medians,
    settings: Measurement,
    elapsed_s: float,
    failed: Collection[str] = (),
) -> list[Turn]:
    """The next pass of a run: one more round for each case that needs and may have one; empty when all are done.

    elapsed_s: of the command that the run is part of. failed: ids of cases of which a process failed in this run: they
    would fail again, in every pass.
    """
    if settings.max_rounds is None or is_over_budget(settings, elapsed_s):
        return []
    runnable = [case for case in cases if case.skip_reason is None and case.case_id not in failed]
    wanting = [case for case in runnable if _wants_more(medians.get(case.case_id, {}), settings)]
    wanting.sort(key=lambda case: -half_width(list(medians[case.case_id].values())))
    return [(max(medians[case.case_id]) + 1, case) for case in wanting]


def is_over_budget(settings: Measurement, elapsed_s: float) -> bool:
    """True when no further round may begin."""
    return settings.budget_s is not None and elapsed_s >= settings.budget_s


def _wants_more(rounds: Mapping[int, float], settings: Measurement) -> bool:
    if not rounds or settings.max_rounds is None or max(rounds) >= settings.max_rounds:
        return False
    return is_wide(list(rounds.values()), settings)
