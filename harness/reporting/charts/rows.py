"""Selects the rows of a chart, and makes the label and the mark of each (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape

from harness.aggregation.flags import flag_names
from harness.core import units
from harness.core.schemas import Interval, Precision, Row
from harness.core.units import MAX_PRINTED_FACTOR, drawable_interval
from harness.reporting import ranking
from harness.reporting.charts.spec import Absent, Fill, Mark, Tags
from harness.reporting.charts.style import backend_look

MAX_SHAPES = 6
"""Shapes in one chart: the smallest, the largest and evenly between them."""

MAX_LINES = 14
"""Largest number of backends in one panel: the fastest."""


CHANGE_ANSWERS: Sequence[Precision] = ("int8", "fp8")
"""Precisions whose accuracy is beside their rows."""


@dataclass(frozen=True)
class TableRows:
    """The data for the charts of one table.

    model: with boundary and mode where they differ from the usual. rows: measured, in reading order. lost: failed or
    missing rows. baseline: the backend that speed-ups refer to. conditions: under which the rows were measured.
    """

    model: str
    rows: Sequence[Row]
    lost: Sequence[Row]
    baseline: str
    conditions: str

    @cached_property
    def shown(self) -> list[Row]:
        """Rows that have a line in a chart, measured or not."""
        return ranking.drawable([*self.rows, *self.lost])


def filter_tags(row: Row) -> Tags:
    """Values by which the page filters: model, backend, precision, batch, grade."""
    return (row.model, row.backend, row.precision, str(row.batch_size), row.grade or row.status)


def marker_fill(row: Row) -> Fill:
    """Solid for fp32, a tint for other precisions, hollow where the row is not ranked."""
    if not ranking.is_ranked(row):
        return "hollow"
    return "solid" if row.precision == "fp32" else "tint"


def in_colour(mark: Mark) -> Mark:
    """The mark where no label is beside it: hollow in its backend's colour, which alone names the backend."""
    return replace(mark, fill="open") if mark.fill == "hollow" else mark


def has_latency(row: Row) -> bool:
    """Whether the row has a latency that may be shown."""
    return row.latency_ns is not None


def has_speedup(row: Row) -> bool:
    """Whether the row has a speed-up over another row."""
    return ranking.gain(row) is not None


def row_labels(rows: Sequence[Row]) -> dict[str, str]:
    """Case id → label: backend and precision, the setting where labels would be equal, and accuracy()."""
    labels = ranking.series_labels(rows)
    together: dict[str, list[Row]] = {}
    for row in rows:
        together.setdefault(labels[row.case_id], []).append(row)
    beside = {label: accuracy(group) for label, group in together.items()}
    return {case_id: f"{label} ({beside[label]})" if beside[label] else label for case_id, label in labels.items()}


def accuracy(rows: Iterable[Row]) -> str:
    """The worst accuracy of rows whose precision changes answers; empty for other rows and where it is unknown."""
    changed = [row for row in rows if row.precision in CHANGE_ANSWERS and row.parity]
    parities = [row.parity for row in changed if row.parity and row.weights != "seeded"]
    if agreements := [parity.top1_agreement for parity in parities if parity.top1_agreement is not None]:
        return f"top-1 {units.percent(min(agreements))}"
    cosines = [row.parity.cosine for row in changed if row.parity and row.parity.cosine is not None]
    return f"cosine {units.cosine(min(cosines))}" if cosines else ""


def accuracies(rows: Sequence[Row]) -> dict[str, str]:
    """accuracy() by precision, of those that have one."""
    texts = {name: accuracy(row for row in rows if row.precision == name) for name in CHANGE_ANSWERS}
    return {name: text for name, text in texts.items() if text}


def chart_shapes(rows: Sequence[Row]) -> list[tuple[tuple[int, int], list[Row]]]:
    """Rows by (sequence length or 0, batch), reduced to MAX_SHAPES shapes."""
    groups = ranking.by_shape(rows)
    if len(groups) <= MAX_SHAPES:
        return groups
    step = (len(groups) - 1) / (MAX_SHAPES - 1)
    return [groups[round(index * step)] for index in range(MAX_SHAPES)]


def shape_name(shape: tuple[int, int]) -> str:
    """`batch 8, sequence 128`."""
    sequence, batch = shape
    return f"batch {batch}, sequence {sequence}" if sequence else f"batch {batch}"


def absent(row: Row) -> Absent:
    """Why a row has no mark."""
    if row.grade == "F":
        return Absent(f"void: {row.flags[0].name}" if row.flags else "void", filter_tags(row))
    return Absent("no baseline" if row.status == "measured" else row.status, filter_tags(row))


def scaled_interval(interval: Interval | None, divisor: float = 1) -> tuple[Interval | None, bool]:
    """(the interval to draw, whether it is too wide to draw): a too wide interval would squeeze all others."""
    if interval is None:
        return None, False
    drawn = drawable_interval(interval)
    return (drawn and Interval(low=drawn.low / divisor, high=drawn.high / divisor)), drawn is None


def latency_mark(row: Row, divisor: float) -> Mark | Absent:
    """The latency (headline) in units of `divisor` nanoseconds."""
    latency = row.latency_ns
    if latency is None or not has_latency(row):
        return absent(row)
    interval, wide = scaled_interval(latency.ci95, divisor)
    value = latency.median / divisor
    return Mark(
        value,
        backend_look(row.backend),
        marker_fill(row),
        interval,
        wide,
        tail=None if latency.p95 is None else latency.p95 / divisor,
        singles=tuple(median / divisor for median in latency.process_medians),
        text=units.significant(value),
        hover=hover(row),
        tags=filter_tags(row),
    )


def speedup_mark(row: Row) -> Mark | Absent:
    """Speed-up over the baseline."""
    if row.speedup is None:
        return absent(row)
    interval, wide = scaled_interval(row.speedup.ci95)
    return Mark(
        row.speedup.ratio,
        backend_look(row.backend),
        marker_fill(row),
        interval,
        wide,
        text=ranking.speedup(row),
        hover=hover(row),
        tags=filter_tags(row),
    )


def mark_low_end(mark: Mark) -> float:
    """The left end of a mark on a logarithmic axis, not below a quarter of its value: a distant process leaves the
    panel instead of squeezing all others."""
    ends = [mark.value, *mark.singles, *([mark.interval.low] if mark.interval else [])]
    return max(min(ends), mark.value / 4)


def mark_high_end(mark: Mark) -> float:
    """The right end of a mark, including its tail; distant processes as above."""
    furthest = max([mark.value, *mark.singles, *([mark.interval.high] if mark.interval else [])])
    return max(mark.value, mark.tail or 0, min(furthest, 4 * mark.value))


def legend_text(first: str, rows: Iterable[Row], marks: Iterable[Mark], *more: str) -> str:
    """The meaning of the marks that the chart has. first: for every mark; more: for some marks, may be empty."""
    shown, drawn = list(rows), list(marks)
    parts = {
        first: True,
        **{text: bool(text) for text in more},
        "Tinted: not fp32.": any(mark.fill == "tint" for mark in drawn),
        "Grey and hollow: flagged, not ranked.": any(mark.fill == "hollow" for mark in drawn),
        "Hollow: flagged, not ranked.": any(mark.fill == "open" for mark in drawn),
        f"Arrows (↔): interval wider than ×{MAX_PRINTED_FACTOR:g}, not to scale.": any(mark.wide for mark in drawn),
        **{f"Beside {name}: top-1 agreement with the reference, or cosine.": True for name in accuracies(shown)},
        ranking.DOUBT_MEANS: any(mark.text.startswith(ranking.DOUBT) for mark in drawn),
    }
    return " ".join(text for text, needed in parts.items() if needed)


def hover(row: Row) -> str:
    """Text for a point under the pointer, with the few tags that plotly allows; all names in it are escaped."""
    sequence = f", sequence {row.sequence_length}" if row.sequence_length else ""
    lines = [f"<b>{escape(ranking.row_name(row))}</b>", f"batch {row.batch_size}{sequence}"]
    latency = row.latency_ns
    if latency is not None:
        unit = units.time_unit([latency.median])
        lines.append(f"{units.in_unit(latency.median, unit)} {unit.name} {units.interval(latency.ci95, unit.ns)}")
        if latency.p95 is not None:
            lines.append(f"p95 {units.duration(latency.p95)}, {units.count(latency.rounds, 'process', 'processes')}")
    if row.throughput_per_s is not None:
        ends = f" {units.interval(row.throughput_ci95)}" if row.throughput_ci95 else ""
        lines.append(f"{units.significant(row.throughput_per_s)} {units.SAMPLE_NAMES[row.kind]}/s{ends}")
    if (gain := ranking.gain(row)) is not None:
        doubt = f" ({ranking.DOUBT_MEANS.removesuffix('.')})" if ranking.is_doubtful(row) else ""
        lines.append(f"{ranking.speedup(row)}× baseline {units.interval(gain.ci95)}{doubt}")
    if beside := accuracy([row]):
        lines.append(f"accuracy: {beside}")
    flags = ", ".join(map(escape, flag_names(row)))
    lines.append(f"grade {row.grade}{': ' if flags else ''}{flags}")
    return "<br>".join(lines)


def marks_by_label(
    rows: Sequence[Row], labels: dict[str, str], mark: Callable[[Row], Mark | Absent], biggest_first: bool = False
) -> dict[str, Mark | Absent]:
    """Label → mark of the rows of one panel: the best first, rows without a mark last."""
    marks = {labels[row.case_id]: mark(row) for row in rows[:MAX_LINES]}
    sign = -1 if biggest_first else 1

    def order(label: str) -> tuple[bool, float, str]:
        drawn = marks[label]
        return (False, sign * drawn.value, label) if isinstance(drawn, Mark) else (True, 0.0, label)

    return {label: marks[label] for label in sorted(marks, key=order)}


def common_labels(panels: Iterable[dict[str, Mark | Absent]]) -> tuple[str, ...]:
    """Labels of several panels: in the order of the first panel, then labels that only later panels have, then labels
    that no panel draws."""
    given = list(panels)
    drawn = [label for panel in given for label, mark in panel.items() if isinstance(mark, Mark)]
    return tuple(dict.fromkeys([*drawn, *sorted(label for panel in given for label in panel)]))
