"""The same modules in several backends as stacked bars: where the difference in time comes from (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from harness.core.schemas import Row
from harness.measure.alike import Alike
from harness.measure.side_by_side import Column, Line, SideBySide, gain_of
from harness.render import units
from harness.render.chart_layers import COLOURS
from harness.render.html.dots import AROUND_PX
from harness.render.html.plot import Plot, PlotGroup, Trace, short, tags
from harness.render.units import TimeUnit

LINE_PX = 58

MAX_SEGMENTS = 14
"""Modules of a bar; the shortest of more stand together."""

NOTE = (
    "Segment: time in a module by itself, all blocks together, in the colour of its group; a kernel that fuses several "
    "modules is in what they share. Triangle: the latency measured without a profiler. Point at one for figures."
)

NO_KERNEL = " Hatched: no kernel ran on the GPU."
"""Said where a backend's own profiler tells kernels alone, which leave that time out."""


def stacked_plots(found: Alike) -> PlotGroup | None:
    """None where fewer than two backends tell modules."""
    modules = found.modules
    if modules is None:
        return None
    unit = units.time_unit(column.parts_ns for column in modules.columns)
    by_id = {row.case_id: row for row in found.rows}
    rows = [by_id[column.case_id] for column in modules.columns]
    order = list(COLOURS)
    known = [(_group(line, modules.columns), line) for line in _longest(modules)]
    # What is of one group stands together, the longest first.
    known.sort(key=lambda pair: order.index(pair[0]))
    data = [_segments(line, group, modules, rows, unit) for group, line in known]
    idle = any(column.idle_ns for column in modules.columns)
    data += [_idle(modules.columns, rows, unit)] if idle else []
    data.append(_latencies(modules.columns, rows, unit))
    names = [escape(column.name) for column in reversed(modules.columns)]
    layout = {
        "xaxis": {"title": {"text": f"time of one inference, {unit.name}"}, "rangemode": "tozero", "tickformat": ","},
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": names, "automargin": True},
        "barmode": "stack",
        "bargap": 0.35,
        "showlegend": False,
        "uniformtext": {"minsize": 10, "mode": "hide"},
    }
    title = f"{found.shape}: the same modules in each backend"
    note = NOTE + (NO_KERNEL if idle else "")
    return PlotGroup(title, note, (Plot("", AROUND_PX + LINE_PX * len(rows), data, layout),), wide=True)


def _longest(found: SideBySide) -> list[Line]:
    """The longest first, and the rest of many as one line."""
    lines = sorted((line for line in found.lines if _sum(line)), key=lambda line: -_sum(line))
    if len(lines) <= MAX_SEGMENTS:
        return lines
    rest = lines[MAX_SEGMENTS - 1 :]
    times = tuple(sum(line.times_ns[place] or 0 for line in rest) for place in range(len(found.columns)))
    return [*lines[: MAX_SEGMENTS - 1], Line(f"{len(rest)} shorter ones", times)]


def _sum(line: Line) -> int:
    return sum(spent or 0 for spent in line.times_ns)


def _segments(line: Line, group: str, found: SideBySide, rows: Sequence[Row], unit: TimeUnit) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "x": [None if spent is None else short(spent / unit.ns) for spent in line.times_ns],
        "y": [escape(column.name) for column in found.columns],
        "text": [escape(label(line))] * len(rows),
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertext": [_hover(line, found, place) for place in range(len(rows))],
        "marker": {"color": COLOURS[group], "line": {"color": "page", "width": 1}},
        "customdata": [tags(row) for row in rows],
    }


def label(line: Line) -> str:
    """The name within its block, or the end of its path: what has a chance to fit."""
    _, block, inside = line.name.partition(" (")[0].rpartition("*.")
    if block or " " in inside:
        return inside
    path, _, last = inside.rpartition(".")
    return last if last != "*" else f"{path.rpartition('.')[2]}.*"


def _hover(line: Line, found: SideBySide, place: int) -> str:
    spent, column = line.times_ns[place] or 0, found.columns[place]
    gain = gain_of(line)
    said, than = ("gains", "over") if gain >= 0 else ("loses", "to")
    return "<br>".join(
        (
            f"<b>{escape(line.name)}</b>",
            f"{escape(column.name)}: {units.duration(spent)}, {units.share(spent, column.parts_ns)} of its parts",
            f"{escape(found.fastest.name)} {said} {units.duration(abs(gain))} here {than} {escape(found.slowest.name)}",
        )
    )


def _group(line: Line, columns: Sequence[Column]) -> str:
    """The group in which the modules of a line spend most of their time."""
    sums = {"other": 0}
    for column in columns:
        for row in column.parts.layers:
            if row.name in line.modules or row.parent in line.modules:
                sums[row.group] = sums.get(row.group, 0) + row.self_ns
    return max(sums, key=lambda name: sums[name])


def _idle(columns: Sequence[Column], rows: Sequence[Row], unit: TimeUnit) -> Trace:
    """Behind the parts, up to the plain latency."""
    pattern = {"shape": "/", "size": 7, "solidity": 0.25, "fgcolor": "#aaaaaa", "bgcolor": "rgba(0,0,0,0)"}
    return {
        "type": "bar",
        "orientation": "h",
        "x": [short(column.idle_ns / unit.ns) if column.idle_ns else None for column in columns],
        "y": [escape(column.name) for column in columns],
        "hovertext": [
            f"{escape(column.name)}: no kernel running for {units.duration(column.idle_ns)} of its "
            f"{column.idle_share.of if column.idle_share else 'latency'}"
            for column in columns
        ],
        "marker": {"color": "rgba(0,0,0,0)", "pattern": pattern, "line": {"color": "#aaaaaa", "width": 1}},
        "customdata": [tags(row) for row in rows],
    }


def _latencies(columns: Sequence[Column], rows: Sequence[Row], unit: TimeUnit) -> Trace:
    latencies = [column.latency_ns for column in columns]
    said = ["" if found is None else f"measured latency {units.duration(found)}" for found in latencies]
    look: dict[str, Any] = {"symbol": "triangle-down", "size": 11, "color": "#000000"}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None if found is None else short(found / unit.ns) for found in latencies],
        "y": [escape(column.name) for column in columns],
        "hovertext": said,
        "marker": {**look, "line": {"color": "page", "width": 1}},
        "customdata": [tags(row) for row in rows],
    }
