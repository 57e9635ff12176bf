"""The charts of speed-up: over the baseline backend, against cold start, of several machines, since a run (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from harness.core.schemas import ComparedRow, Interval, Row, Summary, Verdict
from harness.core.units import MAX_PRINTED_FACTOR, SECOND, significant
from harness.reporting import ranking
from harness.reporting.charts import rows as of_rows
from harness.reporting.charts.rows import (
    TableRows,
    accuracy,
    chart_shapes,
    common_labels,
    has_speedup,
    legend_text,
    marks_by_label,
    row_labels,
    scaled_interval,
    shape_name,
    speedup_mark,
)
from harness.reporting.charts.spec import (
    Absent,
    Axis,
    DotPanel,
    Dots,
    LinePanel,
    Lines,
    Mark,
    Point,
    Series,
    decade_axis,
    doubling_axis,
    even_ticks,
    widened_limits,
)
from harness.reporting.charts.style import GREY, Look, backend_look
from harness.reporting.figures import until_first_answer_ns
from harness.reporting.prose.conditions import machine_text
from harness.reporting.tables import comparison_table as change
from harness.reporting.tables.machines_tables import across_machines

MAX_TICKS = 13
"""Number of labels that have room in a chart of one column."""


def speedup(table: TableRows) -> Dots | None:
    """The chart; None where no row has another row as its baseline."""
    if not any(map(has_speedup, table.rows)):
        return None
    labels = row_labels(table.shown)
    groups = [
        (shape_name(key), [row for row in group if not _is_baseline(row)]) for key, group in chart_shapes(table.shown)
    ]
    lines = [marks_by_label(group, labels, speedup_mark, biggest_first=True) for _, group in groups]
    marks = [mark for panel in lines for mark in panel.values() if isinstance(mark, Mark)]
    columns = 2 if len(lines) == 4 else min(3, len(lines))
    axis = ratio_axis(marks, MAX_TICKS // columns)
    first = f"Marker: median of {table.baseline} fp32 / median of the backend, right of 1 is faster; bar: 95% CI."
    return Dots(
        f"{table.model}: speed-up over {table.baseline} fp32",
        f"Speed-up over {table.baseline} fp32",
        legend_text(first, [row for _, group in groups for row in group], marks),
        table.conditions,
        tuple(DotPanel(title, axis, panel) for (title, _), panel in zip(groups, lines, strict=True)),
        common_labels(lines),
        columns,
    )


def ratio_axis(marks: list[Mark], most: int | None = None) -> Axis:
    """An axis of speed-ups with powers of two including 1, room for figures to the right, and a line at 1."""
    low = min([of_rows.mark_low_end(mark) for mark in marks] + [1.0])
    high = max([of_rows.mark_high_end(mark) for mark in marks] + [1.0])
    span = math.log2(high / low) or 1
    start, end = low * 2 ** (-0.1 * span - 0.05), high * 2 ** (0.22 * span + 0.05)
    axis = doubling_axis("speed-up (log scale)", start, end, most)
    return replace(axis, reference=1.0)


def _is_baseline(row: Row) -> bool:
    return row.speedup is not None and row.speedup.baseline == row.case_id


def cold_start(table: TableRows) -> Lines | None:
    """The chart of the smallest and the largest shape; None where no row has another row as its baseline."""
    timed = [row for row in table.rows if row.cold_ns and row.speedup]
    if not any(map(has_speedup, timed)):
        return None
    shapes = ranking.by_shape(timed)
    shown = shapes if len(shapes) < 2 else [shapes[0], shapes[-1]]
    drawn = sorted((row for _, group in shown for row in group), key=_ratio, reverse=True)
    labels = row_labels(drawn)
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels[row.case_id] for row in drawn), 1)}
    points = {row.case_id: _point(row, numbers[labels[row.case_id]]) for row in drawn}
    legend = {label: _series(f"{numbers[label]} {label}", row) for row in drawn for label in [labels[row.case_id]]}
    marks = [point.mark for point in points.values()]
    ends = [end for mark in marks if mark.interval for end in (mark.interval.low, mark.interval.high)]
    x = decade_axis("cold start (s, log scale)", *widened_limits([point.x for point in points.values()]))
    low, high = widened_limits([*(mark.value for mark in marks), *ends, 1.0])
    y = replace(doubling_axis(f"speed-up over {table.baseline} fp32", low, high), reference=1.0)
    panels = []
    for shape, group in shown:
        own = {
            label: replace(series, points=tuple(points[row.case_id] for row in group if labels[row.case_id] == label))
            for label, series in legend.items()
        }
        doubt = f" {ranking.DOUBT}" if any(map(_against_c, group)) else ""
        panels.append(
            LinePanel(f"{shape_name(shape)}{doubt}", x, y, tuple(series for series in own.values() if series.points))
        )
    title = "speed-up against cold start"
    return Lines(
        f"{table.model}: {title}",
        title.capitalize(),
        legend_text(
            "Cold start: load, compile and first inference of a new process; imports, ONNX export and engines not "
            "included. Upper left is best. Bar: 95% CI of the speed-up. Numbers: those of the legend.",
            drawn,
            marks,
            "Arrow to the right: its compile cache was warm, a first start takes longer."
            if any(mark.warm for mark in marks)
            else "",
            f"{ranking.DOUBT} in a title: the baseline there is grade C." if any(map(_against_c, drawn)) else "",
        ),
        table.conditions,
        tuple(panels),
        tuple(legend.values()),
    )


def _point(row: Row, number: int) -> Point:
    """A row as a point, with its number in the legend: settings of a backend share colour and marker."""
    assert row.cold_ns is not None  # noqa: S101 - chosen by cold_start
    seconds = until_first_answer_ns(row.cold_ns) / SECOND.ns
    mark = speedup_mark(row)
    assert isinstance(mark, Mark)  # noqa: S101 - the same
    warm = row.cold_ns.compile_cached is not None and bool(row.cold_ns.compile_cached)
    cached = ", compile cache warm" if warm else ""
    hover = f"{mark.hover}<br>cold start {significant(seconds)} s{cached}"
    return Point(seconds, replace(of_rows.in_colour(mark), text=str(number), hover=hover, warm=warm))


def _series(label: str, row: Row) -> Series:
    entry = (row.model, row.backend, row.precision, None, None)
    return Series(
        label, backend_look(row.backend), "solid" if row.precision == "fp32" else "tint", (), False, (), entry
    )


def _against_c(row: Row) -> bool:
    return ranking.is_doubtful(row) and row.speedup is not None and row.speedup.baseline_grade == ranking.UNRANKED


def _ratio(row: Row) -> float:
    return row.speedup.ratio if row.speedup else 0.0


MAX_MACHINE_LINES = 30
MAX_MACHINES = 6
"""Lines and panels of the chart, the cases of most machines first; the table has all."""


def machines_chart(summaries: Mapping[str, Summary]) -> Dots | None:
    """The chart; None where no machine has a speed-up."""
    names = list(summaries)[:MAX_MACHINES]
    shown = [case for case in across_machines(summaries) if any(name in case.rows for name in names)][
        :MAX_MACHINE_LINES
    ]
    panels: dict[str, dict[str, Mark | Absent]] = {name: {} for name in names}
    for case in shown:
        beside = accuracy(case.rows.values())
        label = f"{case.label} ({beside})" if beside else case.label
        for name in names:
            row = case.rows.get(name)
            panels[name][label] = Absent("not measured") if row is None else speedup_mark(row)
    marks = [mark for panel in panels.values() for mark in panel.values() if isinstance(mark, Mark)]
    if not marks:
        return None
    columns = min(3, len(names))
    axis = ratio_axis(marks, 13 // columns)
    baseline = next(iter(summaries.values())).baseline_backend
    first = f"Marker: median of {baseline} fp32 / median of the backend on the same machine; bar: 95% CI."
    return Dots(
        f"Speed-up over {baseline} fp32, by machine",
        f"Speed-up over {baseline} fp32, by machine",
        legend_text(first, [row for case in shown for row in case.rows.values()], marks),
        " · ".join(f"{name}: {machine_text(summaries[name].environments)}" for name in names),
        tuple(DotPanel(name, axis, lines) for name, lines in panels.items()),
        common_labels(panels.values()),
        columns,
    )


MAX_CHANGES = 40
"""Rows of the chart, the worst first; the table has all rows."""

MARGIN = 1.6
"""Length of the axis in multiples of the largest change; intervals of few rounds may go beyond it."""

COLOURS: dict[Verdict, str] = {"SLOWER": "#D55E00", "FASTER": "#009E73", "SAME": "#0072B2", "AMBIGUOUS": GREY}


def changes_chart(rows: Sequence[ComparedRow], margin: float, conditions: str) -> Dots:
    """The chart. rows: with a ratio, the worst first. margin: of equivalence, as a share."""
    shown = [row for row in rows if row.ratio is not None][:MAX_CHANGES]
    lines = {row.case_id: _mark(row) for row in shown}
    end = max([margin, *(abs(mark.value) / 100 for mark in lines.values())]) * 100 * MARGIN
    low = -min(end, 100.0)
    axis = Axis(
        "change of latency",
        low,
        end,
        tuple(even_ticks(low, end, 6)),
        suffix="%",
        reference=0.0,
        band=(-100 * margin, 100 * margin),
    )
    wide = f" Arrows (↔): interval wider than ×{MAX_PRINTED_FACTOR:g}, not drawn."
    reading = (
        "Marker: change of the headline latency, right of 0 is slower; bar: 95% CI; grey band: margin of equivalence."
        f"{wide if any(mark.wide for mark in lines.values()) else ''}"
    )
    heading = "Change of each row"
    return Dots(heading, heading, reading, conditions, (DotPanel("", axis, lines),), tuple(lines), 1)


def _mark(row: ComparedRow) -> Mark:
    interval, wide = scaled_interval(row.ci95)
    drawn = interval and Interval(low=100 * (interval.low - 1), high=100 * (interval.high - 1))
    hover = "<br>".join((f"<b>{escape(row.case_id)}</b>", row.verdict, escape(change.change_text(row))))
    tags = (row.model, row.backend, row.precision, str(row.batch_size), None)
    look = Look(COLOURS.get(row.verdict, GREY), "o")
    return Mark(100 * ((row.ratio or 1) - 1), look, "solid", drawn, wide, hover=hover, tags=tags)
