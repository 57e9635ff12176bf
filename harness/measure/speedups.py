"""Ratios to the baseline backend (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Row, Speedup
from harness.measure.ratios import ratio_of_medians


def with_speedups(rows: Sequence[Row], baseline_backend: str, uncounted: frozenset[str]) -> list[Row]:
    """Rows with the ratio to the baseline backend in fp32 of the same model, shape, boundary, mode and device.

    Absent where either side is void or the backend computes nothing (`uncounted`). rows: with their final grades: a
    ratio to a disturbed row is no better than that row, so it carries the grade of its baseline.
    """
    baselines: dict[tuple[object, ...], Row] = {}
    for row in rows:
        sound = row.latency_ns is not None and not row.tried
        if row.backend == baseline_backend and row.precision == "fp32" and sound:
            # The plan has a backend's usual setting first: others are further ways to run the same baseline.
            baselines.setdefault(_peers(row), row)
    return [_with_speedup(row, baselines.get(_peers(row)), uncounted) for row in rows]


def _with_speedup(row: Row, baseline: Row | None, uncounted: frozenset[str]) -> Row:
    if baseline is None or row.backend in uncounted or baseline.latency_ns is None or row.latency_ns is None:
        return row
    ratio = ratio_of_medians(baseline.latency_ns.process_medians, row.latency_ns.process_medians)
    if ratio is None:
        return row
    interval = None if row is baseline else ratio.ci95
    found = Speedup(ratio=ratio.value, ci95=interval, baseline=baseline.case_id, baseline_grade=baseline.grade)
    return row.model_copy(update={"speedup": found})


def _peers(row: Row) -> tuple[object, ...]:
    return (row.model, row.weights, row.batch_size, row.sequence_length, row.boundary, row.mode, row.device)
