"""The chart of the time to the first token against the prompt length (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import GenerationRow, Interval
from harness.reporting.charts.scales import decades, widened
from harness.reporting.charts.spec import LinePanel, Lines, Point
from harness.reporting.charts.token_series import mark, numbers_axis, series_of

MAX_PANELS = 3


def ttft_against_prompt(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a batch size: TTFT on a logarithmic axis; None with a single prompt length."""
    shown = [row for row in rows if row.ttft_ns is not None]
    if len({row.prompt_length for row in shown}) < 2:
        return None
    sizes = sorted({row.batch_size for row in shown})[:MAX_PANELS]
    panels = [_panel([row for row in shown if row.batch_size == size], size) for size in sizes]
    legend = series_of(shown, _points, lambda one: one.points[-1].mark.value)
    title = "time to the first token against prompt length"
    reading = "Median of the process medians, with the 95% interval over processes. Hollow: not ranked."
    return Lines(f"{shown[0].model}: {title}", title.capitalize(), reading, conditions, tuple(panels), legend)


def _panel(rows: Sequence[GenerationRow], size: int) -> LinePanel:
    found = series_of(rows, _points, lambda one: one.points[-1].mark.value)
    values = [point.mark.value for one in found for point in one.points]
    y = decades("ms to the first token, log scale", *widened(values))
    x = numbers_axis("tokens of the prompt", [row.prompt_length for row in rows])
    return LinePanel(f"batch {size}", x, y, found)


def _points(row: GenerationRow) -> list[Point]:
    if row.ttft_ns is None:
        return []
    found = row.ttft_ns.ci95
    interval = None if found is None else Interval(low=found.low / 1e6, high=found.high / 1e6)
    # Rows that differ in their output alone have one point each at the same prompt.
    return [Point(row.prompt_length, mark(row, row.ttft_ns.median / 1e6, interval))]
