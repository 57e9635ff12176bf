"""The chart of the time between tokens against the context (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import GenerationRow
from harness.reporting.charts.scales import even_ticks, from_zero
from harness.reporting.charts.spec import Axis, LinePanel, Lines, Point
from harness.reporting.charts.token_series import mark, series_of

MAX_PANELS = 3


def itl_against_context(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a batch size: mean ITL in each quarter of the output; None where no row has quarters."""
    shown = [row for row in rows if row.context is not None and row.context.quarters is not None]
    if not shown:
        return None
    panels = [_panel([row for row in shown if row.batch_size == size], size) for size in _sizes(shown)]
    legend = series_of(shown, _points, lambda one: min(point.mark.value for point in one.points))
    title = "time between tokens against context"
    reading = (
        "Mean time between tokens in each quarter of the output, at the middle of its context (prompt and tokens so "
        "far), median over processes. Hollow: not ranked."
    )
    return Lines(f"{shown[0].model}: {title}", title.capitalize(), reading, conditions, tuple(panels), legend)


def _panel(rows: Sequence[GenerationRow], size: int) -> LinePanel:
    found = series_of(rows, _points, lambda one: min(point.mark.value for point in one.points))
    points = [point for one in found for point in one.points]
    high = max(point.x for point in points)
    x = Axis("tokens of context", 0.0, 1.05 * high, tuple(even_ticks(0.0, high)))
    y = from_zero("ms between tokens", max(point.mark.value for point in points), 1.1)
    return LinePanel(f"batch {size}", x, y, found)


def _points(row: GenerationRow) -> list[Point]:
    quarters = None if row.context is None else row.context.quarters
    if quarters is None:
        return []
    steps = row.new_tokens - 1
    # Step k, from 1, attends to the prompt and k tokens.
    return [
        Point(row.prompt_length + 1 + steps * (place + 0.5) / 4, mark(row, value / 1e6))
        for place, value in enumerate(quarters)
    ]


def _sizes(rows: Sequence[GenerationRow]) -> list[int]:
    return sorted({row.batch_size for row in rows})[:MAX_PANELS]
