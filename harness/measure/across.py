"""What only several rows together show: a flag for a row that does not fit its neighbours (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from harness.core.schemas import Row
from harness.measure.grades import finding, worse
from harness.measure.rows import is_calibration


def with_nonmonotone(rows: Sequence[Row]) -> list[Row]:
    """Rows with NONMONOTONE on each that takes longer than a larger batch of the same case, beyond both intervals.

    It caps at B and not below: a library may really choose a better kernel for the larger batch (METHOD 4 has PyTorch
    with 6.2 ms at batch 1 and 3.9 ms at batch 8), so the number can be right, and deserves a second look.
    """
    flagged = dict(pair for group in _series(rows) for pair in _inversions(group))
    return [_flagged(row, flagged[row.case_id]) if row.case_id in flagged else row for row in rows]


def _series(rows: Iterable[Row]) -> list[list[Row]]:
    """Sound rows that differ in nothing but the batch size, smallest first."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.latency_ns is not None and not is_calibration(row):
            key = (row.model, row.weights, row.backend, row.device, row.precision, row.sequence_length)
            found.setdefault((*key, row.boundary, row.mode, row.setting), []).append(row)
    return [sorted(group, key=lambda row: row.batch_size) for group in found.values()]


def _inversions(group: Sequence[Row]) -> list[tuple[str, Row]]:
    """(case id, the larger batch) of each row that is slower than the next larger batch."""
    return [(small.case_id, large) for small, large in pairwise(group) if _is_above(small, large)]


def _is_above(small: Row, large: Row) -> bool:
    ours = small.latency_ns.ci95 if small.latency_ns else None
    theirs = large.latency_ns.ci95 if large.latency_ns else None
    return ours is not None and theirs is not None and ours.low > theirs.high


def _flagged(row: Row, larger: Row) -> Row:
    assert row.latency_ns is not None and larger.latency_ns is not None  # noqa: PT018, S101 - _series chose them
    detail = (
        f"batch {row.batch_size} takes {row.latency_ns.median / 1e6:.3g} ms and batch {larger.batch_size} only "
        f"{larger.latency_ns.median / 1e6:.3g} ms"
    )
    remedy = f"Use batch {larger.batch_size} with padding if this lasts; `make run FORCE=1` shows whether it does."
    found = finding("B", "NONMONOTONE", detail, remedy)
    grade = row.grade and worse(row.grade, found.caps_at)
    return row.model_copy(update={"grade": grade, "flags": (*row.flags, found.flag)})
