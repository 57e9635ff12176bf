"""Harness overhead: backends that compute nothing, over all models and shapes (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.aggregation.flags import is_calibration
from harness.core.schemas import Row, Summary
from harness.reporting import units
from harness.reporting.figures import CSV_UNITS, SPEED, columns
from harness.reporting.labels import Line, about
from harness.reporting.table import Column, Table, words

Medians = tuple[str, Sequence[float]]
"""A backend, and its medians in ns."""


def calibration_table(rows: Sequence[Row]) -> Table[Medians] | None:
    """Time of an inference that computes nothing, by backend; None without such rows."""
    medians: dict[str, list[float]] = {}
    for row in rows:
        if row.latency_ns:
            medians.setdefault(row.backend, []).append(row.latency_ns.median)
    return Table(_COLUMNS, list(medians.items())) if medians else None


_COLUMNS: Sequence[Column[Medians]] = (
    words("backend", lambda found: found[0]),
    Column("cases", lambda found: str(len(found[1]))),
    Column("lowest ns", lambda found: units.significant(min(found[1]))),
    Column("median ns", lambda found: units.significant(median(found[1]))),
    Column("highest ns", lambda found: units.significant(max(found[1]))),
)


def calibration_lines(summary: Summary) -> list[Line]:
    """A line for each case that computes nothing: the harness overhead."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    figures = tuple(figure for figure in SPEED if figure.key.startswith("latency_"))
    return [about(summary, row, columns(figures, row, CSV_UNITS)) for row in rows]
