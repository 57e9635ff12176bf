"""Draws a specification for plotly.js: dictionaries of traces and axes (pure; plotly.com/javascript/reference).

The page's script fits colours to the light or dark theme: `<colour> tint` is mixed with the page, `page` is the page's
own colour. Every point has the tags of its row (`customdata`), by which the page filters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from harness.reporting.charts.spec import (
    Absent,
    Area,
    Areas,
    Axis,
    Bar,
    DotPanel,
    Dots,
    Heat,
    HeatPanel,
    LabelSide,
    LinePanel,
    Lines,
    Mark,
    Series,
    Spec,
    Stacked,
    Tags,
    label_sides,
)
from harness.reporting.charts.style import GREY, Look, shade

Trace = dict[str, Any]

SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "v": "triangle-down",
    "<": "triangle-left",
    ">": "triangle-right",
    "D": "diamond",
    "P": "cross",
    "X": "x",
    "h": "hexagon",
    "p": "pentagon",
    "*": "star",
    "8": "octagon",
}
"""matplotlib's marker → plotly's, so that a backend has the same marker in both reports."""

LINE_PX = 36
"""Height of one line of dots."""

DENSE_PX = 24
"""Height of one line of dots in a chart of more than DENSE lines."""

DENSE = 14

BAR_PX = 58
"""Height of a stacked bar."""

CELL_PX = 40
"""Height of a cell of a heat map."""

AROUND_PX = 64
"""Height of the axis and its label."""

PANEL_PX = 340
"""Height of a panel of lines."""

AREAS_PX = 270
"""Height of a panel of areas."""

WIDE_MARK = "↔"
"""Shown beside a marker whose interval is too wide to draw."""

WARM_MARK = "→"
"""Shown beside a marker whose compile cache was warm."""


@dataclass(frozen=True)
class Plot:
    """One panel: its heading, its height in CSS pixels (without a legend: the page's width decides on that), traces and
    axes."""

    title: str
    height: int
    data: list[Trace]
    layout: dict[str, Any]


@dataclass(frozen=True)
class PlotGroup:
    """Panels that share a heading and an explanation; wide: few panels, each wider than half of the page."""

    title: str
    note: str
    plots: tuple[Plot, ...]
    wide: bool = False


def draw(spec: Spec) -> PlotGroup:
    """The panels of a chart."""
    if isinstance(spec, Dots):
        plots = [_dot_panel(panel) for panel in spec.panels]
        return PlotGroup(spec.heading, spec.reading, tuple(plots), wide=len(plots) == 1)
    if isinstance(spec, Lines):
        note = f"{spec.reading} A click on a name hides its line."
        return PlotGroup(spec.heading, note, tuple(_line_panel(panel) for panel in spec.panels), wide=True)
    if isinstance(spec, Heat):
        return PlotGroup(spec.heading, spec.reading, tuple(_heat_panel(panel, spec.colour) for panel in spec.panels))
    if isinstance(spec, Areas):
        return PlotGroup(spec.heading, spec.reading, (_areas(spec),), wide=True)
    return PlotGroup(spec.heading, spec.reading, (_stacked(spec),), wide=True)


def short(value: float) -> float:
    """Six significant digits: more than a screen shows."""
    return float(f"{value:.6g}")


def _axis(axis: Axis) -> dict[str, Any]:
    """Limits and scale. Ticks of a linear axis are plotly's own, because they change when a reader zooms."""
    layout: dict[str, Any] = {"title": {"text": escape(axis.label)}}
    if axis.scale == "linear":
        suffix = {"ticksuffix": axis.suffix} if axis.suffix else {}
        return {
            **layout,
            **suffix,
            "separatethousands": True,
            "exponentformat": "none",
            "range": [short(axis.low), short(axis.high)],
        }
    ticks = {"tickvals": list(axis.ticks), "ticktext": [axis.text(tick) for tick in axis.ticks]}
    return {**layout, "type": "log", **ticks, "range": [short(math.log10(axis.low)), short(math.log10(axis.high))]}


def _shapes(axis: Axis) -> list[dict[str, Any]]:
    """The line and the band of an x axis."""
    upright = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1}
    band = axis.band
    shapes: list[dict[str, Any]] = []
    if band is not None:
        grey = {"fillcolor": GREY, "opacity": 0.2, "line": {"width": 0}}
        shapes.append({"type": "rect", **upright, "x0": short(band[0]), "x1": short(band[1]), **grey})
    if axis.reference is not None:
        shapes.append({"type": "line", **upright, "x0": axis.reference, "x1": axis.reference, "line": {"width": 1}})
    return shapes


def _marker(mark: Mark, size: float) -> dict[str, Any]:
    return {
        "symbol": SYMBOLS[mark.look.marker],
        "size": size,
        "color": _face(mark.look, mark.fill),
        "line": {"color": mark.colour, "width": 1.6},
    }


def _face(look: Look, fill: str) -> str:
    return {"solid": look.colour, "tint": f"{look.colour} tint", "hollow": "page", "open": "page"}[fill]


def _whiskers(mark: Mark) -> dict[str, Any]:
    """The interval around a value as plotly's error bar, paler than the marks on it."""
    if mark.interval is None:
        return {"visible": False}
    return {
        "type": "data",
        "symmetric": False,
        "array": [short(mark.interval.high - mark.value)],
        "arrayminus": [short(mark.value - mark.interval.low)],
        "color": f"{mark.colour} tint",
        "thickness": 6,
        "width": 0,
    }


def _text(mark: Mark) -> str:
    return escape(" ".join(filter(None, (mark.text, WIDE_MARK * mark.wide, WARM_MARK * mark.warm))))


# --- dots ---------------------------------------------------------------------------------------------------------


def _dot_panel(panel: DotPanel) -> Plot:
    """One line per label, the best at the top; a line without a mark says why."""
    marks = {label: mark for label, mark in panel.lines.items() if isinstance(mark, Mark)}
    lost = {label: mark for label, mark in panel.lines.items() if isinstance(mark, Absent)}
    start = _begin(panel.axis) if panel.axis.reference is None else panel.axis.reference
    # Bars below processes below markers.
    data = [_bar_of(label, mark) for label, mark in marks.items()]
    data += _processes(marks)
    data += [_dot(label, mark) for label, mark in marks.items()]
    data += [_absent(label, mark, start) for label, mark in lost.items()]
    order = [escape(label) for label in reversed(list(panel.lines))]
    y = {"type": "category", "categoryorder": "array", "categoryarray": order, "automargin": True}
    layout = {"xaxis": _axis(panel.axis), "yaxis": y, "showlegend": False, "shapes": _shapes(panel.axis)}
    height = LINE_PX if len(order) <= DENSE else DENSE_PX
    return Plot(panel.title.replace("\n", ", "), AROUND_PX + height * len(order), data, layout)


def _begin(axis: Axis) -> float:
    """A place just inside the panel: rounding may move its edge, and what is beyond the edge is not drawn."""
    if axis.scale == "linear":
        return axis.low + 0.01 * (axis.high - axis.low)
    return float(axis.low * (axis.high / axis.low) ** 0.01)


def _dot(label: str, mark: Mark) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [short(mark.value)],
        "y": [escape(label)],
        "text": [_text(mark)],
        "textposition": "top center",
        "cliponaxis": False,
        "hovertext": [mark.hover],
        "marker": _marker(mark, 10),
        "customdata": [mark.tags],
    }


def _bar_of(label: str, mark: Mark) -> Trace:
    """The interval as a separate trace: the processes are drawn on it and below the marker."""
    return {
        "type": "scatter",
        "mode": "markers",
        "hoverinfo": "skip",
        "x": [short(mark.value)],
        "y": [escape(label)],
        "marker": {"opacity": 0},
        "error_x": _whiskers(mark),
        "customdata": [mark.tags],
    }


def _processes(marks: dict[str, Mark]) -> list[Trace]:
    """The processes of each median, and a tick at p95; nothing where no mark has either."""
    singles = [(label, mark, value) for label, mark in marks.items() for value in mark.singles]
    tails = [(label, mark, mark.tail) for label, mark in marks.items() if mark.tail is not None]
    traces = []
    if singles:
        colours = [mark.colour for _, mark, _ in singles]
        traces.append({**_points(singles), "marker": {"size": 4, "opacity": 0.7, "color": colours}})
    if tails:
        edge = {"width": 1.6, "color": [mark.colour for _, mark, _ in tails]}
        traces.append({**_points(tails), "marker": {"size": 11, "symbol": "line-ns", "line": edge}})
    return traces


def _points(points: Sequence[tuple[str, Mark, float]]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "hoverinfo": "skip",
        "x": [short(value) for _, _, value in points],
        "y": [escape(label) for label, _, _ in points],
        "customdata": [mark.tags for _, mark, _ in points],
    }


def _absent(label: str, absent: Absent, x: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "text",
        "x": [short(x)],
        "y": [escape(label)],
        "text": [f"<i>{escape(absent.word)}</i>"],
        "textposition": "middle right",
        "hoverinfo": "skip",
        "customdata": [absent.tags],
    }


# --- lines --------------------------------------------------------------------------------------------------------


def _line_panel(panel: LinePanel) -> Plot:
    # Curve and marks of one name share an entry: the first series of the name has the look of the line.
    first = {series.name: series for series in reversed(panel.series)}
    beside = {id(point): _SIDES[side] for point, side in label_sides(panel)}
    data = [
        trace
        for series in panel.series
        for trace in (*_series(series, beside), *([_entry(series)] if first[series.name] is series else []))
    ]
    shapes = _shapes(panel.x)
    if panel.y.reference is not None:
        level = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": panel.y.reference, "y1": panel.y.reference}
        shapes.append({"type": "line", **level, "line": {"width": 1}})
    return Plot(panel.title, PANEL_PX, data, {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "shapes": shapes})


_SIDES: dict[LabelSide, str] = {
    "right": "middle right",
    "left": "middle left",
    "above": "top center",
    "below": "bottom center",
}


def _series(series: Series, beside: Mapping[int, str]) -> Iterable[Trace]:
    """One trace for a line; without a line, one trace per point, because each point has its own interval.

    beside: place of the text of a point, by its id().
    """
    parts = [series.points] if series.joined else [(point,) for point in series.points]
    for points in parts:
        marks = [point.mark for point in points]
        looks = [_marker(mark, 9 if series.joined else 11) for mark in marks]
        yield {
            "type": "scatter",
            "mode": _mode(series),
            "showlegend": False,
            "legendgroup": escape(series.name),
            "x": [short(point.x) for point in points],
            "y": [short(mark.value) for mark in marks],
            "text": [_text(mark) for mark in marks],
            "textposition": beside.get(id(points[0]), "middle right"),
            "cliponaxis": False,
            "hovertext": [mark.hover for mark in marks],
            "line": {"color": series.look.colour, "width": 2, "dash": _dash(series)},
            "marker": {
                "size": looks[0]["size"],
                "symbol": looks[0]["symbol"],
                "color": [look["color"] for look in looks],
                "line": {"width": 1.6, "color": [look["line"]["color"] for look in looks]},
            },
            **({} if series.joined else {"error_y": _whiskers(marks[0])}),
            "customdata": [mark.tags for mark in marks],
        }


def _mode(series: Series) -> str:
    if not series.joined:
        return "markers+text"
    return "lines+markers" if series.marked else "lines"


def _entry(series: Series) -> Trace:
    """The legend's entry of a series: its own look, whatever the grade of its first point."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if series.joined else "markers",
        "name": escape(series.name),
        "legendgroup": escape(series.name),
        "x": [None],
        "y": [None],
        "line": {"color": series.look.colour, "width": 2, "dash": _dash(series)},
        "marker": {
            "symbol": SYMBOLS[series.look.marker],
            "size": 9,
            "color": _face(series.look, series.fill),
            "line": {"color": series.look.colour, "width": 1.6},
        },
        "customdata": [series.tags],
    }


def _dash(series: Series) -> str:
    return ",".join(f"{2 * length:g}px" for length in series.dashes) or "solid"


# --- heat maps ----------------------------------------------------------------------------------------------------


def _heat_panel(panel: HeatPanel, colour: str) -> Plot:
    """Cells as lists of equal length, so that the page's filters find the tags of each."""
    cells = [
        (escape(x), escape(y), cell)
        for y, line in zip(panel.y, panel.cells, strict=True)
        for x, cell in zip(panel.x, line, strict=True)
    ]
    trace: Trace = {
        "type": "heatmap",
        "x": [x for x, _, _ in cells],
        "y": [y for _, y, _ in cells],
        "z": [None if cell.value is None else short(cell.value) for _, _, cell in cells],
        "text": [f"<b>{escape(cell.text)}</b>" if cell.strong else escape(cell.text) for _, _, cell in cells],
        "texttemplate": "%{text}",
        "textfont": {"size": 11},
        "hovertext": [cell.hover for _, _, cell in cells],
        "colorscale": [[0, shade(colour, 0.1)], [1, colour]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "customdata": [panel.tags] * len(cells),
    }
    # Categories of x are in the order of the cells; the page's script orders those of y.
    order = [escape(name) for name in reversed(panel.y)]
    layout = {
        "xaxis": {"type": "category", "title": {"text": escape(panel.x_label)}},
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
            "title": {"text": escape(panel.y_label)},
            "automargin": True,
        },
        "shapes": [_frame(row, column, len(panel.y)) for row, line in enumerate(panel.cells)
                   for column, cell in enumerate(line) if cell.chosen],
    }  # fmt: skip
    return Plot(panel.title, AROUND_PX + CELL_PX * len(panel.y), [trace], layout)


def _frame(row: int, column: int, rows: int) -> dict[str, Any]:
    """A frame around a cell; categories of y count from the bottom."""
    at = rows - 1 - row
    place = {"x0": column - 0.47, "x1": column + 0.47, "y0": at - 0.45, "y1": at + 0.45}
    return {"type": "rect", "layer": "above", "xref": "x", "yref": "y", **place, "line": {"width": 2}}


# --- areas --------------------------------------------------------------------------------------------------------


def _areas(spec: Areas) -> Plot:
    data = [
        {
            **_steps(area),
            "fill": "tonexty" if place else "tozeroy",
            "fillcolor": area.colour,
            "line": {"width": 0, "shape": "hv"},
        }
        for place, area in enumerate(spec.areas)
    ]
    if spec.outline:
        data.append({**_steps(spec.outline), "line": {"width": 1.5, "shape": "hv", "color": spec.outline.colour}})
    place, height, text = spec.peak
    late = place > len(spec.areas[0].tops) / 2
    peak = {"x": place + late, "y": short(height), "text": escape(text), "showarrow": False, "yshift": 10}
    layout = {
        "xaxis": _axis(spec.x),
        "yaxis": _axis(spec.y),
        "annotations": [{**peak, "xanchor": "right" if late else "left"}],
    }
    return Plot("", AREAS_PX, data, layout)


def _steps(area: Area) -> Trace:
    """A line of steps; a step lasts until the next one, and so does the last."""
    every: Tags = (None,) * 5
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escape(area.name),
        "x": list(range(len(area.tops) + 1)),
        "y": [short(top) for top in (*area.tops, area.tops[-1])],
        "customdata": [every] * (len(area.tops) + 1),
    }


# --- stacked bars -------------------------------------------------------------------------------------------------


def _stacked(spec: Stacked) -> Plot:
    bars = spec.bars
    drawn = {segment.name for bar in bars for segment in bar.segments}
    data = [_segments(name, bars) for name in spec.order if name in drawn]
    if spec.idle:
        data.append(_idle(spec.idle, bars))
    data.append(_latencies(bars))
    every: Tags = (None,) * 5
    data += [_group(name, colour, every) for name, colour in spec.legend]
    y = {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": [escape(bar.label) for bar in reversed(bars)],
        "automargin": True,
    }
    layout = {
        "xaxis": {**_axis(spec.axis), "tickformat": ",~g"},
        "yaxis": y,
        "barmode": "stack",
        "bargap": 0.35,
        "uniformtext": {"minsize": 10, "mode": "hide"},
    }
    return Plot("", AROUND_PX + BAR_PX * len(bars), data, layout)


def _segments(name: str, bars: Sequence[Bar]) -> Trace:
    segments = [next((segment for segment in bar.segments if segment.name == name), None) for bar in bars]
    first = next(segment for segment in segments if segment)
    return {
        "type": "bar",
        "orientation": "h",
        "showlegend": False,
        "x": [None if segment is None else short(segment.length) for segment in segments],
        "y": [escape(bar.label) for bar in bars],
        "text": [escape(first.labels[0] if first.labels else "")] * len(bars),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertext": [segment.hover if segment else "" for segment in segments],
        "marker": {"color": first.colour, "line": {"color": "page", "width": 1}},
        "customdata": [bar.tags for bar in bars],
    }


def _group(name: str, colour: str, tags: Tags) -> Trace:
    """An entry of the legend, without a bar: the colour of a group."""
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(name),
        "x": [None],
        "y": [None],
        "hoverinfo": "skip",
        "marker": {"color": colour},
        "customdata": [tags],
    }


def _idle(name: str, bars: Sequence[Bar]) -> Trace:
    """The bars behind the parts, up to the latency."""
    pattern = {"shape": "/", "size": 7, "solidity": 0.25, "fgcolor": "#aaaaaa", "bgcolor": "rgba(0,0,0,0)"}
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape(name),
        "x": [short(bar.idle) if bar.idle else None for bar in bars],
        "y": [escape(bar.label) for bar in bars],
        "hovertext": [bar.idle_hover for bar in bars],
        "marker": {"color": "rgba(0,0,0,0)", "pattern": pattern, "line": {"color": "#aaaaaa", "width": 1}},
        "customdata": [bar.tags for bar in bars],
    }


def _latencies(bars: Sequence[Bar]) -> Trace:
    look: dict[str, Any] = {"symbol": "triangle-down", "size": 11, "color": "#000000"}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "measured latency",
        "x": [None if bar.latency is None else short(bar.latency) for bar in bars],
        "y": [escape(bar.label) for bar in bars],
        "hovertext": [bar.latency_hover for bar in bars],
        "marker": {**look, "line": {"color": "page", "width": 1}},
        "customdata": [bar.tags for bar in bars],
    }
