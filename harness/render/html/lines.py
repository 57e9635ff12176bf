"""Throughput against batch size, and start-up cost against speedup (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from harness.core.schemas import Row
from harness.render import ranking, units
from harness.render.chart_dots import shape_name
from harness.render.chart_lines import LOG_FROM, MAX_LENGTHS, MAX_LINES
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
from harness.render.series import labels
from harness.render.style import look
from harness.render.units import SECOND
from harness.reporting.figures import until_first_answer_ns

HEIGHT_PX = 380

THROUGHPUT_NOTE = (
    "Items divided by the wall time of the timed loop, median over processes. Dashed: not fp32; grey and hollow: "
    "flagged, not ranked. A click on a name hides its line."
)
COLD_NOTE = (
    "Load, compile and first inference of a new process; imports, ONNX export and engines not included. Upper left "
    "is best. Bar: 95% CI of the speedup. Tinted: not fp32; hollow: flagged, not ranked. "
    f"{WIDE_NOTE}"
)


def throughput_plots(rows: Sequence[Row]) -> PlotGroup | None:
    """Items per second against batch size, one panel a sequence length; None with a single batch size."""
    shown = [row for row in rows if row.throughput_per_s is not None]
    if len({row.batch_size for row in shown}) < 2:
        return None
    lengths = sorted({row.sequence_length or 0 for row in shown})[:MAX_LENGTHS]
    names = labels(shown)
    panels = [
        _throughput(
            f"sequence length {length}" if length else "",
            [row for row in shown if (row.sequence_length or 0) == length],
            names,
        )
        for length in lengths
    ]
    return PlotGroup("Throughput against batch size", THROUGHPUT_NOTE, tuple(panels), wide=True)


def cold_plots(rows: Sequence[Row], baseline: str) -> PlotGroup | None:
    """Speedup against the seconds until the first answer, for the smallest and the largest shape."""
    timed = [row for row in rows if row.cold_ns and row.speedup]
    if not any(row.speedup and row.speedup.baseline != row.case_id for row in timed):
        return None
    shapes = ranking.by_shape(timed)
    shown = shapes if len(shapes) < 2 else [shapes[0], shapes[-1]]
    panels = [_cold(shape_name(key), found, labels(timed), baseline) for key, found in shown]
    drawn = [row for _, found in shown for row in found]
    cached = any(row.cold_ns and row.cold_ns.compile_cached for row in drawn)
    notes = [COLD_NOTE, "Cached: its compile cache was warm, a first start takes longer." if cached else ""]
    notes += [ranking.DOUBT_MEANS if any(map(ranking.is_doubtful, drawn)) else ""]
    return PlotGroup("Until the first answer, against speedup", " ".join(filter(None, notes)), tuple(panels), wide=True)


def _throughput(title: str, rows: Sequence[Row], names: Mapping[str, str]) -> Plot:
    lines: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.batch_size):
        lines.setdefault(names[row.case_id], []).append(row)
    # The best at the largest batch first: the legend then reads as the line ends do.
    ordered = sorted(lines.items(), key=lambda item: (-item[1][-1].batch_size, -(item[1][-1].throughput_per_s or 0)))
    batches = sorted({row.batch_size for row in rows})
    rates = [row.throughput_per_s for row in rows if row.throughput_per_s]
    log = max(rates) > LOG_FROM * min(rates)
    y: dict[str, Any] = log_axis(rates, 10) if log else {"rangemode": "tozero"}
    y["title"] = {"text": f"{units.ITEMS[rows[0].kind]} per second{', log scale' if log else ''}"}
    x = {"type": "log", "tickvals": batches, "ticktext": [str(size) for size in batches], "title": {"text": "batch"}}
    data = [trace for name, found in ordered[:MAX_LINES] for trace in (_line(name, found), _entry(name, found[0]))]
    return Plot(title, HEIGHT_PX, data, {"xaxis": x, "yaxis": y})


def _entry(name: str, row: Row, lines: bool = True) -> Trace:
    """What the legend shows of a series, or without lines of a backend in all its precisions: its own look, whatever
    grade its first point has."""
    own = look(row.backend).colour
    fill = own if row.precision == "fp32" or not lines else f"{own} tint"
    return {
        "type": "scatter",
        "mode": "lines+markers" if lines else "markers",
        "name": escape(name),
        "legendgroup": escape(name),
        "x": [None],
        "y": [None],
        "line": {"color": own, "width": 2, "dash": _dash(row)},
        "marker": {**marker(row, own, 9), "color": fill},
        "customdata": [[row.backend, row.precision if lines else None, None, None]],
    }


def _dash(row: Row) -> str:
    return "solid" if row.precision == "fp32" else "dash"


def _line(name: str, rows: Sequence[Row]) -> Trace:
    own = look(rows[0].backend).colour
    looks = [marker(row, colour(row), 9) for row in rows]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "showlegend": False,
        "legendgroup": escape(name),
        "x": [row.batch_size for row in rows],
        "y": [short(row.throughput_per_s or 0) for row in rows],
        "hovertext": [hover(row) for row in rows],
        "line": {"color": own, "width": 2, "dash": _dash(rows[0])},
        "marker": {
            "size": 9,
            "symbol": looks[0]["symbol"],
            "color": [style["color"] for style in looks],
            "line": {"width": 1.6, "color": [style["line"]["color"] for style in looks]},
        },
        "customdata": [tags(row) for row in rows],
    }


def _label(row: Row, precision: str) -> str:
    """Precision, and what must be known of the point: doubt, a warm compile cache, an interval that is not drawn."""
    doubt = ranking.DOUBT if ranking.is_doubtful(row) else ""
    cached = ", cached" if row.cold_ns and row.cold_ns.compile_cached else ""
    return open_ended(f"{doubt}{precision}{cached}", row.speedup.ci95 if row.speedup else None)


def _cold(title: str, rows: Sequence[Row], names: Mapping[str, str], baseline: str) -> Plot:
    data: list[Trace] = []
    ends = [1.0]
    seconds = []
    backends: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: -(row.speedup.ratio if row.speedup else 0)):
        assert row.cold_ns is not None and row.speedup is not None  # noqa: PT018, S101 - chosen by cold_plots
        spent = until_first_answer_ns(row.cold_ns) / SECOND.ns
        ratio = short(row.speedup.ratio)
        seconds.append(spent)
        ends.append(ratio)
        backends.setdefault(row.backend, row)
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "showlegend": False,
                "legendgroup": escape(row.backend),
                "x": [short(spent)],
                "y": [ratio],
                "hovertext": [f"{hover(row)}<br>first answer after {units.significant(spent)} s"],
                # Precision beside the marker, backend by colour and shape: names in full would cover each other.
                "text": [escape(_label(row, names[row.case_id].removeprefix(row.backend).strip()))],
                "textposition": "middle right",
                "cliponaxis": False,
                "marker": marker(row, look(row.backend).colour, 11),
                "error_y": whiskers(ratio, units.to_scale(row.speedup.ci95), look(row.backend).colour),
                "customdata": [tags(row)],
            }
        )
    data += [_entry(name, row, lines=False) for name, row in backends.items()]
    y = log_axis(ends, 2)
    y["ticktext"] = [f"{text}×" for text in y["ticktext"]]
    y["title"] = {"text": f"speedup over {escape(baseline)} fp32"}
    x = {**log_axis(seconds, 10), "title": {"text": "seconds until the first answer, log scale"}}
    return Plot(title, HEIGHT_PX, data, {"xaxis": x, "yaxis": y})
