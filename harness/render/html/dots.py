"""Dots with intervals, one panel a shape: latency, speedup, and the overview of all models (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from harness.core.schemas import Interval, Row
from harness.render import ranking, units
from harness.render.chart_dots import MAX_LINES, absence, far_apart, shape_name, shapes
from harness.render.html.plot import (
    WIDE_NOTE,
    Plot,
    PlotGroup,
    Trace,
    colour,
    hover,
    log_axis,
    marker,
    open_ended,
    short,
    tags,
    whiskers,
)
from harness.render.series import drawable, labels
from harness.render.units import TimeUnit, to_scale

LINE_PX = 36
"""Height of one backend's line."""

AROUND_PX = 64
"""Height of the axis and its label."""

Estimate = tuple[float, Interval | None]

NOTE = (
    "Marker: median of the process medians; bar: 95% CI over processes; small dots: the processes; tick: p95. Tinted: "
    f"not fp32; grey and hollow: flagged, not ranked. {WIDE_NOTE}"
)
SPEEDUP_NOTE = f"Median of the baseline / median of the backend; bar: 95% CI. Above 1 is faster. {WIDE_NOTE}"


def latency_plots(rows: Sequence[Row]) -> PlotGroup:
    """Latency by backend, one panel a shape; `rows` are all rows of one table, measured or not."""
    shown = drawable(rows)
    names, unit = labels(shown), units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    what = "Time per batch" if rows[0].mode == "offline" else "Latency"
    found = [(shape_name(key), rows_of_shape) for key, rows_of_shape in shapes(shown)]
    log = _far_apart(rows_of_shape for _, rows_of_shape in found)
    panels = [_latency(title, rows_of_shape, names, unit, log) for title, rows_of_shape in found]
    return PlotGroup(f"{what} by backend", NOTE, tuple(panels))


def overview_plots(groups: Sequence[tuple[str, Sequence[Row]]]) -> PlotGroup:
    """Latency of every model at its smallest shape; groups: (title, rows of one table)."""
    unit = units.time_unit(row.latency_ns.median for _, rows in groups for row in rows if row.latency_ns)
    found = []
    for title, rows in groups:
        shown = drawable(rows)
        key, smallest = shapes(shown)[0]
        found.append((f"{title}, {shape_name(key)}", smallest, labels(shown)))
    log = _far_apart(smallest for _, smallest, _ in found)
    panels = [_latency(title, smallest, names, unit, log) for title, smallest, names in found]
    return PlotGroup("Every model at its smallest shape", NOTE, tuple(panels))


def speedup_plots(rows: Sequence[Row], baseline: str) -> PlotGroup | None:
    """Speed relative to the baseline, one panel a shape; None where no row has a baseline but itself."""
    shown = [row for row in drawable(rows) if not (row.speedup and row.speedup.baseline == row.case_id)]
    if not any(row.speedup for row in shown):
        return None
    names = labels(drawable(rows))
    limits = _ratio_limits(shown)
    panels = [_speedup(shape_name(key), found, names, limits) for key, found in shapes(shown)]
    note = " ".join([SPEEDUP_NOTE, *([ranking.DOUBT_MEANS] if any(map(ranking.is_doubtful, shown)) else [])])
    return PlotGroup(f"Speedup over {baseline} fp32", note, tuple(panels))


def _median(row: Row) -> Estimate | None:
    latency = row.latency_ns
    return None if latency is None else (latency.median, latency.ci95)


def _far_apart(panels: Iterable[Sequence[Row]]) -> bool:
    """Whether some panel needs a logarithmic axis: one kind of scale for all panels."""
    timed = [[row.latency_ns for row in rows if row.latency_ns] for rows in panels]
    return any(far_apart([(latency.median, latency.p95) for latency in found]) for found in timed)


def _latency(title: str, rows: Sequence[Row], names: Mapping[str, str], unit: TimeUnit, log: bool) -> Plot:
    ends = _ends(rows)
    axis: dict[str, Any] = log_axis([end / unit.ns for end in ends], 10) if log else {"rangemode": "tozero"}
    axis["title"] = {"text": f"{unit.name}{', log scale' if log else ''}"}
    return _panel(title, rows, names, _median, axis, unit.ns, singles=True)


def _speedup(title: str, rows: Sequence[Row], names: Mapping[str, str], limits: tuple[float, float]) -> Plot:
    def estimate(row: Row) -> Estimate | None:
        return None if row.speedup is None else (row.speedup.ratio, row.speedup.ci95)

    axis = log_axis(limits, 2)
    axis["ticktext"] = [f"{text}×" for text in axis["ticktext"]]
    axis["range"] = [short(math.log10(end)) for end in limits]
    axis["title"] = {"text": "speedup, log scale"}

    def mark(row: Row) -> str:
        return ranking.DOUBT if ranking.is_doubtful(row) else ""

    plot = _panel(title, rows, names, estimate, axis, 1, biggest_first=True, mark=mark)
    plot.layout["shapes"] = [
        {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"width": 1}}
    ]
    return plot


def _panel(
    title: str,
    rows: Sequence[Row],
    names: Mapping[str, str],
    estimate: Callable[[Row], Estimate | None],
    axis: dict[str, Any],
    divisor: float,
    singles: bool = False,
    biggest_first: bool = False,
    mark: Callable[[Row], str] = lambda _: "",
) -> Plot:
    """One line a row, best first from the top; a row without an estimate says why. mark: before a row's figure."""
    lines = list(rows)[:MAX_LINES]
    found = [(row, known) for row in lines if (known := estimate(row))]
    data: list[Trace] = [_bar(row, names, known, divisor) for row, known in found]
    if singles:
        data += _singles([row for row, _ in found], names, divisor)
    data += [_dot(row, names, known, divisor, mark(row)) for row, known in found]
    least = min((known[0] / divisor for _, known in found), default=1.0)
    data += [_absent(row, names, 0 if "rangemode" in axis else least) for row in lines if estimate(row) is None]
    ranked = [row for row, _ in sorted(found, key=lambda pair: pair[1][0], reverse=biggest_first)]
    absent = [row for row in lines if estimate(row) is None]
    order = list(dict.fromkeys(escape(names[row.case_id]) for row in reversed([*ranked, *absent])))
    y = {"type": "category", "categoryorder": "array", "categoryarray": order, "automargin": True}
    return Plot(title, AROUND_PX + LINE_PX * len(order), data, {"xaxis": axis, "yaxis": y, "showlegend": False})


def _dot(row: Row, names: Mapping[str, str], known: Estimate, divisor: float, mark: str) -> Trace:
    value = short(known[0] / divisor)
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [value],
        "y": [escape(names[row.case_id])],
        "text": [open_ended(f"{mark}{units.significant(value)}", known[1])],
        "textposition": "top center",
        "cliponaxis": False,
        "hovertext": [hover(row)],
        "marker": marker(row, colour(row)),
        "customdata": [tags(row)],
    }


def _bar(row: Row, names: Mapping[str, str], known: Estimate, divisor: float) -> Trace:
    """The interval alone, so that the processes stand on it and below the marker."""
    value = short(known[0] / divisor)
    return {
        "type": "scatter",
        "mode": "markers",
        "hoverinfo": "skip",
        "x": [value],
        "y": [escape(names[row.case_id])],
        "marker": {"opacity": 0},
        "error_x": whiskers(value, to_scale(known[1]), colour(row), divisor),
        "customdata": [tags(row)],
    }


def _singles(rows: Sequence[Row], names: Mapping[str, str], divisor: float) -> list[Trace]:
    """The processes behind each median, and a tick at p95."""
    timed = [(row, row.latency_ns) for row in rows if row.latency_ns]
    processes = [(row, value) for row, latency in timed for value in latency.process_medians]
    tails = [(row, latency.p95) for row, latency in timed if latency.p95 is not None]
    dots, ticks = (_points(found, names, divisor) for found in (processes, tails))
    dots["marker"] = {"size": 4, "opacity": 0.7, "color": [colour(row) for row, _ in processes]}
    edge = {"width": 1.6, "color": [colour(row) for row, _ in tails]}
    ticks["marker"] = {"size": 11, "symbol": "line-ns", "line": edge}
    return [dots, ticks]


def _points(found: Sequence[tuple[Row, float]], names: Mapping[str, str], divisor: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "hoverinfo": "skip",
        "x": [short(value / divisor) for _, value in found],
        "y": [escape(names[row.case_id]) for row, _ in found],
        "customdata": [tags(row) for row, _ in found],
    }


def _absent(row: Row, names: Mapping[str, str], x: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [short(x)],
        "y": [escape(names[row.case_id])],
        "text": [f"<i>{escape(absence(row))}</i>"],
        "textposition": "middle right",
        "hoverinfo": "skip",
        "customdata": [tags(row)],
    }


def _ratio_limits(rows: Sequence[Row]) -> tuple[float, float]:
    """One scale for all panels, with 1 in it."""
    found = [row.speedup for row in rows if row.speedup]
    ratios = [1.0, *(speedup.ratio for speedup in found)]
    return _limits(ratios, [bar for speedup in found if (bar := to_scale(speedup.ci95))])


def _limits(values: Sequence[float], intervals: Sequence[Interval]) -> tuple[float, float]:
    """Ends of an axis with a margin."""
    low = min([*values, *(interval.low for interval in intervals)])
    high = max([*values, *(interval.high for interval in intervals)])
    margin = max(1.15, (high / low) ** 0.06)
    return low / margin, high * margin


def _ends(rows: Sequence[Row]) -> list[float]:
    found = [row.latency_ns for row in rows if row.latency_ns]
    return [end for latency in found for end in (latency.median, latency.p95 or latency.median)]
