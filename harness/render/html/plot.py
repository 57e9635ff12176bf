"""Charts as plotly.js reads them: dictionaries of traces and axes (pure; plotly.com/javascript/reference).

Colours are those of the other report's charts; the page's script fits them to the light or dark theme: `<colour> tint`
is mixed with the page, `page` is the page's own colour. Every point carries the row it stands for, by which the page
filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from harness.core.schemas import Interval, Row
from harness.measure.grades import MAX_PRINTED_FACTOR
from harness.render import ranking, units
from harness.render.series import named
from harness.render.style import GREY, look
from harness.render.ticks import log_ticks

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
"""matplotlib's marker → plotly's, so that a backend has the same one in both reports."""


@dataclass(frozen=True)
class Plot:
    """One panel: its heading, its height in CSS pixels, traces and axes."""

    title: str
    height: int
    data: list[Trace]
    layout: dict[str, Any]


@dataclass(frozen=True)
class PlotGroup:
    """Panels that share a heading and an explanation; wide: few panels, each over half of the page."""

    title: str
    note: str
    plots: tuple[Plot, ...]
    wide: bool = False


def tags(row: Row) -> list[str]:
    """What the page filters by: backend, precision, batch, grade."""
    return [row.backend, row.precision, str(row.batch_size), row.grade or row.status]


def colour(row: Row) -> str:
    """The backend's colour; grey where the row is not ranked."""
    return look(row.backend).colour if ranking.is_ranked(row) else GREY


def marker(row: Row, own: str, size: float = 10) -> dict[str, Any]:
    """Solid for fp32, tinted for other precisions, hollow where the row is not ranked; own: the colour of its edge."""
    fill = "page" if not ranking.is_ranked(row) else own if row.precision == "fp32" else f"{own} tint"
    line = {"color": own, "width": 1.6}
    return {"symbol": SYMBOLS[look(row.backend).marker], "size": size, "color": fill, "line": line}


def whiskers(value: float, interval: Interval | None, own: str, divisor: float = 1) -> dict[str, Any]:
    """The 95% interval around a value, as plotly's error bar, paler than what stands on it; none without one.

    What is too wide to print is not drawn (units.to_scale): `open_ended` says so beside the marker.
    """
    if interval is None:
        return {"visible": False}
    up, down = interval.high / divisor - value, value - interval.low / divisor
    return {
        "type": "data",
        "symmetric": False,
        "array": [short(up)],
        "arrayminus": [short(down)],
        "color": f"{own} tint",
        "thickness": 6,
        "width": 0,
    }


WIDE_MARK = "↔"
WIDE_NOTE = f"{WIDE_MARK}: interval wider than ×{MAX_PRINTED_FACTOR:g}, not drawn."


def open_ended(text: str, interval: Interval | None) -> str:
    """A label, marked where the interval of its point is not drawn."""
    return f"{text} {WIDE_MARK}".strip() if interval is not None and units.to_scale(interval) is None else text


def hover(row: Row) -> str:
    """What stands beside a point under the pointer, as plotly's own few tags: all names in it are escaped."""
    sequence = f", sequence {row.sequence_length}" if row.sequence_length else ""
    lines = [f"<b>{escape(named(row))}</b>", f"batch {row.batch_size}{sequence}"]
    latency = row.latency_ns
    if latency is not None:
        unit = units.time_unit([latency.median])
        lines.append(f"{units.in_unit(latency.median, unit)} {unit.name} {units.interval(latency.ci95, unit.ns)}")
        if latency.p95 is not None:
            lines.append(f"p95 {units.duration(latency.p95)}, {units.count(latency.rounds, 'process', 'processes')}")
    if row.throughput_per_s is not None:
        ends = f" {units.interval(row.throughput_ci95)}" if row.throughput_ci95 else ""
        lines.append(f"{units.significant(row.throughput_per_s)} {units.ITEMS[row.kind]}/s{ends}")
    if row.speedup is not None and row.speedup.baseline != row.case_id:
        doubt = f" ({ranking.DOUBT_MEANS.removesuffix('.')})" if ranking.is_doubtful(row) else ""
        lines.append(f"{ranking.speedup(row)}× baseline {units.interval(row.speedup.ci95)}{doubt}")
    flags = ", ".join(dict.fromkeys(escape(flag.name) for flag in row.flags))
    lines.append(f"grade {row.grade}{': ' if flags else ''}{flags}")
    return "<br>".join(lines)


def short(value: float) -> float:
    """Six significant digits: more than a screen shows."""
    return float(f"{value:.6g}")


def log_axis(values: Iterable[float], base: int) -> dict[str, Any]:
    """A logarithmic axis with ticks that people count in."""
    found = [value for value in values if value > 0] or [1.0]
    ticks = log_ticks(min(found), max(found), base)
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}
