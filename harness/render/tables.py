"""The latency table of one model: Markdown for the report, plain columns for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tabulate import tabulate

from harness.core.schemas import ExportRecord, Latency, Row, Summary
from harness.measure.stats import P90_MIN_SAMPLES, P95_MIN_SAMPLES, P99_MIN_SAMPLES, least_in_process
from harness.render import ranking, units, ways
from harness.render.custom import Metrics, metric_columns
from harness.render.device_columns import device_columns
from harness.render.engines import Engines, engine_of
from harness.render.markdown import WORDS, table
from harness.render.series import USUAL, setting_columns
from harness.render.units import ABSENT, TimeUnit

VOID = "void"
"""Stands in place of every figure of speed of a grade F row: it timed something else than its label says."""

WITHHELD = {"p90": P90_MIN_SAMPLES, "p95": P95_MIN_SAMPLES, "p99": P99_MIN_SAMPLES}


def latency_table(
    rows: Sequence[Row],
    export: ExportRecord | None = None,
    engines: Engines | None = None,
    metrics: Metrics | None = None,
) -> str:
    """Latency, throughput, speedup, parity, memory and grade of the rows of one table (ranking.by_table).

    export, engines: of the table's model and Summary.engines; where rows differ in precision, they tell the sizes of
    the files that were loaded. metrics: Summary.custom.
    """
    columns = latency_columns(rows, export, engines, metrics)
    text = table([*columns], [[cell(row) for cell in columns.values()] for row in rows])
    return "\n\n".join([text, *doubt_notes(rows)])


def doubt_notes(rows: Sequence[Row]) -> list[str]:
    """What the mark beside a speedup means, where any has one."""
    return [ranking.DOUBT_MEANS] if any(ranking.is_doubtful(row) and row.grade != "F" for row in rows) else []


def latency_columns(
    rows: Sequence[Row],
    export: ExportRecord | None = None,
    engines: Engines | None = None,
    metrics: Metrics | None = None,
) -> dict[str, Callable[[Row], str]]:
    """Header → cell in Markdown, in order, of `latency_table`."""
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    winners = {found.case_id for _, group in ranking.by_shape(rows) if (found := ranking.winner(group))}
    return _columns(rows, unit, winners, file_sizes(rows, export, engines or {}), metrics or {})


TERMINAL_COLUMNS = 120
"""Characters of a line, its flags not counted, beyond which the terminal's table leaves the device's time out."""


def terminal_table(summary: Summary) -> str:
    """One line a case: model, batch, then latency; the time by a GPU's own clock where it fits, else where it is."""
    tables = ranking.by_table(summary.rows)
    rows = [row for _, found in tables for row in found]
    winners = {
        found.case_id
        for _, rows_of_table in tables
        for _, group in ranking.by_shape(rows_of_table)
        if (found := ranking.winner(group))
    }
    unit = units.time_unit(row.latency_ns.median for row in rows if row.latency_ns)
    columns = _terminal_columns(rows, unit, winners)
    letters = _plain({**columns, "grade": lambda row: row.grade or ABSENT}, rows)
    device = f"device {unit.name}"
    notes = [*(["*: clearly the fastest of its model and batch."] if winners else []), *doubt_notes(rows)]
    if device in columns and max(map(len, letters.splitlines())) > TERMINAL_COLUMNS:
        del columns[device]
        notes.append(f"Left out for the width of a line: {device}; see summary.csv or report.md.")
    return "\n\n".join([_plain(columns, rows), *notes])


def _plain(columns: Mapping[str, Callable[[Row], str]], rows: Sequence[Row]) -> str:
    align = ["left" if name in WORDS else "right" for name in columns]
    lines = [[cell(row) for cell in columns.values()] for row in rows]
    return tabulate(lines, [*columns], tablefmt="simple", colalign=align if lines else None, disable_numparse=True)


def _terminal_columns(rows: Sequence[Row], unit: TimeUnit, winners: set[str]) -> dict[str, Callable[[Row], str]]:
    offline = any(row.mode == "offline" for row in rows)
    time = f"time {unit.name}" if offline else f"median {unit.name}"  # of a batch, where no batch has a latency
    columns: dict[str, Callable[[Row], str]] = {
        "model": lambda row: " ".join([row.model, ways.short(row)]).strip(),
        "backend": lambda row: row.backend,
        "precision": lambda row: row.precision,
        **({"setting": _short_setting} if setting_columns(rows) else {}),
        "batch": lambda row: str(row.batch_size),
    }
    if any(row.sequence_length for row in rows):
        columns["seq"] = lambda row: str(row.sequence_length or ABSENT)
    columns[time] = lambda row: (
        ("* " if row.case_id in winners else "") + _timed(row, lambda latency: units.in_unit(latency.median, unit))
    )
    columns["95% CI"] = lambda row: _timed(row, lambda latency: units.interval(latency.ci95, unit.ns))
    device = f"device {unit.name}"
    columns |= {name: cell for name, cell in device_columns(rows, unit).items() if name == device}
    columns["items/s"] = lambda row: _rate(row, 1)
    columns["speedup"] = lambda row: VOID if row.grade == "F" else ranking.speedup(row)
    columns["grade"] = lambda row: " ".join([row.grade or ABSENT, *dict.fromkeys(flag.name for flag in row.flags)])
    return columns


def _short_setting(row: Row) -> str:
    return "" if row.setting == USUAL else row.setting


def _columns(
    rows: Sequence[Row], unit: TimeUnit, winners: set[str], file_bytes: dict[str, int], metrics: Metrics
) -> dict[str, Callable[[Row], str]]:
    """Header → cell, in order; sequence length and tokens/s only where a row has them.

    Top-1 only for trained classifiers, the cosine for all others; it and the file size only where a row is below fp32.
    """
    columns: dict[str, Callable[[Row], str]] = {
        "backend": lambda row: row.backend,
        "precision": lambda row: row.precision,
        **setting_columns(rows),
        "batch": lambda row: str(row.batch_size),
    }
    by_length = any(row.sequence_length for row in rows)
    if by_length:
        columns["seq"] = lambda row: str(row.sequence_length or ABSENT)
    columns[ways.time_name(rows[0], unit)] = lambda row: _median(row, unit, row.case_id in winners)
    columns["95% CI"] = lambda row: _timed(row, lambda latency: units.interval(latency.ci95, unit.ns))
    columns |= device_columns(rows, unit)
    if any(row.stopped not in ("planned rounds", None) for row in rows):
        columns["rounds"] = lambda row: _timed(row, lambda latency: f"{latency.rounds} ({row.stopped})")
    if any(row.latency_ns and row.latency_ns.p50 is not None for row in rows):
        columns.update({f"{name} {unit.name}": _percentile(name, unit) for name in WITHHELD})
    columns.update(ways.split_columns(rows))
    columns[f"{units.ITEMS[rows[0].kind]}/s"] = lambda row: _rate(row, 1)
    if by_length:
        columns["tokens/s"] = lambda row: _rate(row, row.sequence_length)
    columns["speedup"] = _speedup
    columns["rel. L2"] = lambda row: units.scientific(row.parity.relative_l2 if row.parity else None)
    reduced = any(row.precision != "fp32" for row in rows)
    by_answers = any(_top1(row) != ABSENT for row in rows)
    if reduced and not by_answers:
        columns["cosine"] = lambda row: units.cosine(row.parity.cosine if row.parity else None)
    if by_answers:
        columns["top-1"] = _top1
    if reduced and file_bytes:
        columns["file MiB"] = lambda row: units.in_mib(file_bytes.get(row.case_id))
    columns["peak MiB"] = lambda row: units.mib(row.memory_bytes)
    columns |= {name: _unless_void(cell) for name, cell in metric_columns(rows, metrics).items()}
    columns["grade"] = _grade
    return columns


def file_sizes(rows: Sequence[Row], export: ExportRecord | None, engines: Engines) -> dict[str, int]:
    """Case id → size on disk of the ONNX file, weights or engine that a row loaded; others are absent."""
    if export is None:
        return {}
    files = [file for onnx in (*export.onnx.values(), *export.onnx_variants.values()) for file in onnx.files()]
    files += [export.module] if export.module else []
    sizes = {row.case_id: sum(file.size_bytes for file in files if file.path in row.artifacts) for row in rows}
    built = {row.case_id: engine for row in rows if (engine := engine_of(row, export, engines))}
    sizes |= {case_id: engine.engine.size_bytes for case_id, engine in built.items()}
    return {case_id: size for case_id, size in sizes.items() if size}


def _timed(row: Row, figure: Callable[[Latency], str]) -> str:
    if row.grade == "F":
        return VOID
    return figure(row.latency_ns) if row.latency_ns else ABSENT


def _unless_void(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    return lambda row: VOID if row.grade == "F" else cell(row)


def _median(row: Row, unit: TimeUnit, wins: bool) -> str:
    text = _timed(row, lambda latency: units.in_unit(latency.median, unit))
    if row.grade == "C":
        return f"*{text}*"
    return f"**{text}**" if wins else text


def _percentile(name: str, unit: TimeUnit) -> Callable[[Row], str]:
    def figure(latency: Latency) -> str:
        value: float | None = getattr(latency, name)
        if value is not None:
            return units.in_unit(value, unit)
        least = WITHHELD[name]
        if latency.n < least:
            return f"needs {least} samples"
        return f"needs {least_in_process(int(name[1:]) / 100)} samples a process"

    return lambda row: _timed(row, figure)


def _rate(row: Row, items: int | None) -> str:
    if row.grade == "F":
        return VOID
    return ABSENT if row.throughput_per_s is None or items is None else units.significant(row.throughput_per_s * items)


def _speedup(row: Row) -> str:
    if row.grade == "F":
        return VOID
    if row.speedup is None:
        return ABSENT
    if row.speedup.baseline == row.case_id:
        return "1 (baseline)"
    ends = f" {units.interval(row.speedup.ci95)}" if row.speedup.ci95 else ""
    return f"{ranking.speedup(row)}{ends}"


def _top1(row: Row) -> str:
    # Near-tied logits of random weights flip on rounding alone: their agreement would mislead.
    return ABSENT if row.weights == "seeded" or row.parity is None else units.percent(row.parity.top1_agreement)


def _grade(row: Row) -> str:
    names = ", ".join(dict.fromkeys(flag.name for flag in row.flags))
    return f"{row.grade or ABSENT} {names}".strip()
