"""The page's latency table: one entry a case, its cells as in the other report, and what folds out below (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from harness.core.schemas import Flag, Row, Summary
from harness.render import units
from harness.reporting.tables.latency import doubt_notes, latency_columns
from harness.reporting.writers.html import KINDS, inline

GRADE = "grade"


@dataclass(frozen=True)
class Entry:
    """One case: its cells in the order of the headers, why it has its grade, and what ran."""

    row: Row
    cells: tuple[Markup, ...]
    facts: tuple[tuple[str, str], ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags with what was seen and what to do about it."""
        return self.row.flags


@dataclass(frozen=True)
class CaseTable:
    """headers: (name, `word` or `num`); the grade stands in a column of its own, before them.

    notes: what marks in the cells mean.
    """

    headers: tuple[tuple[str, str], ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def case_table(summary: Summary, rows: Sequence[Row]) -> CaseTable:
    """The rows of one table (ranking.by_table) for the page."""
    columns = latency_columns(rows, summary.exports.get(rows[0].model), summary.engines, summary.custom)
    columns = [column for column in columns if column.header != GRADE]
    headers = tuple((column.header, KINDS[column.align]) for column in columns)
    entries = (Entry(row, tuple(inline(column.cell(row)) for column in columns), tuple(_facts(row))) for row in rows)
    return CaseTable((*headers, ("flags", "word")), tuple(entries), tuple(doubt_notes(rows)))


def _facts(row: Row) -> Iterable[tuple[str, str]]:
    latency = row.latency_ns
    if latency is not None:
        unit = units.time_unit([latency.median])
        medians = ", ".join(units.in_unit(value, unit) for value in latency.process_medians)
        yield "medians of the processes", f"{medians} {unit.name}"
        yield "samples", f"{latency.n:,} of {units.count(latency.rounds, 'process', 'processes')}"
    if row.stopped is not None:
        yield "rounds ended by", row.stopped
    if row.checks:
        yield "checks made in", ", ".join(f"{name} {one.rounds} of {one.of}" for name, one in row.checks.items())
    if row.placement is not None:
        yield "ran on", f"{row.placement.device}, {row.placement.precision}, by {row.placement.provider}"
        settings = ", ".join(f"{name}: {value}" for name, value in row.placement.settings.items())
        yield "settings read back", settings or "none"
