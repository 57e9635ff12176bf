"""The block that a README opens with: chart, conditions and one table, made from a published summary (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from harness.core.schemas import Row, Summary
from harness.measure.rows import GroupKey
from harness.render import ranking, units
from harness.render.conditions import short_conditions
from harness.render.markdown import table
from harness.render.tables import doubt_notes

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def headline_block(summary: Summary, folder: PurePath) -> str:
    """Rows with one batch in flight and nothing copied; on a GPU every batch size is a column, else batch 1 is all.

    folder: of the published run, as the README links to it.
    """
    tables = ranking.by_table(summary.rows)
    rows = [row for _, found in tables for row in found if (row.boundary, row.mode) == ("compute", "sync")]
    on_gpu = any(row.device == "cuda" for row in rows)
    shown = rows if on_gpu else [row for row in rows if row.batch_size == 1]
    body = gpu_table(shown) if on_gpu else batch_1_table(shown)
    models = list(dict.fromkeys(row.model for row in shown))
    count = NUMBERS[len(models)] if len(models) < len(NUMBERS) else str(len(models))
    lengths = sorted({row.sequence_length for row in shown if row.sequence_length})
    sequences = "".join(f", sequence {length}" for length in lengths)
    what = "Host median in ms by batch size; bold: clearly the fastest" if on_gpu else f"Batch 1{sequences}"
    # A table of batch sizes shows no speedups.
    notes = [] if on_gpu else doubt_notes(shown)
    alt = f"Latency by backend, batch 1, {count} model{'' if len(models) == 1 else 's'}"
    return (
        f"![{alt}]({folder}/charts/overview.png)\n\n"
        f"{short_conditions(summary, shown)} {what}. [The whole report]({folder}/report.md).\n\n"
        + "\n\n".join([body, *notes])
    )


def batch_1_table(rows: Sequence[Row]) -> str:
    """One line a row: median, interval, speedup, grade; models in the plan's order, the fastest first."""
    headers = ["model", "backend", "precision", "median ms", "95% CI", "speedup", "grade"]
    models = list(dict.fromkeys(row.model for row in rows))
    ordered = sorted(rows, key=lambda row: (models.index(row.model), row.latency_ns.median if row.latency_ns else 0.0))
    return table(headers, [_batch_1_line(row) for row in ordered])


def gpu_table(rows: Sequence[Row]) -> str:
    """One line a model, sequence length, backend and precision: median ms by batch size, rate at the largest."""
    batches = sorted({row.batch_size for row in rows})
    winners = {
        found.case_id
        for key in dict.fromkeys(map(_place, rows))
        for _, group in ranking.by_shape([row for row in rows if _place(row) == key])
        if (found := ranking.winner(group))
    }
    lines: dict[GroupKey, dict[int, Row]] = {}
    for row in rows:
        # The first is the best-graded and fastest: a void setting stands in the report beside the one that is right.
        lines.setdefault(GroupKey.of(row).without("batch_size", "setting"), {}).setdefault(row.batch_size, row)
    places = list(dict.fromkeys(map(_place, rows)))
    largest = batches[-1]

    def place(item: tuple[GroupKey, dict[int, Row]]) -> tuple[int, float]:
        key, found = item
        return places.index(key.without("backend", "precision")), _median_ns(found.get(largest))

    ordered = sorted(lines.items(), key=place)
    headers = ["model", "backend", "precision", "setting (batch)", *(f"batch {size}" for size in batches)]
    headers += [f"items/s at {largest}", "grade"]
    return table(headers, [_gpu_line(found, batches, winners) for _, found in ordered])


def _gpu_line(found: dict[int, Row], batches: Sequence[int], winners: set[str]) -> list[str]:
    first = next(iter(found.values()))
    where = _model(first) + (f", sequence {first.sequence_length}" if first.sequence_length else "")
    last = found.get(batches[-1])
    rate = last.throughput_per_s if last else None
    return [
        where,
        first.backend,
        first.precision,
        _settings(found.values()),
        *(_cell(found.get(size), winners) for size in batches),
        units.significant(rate),
        _grades([found[size].grade or units.ABSENT for size in batches if size in found]),
    ]


def _grades(grades: Sequence[str]) -> str:
    """One letter where all batch sizes share it, else one for each in order."""
    return grades[0] if len(set(grades)) == 1 else " ".join(grades)


def _settings(rows: Iterable[Row]) -> str:
    """Each setting once, with its batch sizes where there are several: `static+graph (1, 8), dynamic+graph (32)`."""
    found: dict[str, list[int]] = {}
    for row in sorted(rows, key=lambda row: row.batch_size):
        found.setdefault(row.setting, []).append(row.batch_size)
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{name} ({', '.join(map(str, sizes))})" for name, sizes in found.items())


def _cell(row: Row | None, winners: set[str]) -> str:
    if row is None or row.latency_ns is None:
        return units.ABSENT if row is None else units.missing(row)
    text = units.significant(row.latency_ns.median / units.MILLISECOND.ns)
    if row.grade == "C":
        return f"*{text}*"
    return f"**{text}**" if row.case_id in winners else text


def _batch_1_line(row: Row) -> list[str]:
    words = [_model(row), row.backend, row.precision]
    if row.latency_ns is None:
        return [*words, *3 * [units.missing(row)], row.grade or ""]
    speedup = units.ABSENT if row.speedup is None else f"{ranking.speedup(row)}×"
    ms = units.MILLISECOND.ns
    figures = [units.significant(row.latency_ns.median / ms), units.interval(row.latency_ns.ci95, ms)]
    return [*words, *figures, speedup, row.grade or ""]


def _model(row: Row) -> str:
    return row.model if row.weights == "pretrained" else f"{row.model} ({row.weights} weights)"


def _place(row: Row) -> GroupKey:
    return GroupKey.of(row).without("batch_size", "backend", "precision", "setting")


def _median_ns(row: Row | None) -> float:
    return row.latency_ns.median if row and row.latency_ns else float("inf")
