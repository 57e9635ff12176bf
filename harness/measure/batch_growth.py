"""How much of a row's device time does not grow with its batch: what neighbouring batch sizes tell (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from harness.core.schemas import Row
from harness.measure.rows import GroupKey


def fixed_shares(rows: Iterable[Row]) -> dict[str, float]:
    """Case id → share of its device time, by time = fixed + batch x each through it and the next batch size.

    The next larger one, because that is the batch a reader may go to; for the largest, the one before. Rows without a
    neighbour are left out. Below 0 where a larger batch takes more than its share.
    """
    found: dict[str, float] = {}
    for series in _series(rows):
        for small, large in pairwise(series):
            found[small.case_id] = _fixed_share(small, small, large)
        if len(series) > 1:
            found[series[-1].case_id] = _fixed_share(series[-1], *series[-2:])
    return found


def _fixed_share(row: Row, small: Row, large: Row) -> float:
    each_ns = (_device_ns(large) - _device_ns(small)) / (large.batch_size - small.batch_size)
    return 1 - each_ns * row.batch_size / _device_ns(row)


def _series(rows: Iterable[Row]) -> list[Sequence[Row]]:
    """Sound rows with device times that differ in nothing but the batch size, smallest first."""
    found: dict[GroupKey, list[Row]] = {}
    for row in rows:
        if _device_ns(row):
            found.setdefault(GroupKey.of(row).without("batch_size"), []).append(row)
    return [sorted(series, key=lambda row: row.batch_size) for series in found.values()]


def _device_ns(row: Row) -> float:
    """Of the pass alone; 0 where the GPU's clock was not on it."""
    times = row.device_ns
    return 0.0 if times is None else times.device if times.compute is None else times.compute
