"""Settings that were measured to choose the fastest, and how far each was behind the chosen setting (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.aggregation.flags import GroupKey
from harness.core import units
from harness.core.schemas import Row, Summary
from harness.core.units import ABSENT, MILLISECOND
from harness.reporting.csv_identity import Line, case_line, in_time_unit
from harness.reporting.table import Column, Table, case_columns, word_column

EXPLAINED = (
    "Each setting was measured in round 1, and the fastest of its backend, precision and shape got the other rounds. "
    "Medians are those of that one process, so differences of about 1% mean nothing."
)


def tried_table(rows: Iterable[Row]) -> Table[Row] | None:
    """All tried settings of the rows of one table, the chosen setting of each group first; None where nothing was
    tried."""
    groups = tried_groups(rows)
    if not groups:
        return None
    tried = [row for group in groups for row in group]
    group_of = {row.case_id: group for group in groups for row in group}
    unit = units.time_unit(median for row in tried if (median := first_ns(row)))
    columns = [
        *case_columns(tried, with_setting=False),
        word_column("setting", lambda row: row.setting),
        Column(f"median {unit.name}", lambda row: units.in_unit(first_ns(row), unit)),
        Column("against the chosen one", lambda row: _slower_text(row, group_of[row.case_id])),
    ]
    return Table(columns, tried, EXPLAINED)


def tried_lines(summary: Summary) -> list[Line]:
    """A line for each setting that competed with others in round 1, the chosen setting of each group first."""
    return [
        case_line(summary, row, _tried(row, slower_by(row, group)))
        for group in tried_groups(summary.rows)
        for row in group
    ]


def _tried(row: Row, share: float | None) -> Line:
    return {
        "chosen": not row.tried,
        "round_1_median_ms": in_time_unit(first_ns(row), MILLISECOND),
        "behind_share": share,
    }


def tried_groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that differ only in their setting, where several were tried, the chosen setting first."""
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        if row.latency_ns is not None:
            groups.setdefault(GroupKey.of(row).without("setting"), []).append(row)
    return [sorted(group, key=_order) for group in groups.values() if any(row.tried for row in group)]


def slower_by(row: Row, group: Iterable[Row]) -> float | None:
    """How much longer a tried setting takes than the chosen setting of its group, as a share; None for the latter."""
    chosen = next((other for other in group if not other.tried), None)
    row_ns, chosen_ns = first_ns(row), first_ns(chosen) if chosen else None
    return None if not row.tried or row_ns is None or not chosen_ns else row_ns / chosen_ns - 1


def _slower_text(row: Row, group: Sequence[Row]) -> str:
    if not row.tried:
        return "chosen"
    share = slower_by(row, group)
    return ABSENT if share is None else f"{share:+.1%}"


def first_ns(row: Row) -> float | None:
    """Median of the first process, which decides the choice."""
    return row.latency_ns.process_medians[0] if row.latency_ns else None


def _order(row: Row) -> tuple[bool, float]:
    return (row.tried, first_ns(row) or 0.0)
