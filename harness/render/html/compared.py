"""The page's comparison with an earlier run: a chart of the changes, and a verdict for each row (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from harness.core.schemas import ComparedRow, Comparison, Summary, Verdict
from harness.render import change, units
from harness.render.html.dots import AROUND_PX
from harness.render.html.plot import WIDE_NOTE, Plot, PlotGroup, Trace, open_ended, short, whiskers
from harness.render.style import GREY
from harness.reporting.tables import comparison
from harness.reporting.writers import html as prose

MAX_LINES = 40
"""Rows of the chart; the table has all of them."""

LINE_PX = 24
MARGIN = 1.6
"""The axis reaches this many times as far as the farthest change: intervals of few rounds run out of it."""

COLOURS: dict[Verdict, str] = {"SLOWER": "#D55E00", "FASTER": "#009E73", "SAME": "#0072B2", "AMBIGUOUS": GREY}

NOTE = (
    "Marker: change of the headline latency, right of 0 is slower; bar: 95% CI; grey band: margin of equivalence. "
    f"{WIDE_NOTE}"
)


@dataclass(frozen=True)
class Line:
    """A compared row: its verdict, whether it fails the comparison, and its cells."""

    verdict: Verdict
    fails: bool
    cells: tuple[Markup, ...]


def is_of(found: Comparison, summary: Summary) -> bool:
    """Whether a comparison's newer side is this summary: the same plan, measured at the same time."""
    now = found.current
    ours = (summary.plan_id, summary.measured_from, summary.measured_to)
    return (now.plan_id, now.measured_from, now.measured_to) == ours


def compared(found: Comparison, conditions: str) -> dict[str, Any]:
    """What the section shows. conditions: those of the summary."""
    rows = [row for row in change.worst_first(found.rows) if row.ratio is not None]
    table = comparison.compared_table(rows)
    lines = [
        Line(row.verdict, row.fails, tuple(prose.inline(text) for text in line[1:]))
        for row, line in zip(rows, table.cells(), strict=True)
    ]
    return {
        "headline": comparison.headline(found),
        "sides": prose.blocks(comparison.sides(found)),
        "remarks": comparison.remarks(found),
        "conditions": f"Conditions: {conditions}",
        "groups": [_changes(rows[:MAX_LINES], found.equivalence)] if rows else [],
        "headers": [(column.header, prose.KINDS[column.align]) for column in table.columns],
        "lines": lines,
        "details": [(title, prose.blocks(text)) for title, text in comparison.details(found)],
    }


def _changes(rows: Sequence[ComparedRow], margin: float) -> PlotGroup:
    ends = max([margin, *(abs((row.ratio or 1) - 1) for row in rows)]) * 100 * MARGIN
    x: dict[str, Any] = {"range": [-min(ends, 100), ends], "ticksuffix": "%", "title": {"text": "change of latency"}}
    order = [escape(row.case_id) for row in reversed(rows)]
    y = {"type": "category", "categoryorder": "array", "categoryarray": order, "automargin": True}
    band = {"type": "rect", "xref": "x", "x0": -100 * margin, "x1": 100 * margin, "yref": "paper", "y0": 0, "y1": 1}
    shapes = [{**band, "fillcolor": GREY, "opacity": 0.2, "line": {"width": 0}}]
    layout = {"xaxis": x, "yaxis": y, "showlegend": False, "shapes": shapes}
    plot = Plot("", AROUND_PX + LINE_PX * len(rows), [_dot(row) for row in rows], layout)
    return PlotGroup("Change of each row", NOTE, (plot,), wide=True)


def _dot(row: ComparedRow) -> Trace:
    own = COLOURS.get(row.verdict, GREY)
    value = short(100 * ((row.ratio or 1) - 1))
    drawn = units.to_scale(row.ci95)
    interval = drawn and drawn.model_copy(update={"low": drawn.low - 1, "high": drawn.high - 1})
    lines = [f"<b>{escape(row.case_id)}</b>", row.verdict, escape(change.in_words(row))]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [value],
        "y": [escape(row.case_id)],
        "text": [open_ended("", row.ci95)],
        "textposition": "middle right",
        "cliponaxis": False,
        "hovertext": ["<br>".join(lines)],
        "marker": {"size": 10, "color": own, "symbol": "circle", "line": {"color": own, "width": 1.6}},
        "error_x": whiskers(value, interval, own, 0.01),
        "customdata": [[row.backend, row.precision, str(row.batch_size), None]],
    }
