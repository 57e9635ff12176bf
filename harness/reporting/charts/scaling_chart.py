"""The chart of scaling over devices: efficiency, and latency together against alone (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from harness.core.units import significant
from harness.reporting.charts.rows import mark_high_end, mark_low_end, scaled_interval
from harness.reporting.charts.spec import Axis, DotPanel, Dots, Fill, Mark, even_ticks
from harness.reporting.charts.style import backend_look
from harness.reporting.tables.scaling_tables import Scaled, case_label, devices_in_words
from harness.statistics.ratios import Ratio

MAX_LINES = 40
"""Cases of the chart, the lowest efficiency first; the table has all."""


def scaling_chart(cases: Sequence[Scaled], conditions: str) -> Dots:
    """The chart. cases: at least one."""
    shown = sorted(cases, key=lambda case: case.figures.efficiency.value)[:MAX_LINES]
    devices = devices_in_words(shown[0].copies.slots)
    efficiency = {case_label(case.row): _mark(case, case.figures.efficiency, 100) for case in shown}
    slowdown = {case_label(case.row): _mark(case, case.figures.interference, 1) for case in shown}
    panels = (
        DotPanel("scaling efficiency", _axis("of the sum of each alone", efficiency.values(), 100, "%"), efficiency),
        DotPanel("latency together ÷ alone", _axis("of the latency alone", slowdown.values(), 1, "×"), slowdown),
    )
    title = f"{devices} at once: scaling and interference"
    rest = "" if len(shown) == len(cases) else f" The {len(shown)} cases of lowest efficiency of {len(cases)}."
    reading = f"Marker: geometric mean over rounds; bar: 95% CI over rounds; line: no interference.{rest}"
    return Dots(title, title, reading, conditions, panels, tuple(efficiency), 2)


def _mark(case: Scaled, ratio: Ratio, times: float) -> Mark:
    interval, wide = scaled_interval(ratio.ci95, 1 / times)
    hover = "<br>".join(
        (
            f"<b>{escape(case_label(case.row))}</b>",
            f"{significant(case.figures.together_per_s)}/s together, {significant(case.figures.alone_per_s)}/s alone",
        )
    )
    tags = (case.row.model, case.row.backend, case.row.precision, str(case.row.batch_size), None)
    fill: Fill = "solid" if case.row.precision == "fp32" else "tint"
    return Mark(times * ratio.value, backend_look(case.row.backend), fill, interval, wide, hover=hover, tags=tags)


def _axis(label: str, marks: Iterable[Mark], reference: float, suffix: str) -> Axis:
    values = [value for mark in marks for value in (mark_low_end(mark), mark_high_end(mark))]
    low, high = min([reference, *values]), max([reference, *values])
    margin = max(0.15 * (high - low), 0.02 * reference)
    low, high = max(0.0, low - margin), high + margin
    return Axis(label, low, high, tuple(even_ticks(low, high, 4)), suffix=suffix, reference=reference)
