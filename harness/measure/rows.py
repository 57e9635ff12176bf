"""Questions that several modules ask of a row of the summary (pure)."""

from __future__ import annotations

import math

from harness.core.schemas import Row
from harness.measure.grades import CALIBRATION


def is_calibration(row: Row) -> bool:
    """True where the row shows what the harness itself costs."""
    return any(flag.name == CALIBRATION for flag in row.flags)


def median_ns(row: Row) -> float:
    """The headline of one batch in ns; infinite where nothing was measured, so that such a row is never the fastest."""
    return row.latency_ns.median if row.latency_ns else math.inf


def medians_by_round(row: Row) -> dict[int, float]:
    """Process median in ns by round; empty for a row that has none."""
    latency = row.latency_ns
    if latency is None:
        return {}
    numbers = latency.process_rounds or range(1, len(latency.process_medians) + 1)
    return dict(zip(numbers, latency.process_medians, strict=True))


def slug_of(row: Row) -> str:
    """The folder name of the row's model, with which its case id begins: unique, short and of plain characters."""
    return row.case_id.rpartition(f"-{row.backend}-{row.device}-{row.precision}-b")[0] or row.model
