"""What the reader must know beside the numbers: flags with remedies, and rows that have no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from harness.core.schemas import Flag, Row
from harness.render import units
from harness.render.markdown import escape, table
from harness.render.series import named

MAX_LISTED = 20
"""Cases listed one by one below a remedy; all of them stand in summary.json."""


def label(row: Row) -> str:
    """A row in words, without its model: `openvino bf16, batch 4, sequence 128`."""
    sequence = f", sequence {row.sequence_length}" if row.sequence_length else ""
    return f"{named(row)}, batch {row.batch_size}{sequence}"


def flag_notes(rows: Sequence[Row]) -> str:
    """Flags of one table: once for each remedy, the rows it applies to and the numbers behind it below."""
    groups: dict[tuple[str, str], list[tuple[Row, Flag]]] = {}
    for row in rows:
        for flag in row.flags:
            groups.setdefault((flag.name, flag.remedy), []).append((row, flag))
    blocks = []
    for (name, remedy), found in sorted(groups.items(), key=lambda item: item[0]):
        lines = [f"- **{name}** ({units.count(len(found), 'row')}). {remedy}"]
        lines += [f"  - {label(row)}: {escape(flag.detail)}" for row, flag in found[:MAX_LISTED]]
        if len(found) > MAX_LISTED:
            lines.append(f"  - … and {len(found) - MAX_LISTED:,} more in summary.json")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def unmeasured_table(rows: Sequence[Row]) -> str:
    """Skipped, failed and missing rows with reason and hint; rows that share them are counted together."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.status != "measured":
            groups.setdefault((row.status, row.reason or "", row.hint or ""), []).append(row)
    order = {"failed": 0, "missing": 1, "skipped": 2}
    lines = [
        [status, _cases(found), reason, hint or units.ABSENT]
        for (status, reason, hint), found in sorted(groups.items(), key=lambda item: order[item[0][0]])
    ]
    return table(["status", "case", "reason", "what to do"], lines) if lines else ""


def _cases(rows: Sequence[Row]) -> str:
    if len(rows) == 1:
        return f"`{rows[0].case_id}`"
    backends = sorted({f"{row.backend} {row.precision}" for row in rows})
    models = sorted({row.model for row in rows})
    who = ", ".join(backends) if len(backends) <= 3 else units.count(len(backends), "backend")
    return f"{who}: {units.count(len(rows), 'case')} of {', '.join(models[:3])}{', …' if len(models) > 3 else ''}"


def calibration_table(rows: Sequence[Row]) -> str:
    """What the harness itself costs: backends that compute nothing, over all models and shapes."""
    medians: dict[str, list[float]] = {}
    for row in rows:
        if row.latency_ns:
            medians.setdefault(row.backend, []).append(row.latency_ns.median)
    lines = [
        [backend, str(len(found)), *(units.significant(value) for value in (min(found), median(found), max(found)))]
        for backend, found in medians.items()
    ]
    return table(["backend", "cases", "lowest ns", "median ns", "highest ns"], lines) if lines else ""
