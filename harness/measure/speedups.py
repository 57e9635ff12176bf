"""Ratios to the baseline backend, from same-round medians (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Row, Speedup
from harness.measure import stats


def with_speedups(
    rows: Sequence[Row], medians: Mapping[str, Mapping[int, float]], baseline_backend: str, uncounted: frozenset[str]
) -> list[Row]:
    """Rows with the ratio to the baseline backend in fp32 of the same model, shape, boundary, mode and device.

    Absent where either side is void or the backend computes nothing (`uncounted`).
    """
    baselines: dict[tuple[object, ...], Row] = {}
    for row in rows:
        sound = row.status == "measured" and row.grade != "F" and not row.tried
        if row.backend == baseline_backend and row.precision == "fp32" and sound:
            # The plan has a backend's usual setting first: others are further ways to run the same baseline.
            baselines.setdefault(_peers(row), row)
    return [_with_speedup(row, baselines.get(_peers(row)), medians, uncounted) for row in rows]


def _with_speedup(
    row: Row, baseline: Row | None, medians: Mapping[str, Mapping[int, float]], uncounted: frozenset[str]
) -> Row:
    if baseline is None or row.status != "measured" or row.grade == "F" or row.backend in uncounted:
        return row
    ratio = stats.ratio_of_rounds(medians[baseline.case_id], medians[row.case_id])
    if ratio is None:
        return row
    interval = None if row is baseline else ratio[1]
    return row.model_copy(update={"speedup": Speedup(ratio=ratio[0], ci95=interval, baseline=baseline.case_id)})


def _peers(row: Row) -> tuple[object, ...]:
    return (row.model, row.weights, row.batch_size, row.sequence_length, row.boundary, row.mode, row.device)


def with_baseline_grades(rows: Sequence[Row]) -> list[Row]:
    """Rows whose speedups name the grade of their baseline: a ratio to a disturbed row is no better than that row.

    rows: with their final grades.
    """
    grades = {row.case_id: row.grade for row in rows}
    return [
        row
        if row.speedup is None
        else row.model_copy(
            update={"speedup": row.speedup.model_copy(update={"baseline_grade": grades[row.speedup.baseline]})}
        )
        for row in rows
    ]
