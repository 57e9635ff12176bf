"""The charts of generation: TTFT by prompt length, tokens a second by batch size, ITL by context (pure).

A line for each backend, precision and setting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from harness.aggregation.grades import RANKED
from harness.core.schemas import GenerationRow, Interval
from harness.core.units import MAX_PRINTED_FACTOR, drawable_interval, duration
from harness.reporting.charts.latency_charts import LOG_BATCHES_FROM
from harness.reporting.charts.spec import (
    Axis,
    Fill,
    LinePanel,
    Lines,
    Mark,
    Point,
    Series,
    Tags,
    axis_from_zero,
    decade_axis,
    even_ticks,
    widened_limits,
)
from harness.reporting.charts.style import backend_look, precision_dashes
from harness.reporting.ranking import USUAL
from harness.reporting.tables.generation_table import generation_row_name

MAX_PANELS = 3

MAX_SERIES = 12
"""Lines in one chart: the best."""


def ttft_against_prompt(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a batch size: TTFT on a logarithmic axis; None with a single prompt length."""
    shown = [row for row in rows if row.ttft_ns is not None]
    if len({row.prompt_length for row in shown}) < 2:
        return None
    legend, shown = _legend(shown, _ttft_points, lambda line: line.points[-1].mark.value)
    panels = [_ttft_panel(legend, [row for row in shown if row.batch_size == size], size) for size in _sizes(shown)]
    title = "time to the first token against prompt length"
    reading = "Median of the process medians, with the 95% interval over processes. Hollow: not ranked."
    return Lines(
        f"{shown[0].model}: {title}", title.capitalize(), reading + _arrows(legend), conditions, tuple(panels), legend
    )


def _ttft_panel(legend: Sequence[Series], rows: Sequence[GenerationRow], size: int) -> LinePanel:
    series = _drawn_series(legend, rows, _ttft_points)
    values = [point.mark.value for row in series for point in row.points]
    y = decade_axis("ms to the first token, log scale", *widened_limits(values))
    x = numbers_axis("tokens of the prompt", [row.prompt_length for row in rows])
    return LinePanel(f"batch {size}", x, y, series)


def _ttft_points(row: GenerationRow) -> list[Point]:
    if row.ttft_ns is None:
        return []
    ci95 = row.ttft_ns.ci95
    interval = None if ci95 is None else Interval(low=ci95.low / 1e6, high=ci95.high / 1e6)
    # Rows that differ in their output alone have one point each at the same prompt.
    return [Point(row.prompt_length, mark(row, row.ttft_ns.median / 1e6, interval))]


def tokens_against_batch(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a prompt length: tokens a second of the whole batch; None with a single batch size."""
    shown = [row for row in rows if row.rates is not None and row.rates.total > 0]
    if len({row.batch_size for row in shown}) < 2:
        return None
    legend, shown = _legend(shown, _rate_points, lambda line: -line.points[-1].mark.value)
    lengths = sorted({row.prompt_length for row in shown})[:MAX_PANELS]
    rates = [row.rates.total for row in shown if row.rates is not None]
    # One scale for all panels, which share the label of the first.
    log = max(rates) > LOG_BATCHES_FROM * min(rates)
    panels = [
        _rate_panel(legend, [row for row in shown if row.prompt_length == length], length, log) for length in lengths
    ]
    title = "tokens a second against batch size"
    reading = (
        "Every token of the batch by the time from its prompts to its last token, prefill included, median over "
        "processes. Hollow: not ranked."
    )
    return Lines(
        f"{shown[0].model}: {title}", title.capitalize(), reading + _arrows(legend), conditions, tuple(panels), legend
    )


def _rate_panel(legend: Sequence[Series], rows: Sequence[GenerationRow], length: int, log: bool) -> LinePanel:
    series = _drawn_series(legend, rows, _rate_points)
    rates = [point.mark.value for row in series for point in row.points]
    label = f"tokens per second{', log scale' if log else ''}"
    y = (
        decade_axis(label, min(rates) / 1.25, max(rates) * 1.25)
        if log
        else axis_from_zero(label, max(rates), 1.08, most=5)
    )
    return LinePanel(f"prompt of {length}", numbers_axis("batch size", [row.batch_size for row in rows]), y, series)


def _rate_points(row: GenerationRow) -> list[Point]:
    if row.rates is None:
        return []
    return [Point(row.batch_size, mark(row, row.rates.total, row.rates.total_ci95))]


def itl_against_context(rows: Sequence[GenerationRow], conditions: str) -> Lines | None:
    """A panel a batch size: mean ITL in each quarter of the output; None where no row has quarters."""
    shown = [row for row in rows if row.context is not None and row.context.quarters is not None]
    if not shown:
        return None
    legend, shown = _legend(shown, _itl_points, lambda line: min(point.mark.value for point in line.points))
    panels = [_itl_panel(legend, [row for row in shown if row.batch_size == size], size) for size in _sizes(shown)]
    title = "time between tokens against context"
    reading = (
        "Mean time between tokens in each quarter of the output, at the middle of its context (prompt and tokens so "
        "far), median over processes. Hollow: not ranked."
    )
    return Lines(f"{shown[0].model}: {title}", title.capitalize(), reading, conditions, tuple(panels), legend)


def _itl_panel(legend: Sequence[Series], rows: Sequence[GenerationRow], size: int) -> LinePanel:
    series = _drawn_series(legend, rows, _itl_points)
    points = [point for row in series for point in row.points]
    low, high = min(point.x for point in points), max(point.x for point in points)
    # Contexts of one prompt lie close together: from 0 on, they would fill a corner of the panel.
    left = low - (high - low) / 4 if 2 * low > high else 0.0
    x = Axis("tokens of context", left, high + (high - left) / 20, tuple(even_ticks(left, high)))
    y = axis_from_zero("ms between tokens", max(point.mark.value for point in points), 1.1)
    return LinePanel(f"batch {size}", x, y, series)


def _itl_points(row: GenerationRow) -> list[Point]:
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


def _legend(
    rows: Sequence[GenerationRow],
    points: Callable[[GenerationRow], Sequence[Point]],
    best: Callable[[Series], float],
) -> tuple[tuple[Series, ...], list[GenerationRow]]:
    """(a line for each name, the best first; their rows). points: of one row."""
    lines: dict[str, list[GenerationRow]] = {}
    for row in rows:
        lines.setdefault(generation_row_name(row), []).append(row)
    numbers = _numbers(lines)
    entries = []
    for name, (first, *_) in lines.items():
        fill: Fill = "solid" if first.precision == "fp32" else "tint"
        style = precision_dashes(first.precision, numbers[name])
        tags: Tags = (first.model, first.backend, first.precision, None, None)
        entries.append(Series(name, backend_look(first.backend, numbers[name]), fill, (), True, style, tags))
    legend = tuple(sorted(_drawn_series(entries, rows, points), key=best)[:MAX_SERIES])
    return legend, [row for line in legend for row in lines[line.name]]


def _drawn_series(
    legend: Sequence[Series], rows: Sequence[GenerationRow], points: Callable[[GenerationRow], Sequence[Point]]
) -> tuple[Series, ...]:
    """The lines of the legend that have points in these rows, each in its look."""
    drawn = []
    for line in legend:
        own = sorted(
            (point for row in rows if generation_row_name(row) == line.name for point in points(row)),
            key=lambda at: at.x,
        )
        if own:
            marks = tuple(replace(point, mark=replace(point.mark, look=line.look)) for point in own)
            drawn.append(replace(line, points=marks))
    return tuple(drawn)


def mark(row: GenerationRow, value: float, interval: Interval | None = None) -> Mark:
    """A marker; hollow in the colour of its line where the row is not ranked."""
    fill: Fill = "open" if row.grade not in RANKED else "solid" if row.precision == "fp32" else "tint"
    drawn = drawable_interval(interval)
    return Mark(
        value,
        backend_look(row.backend),
        fill,
        interval=drawn,
        wide=interval is not None and drawn is None,
        hover=hover(row),
        tags=(row.model, row.backend, row.precision, str(row.batch_size), row.grade or row.status),
    )


def _arrows(lines: Iterable[Series]) -> str:
    """The meaning of arrows, where a chart has any."""
    wide = any(point.mark.wide for line in lines for point in line.points)
    return f" Arrows: interval wider than ×{MAX_PRINTED_FACTOR:g}, not to scale." if wide else ""


def hover(row: GenerationRow) -> str:
    """The row in words."""
    first = f"TTFT {duration(row.ttft_ns.median)}" if row.ttft_ns else ""
    step = f"ITL {duration(row.itl_ns.median)}" if row.itl_ns else ""
    place = f"batch {row.batch_size}, {row.prompt_length} + {row.new_tokens} tokens"
    return "<br>".join(filter(None, (f"{generation_row_name(row)} · {place}", first, step, f"grade {row.grade}")))


def numbers_axis(label: str, values: Iterable[int]) -> Axis:
    """A logarithmic axis whose ticks are the values themselves."""
    ticks = sorted(set(values))
    return Axis(label, ticks[0] / 1.25, ticks[-1] * 1.25, tuple(map(float, ticks)), "log2")


def _numbers(lines: Mapping[str, Sequence[GenerationRow]]) -> dict[str, int]:
    """Name → its number among the lines of its backend and precision."""
    numbers: dict[str, int] = {}
    counts: dict[tuple[str, str], int] = {}
    for name, rows in sorted(lines.items(), key=lambda item: item[1][0].setting != USUAL):
        key = (rows[0].backend, rows[0].precision)
        numbers[name] = counts.get(key, 0)
        counts[key] = numbers[name] + 1
    return numbers
