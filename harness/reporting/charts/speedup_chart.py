"""The chart of speed-up over the baseline backend, a panel per shape, one scale for all (pure)."""

from __future__ import annotations

import math

from harness.core.schemas import Row
from harness.reporting.charts import rows as of_rows
from harness.reporting.charts.rows import (
    TableRows,
    by_label,
    common_labels,
    has_speedup,
    names,
    reading,
    shape_name,
    shapes,
    speedup_mark,
)
from harness.reporting.charts.spec import Axis, DotPanel, Dots, Mark, doublings

MAX_TICKS = 13
"""Number of labels that have room in a chart of one column."""


def speedup(table: TableRows) -> Dots | None:
    """The chart; None where no row has another row as its baseline."""
    if not any(map(has_speedup, table.rows)):
        return None
    labels = names(table.shown)
    groups = [(shape_name(key), [row for row in found if not _is_baseline(row)]) for key, found in shapes(table.shown)]
    lines = [by_label(found, labels, speedup_mark, biggest_first=True) for _, found in groups]
    marks = [mark for panel in lines for mark in panel.values() if isinstance(mark, Mark)]
    columns = 2 if len(lines) == 4 else min(3, len(lines))
    axis = ratio_axis("speed-up (log scale)", marks, MAX_TICKS // columns)
    first = f"Marker: median of {table.baseline} fp32 / median of the backend, right of 1 is faster; bar: 95% CI."
    return Dots(
        f"{table.model}: speed-up over {table.baseline} fp32",
        f"Speed-up over {table.baseline} fp32",
        reading(first, [row for _, found in groups for row in found], marks),
        table.conditions,
        tuple(DotPanel(title, axis, panel) for (title, _), panel in zip(groups, lines, strict=True)),
        common_labels(lines),
        columns,
    )


def ratio_axis(label: str, marks: list[Mark], most: int | None = None) -> Axis:
    """An axis with powers of two including 1, room for figures to the right, and a line at 1."""
    low = min([of_rows.lowest(mark) for mark in marks] + [1.0])
    high = max([of_rows.highest(mark) for mark in marks] + [1.0])
    span = math.log2(high / low) or 1
    found = doublings(label, low * 2 ** (-0.06 * span - 0.05), high * 2 ** (0.22 * span + 0.05), most, "×")
    return Axis(found.label, found.low, found.high, found.ticks, found.scale, found.suffix, reference=1.0)


def _is_baseline(row: Row) -> bool:
    return row.speedup is not None and row.speedup.baseline == row.case_id
