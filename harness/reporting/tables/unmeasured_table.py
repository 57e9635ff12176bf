"""Rows that were skipped, failed or are missing: the reasons and the remedies (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Row, Summary
from harness.reporting import units
from harness.reporting.labels import Line, about
from harness.reporting.table import Table, texts


def unmeasured_table(rows: Sequence[Row]) -> Table[Sequence[str]] | None:
    """Skipped, failed and missing rows with reason and hint; rows with the same reason and hint are joined."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.status != "measured":
            groups.setdefault((row.status, row.reason or "", row.hint or ""), []).append(row)
    order = {"failed": 0, "missing": 1, "skipped": 2}
    lines = [
        [status, _cases(found), reason, hint or units.ABSENT]
        for (status, reason, hint), found in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    headers = ("status", "case", "reason", "what to do")
    return texts([(header, "left") for header in headers], lines) if lines else None


def _cases(rows: Sequence[Row]) -> str:
    if len(rows) == 1:
        return f"`{rows[0].case_id}`"
    backends = sorted({f"{row.backend} {row.precision}" for row in rows})
    models = sorted({row.model for row in rows})
    who = ", ".join(backends) if len(backends) <= 3 else units.count(len(backends), "backend")
    return f"{who}: {units.count(len(rows), 'case')} of {', '.join(models[:3])}{', …' if len(models) > 3 else ''}"


def unmeasured_lines(summary: Summary) -> list[Line]:
    """A line for each row that was skipped, failed or is missing."""
    rows = [row for row in summary.rows if row.status != "measured"]
    return [about(summary, row, {"status": row.status, "reason": row.reason, "hint": row.hint}) for row in rows]
