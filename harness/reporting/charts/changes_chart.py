"""The chart of the change of each row since an earlier run (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from harness.aggregation.flags import MAX_PRINTED_FACTOR
from harness.core.schemas import ComparedRow, Interval, Verdict
from harness.reporting.charts.rows import scaled
from harness.reporting.charts.spec import Axis, DotPanel, Dots, Mark, even_ticks
from harness.reporting.charts.style import GREY, Look
from harness.reporting.tables import comparison_table as change

MAX_LINES = 40
"""Rows of the chart, the worst first; the table has all rows."""

MARGIN = 1.6
"""Length of the axis in multiples of the largest change; intervals of few rounds may go beyond it."""

COLOURS: dict[Verdict, str] = {"SLOWER": "#D55E00", "FASTER": "#009E73", "SAME": "#0072B2", "AMBIGUOUS": GREY}


def changes(rows: Sequence[ComparedRow], margin: float, conditions: str) -> Dots:
    """The chart. rows: with a ratio, the worst first. margin: of equivalence, as a share."""
    shown = [row for row in rows if row.ratio is not None][:MAX_LINES]
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
    interval, wide = scaled(row.ci95)
    drawn = interval and Interval(low=100 * (interval.low - 1), high=100 * (interval.high - 1))
    hover = "<br>".join((f"<b>{escape(row.case_id)}</b>", row.verdict, escape(change.in_words(row))))
    tags = (row.model, row.backend, row.precision, str(row.batch_size), None)
    look = Look(COLOURS.get(row.verdict, GREY), "o")
    return Mark(100 * ((row.ratio or 1) - 1), look, "solid", drawn, wide, hover=hover, tags=tags)
