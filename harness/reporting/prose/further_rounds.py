"""Rows with wide intervals, and the command for narrower ones: in the report and at the end of a run (pure)."""

from __future__ import annotations

import math
import shlex
from statistics import median

from harness.aggregation.flags import MAX_INTERVAL_HALF_WIDTH, is_calibration
from harness.aggregation.rounds import MANY_ROUNDS, half_width, rounds_for
from harness.core.schemas import Row, Summary
from harness.reporting import units

_BESIDES_S = 30.0
"""Seconds for plan, the check of exports, aggregate and report."""


def further(summary: Summary) -> str:
    """Number of rows wider than ±5%, the command that narrows them and its approximate duration, as Markdown.

    Empty where no row is wide.
    """
    rows = [row for row in summary.rows if row.latency_ns and not is_calibration(row)]
    rows = [row for row in rows if not row.tried]
    wide = [row for row in rows if _width(row) > MAX_INTERVAL_HALF_WIDTH]
    if not wide:
        return ""
    said = f"{len(wide)} of {units.count(len(rows), 'row')} {'is' if len(wide) == 1 else 'are'} wider than ±5%."
    needed = {row.case_id: _rounds(row) for row in wide}
    lost = sum(number is None for number in needed.values())
    if lost == len(wide):
        return f"{said} {MANY_ROUNDS} rounds would not be enough for any: their processes differ too much here."
    lives_ns = [row.usage.process_ns for row in rows if row.usage and row.usage.process_ns]
    seconds = _BESIDES_S + sum((needed[row.case_id] or 0) * _process_s(row, lives_ns) for row in wide)
    minutes = math.ceil(seconds / 60)
    limits = {"INTERVAL": f"{MAX_INTERVAL_HALF_WIDTH:.0%}", **({"BUDGET": f"{minutes}m"} if lives_ns else {})}
    if any(row.stopped == "round limit" for row in wide):
        limits["MAX_ROUNDS"] = str(MANY_ROUNDS)
    words = [f"{name}={shlex.quote(value)}" for name, value in limits.items()]
    time = f", about {minutes} min" if lives_ns else ""
    after = f" For {lost} of them {MANY_ROUNDS} rounds would not be enough." if lost else ""
    return f"{said} To be surer: `{' '.join(['make bench', *words])}`{time}.{after}"


def _width(row: Row) -> float:
    return half_width(row.latency_ns.process_medians) if row.latency_ns else math.inf


def _rounds(row: Row) -> int | None:
    """Rounds that the row still needs; None where the total would exceed MANY_ROUNDS."""
    medians = row.latency_ns.process_medians if row.latency_ns else ()
    needed = rounds_for(medians, MAX_INTERVAL_HALF_WIDTH)
    return None if needed > MANY_ROUNDS else needed - len(medians)


def _process_s(row: Row, others_ns: list[int]) -> float:
    """Seconds per process of the row; where no monitor ran, the median of the other rows."""
    own_ns = row.usage.process_ns if row.usage else None
    return (own_ns or (median(others_ns) if others_ns else 0)) / 1e9
