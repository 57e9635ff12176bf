"""The chart of tokens a second against the batch size (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import GenerationRow
from harness.reporting.charts.scales import decades, from_zero
from harness.reporting.charts.spec import LinePanel, Lines, Point
from harness.reporting.charts.throughput_chart import LOG_FROM
from harness.reporting.charts.token_series import mark, numbers_axis, series_of

MAX_PANELS = 3


def tokens_against_batch(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a prompt length: tokens a second of the whole batch; None with a single batch size."""
    shown = [row for row in rows if row.rates is not None and row.rates.total > 0]
    if len({row.batch_size for row in shown}) < 2:
        return None
    lengths = sorted({row.prompt_length for row in shown})[:MAX_PANELS]
    panels = [_panel([row for row in shown if row.prompt_length == length], length) for length in lengths]
    legend = series_of(shown, _points, lambda one: -one.points[-1].mark.value)
    title = "tokens a second against batch size"
    reading = (
        "Every token of the batch by the time from its prompts to its last token, prefill included, median over "
        "processes. Hollow: not ranked."
    )
    return Lines(f"{shown[0].model}: {title}", title.capitalize(), reading, conditions, tuple(panels), legend)


def _panel(rows: Sequence[GenerationRow], length: int) -> LinePanel:
    found = series_of(rows, _points, lambda one: -one.points[-1].mark.value)
    rates = [point.mark.value for one in found for point in one.points]
    log = max(rates) > LOG_FROM * min(rates)
    label = f"tokens per second{', log scale' if log else ''}"
    y = decades(label, min(rates) / 1.25, max(rates) * 1.25) if log else from_zero(label, max(rates), 1.08, most=5)
    return LinePanel(f"prompt of {length}", numbers_axis("batch size", [row.batch_size for row in rows]), y, found)


def _points(row: GenerationRow) -> list[Point]:
    if row.rates is None:
        return []
    return [Point(row.batch_size, mark(row, row.rates.total, row.rates.total_ci95))]
