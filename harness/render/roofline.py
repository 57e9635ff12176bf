"""Rows against the measured limits of their device: one table, with the limits above it (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import CpuLimits, CpuRoof, Roof, Row
from harness.measure.roofline import pass_ns
from harness.render import units
from harness.render.markdown import table
from harness.render.series import setting_columns
from harness.render.units import ABSENT


def roof_line(roof: Roof | CpuRoof) -> str:
    """The limits in one sentence, and in another what they were measured without."""
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
    limits = "; ".join(map(_with_threads, roof.limits))
    absent = f" Measured without {', '.join(roof.without)}, whose products may be faster." if roof.without else ""
    return f"Measured limits of {roof.device} {limits}{cache}.{absent}"


def _with_threads(limits: CpuLimits) -> str:
    products = ", ".join(f"{precision} {units.significant(rate / 1e9)}" for precision, rate in limits.flops.items())
    rate = limits.copy_bytes_per_s
    copies = "" if rate is None else f", copy {units.significant(rate / 1e9)} GB/s (read + written)"
    return f"with {units.count(limits.threads, 'thread')}: best matrix product {products} GFLOP/s{copies}"


def roofline_table(rows: Sequence[Row], roof: Roof | CpuRoof | None) -> str:
    """Work, shares and limit of each row that has a roofline, below the limits; empty where none has."""
    found = [row for row in rows if row.roofline is not None]
    if roof is None or not found:
        return ""
    by_length = any(row.sequence_length for row in found)
    settings = setting_columns(found)
    headers = ["backend", "precision", *settings, "batch", *(["seq"] if by_length else [])]
    headers += [
        "GFLOP a batch",
        f"{'G' if isinstance(roof, CpuRoof) else 'T'}FLOP/s",
        "of the best",
        "MB at least",
        "of the best copy",
        "limit",
    ]
    return f"{roof_line(roof)}\n\n{table(headers, [_line(row, by_length, bool(settings)) for row in found])}"


def _line(row: Row, by_length: bool, with_setting: bool) -> list[str]:
    roofline = row.roofline
    assert roofline is not None  # noqa: S101 - chosen by roofline_table
    time_ns, scale = pass_ns(row), 1 if row.device == "cpu" else 1e3
    part = "at least " if roofline.at_least else ""
    return [
        *(row.backend, row.precision),
        *([row.setting] if with_setting else []),
        str(row.batch_size),
        *([str(row.sequence_length or ABSENT)] if by_length else []),
        part + units.significant(roofline.flops / 1e9),
        part + units.significant(roofline.flops / time_ns / scale if time_ns else None),
        part + units.percent(roofline.flops_share),
        units.significant(roofline.bytes / 1e6),
        units.percent(roofline.bytes_share),
        roofline.limit or ABSENT,
    ]
