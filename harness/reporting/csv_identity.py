"""The columns that identify every line of a CSV file: the case and its conditions (pure).

A file is often read without the report, so each line has all conditions of its figures. Headers have units, figures
are not rounded, and unknown, withheld or void figures are empty.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.core import units
from harness.core.schemas import GenerationRow, Interval, Row, Summary
from harness.reporting import ranking
from harness.reporting.figures import Value
from harness.reporting.prose.conditions import library_versions, machine_text

Line = dict[str, Value]

RESTS_ON_C = "_rests_on_grade_c"
"""End of the name of each column that says whether a ratio is based on a row of grade C, its own or the baseline."""


def case_columns(row: Row | GenerationRow) -> Line:
    """The columns with which lines about a case begin."""
    return {
        "case_id": row.case_id,
        "model": row.model,
        "weights": row.weights,
        "backend": row.backend,
        "setting": row.setting,
        "device": row.device,
        "precision": row.precision,
        "batch_size": row.batch_size,
    }


def identity_columns(row: Row) -> Line:
    """The first columns: the measured case."""
    return {
        **case_columns(row),
        "sequence_length": row.sequence_length,
        "boundary": row.boundary,
        "mode": row.mode,
        "grade": row.grade,
    }


def run_columns(summary: Summary) -> Line:
    """The last columns: where and when a run was made."""
    return {
        "machine": machine_text(summary.environments),
        "libraries": library_versions(summary.environments),
        "measured_from": summary.measured_from,
        "measured_to": summary.measured_to,
        "plan_id": summary.plan_id,
        "settings_id": summary.settings_id,
    }


def case_line(summary: Summary, row: Row, *figures: Line) -> Line:
    """A whole line about one case."""
    return full_line(summary, identity_columns(row), figures, row.threads)


def full_line(summary: Summary, first: Line, figures: Iterable[Line], threads: int | None) -> Line:
    """The first columns, the figures, and the last columns."""
    line = dict(first)
    for part in figures:
        line |= part
    return {**line, "threads": threads, **run_columns(summary)}


def has_figures(row: Row) -> bool:
    """False for a row without a figure, and for a row of grade F, which did not time what its label says."""
    return row.latency_ns is not None


def sound_rows(summary: Summary) -> list[Row]:
    """Rows of the latency tables that have sound figures, in the tables' order."""
    return [row for _, rows in ranking.by_table(summary.rows) for row in rows if has_figures(row)]


def in_time_unit(value: float | None, unit: units.TimeUnit) -> float | None:
    """A time in ns in another unit, not rounded."""
    return None if value is None else value / unit.ns


def interval_columns(name: str, interval: Interval | None) -> Line:
    """Both ends of a 95% interval as `<name>_ci95_low` and `…_high`."""
    return {f"{name}_ci95_{end}": getattr(interval, end) if interval else None for end in ("low", "high")}
