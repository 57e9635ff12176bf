"""The chart of speed-up against cold start, in seconds (pure)."""

from __future__ import annotations

from dataclasses import replace

from harness.core.schemas import Row
from harness.reporting import ranking
from harness.reporting.charts.rows import TableRows, has_speedup, names, reading, shape_name, speedup_mark
from harness.reporting.charts.spec import LinePanel, Lines, Mark, Point, Series, decades, doublings, widened
from harness.reporting.charts.style import look
from harness.reporting.figures import until_first_answer_ns
from harness.reporting.units import SECOND, significant


def cold_start(table: TableRows) -> Lines | None:
    """The chart of the smallest and the largest shape; None where no row has another row as its baseline."""
    timed = [row for row in table.rows if row.cold_ns and row.speedup]
    if not any(map(has_speedup, timed)):
        return None
    shapes = ranking.by_shape(timed)
    shown = shapes if len(shapes) < 2 else [shapes[0], shapes[-1]]
    drawn = sorted((row for _, found in shown for row in found), key=_ratio, reverse=True)
    labels = names(drawn)
    points = {row.case_id: _point(row, ranking.labels(drawn)[row.case_id]) for row in drawn}
    legend = {labels[row.case_id]: _series(labels[row.case_id], row) for row in drawn}
    marks = [point.mark for point in points.values()]
    ends = [end for mark in marks if mark.interval for end in (mark.interval.low, mark.interval.high)]
    x = decades("seconds until the first answer (log scale)", *widened([point.x for point in points.values()]))
    low, high = widened([*(mark.value for mark in marks), *ends, 1.0])
    y = replace(doublings(f"speed-up over {table.baseline} fp32", low, high, suffix="×"), reference=1.0)
    panels = []
    for shape, found in shown:
        own = {
            label: replace(one, points=tuple(points[row.case_id] for row in found if labels[row.case_id] == label))
            for label, one in legend.items()
        }
        doubt = f" {ranking.DOUBT}" if any(map(_against_c, found)) else ""
        panels.append(LinePanel(f"{shape_name(shape)}{doubt}", x, y, tuple(one for one in own.values() if one.points)))
    title = "time until the first answer against speed-up"
    return Lines(
        f"{table.model}: {title}",
        title.capitalize(),
        reading(
            "Load, compile and first inference of a new process; imports, ONNX export and engines not included. Upper "
            "left is best. Bar: 95% CI of the speed-up.",
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


def _point(row: Row, label: str) -> Point:
    """A row as a point. text: precision, setting and remarks; colour and shape show the backend."""
    assert row.cold_ns is not None  # noqa: S101 - chosen by cold_start
    seconds = until_first_answer_ns(row.cold_ns) / SECOND.ns
    mark = speedup_mark(row)
    assert isinstance(mark, Mark)  # noqa: S101 - the same
    warm = row.cold_ns.compile_cached is not None and bool(row.cold_ns.compile_cached)
    doubt = ranking.DOUBT if ranking.is_doubtful(row) else ""
    text = f"{doubt}{label.removeprefix(row.backend).strip()}{', cached' if warm else ''}"
    hover = f"{mark.hover}<br>first answer after {significant(seconds)} s"
    return Point(seconds, replace(mark, text=text, hover=hover, warm=warm))


def _series(label: str, row: Row) -> Series:
    entry = (row.model, row.backend, row.precision, None, None)
    return Series(label, look(row.backend), "solid" if row.precision == "fp32" else "tint", (), False, (), entry)


def _against_c(row: Row) -> bool:
    return ranking.is_doubtful(row) and row.speedup is not None and row.speedup.baseline_grade == ranking.UNRANKED


def _ratio(row: Row) -> float:
    return row.speedup.ratio if row.speedup else 0.0
