"""The charts of load: latency and goodput against load, and the map of batching policies (pure)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np

from harness.core import units
from harness.core.schemas import Interval, LoadedPoint, LoadRow, MapCell, PredictedPoint
from harness.core.schemas.load_record import Bounded
from harness.core.units import TimeUnit
from harness.reporting.charts.spec import (
    Axis,
    Fill,
    Heat,
    HeatCell,
    HeatPanel,
    LinePanel,
    Lines,
    Mark,
    Point,
    Series,
    Tags,
    axis_from_zero,
    decade_axis,
)
from harness.reporting.charts.style import Look, backend_look, precision_dashes
from harness.reporting.load_groups import (
    LoadGroup,
    bounded_percentile,
    delay_text,
    deployment,
    infinite_ns,
    is_withheld,
    knee_of,
    load_names,
    percentile_ns,
    ranked_loads,
    workers_text,
)
from harness.statistics.estimators import PERCENTILE_MIN_SAMPLES

MAX_DEPLOYMENTS = 8
"""Largest number of rows in one chart: the first of the ranking."""

HIGHEST = 6.0
"""Top of a latency panel in multiples of the bound: above it only the words `too late` are true."""

FILLS: Mapping[str, Fill] = {"PASS": "solid", "UNDECIDED": "tint", "FAIL": "open"}
"""Verdict → fill of a marker; hollow and grey where the load was not reached."""

LOG_FROM = 2.0
"""Ratio of the largest to the smallest capacity from which the loads have a logarithmic axis."""

WIDEST = 4.0
"""Ratio of the ends of an interval from which arrows replace it: it would cross the whole panel."""

KNEE = "*"
"""Marker of the knee."""


@dataclass(frozen=True)
class _Quantity:
    """The quantity of a panel: of a replayed and of a measured load, in units of the axis."""

    replayed: Callable[[PredictedPoint], float]
    measured: Callable[[LoadedPoint], tuple[float | None, Interval | None]]
    top: float | None = None
    """What is above leaves the panel. None for a share, in which the knee is not drawn either."""


def load_curve(key: LoadGroup, rows: Sequence[LoadRow], conditions: str) -> Lines | None:
    """Panels of p50, p99 and goodput of the server rows of one group; None without a sound row."""
    shown = [row for row in ranked_loads(rows) if row.scenario == "server" and row.bound][:MAX_DEPLOYMENTS]
    if not shown:
        return None
    called, bound = load_names(shown), shown[0].bound
    if bound is None:
        return None
    unit, of, word = units.time_unit([bound.limit_ns]), bound.of, _WORDS[bound.of]
    limit, at_p99 = bound.limit_ns / unit.ns, math.isclose(bound.quantile, 0.99)
    top = HIGHEST * limit
    p50 = _Quantity(lambda point: point.p50_ns / unit.ns, lambda point: _time(point, of, "p50", unit), top)
    p99 = _Quantity(lambda point: point.p99_ns / unit.ns, lambda point: _time(point, of, "p99", unit), top)
    good = _Quantity(lambda point: 100 * (1 - point.over_share), _good)
    x, y = _loads(shown), _times(shown, of, unit, top)
    of_p99 = replace(y, reference=limit) if at_p99 else y
    shares = axis_from_zero("requests within the bound", 100.0, 1.04, most=5, suffix="%")
    goodput = "goodput"
    if shown[0].bounds_text == bound.text and of != "itl":
        # With several bounds, and with one on times between tokens, no share of requests is the limit.
        least = 100 * bound.quantile
        shares, goodput = replace(shares, reference=least), f"goodput, at least {least:g}%"
    at_limit = f", bound {limit:g} {unit.name}" if at_p99 else ""
    times = (
        LinePanel(f"{word}p50{_source(shown, p50)}", x, y, _series(shown, called, p50)),
        LinePanel(f"{word}p99{_source(shown, p99)}{at_limit}", x, of_p99, _series(shown, called, p99)),
    )
    served = LinePanel(goodput, x, shares, _series(shown, called, good))
    # A running service has no replayed curve, and with few requests no p99: a panel may have nothing to show.
    panels = tuple(panel for panel in (*times, served) if panel.series)
    if not panels:
        return None
    legend = tuple(_entry(row, called[row.load_id], shown) for row in shown)
    parts = {"latency": any(panel.series for panel in times), "goodput": bool(served.series)}
    title = f"{' and '.join(name for name, drawn in parts.items() if drawn)} against load"
    reading = " ".join(filter(None, (_reading(shown, panels), _left_out(shown, of, (p50, p99), unit))))
    return Lines(f"{key.model}: {title}", title.capitalize(), reading, conditions, panels, legend, below=True)


def _source(rows: Sequence[LoadRow], of: _Quantity) -> str:
    """Where the lines of a panel come from, if it has no measured load: its loads may all be withheld or too high."""
    return "" if any(_fits(of, point) for row in rows for point in row.points) else " by replay"


def _left_out(rows: Sequence[LoadRow], of: Bounded, times: Sequence[_Quantity], unit: TimeUnit) -> str:
    """Why measured loads are in no panel of latencies, or not in all of them; empty where they are."""
    points = [point for row in rows for point in row.points]
    few = any(is_withheld(bounded_percentile(point, of, "p99")) for point in points)
    parts = [f"Loads with too few requests have no p99: it needs {PERCENTILE_MIN_SAMPLES[0.99]}."] if few else []
    top = times[0].top or math.inf
    if any(value > top for point in points for each in times if (value := each.measured(point)[0]) is not None):
        parts.append(f"Above {top:g} {unit.name} nothing is drawn.")
    return " ".join(parts)


def _reading(rows: Sequence[LoadRow], panels: Sequence[LinePanel]) -> str:
    parts = ["Markers: measured loads, median over replications with its 95% interval."]
    if _has_lines(rows):
        parts.append("Lines: replay of the measured service times.")
    parts.append("Filled: PASS; tinted: undecided; open: FAIL.")
    if any(point.verdict == "LOAD NOT REACHED" for row in rows for point in row.points):
        parts.append("Grey: load not reached.")
    if any(point.mark.wide for panel in panels for series in panel.series for point in series.points):
        parts.append(f"Arrows: interval wider than ×{WIDEST:g}.")
    if any(knee_of(row) for row in rows):
        parts.append("Star: the knee, the load with the largest rate by mean latency.")
    ends = any(point.over_low is not None and not point.judged for row in rows for point in row.points)
    parts.append(f"Goodput: share of all scheduled requests within the bound{', one-sided 99% ends' if ends else ''}.")
    return " ".join(parts)


def _has_lines(rows: Sequence[LoadRow]) -> bool:
    return any(row.predicted for row in rows)


_WORDS: Mapping[Bounded, str] = {"latency": "", "ttft": "TTFT ", "itl": "ITL "}


def _time(point: LoadedPoint, of: Bounded, name: str, unit: TimeUnit) -> tuple[float | None, Interval | None]:
    percentile = bounded_percentile(point, of, name)
    value = infinite_ns(percentile)
    ends = percentile.interval if percentile else None
    drawn = ends and Interval(low=ends.low / unit.ns, high=ends.high / unit.ns)
    return (None if value is None else value / unit.ns), drawn


def _good(point: LoadedPoint) -> tuple[float | None, Interval | None]:
    """The share within the bound in per cent, with its one-sided 99% ends; goodput, where there are several."""
    if point.judged:
        return (None if point.goodput is None else 100 * point.goodput), None
    if point.over_share is None:
        return None, None
    if point.over_low is None or point.over_high is None:
        return 100 * (1 - point.over_share), None
    return 100 * (1 - point.over_share), Interval(low=100 * (1 - point.over_high), high=100 * (1 - point.over_low))


def _series(rows: Sequence[LoadRow], called: Mapping[str, str], of: _Quantity) -> tuple[Series, ...]:
    """The curve, the knee and the measured loads of each row."""
    drawn = []
    for row in rows:
        name, style, line = called[row.load_id], _look(row, rows), _dashes(row, rows)
        curve = [
            Point(
                predicted.rate_per_s,
                Mark(of.replayed(predicted), style, hover=_hover(name, predicted), tags=load_tags(row)),
            )
            for predicted in row.predicted
        ]
        kept = tuple(point for point in curve if of.top is None or point.mark.value <= of.top)
        if kept:
            drawn.append(Series(name, style, "solid", kept, True, line, load_tags(row), marked=False))
        if of.top and (knee := knee_of(row)) is not None and kept and knee <= kept[-1].x:
            drawn.append(_knee(row, name, style, kept, knee))
        points = tuple(_measured(row, name, style, of, point) for point in row.points if _fits(of, point))
        if points:
            drawn.append(Series(name, style, "solid", points, False, (), load_tags(row)))
    return tuple(drawn)


def _fits(of: _Quantity, point: LoadedPoint) -> bool:
    value, _ = of.measured(point)
    return value is not None and (of.top is None or value <= of.top) and point.asked_per_s is not None


def _measured(row: LoadRow, name: str, style: Look, of: _Quantity, point: LoadedPoint) -> Point:
    value, ends = of.measured(point)
    if ends is not None and of.top is not None:
        ends = Interval(low=ends.low, high=min(ends.high, of.top))
    fill = FILLS.get(point.verdict or "", "hollow")
    wide = of.top is not None and ends is not None and ends.high > WIDEST * ends.low
    mark = Mark(
        value or 0.0, style, fill, None if wide else ends, wide, hover=_measured_hover(name, point), tags=load_tags(row)
    )
    return Point(point.asked_per_s or 0.0, mark)


def _knee(row: LoadRow, name: str, style: Look, curve: Sequence[Point], knee: float) -> Series:
    x = [math.log(point.x) for point in curve]
    y = [math.log(max(point.mark.value, 1e-9)) for point in curve]
    value = math.exp(float(np.interp(math.log(knee), x, y)))
    hover = f"<b>{escape(name)}</b><br>knee at {units.significant(knee)}/s"
    star = Look(style.colour, KNEE)
    return Series(
        name,
        star,
        "solid",
        (Point(knee, Mark(value, star, hover=hover, tags=load_tags(row))),),
        False,
        (),
        load_tags(row),
    )


def _entry(row: LoadRow, name: str, rows: Sequence[LoadRow]) -> Series:
    return Series(name, _look(row, rows), "solid", (), _has_lines(rows), _dashes(row, rows), load_tags(row))


def _look(row: LoadRow, rows: Sequence[LoadRow]) -> Look:
    return backend_look(deployment(row), _number(row, rows))


def _dashes(row: LoadRow, rows: Sequence[LoadRow]) -> tuple[float, ...]:
    return precision_dashes(row.precision, _number(row, rows))


def _number(row: LoadRow, rows: Sequence[LoadRow]) -> int:
    """Number of a row among the rows of its backend and precision."""
    same = [other.load_id for other in rows if (other.backend, other.precision) == (row.backend, row.precision)]
    return same.index(row.load_id)


def load_tags(row: LoadRow) -> Tags:
    """Values by which the page filters; a load has no batch and no grade of its own."""
    return (row.model, row.backend, row.precision, None, None)


def _loads(rows: Sequence[LoadRow]) -> Axis:
    loads = [point.asked_per_s or 0 for row in rows for point in row.points] + [
        predicted.rate_per_s for row in rows for predicted in row.predicted
    ]
    ends = [max((predicted.rate_per_s for predicted in row.predicted), default=loads[0]) for row in rows]
    if max(ends) < LOG_FROM * min(ends):
        return axis_from_zero("load (requests/s)", max(loads), 1.04, most=4)
    return decade_axis("load (requests/s), log scale", min(filter(None, loads)) / 1.1, max(loads) * 1.15)


def _times(rows: Sequence[LoadRow], of: Bounded, unit: TimeUnit, top: float) -> Axis:
    """One logarithmic axis for both percentiles."""
    values = [predicted.p50_ns / unit.ns for row in rows for predicted in row.predicted]
    measured = [infinite_ns(bounded_percentile(point, of, "p50")) for row in rows for point in row.points]
    values += [value / unit.ns for value in measured if value]
    lowest = min([*values, top / 10])
    return decade_axis(f"{_WORDS[of].strip() or 'latency'} ({unit.name}), log scale", lowest / 1.3, top * 1.05)


def _hover(name: str, point: PredictedPoint) -> str:
    return "<br>".join(
        (
            f"<b>{escape(name)}</b>, replayed",
            f"{units.significant(point.rate_per_s)}/s: p50 {units.duration(point.p50_ns)}",
            f"p99 {units.duration(point.p99_ns)}, of one replication {_ends(point.p99_band_ns)}",
            f"goodput {units.significant(point.goodput_per_s)}/s, batches of {units.significant(point.mean_batch)}",
        )
    )


def _ends(ends: Interval) -> str:
    return f"{units.duration(ends.low)} to {units.duration(ends.high)}"


def _measured_hover(name: str, point: LoadedPoint) -> str:
    lines = [f"<b>{escape(name)}</b>, measured: {point.verdict}", f"{units.significant(point.asked_per_s)}/s asked"]
    for percentile in ("p50", "p99"):
        value = percentile_ns(point, percentile)
        if value is not None:
            lines.append(f"{percentile} {units.duration(value) if math.isfinite(value) else '∞'}")
    if point.over_share is not None:
        lines.append(f"{point.over_share:.2%} over the bound, {units.count(point.replications, 'replication')}")
    return "<br>".join(lines)


MAX_PANELS = 4
"""Panels of one chart: the first of the ranking."""

COLOUR = "#0072B2"


def batching_map(key: LoadGroup, rows: Sequence[LoadRow], conditions: str) -> Heat | None:
    """The map of each server row that has one; None without any in which a policy meets the bound."""
    shown = [row for row in ranked_loads(rows) if len(row.map) > 1 and any(cell.rate_per_s for cell in row.map)]
    alike = {_deployed(row): row for row in reversed(shown)}
    kept = [row for row in shown if alike[_deployed(row)] is row][:MAX_PANELS]
    if not kept:
        return None
    called = load_names(kept, policy=False)
    panels = tuple(
        _panel(row, ", ".join(filter(None, (called[row.load_id], workers_text(row)))), ranked_loads(rows))
        for row in kept
    )
    bound = kept[0].bound.text if kept[0].bound else ""
    reading = (
        f"Cell: highest load within {bound}, in requests/s, by replay of the measured service times; not verified by "
        "itself. Bold: the highest. Framed: measured policies. A batch of one never waits. Colours: each panel by "
        "itself."
    )
    return Heat(f"{key.model}: batching map", "Batching map", reading, conditions, panels, COLOUR)


def _deployed(row: LoadRow) -> tuple[str, str, str, str]:
    """The common fields of rows that differ only in the measured policy."""
    return row.backend, row.precision, row.setting, workers_text(row)


def _panel(row: LoadRow, title: str, rows: Sequence[LoadRow]) -> HeatPanel:
    cells = {(cell.max_batch, cell.max_delay_ns): cell for cell in row.map}
    batches = sorted({batch for batch, _ in cells})
    delays = sorted({delay for _, delay in cells})
    measured = {(other.max_batch, other.max_delay_ns) for other in rows if _deployed(other) == _deployed(row)}
    best = max((cell.rate_per_s or 0.0 for cell in row.map), default=0.0)

    def cell(batch: int, delay: int) -> HeatCell:
        # A batch of one has one policy, whatever the delay.
        mapped = cells.get((batch, delay)) or cells.get((batch, 0))
        key = (batch, delay if batch > 1 else 0)
        return _cell(mapped, batch, delay, key in measured and (batch > 1 or delay == delays[0]), best)

    return HeatPanel(
        title,
        "largest delay (ms)",
        "largest batch",
        tuple(f"{delay / 1e6:g}" for delay in delays),
        tuple(map(str, reversed(batches))),
        tuple(tuple(cell(batch, delay) for delay in delays) for batch in reversed(batches)),
        load_tags(row),
    )


def _cell(cell: MapCell | None, batch: int, delay: int, chosen: bool, best: float) -> HeatCell:
    policy = f"batch {batch}, delay {delay_text(delay)}"
    if cell is None or cell.rate_per_s is None:
        return HeatCell(None, "no load", f"{policy}: no load meets the bound", chosen)
    text = units.significant(cell.rate_per_s)
    lines = [f"<b>{policy}</b>: {text}/s within the bound"]
    lines += [
        f"at {units.significant(point.rate_per_s)}/s: p99 {units.duration(point.p99_ns)}" for point in cell.points
    ]
    return HeatCell(cell.rate_per_s, text, "<br>".join(lines), chosen, cell.rate_per_s == best)
