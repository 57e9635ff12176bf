"""The block that a README opens with: chart, conditions and one table, made from a published summary (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from harness.core.schemas import Row, Summary
from harness.render import ranking, units
from harness.render.conditions import short_conditions
from harness.render.markdown import table
from harness.render.tables import doubt_notes

ROWS_AT_MOST = 10
"""Of a README's table of one device; the report has the others."""

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def headline_block(summary: Summary, folder: PurePath) -> str:
    """Rows with one batch in flight and nothing copied; on a GPU every batch size is a column, else batch 1 is all.

    folder: of the published run, as the README links to it.
    """
    tables = ranking.by_table(summary.rows)
    rows = [row for _, found in tables for row in found if (row.boundary, row.mode) == ("compute", "sync")]
    on_gpu = any(row.device == "cuda" for row in rows)
    measured = rows if on_gpu else [row for row in rows if row.batch_size == 1]
    shown = measured if on_gpu else shortlist(measured)
    body = gpu_table(shown) if on_gpu else batch_1_table(shown)
    models = list(dict.fromkeys(row.model for row in shown))
    count = NUMBERS[len(models)] if len(models) < len(NUMBERS) else str(len(models))
    lengths = sorted({row.sequence_length for row in shown if row.sequence_length})
    sequences = "".join(f", sequence {length}" for length in lengths)
    what = "Host median in ms by batch size; bold: clearly the fastest" if on_gpu else f"Batch 1{sequences}"
    # A table of batch sizes shows no speedups.
    notes = [] if on_gpu else doubt_notes(shown)
    report = "The whole report" if len(shown) == len(measured) else f"All {len(measured)} rows"
    alt = f"Latency by backend, batch 1, {count} model{'' if len(models) == 1 else 's'}"
    return (
        f"![{alt}]({folder}/charts/overview.png)\n\n"
        f"{short_conditions(summary, shown)} {what}. [{report}]({folder}/report.md).\n\n" + "\n\n".join([body, *notes])
    )


def shortlist(rows: Sequence[Row]) -> list[Row]:
    """At most ROWS_AT_MOST rows, equally many a model and sequence length, in the order given.

    First of each: the fastest in fp32, which gives the same answers, the fastest of all, the baseline; then the
    next fastest.
    """
    places = list(dict.fromkeys(map(_place, rows)))[:ROWS_AT_MOST]
    kept: set[str] = set()
    for place in places:
        ordered = sorted((row for row in rows if _place(row) == place), key=_median_ns)
        exact = [row for row in ordered if row.precision == "fp32"]
        baselines = [row for row in ordered if row.speedup and row.speedup.baseline == row.case_id]
        wanted = [*exact[:1], *ordered[:1], *baselines, *ordered]
        kept |= set(list(dict.fromkeys(row.case_id for row in wanted))[: ROWS_AT_MOST // len(places)])
    return [row for row in rows if row.case_id in kept]


def batch_1_table(rows: Sequence[Row]) -> str:
    """One line a row: median, interval, speedup, accuracy, grade; models in the plan's order, the fastest first."""
    headers = ["model", "backend", "precision", "median ms", "95% CI", "speedup", "accuracy", "grade"]
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
    lines: dict[tuple[str, str, str, str], dict[int, Row]] = {}
    for row in rows:
        # The first is the best-graded and fastest: a void setting stands in the report beside the one that is right.
        lines.setdefault((*_place(row), row.backend, row.precision), {}).setdefault(row.batch_size, row)
    places = list(dict.fromkeys(map(_place, rows)))
    largest = batches[-1]
    ordered = sorted(lines.items(), key=lambda item: (places.index(item[0][:2]), _median_ns(item[1].get(largest))))
    headers = ["model", "backend", "precision", "setting (batch)", *(f"batch {size}" for size in batches)]
    headers += [f"items/s at {largest}", "grade"]
    return table(headers, [_gpu_line(key, found, batches, winners) for key, found in ordered])


def _gpu_line(
    key: tuple[str, str, str, str], found: dict[int, Row], batches: Sequence[int], winners: set[str]
) -> list[str]:
    _, _, backend, precision = key
    first = next(iter(found.values()))
    where = _model(first) + (f", sequence {first.sequence_length}" if first.sequence_length else "")
    last = found.get(batches[-1])
    rate = last.throughput_per_s if last and last.grade != "F" else None
    return [
        where,
        backend,
        precision,
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
        return units.ABSENT
    if row.grade == "F":
        return "void"
    text = units.significant(row.latency_ns.median / units.MILLISECOND.ns)
    if row.grade == "C":
        return f"*{text}*"
    return f"**{text}**" if row.case_id in winners else text


def _batch_1_line(row: Row) -> list[str]:
    words = [_model(row), row.backend, row.precision]
    if row.latency_ns is None or row.grade == "F":
        return [*words, "void", "void", "void", "void", row.grade or ""]
    speedup = units.ABSENT if row.speedup is None else f"{ranking.speedup(row)}×"
    ms = units.MILLISECOND.ns
    figures = [units.significant(row.latency_ns.median / ms), units.interval(row.latency_ns.ci95, ms)]
    return [*words, *figures, speedup, _accuracy(row), row.grade or ""]


def _accuracy(row: Row) -> str:
    """Against fp32 PyTorch: share of equal answers of a trained classifier, else the cosine of the worst sample."""
    if row.parity is None:
        return units.ABSENT
    if row.parity.top1_agreement is not None and row.weights == "pretrained":
        return f"top-1 {row.parity.top1_agreement:.1%}"
    return units.ABSENT if row.parity.cosine is None else f"cosine {row.parity.cosine:.3f}"


def _model(row: Row) -> str:
    return row.model if row.weights == "pretrained" else f"{row.model} ({row.weights} weights)"


def _place(row: Row) -> tuple[str, str]:
    return (_model(row), str(row.sequence_length or ""))


def _median_ns(row: Row | None) -> float:
    return row.latency_ns.median if row and row.latency_ns and row.grade != "F" else float("inf")
