"""Settings that were measured to choose among several, and how far each was behind the one that was taken (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core.schemas import Row
from harness.measure.rows import GroupKey
from harness.render import ranking, units
from harness.render.markdown import table
from harness.render.units import ABSENT

EXPLAINED = (
    "Each setting was measured in round 1, and the fastest of its backend, precision and shape got the other rounds. "
    "Medians are those of that one process, so differences of about 1% mean nothing."
)


def tried_table(rows: Iterable[Row], key: ranking.TableKey) -> str:
    """All tried settings of one table, the chosen one of each group first; empty where nothing was tried."""
    found = tried_groups(row for row in rows if ranking.table_key(row) == key)
    if not found:
        return ""
    by_length = any(row.sequence_length for group in found for row in group)
    unit = units.time_unit(median for group in found for row in group if (median := first_ns(row)))
    lines = [_line(row, group, unit, by_length) for group in found for row in group]
    headers = ["backend", "precision", "batch", *(["seq"] if by_length else []), "setting"]
    headers += [f"median {unit.name}", "against the chosen one"]
    return f"{EXPLAINED}\n\n{table(headers, lines)}"


def tried_groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that differ in nothing but their setting, where several were tried, the chosen one first."""
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        if row.latency_ns is not None:
            groups.setdefault(GroupKey.of(row).without("setting"), []).append(row)
    return [sorted(group, key=_order) for group in groups.values() if any(row.tried for row in group)]


def behind(row: Row, group: Iterable[Row]) -> float | None:
    """How much longer a tried setting takes than the chosen one of its group, as a share; None of the chosen one."""
    chosen = next((other for other in group if not other.tried), None)
    ours, theirs = first_ns(row), first_ns(chosen) if chosen else None
    return None if not row.tried or ours is None or not theirs else ours / theirs - 1


def _line(row: Row, group: Sequence[Row], unit: units.TimeUnit, by_length: bool) -> list[str]:
    return [
        *(row.backend, row.precision, str(row.batch_size)),
        *([str(row.sequence_length or ABSENT)] if by_length else []),
        row.setting,
        units.in_unit(first_ns(row), unit),
        _behind(row, group),
    ]


def _behind(row: Row, group: Sequence[Row]) -> str:
    if not row.tried:
        return "chosen"
    share = behind(row, group)
    return ABSENT if share is None else f"{share:+.1%}"


def first_ns(row: Row) -> float | None:
    """Median of the first process: what the choice was made by."""
    return row.latency_ns.process_medians[0] if row.latency_ns else None


def _order(row: Row) -> tuple[bool, float]:
    return (row.tried, first_ns(row) or 0.0)
