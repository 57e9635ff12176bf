"""Which dots a summary gives: latency and speedup of one table, and the overview of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from harness.core.schemas import Interval, Row
from harness.measure.grades import MAX_PRINTED_FACTOR
from harness.render import ranking, units
from harness.render.dots import Axis, Dot, Panel, dot_figure
from harness.render.series import drawable, labels
from harness.render.style import look
from harness.render.units import TimeUnit

MAX_PANELS = 6
"""Shapes in one figure: the smallest, the largest and evenly between them."""

MAX_LINES = 14
"""Backends in one figure; the fastest stay."""

LOG_FROM = 8
"""Slowest over fastest median of a shape, or largest p95 over slowest, from which latencies stand on a log axis."""

FILLS = "Tinted: not fp32; grey and hollow: flagged, not ranked."
ARROWS = f"arrows: wider than ×{MAX_PRINTED_FACTOR:g}, not to scale"
MARKS = (
    f"Marker: median of process medians; bar: 95% CI over processes ({ARROWS}); small dots: the processes; line to the "
    f"tick: p95 (what is not to be seen is narrower than the marker). {FILLS}"
)

OFFLINE_MARKS = (
    "Marker: wall time of all blocks by their batches, median of the processes; bar: 95% CI over processes "
    f"({ARROWS}); small dots: the processes. {FILLS}"
)


def latency_figure(title: str, rows: Sequence[Row], caption: str) -> Figure:
    """Latency by backend, one panel a shape; `rows` are all rows of one table, measured or not."""
    shown = drawable(rows)
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    names = labels(shown)
    panels = [Panel(shape_name(key), _latency_dots(found, unit, names)) for key, found in shapes(shown)]
    offline = rows[0].mode == "offline"
    axis = "time per batch, throughput mode" if offline else "latency of one batch"
    marks = OFFLINE_MARKS if offline else MARKS
    return dot_figure(title, (marks, caption), panels, _time_axis(axis, unit, panels), _columns(panels))


def overview_figure(title: str, groups: Sequence[tuple[str, Sequence[Row]]], caption: str) -> Figure:
    """Latency of every model at its smallest shape, one panel a model."""
    panels = []
    unit = units.time_unit(row.latency_ns.median for _, rows in groups for row in rows if row.latency_ns)
    for model, rows in groups:
        shown = drawable(rows)
        key, found = shapes(shown)[0]
        panels.append(Panel(f"{model}\n{shape_name(key)}", _latency_dots(found, unit, labels(shown))))
    return dot_figure(title, (MARKS, caption), panels, _time_axis("latency", unit, panels), _columns(panels))


def far_apart(found: Sequence[tuple[float, float | None]]) -> bool:
    """Whether a linear axis would push together the medians of a panel; found: (median, p95 or None) of each row."""
    medians = [median for median, _ in found]
    tails = [tail or 0 for _, tail in found]
    return bool(found) and (max(medians) > LOG_FROM * min(medians) or max(tails) > LOG_FROM * max(medians))


def _time_axis(label: str, unit: TimeUnit, panels: Sequence[Panel]) -> Axis:
    """From 0, unless the slowest or the longest tail of some panel would push all others together there."""
    dots = [[dot for dot in panel.dots.values() if isinstance(dot, Dot)] for panel in panels]
    log = any(far_apart([(dot.value, dot.tail) for dot in found]) for found in dots)
    return Axis(f"{label} ({unit.name}{', log scale' if log else ''})", log=log)


def _columns(panels: Sequence[Panel]) -> int:
    """Panels beside each other: four stand two by two, others in threes."""
    return 2 if len(panels) == 4 else 3


def speedup_figure(title: str, rows: Sequence[Row], baseline: str, caption: str) -> Figure:
    """Speed relative to the baseline, one panel a shape, one scale for all."""
    shown = drawable(rows)
    names = labels(shown)
    panels = [Panel(shape_name(key), _speedup_dots(found, names)) for key, found in shapes(shown)]
    marks = f"Marker: median of {baseline} fp32 / median of the backend; bar: 95% CI ({ARROWS}). {FILLS}"
    if any(map(ranking.is_doubtful, shown)):
        marks = f"{marks} {ranking.DOUBT_MEANS}"
    return dot_figure(title, (marks, caption), panels, Axis("speedup (log scale)", ratio=True), _columns(panels))


def shapes(rows: Sequence[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows by shape, thinned out to MAX_PANELS shapes."""
    found = ranking.by_shape(rows)
    if len(found) <= MAX_PANELS:
        return found
    step = (len(found) - 1) / (MAX_PANELS - 1)
    return [found[round(index * step)] for index in range(MAX_PANELS)]


def _latency_dots(rows: Sequence[Row], unit: TimeUnit, names: Mapping[str, str]) -> dict[str, Dot | str]:
    dots: dict[str, Dot | str] = {}
    for row in rows[:MAX_LINES]:
        latency = row.latency_ns
        if latency is None:
            dots[names[row.case_id]] = absence(row)
            continue
        dots[names[row.case_id]] = Dot(
            value=latency.median / unit.ns,
            interval=_scaled(latency.ci95, unit.ns),
            look=look(row.backend),
            precision=row.precision,
            ranked=ranking.is_ranked(row),
            tail=None if latency.p95 is None else latency.p95 / unit.ns,
            singles=tuple(value / unit.ns for value in latency.process_medians),
        )
    return dots


def _speedup_dots(rows: Sequence[Row], names: Mapping[str, str]) -> dict[str, Dot | str]:
    dots: dict[str, Dot | str] = {}
    for row in rows[:MAX_LINES]:
        if row.speedup is None:
            dots[names[row.case_id]] = absence(row)
        elif row.speedup.baseline != row.case_id:
            dots[names[row.case_id]] = Dot(
                row.speedup.ratio,
                row.speedup.ci95,
                look(row.backend),
                row.precision,
                ranking.is_ranked(row),
                mark=ranking.DOUBT if ranking.is_doubtful(row) else "",
            )
    return dots


def absence(row: Row) -> str:
    """Why a row has no dot, in a word or two."""
    if row.void is not None:
        return f"void: {row.flags[0].name}" if row.flags else "void"
    return "no baseline" if row.status == "measured" else row.status


def shape_name(shape: tuple[int, int]) -> str:
    """A shape in words."""
    sequence, batch = shape
    return f"batch {batch}, sequence {sequence}" if sequence else f"batch {batch}"


def _scaled(interval: Interval | None, divisor: float) -> Interval | None:
    return None if interval is None else Interval(low=interval.low / divisor, high=interval.high / divisor)
