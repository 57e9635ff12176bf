"""The page's comparison with an earlier run: a chart of the changes, and a verdict for each row (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from harness.core.schemas import Comparison, Summary, Verdict
from harness.reporting.charts import plotly_drawer
from harness.reporting.charts.speedup_charts import changes_chart
from harness.reporting.tables import comparison_table
from harness.reporting.tables import comparison_table as change
from harness.reporting.writers import html


@dataclass(frozen=True)
class ComparedLine:
    """A compared row: its verdict, whether it fails the comparison, and its cells."""

    verdict: Verdict
    fails: bool
    cells: tuple[Markup, ...]


def is_about(comparison: Comparison, summary: Summary) -> bool:
    """Whether a comparison's newer side is this summary: the same plan, measured at the same time."""
    now = comparison.current
    identity = (summary.plan_id, summary.measured_from, summary.measured_to)
    return (now.plan_id, now.measured_from, now.measured_to) == identity


def comparison_section(comparison: Comparison, conditions: str) -> dict[str, Any]:
    """The content of the section. conditions: of the summary."""
    rows = [row for row in change.worst_first(comparison.rows) if row.ratio is not None]
    table = comparison_table.compared_table(rows)
    lines = [
        ComparedLine(row.verdict, row.fails, tuple(html.inline(text) for text in line[1:]))
        for row, line in zip(rows, table.cells(), strict=True)
    ]
    return {
        "headline": comparison_table.headline(comparison),
        "sides": html.blocks([comparison_table.sides_text(comparison)]),
        "remarks": comparison_table.remarks(comparison),
        "conditions": f"Conditions: {conditions}",
        "headers": [(column.header, html.KINDS[column.align]) for column in table.columns],
        "groups": [plotly_drawer.draw(changes_chart(rows, comparison.equivalence, conditions))] if rows else [],
        "lines": lines,
        "details": [(title, html.blocks([block])) for title, block in comparison_table.details(comparison)],
    }
