"""The roofline table: rows against the measured limits of their device, with the limits above it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.aggregation.roofline import bounds_of
from harness.core import units
from harness.core.schemas import CpuLimits, CpuRoof, ExportRecord, Roof, Row, Summary
from harness.core.units import ABSENT
from harness.reporting.csv_identity import Line, case_line, has_figures, sound_rows
from harness.reporting.figures import CSV_UNITS, ROOFLINE, columns
from harness.reporting.table import Column, Table, case_columns, word_column


def roof_line(roof: Roof | CpuRoof) -> str:
    """A sentence with the limits; on a CPU also a sentence with the libraries that the measurement lacked."""
    if isinstance(roof, CpuRoof):
        return _cpu_line(roof)
    peaks = ", ".join(f"{precision} {units.significant(rate / 1e12)}" for precision, rate in roof.flops.items())
    copies = [f"copy on the device {units.significant(roof.copy_bytes_per_s / 1e9)} GB/s (read + written)"]
    for name, rate in (("to it", roof.h2d_bytes_per_s), ("from it", roof.d2h_bytes_per_s)):
        copies += [f"{name} {units.significant(rate / 1e9)} GB/s"] if rate is not None else []
    launch = f"one more kernel in a CUDA graph {units.duration(roof.launch_ns)}"
    return f"Measured limits of {roof.device}: best matrix product {peaks} TFLOP/s · {', '.join(copies)} · {launch}."


def _cpu_line(roof: CpuRoof) -> str:
    cache = f" · last-level cache {units.mib(roof.cache_bytes)} MiB" if roof.cache_bytes else ""
    limits = "; ".join(map(_thread_limits_text, roof.limits))
    absent = f" Measured without {', '.join(roof.without)}, whose products may be faster." if roof.without else ""
    return f"Measured limits of {roof.device} {limits}{cache}.{absent}"


def _thread_limits_text(limits: CpuLimits) -> str:
    products = ", ".join(f"{precision} {units.significant(rate / 1e9)}" for precision, rate in limits.flops.items())
    rate = limits.copy_bytes_per_s
    copies = "" if rate is None else f", copy {units.significant(rate / 1e9)} GB/s (read + written)"
    return f"with {units.count(limits.threads, 'thread')}: best matrix product {products} GFLOP/s{copies}"


def roofline_table(rows: Sequence[Row], roof: Roof | CpuRoof | None) -> Table[Row] | None:
    """Work, shares and limit of each row that has a roofline, below the limits; None where none has."""
    measured = [row for row in rows if row.roofline is not None]
    if roof is None or not measured:
        return None
    rate = "GFLOP/s" if isinstance(roof, CpuRoof) else "TFLOP/s"
    return Table([*case_columns(measured), *_columns(rate)], measured, roof_line(roof))


def uncounted_work(export: ExportRecord | None, roof: Roof | CpuRoof | None) -> str | None:
    """A sentence for a model whose rows have no roofline, because its work was not counted; else None."""
    if roof is None or export is None or export.why_uncounted is None:
        return None
    return f"The FLOPs of a pass are unknown, so that no row has a roofline: {export.why_uncounted}."


def _columns(rate: str) -> list[Column[Row]]:
    work, speed, best, moved, copy, limit = ROOFLINE

    def at_least(text: Callable[[Row], str]) -> Callable[[Row], str]:
        return lambda row: ("at least " if row.roofline and row.roofline.at_least else "") + text(row)

    def per_s(row: Row) -> str:
        flops_per_s = speed.number(row)
        return units.significant(None if flops_per_s is None else flops_per_s / (1e9 if row.device == "cpu" else 1e12))

    return [
        Column("GFLOP a batch", at_least(lambda row: units.significant((work.number(row) or 0) / 1e9))),
        Column(rate, at_least(per_s)),
        Column("of the best", at_least(lambda row: units.percent(best.number(row)))),
        Column("MB at least", lambda row: units.significant((moved.number(row) or 0) / 1e6)),
        Column("of the best copy", lambda row: units.percent(copy.number(row))),
        word_column("limit", lambda row: str(limit.value(row) or ABSENT)),
    ]


def roofline_lines(summary: Summary) -> list[Line]:
    """A line for each row that has a roofline."""
    return [
        case_line(summary, row, shares) for row in sound_rows(summary) if (shares := roofline_columns(summary, row))
    ]


def roofline_columns(summary: Summary, row: Row) -> Line:
    """Work of a batch, shares of the limits that are reached, and the limits; empty where both are missing."""
    bounds = bounds_of(row, row.threads, summary.roof)
    if row.roofline is None or isinstance(bounds, str) or not has_figures(row):
        return {}
    return {
        **columns(ROOFLINE, row, CSV_UNITS),
        "best_flops_per_s": bounds.flops_per_s,
        "best_copy_bytes_per_s": bounds.copy_bytes_per_s,
    }
