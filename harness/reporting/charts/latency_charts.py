"""The charts of latency by backend, of every model at batch 1, and of throughput against batch size (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core import units
from harness.core.schemas import Row
from harness.core.units import TimeUnit
from harness.reporting import ranking
from harness.reporting.charts import rows as of_rows
from harness.reporting.charts.rows import (
    MAX_LINES,
    TableRows,
    accuracies,
    chart_shapes,
    common_labels,
    filter_tags,
    hover,
    in_colour,
    latency_mark,
    legend_text,
    marker_fill,
    marks_by_label,
    row_labels,
    shape_name,
)
from harness.reporting.charts.spec import (
    Axis,
    DotPanel,
    Dots,
    LinePanel,
    Lines,
    Mark,
    Point,
    Series,
    axis_from_zero,
    decade_axis,
)
from harness.reporting.charts.style import Look, backend_look, precision_dashes
from harness.reporting.ranking import drawable, series_labels

LOG_TIMES_FROM = 8
"""Ratio (slowest over fastest median of a panel, or largest p95 over slowest) from which the axis is logarithmic."""

_TICK = "tick: p95 (hidden where narrower than the marker)"
_PROCESSES = "bar: 95% CI over processes; small dots: the processes"


def _marks_text(marks: Sequence[Mark], offline: bool) -> str:
    """The meaning of a mark: of one process a row, or of several."""
    several = any(len(mark.singles) > 1 for mark in marks)
    if offline:
        parts = ["wall time of all blocks by their batches" + (", median of the processes" if several else "")]
    else:
        parts = ["median of process medians" if several else "median of one process"]
    return f"Marker: {'; '.join([*parts, *[_PROCESSES] * several, *[_TICK] * (not offline)])}."


def latency(table: TableRows) -> Dots | None:
    """Latency of one table, a panel per shape; None with a single row, which has nothing to compare with."""
    if len(table.shown) < 2:
        return None
    offline = table.rows[0].mode == "offline"
    quantity = "Time per batch" if offline else "Latency"
    groups = [(shape_name(key), group) for key, group in chart_shapes(table.shown)]
    called = row_labels(table.shown)
    return _dots(
        f"{table.model}: {quantity.lower()} by backend",
        f"{quantity} by backend",
        table.conditions,
        [(title, group, called) for title, group in groups],
        _unit(table.rows),
        "time per batch, throughput mode" if offline else "latency of one batch",
        offline,
    )


def overview(tables: Sequence[tuple[str, Sequence[Row]]], conditions: str) -> Dots:
    """Every model at its smallest shape. tables: (model, rows of its table)."""
    offline = tables[0][1][0].mode == "offline"
    quantity = "Time per batch" if offline else "Latency"
    groups = []
    for model, rows in tables:
        shown = drawable(rows)
        key, group = chart_shapes(shown)[0]
        # Models share the labels of lines, but each has its own accuracy.
        beside = "\n".join(filter(None, (model, shape_name(key), beside_quantised(group))))
        groups.append((beside, group, series_labels(shown)))
    title = f"{quantity} by backend, each model at its smallest batch"
    unit = _unit([row for _, rows in tables for row in rows])
    return _dots(title, "Every model at its smallest batch", conditions, groups, unit, quantity.lower(), offline)


def far_apart(lines: Sequence[tuple[float, float | None]]) -> bool:
    """Whether the medians of a panel would be too close on a linear axis; lines: (median, p95 or None) of each row."""
    medians = [median for median, _ in lines]
    tails = [tail or 0 for _, tail in lines]
    return bool(lines) and (max(medians) > LOG_TIMES_FROM * min(medians) or max(tails) > LOG_TIMES_FROM * max(medians))


def time_axis(label: str, marks: Sequence[Mark], log: bool) -> Axis:
    """An axis from 0, or a logarithmic axis, with room for the figures to the right of the marks."""
    high = max(map(of_rows.mark_high_end, marks), default=1.0)
    if not log:
        return axis_from_zero(label, high, room=1.2)
    low = max(min(map(of_rows.mark_low_end, marks), default=1.0), min((mark.value for mark in marks), default=1.0) / 4)
    span = max(high / low, 1.5)
    # Arrows of a wide interval are longer than its marker.
    return decade_axis(label, low / span ** (0.15 if any(mark.wide for mark in marks) else 0.08), high * span**0.3)


def beside_quantised(rows: Sequence[Row]) -> str:
    """`int8: top-1 90.6%`, the worst of some rows, a line for each quantised precision; empty without such a row."""
    return "\n".join(f"{precision}: {text}" for precision, text in accuracies(rows).items())


def _dots(
    title: str,
    heading: str,
    conditions: str,
    groups: Sequence[tuple[str, Sequence[Row], dict[str, str]]],
    unit: TimeUnit,
    axis: str,
    offline: bool,
) -> Dots:
    """The panels. groups: (title, rows, labels) of each. All have the same kind of scale, each with its own limits."""
    lines = [marks_by_label(group, called, lambda row: latency_mark(row, unit.ns)) for _, group, called in groups]
    marks = [[mark for mark in panel.values() if isinstance(mark, Mark)] for panel in lines]
    log = any(far_apart([(mark.value, mark.tail) for mark in panel_marks]) for panel_marks in marks)
    label = f"{axis} ({unit.name}{', log scale' if log else ''})"
    panels = [
        DotPanel(name, time_axis(label, panel_marks, log), panel)
        for (name, _, _), panel_marks, panel in zip(groups, marks, lines, strict=True)
    ]
    shown = [row for _, group, _ in groups for row in group]
    drawn = [mark for panel_marks in marks for mark in panel_marks]
    text = legend_text(_marks_text(drawn, offline), shown, drawn)
    # Four panels are arranged two by two, other numbers three per row.
    return Dots(title, heading, text, conditions, tuple(panels), common_labels(lines), 2 if len(panels) == 4 else 3)


def _unit(rows: Sequence[Row]) -> TimeUnit:
    return units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)


MAX_LENGTHS = 3
"""Largest number of panels side by side."""

LOG_BATCHES_FROM = 12
"""Ratio of largest to smallest rate from which the axis is logarithmic; else small batches would be near 0."""


def throughput(table: TableRows) -> Lines | None:
    """The chart, in samples per second; None with a single batch size."""
    shown = [row for row in table.rows if row.throughput_per_s is not None]
    if len({row.batch_size for row in shown}) < 2:
        return None
    labels, plain, numbers = row_labels(shown), ranking.series_labels(shown), ranking.line_numbers(shown)
    lines: dict[str, list[Row]] = {}
    for row in sorted(shown, key=lambda row: row.batch_size):
        lines.setdefault(labels[row.case_id], []).append(row)
    # The best at the largest batch first: the legend then has the order of the lines' right ends.
    legend = [
        _series(label, group, numbers[plain[group[0].case_id]])
        for label, group in sorted(lines.items(), key=lambda item: _order(item[1][-1]))[:MAX_LINES]
    ]
    rates = [row.throughput_per_s or 0 for row in shown]
    log = max(rates) > LOG_BATCHES_FROM * min(rates)
    label = f"{units.SAMPLE_NAMES[shown[0].kind]} per second{', log scale' if log else ''}"
    lengths = sorted({row.sequence_length or 0 for row in shown})[:MAX_LENGTHS]
    panels = [
        _panel(length, [row for row in shown if (row.sequence_length or 0) == length], legend, labels, label, log)
        for length in lengths
    ]
    marks = [point.mark for panel in panels for series in panel.series for point in series.points]
    text = legend_text(
        "Samples divided by the wall time of the timed loop, median over processes.",
        shown,
        marks,
        "Dashed: not fp32." if any(series.dashes for series in legend) else "",
        "Dots between dashes: further settings." if any(numbers.values()) else "",
    )
    title = "throughput against batch size"
    return Lines(f"{table.model}: {title}", title.capitalize(), text, table.conditions, tuple(panels), tuple(legend))


def _panel(
    length: int, rows: Sequence[Row], legend: Sequence[Series], labels: Mapping[str, str], label: str, log: bool
) -> LinePanel:
    rates = [row.throughput_per_s or 0 for row in rows]
    y = (
        decade_axis(label, min(rates) / 1.25, max(rates) * 1.25)
        if log
        else axis_from_zero(label, max(rates), 1.08, most=5)
    )
    drawn = []
    for series in legend:
        shown = sorted((row for row in rows if labels[row.case_id] == series.name), key=lambda row: row.batch_size)
        points = tuple(Point(row.batch_size, _mark(row, series.look)) for row in shown)
        if points:
            drawn.append(
                Series(series.name, series.look, series.fill, points, series.joined, series.dashes, series.tags)
            )
    return LinePanel(f"sequence length {length}" if length else "", _batches(rows), y, tuple(drawn))


def _series(label: str, rows: Sequence[Row], number: int) -> Series:
    first = rows[0]
    solid = first.precision == "fp32"
    entry = (first.model, first.backend, first.precision, None, None)
    return Series(
        label,
        backend_look(first.backend, number),
        "solid" if solid else "tint",
        (),
        True,
        precision_dashes(first.precision, number),
        entry,
    )


def _mark(row: Row, own: Look) -> Mark:
    return in_colour(Mark(row.throughput_per_s or 0, own, marker_fill(row), hover=hover(row), tags=filter_tags(row)))


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
