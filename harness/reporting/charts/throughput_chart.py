"""The chart of throughput against batch size, a panel per sequence length (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Row
from harness.reporting import ranking, units
from harness.reporting.charts.rows import MAX_LINES, TableRows, fill, hover, names, reading, tags
from harness.reporting.charts.spec import Axis, LinePanel, Lines, Mark, Point, Series, decades, from_zero
from harness.reporting.charts.style import dashes, look

MAX_LENGTHS = 3
"""Largest number of panels side by side."""

LOG_FROM = 12
"""Ratio of largest to smallest rate from which the axis is logarithmic; else small batches would be near 0."""


def throughput(table: TableRows) -> Lines | None:
    """The chart, in samples per second; None with a single batch size."""
    shown = [row for row in table.rows if row.throughput_per_s is not None]
    if len({row.batch_size for row in shown}) < 2:
        return None
    labels, plain, numbers = names(shown), ranking.labels(shown), ranking.line_numbers(shown)
    lines: dict[str, list[Row]] = {}
    for row in sorted(shown, key=lambda row: row.batch_size):
        lines.setdefault(labels[row.case_id], []).append(row)
    # The best at the largest batch first: the legend then has the order of the lines' right ends.
    legend = [
        _series(label, found, numbers[plain[found[0].case_id]])
        for label, found in sorted(lines.items(), key=lambda item: _order(item[1][-1]))[:MAX_LINES]
    ]
    rates = [row.throughput_per_s or 0 for row in shown]
    log = max(rates) > LOG_FROM * min(rates)
    label = f"{units.SAMPLE_NAMES[shown[0].kind]} per second{', log scale' if log else ''}"
    lengths = sorted({row.sequence_length or 0 for row in shown})[:MAX_LENGTHS]
    panels = [
        _panel(length, [row for row in shown if (row.sequence_length or 0) == length], legend, labels, label, log)
        for length in lengths
    ]
    marks = [point.mark for panel in panels for one in panel.series for point in one.points]
    text = reading(
        "Samples divided by the wall time of the timed loop, median over processes.",
        shown,
        marks,
        "Dashed: not fp32." if any(one.dashes for one in legend) else "",
        "Dots between dashes: further settings." if any(numbers.values()) else "",
    )
    title = "throughput against batch size"
    return Lines(f"{table.model}: {title}", title.capitalize(), text, table.conditions, tuple(panels), tuple(legend))


def _panel(
    length: int, rows: Sequence[Row], legend: Sequence[Series], labels: Mapping[str, str], label: str, log: bool
) -> LinePanel:
    rates = [row.throughput_per_s or 0 for row in rows]
    y = decades(label, min(rates) / 1.25, max(rates) * 1.25) if log else from_zero(label, max(rates), 1.08, most=5)
    ours = {row.case_id for row in rows}
    found = []
    for one in legend:
        mine = [row for row in rows if labels[row.case_id] == one.name and row.case_id in ours]
        points = tuple(Point(row.batch_size, _mark(row)) for row in sorted(mine, key=lambda row: row.batch_size))
        if points:
            found.append(Series(one.name, one.look, one.fill, points, one.joined, one.dashes, one.tags))
    return LinePanel(f"sequence length {length}" if length else "", _batches(rows), y, tuple(found))


def _series(label: str, rows: Sequence[Row], number: int) -> Series:
    first = rows[0]
    solid = first.precision == "fp32"
    entry = (first.model, first.backend, first.precision, None, None)
    return Series(
        label, look(first.backend), "solid" if solid else "tint", (), True, dashes(first.precision, number), entry
    )


def _mark(row: Row) -> Mark:
    return Mark(row.throughput_per_s or 0, look(row.backend), fill(row), hover=hover(row), tags=tags(row))


def _batches(rows: Sequence[Row]) -> Axis:
    """A logarithmic axis with the batch sizes whose labels do not touch: at least a twelfth of the range apart."""
    sizes = sorted({row.batch_size for row in rows})
    step = (sizes[-1] / sizes[0]) ** (1 / 12)
    kept: list[float] = []
    for size in sizes:
        if not kept or size >= kept[-1] * step:
            kept.append(size)
    return Axis("batch size", sizes[0] / 1.25, sizes[-1] * 1.25, tuple(kept), "log2")


def _order(row: Row) -> tuple[int, float]:
    return (-row.batch_size, -(row.throughput_per_s or 0))
