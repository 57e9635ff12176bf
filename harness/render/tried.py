"""Settings that were measured to choose among several, and how far each was behind the one that was taken (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.core.schemas import Row
from harness.render import ranking, units
from harness.render.markdown import table
from harness.render.units import ABSENT

EXPLAINED = (
    "Each setting was measured in round 1, and the fastest of its backend, precision and shape got the other rounds. "
    "Medians are those of that one process, so differences of about 1% mean nothing."
)


def tried_table(rows: Iterable[Row], key: ranking.TableKey) -> str:
    """All tried settings of one table, the chosen one of each group first; empty where nothing was tried."""
    groups: dict[tuple[str, str, int, int], list[Row]] = {}
    for row in rows:
        if row.status == "measured" and row.grade != "F" and ranking.table_key(row) == key:
            groups.setdefault((row.backend, row.precision, *ranking.shape(row)), []).append(row)
    found = [group for group in groups.values() if any(row.tried for row in group)]
    if not found:
        return ""
    by_length = any(row.sequence_length for group in found for row in group)
    unit = units.time_unit(median for group in found for row in group if (median := _first_ns(row)))
    lines = [_line(row, group, unit, by_length) for group in found for row in sorted(group, key=_order)]
    headers = ["backend", "precision", "batch", *(["seq"] if by_length else []), "setting"]
    headers += [f"median {unit.name}", "against the chosen one"]
    return f"{EXPLAINED}\n\n{table(headers, lines)}"


def _line(row: Row, group: Sequence[Row], unit: units.TimeUnit, by_length: bool) -> list[str]:
    return [
        *(row.backend, row.precision, str(row.batch_size)),
        *([str(row.sequence_length or ABSENT)] if by_length else []),
        row.setting,
        units.in_unit(_first_ns(row), unit),
        _behind(row, next((other for other in group if not other.tried), None)),
    ]


def _behind(row: Row, chosen: Row | None) -> str:
    if not row.tried:
        return "chosen"
    ours, theirs = _first_ns(row), _first_ns(chosen) if chosen else None
    return ABSENT if ours is None or not theirs else f"{ours / theirs - 1:+.1%}"


def _first_ns(row: Row) -> float | None:
    """Median of the first process: what the choice was made by."""
    return row.latency_ns.process_medians[0] if row.latency_ns else None


def _order(row: Row) -> tuple[bool, float]:
    return (row.tried, _first_ns(row) or 0.0)
