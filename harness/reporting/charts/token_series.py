"""Lines of generation rows for charts: one for each backend, precision and setting (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.aggregation.flags import RANKED
from harness.core.schemas import GenerationRow, Interval
from harness.reporting.charts.spec import Axis, Fill, Mark, Point, Series, Tags
from harness.reporting.charts.style import dashes, look
from harness.reporting.tables.generation_table import USUAL, named
from harness.reporting.units import duration, to_scale

MAX_SERIES = 12
"""Lines in one chart: the best."""


def series_of(
    rows: Iterable[GenerationRow], points: Callable[[GenerationRow], Sequence[Point]], best: Callable[[Series], float]
) -> tuple[Series, ...]:
    """A line for each name, the best first. points: of one row."""
    lines: dict[str, list[GenerationRow]] = {}
    for row in rows:
        lines.setdefault(named(row), []).append(row)
    numbers = _numbers(lines)
    found = []
    for name, ours in lines.items():
        first = ours[0]
        marks = tuple(sorted((point for row in ours for point in points(row)), key=lambda point: point.x))
        if marks:
            fill: Fill = "solid" if first.precision == "fp32" else "tint"
            style = dashes(first.precision, numbers[name])
            tags: Tags = (first.model, first.backend, first.precision, None, None)
            found.append(Series(name, look(first.backend), fill, marks, True, style, tags))
    return tuple(sorted(found, key=best)[:MAX_SERIES])


def mark(row: GenerationRow, value: float, interval: Interval | None = None, text: str = "") -> Mark:
    """A marker; hollow where the row is not ranked."""
    fill: Fill = "hollow" if row.grade not in RANKED else "solid" if row.precision == "fp32" else "tint"
    drawn = to_scale(interval)
    return Mark(
        value,
        look(row.backend),
        fill,
        interval=drawn,
        wide=interval is not None and drawn is None,
        hover=text or hover(row),
        tags=(row.model, row.backend, row.precision, str(row.batch_size), row.grade or row.status),
    )


def hover(row: GenerationRow) -> str:
    """The row in words."""
    first = f"TTFT {duration(row.ttft_ns.median)}" if row.ttft_ns else ""
    step = f"ITL {duration(row.itl_ns.median)}" if row.itl_ns else ""
    place = f"batch {row.batch_size}, {row.prompt_length} + {row.new_tokens} tokens"
    return "<br>".join(filter(None, (f"{named(row)} · {place}", first, step, f"grade {row.grade}")))


def numbers_axis(label: str, values: Iterable[int]) -> Axis:
    """A logarithmic axis whose ticks are the values themselves."""
    found = sorted(set(values))
    return Axis(label, found[0] / 1.25, found[-1] * 1.25, tuple(map(float, found)), "log2")


def _numbers(lines: Mapping[str, Sequence[GenerationRow]]) -> dict[str, int]:
    """Name → its number among the lines of its backend and precision."""
    found: dict[str, int] = {}
    counts: dict[tuple[str, str], int] = {}
    for name, rows in sorted(lines.items(), key=lambda item: item[1][0].setting != USUAL):
        key = (rows[0].backend, rows[0].precision)
        found[name] = counts.get(key, 0)
        counts[key] = found[name] + 1
    return found
