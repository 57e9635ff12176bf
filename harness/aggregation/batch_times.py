"""Time of one batch in one process and in each of its blocks, whether single batches were timed or not (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Latency, TimedRecord
from harness.statistics import estimators


def batch_ns(record: TimedRecord) -> float:
    """Median latency of the process; in offline mode, which times no batch by itself, wall time divided by batches."""
    if record.latency_ns:
        return estimators.median(record.latency_ns)
    return wall_ns(record) / batch_count(record)


def blocks_ns(record: TimedRecord) -> list[float]:
    """batch_ns of each block, in ns."""
    if record.latency_ns:
        return estimators.block_medians(record.latency_ns, record.blocks)
    return [block.wall_ns / block.iterations for block in record.blocks]


def offline_of(records: Sequence[TimedRecord]) -> Latency:
    """Wall time per batch over the rounds; single batches were not timed, so nothing is known about their spread."""
    times = tuple(batch_ns(record) for record in records)
    return Latency(
        median=estimators.median(times),
        ci95=estimators.median_interval(times),
        p50=None,
        p90=None,
        p95=None,
        p99=None,
        max=None,
        mean=estimators.median(times),
        iqr=None,
        cv=None,
        lag1_autocorrelation=None,
        n=sum(batch_count(record) for record in records),
        rounds=len(records),
        process_medians=times,
    )


def batch_count(record: TimedRecord) -> int:
    """How many batches were measured."""
    return sum(block.iterations for block in record.blocks)


def wall_ns(record: TimedRecord) -> int:
    """How long all blocks took."""
    return sum(block.wall_ns for block in record.blocks)


def wall_per_batch_ns(record: TimedRecord) -> float | None:
    """Wall time of a batch, the mean of all blocks; None where no batch was measured."""
    count = batch_count(record)
    return wall_ns(record) / count if count else None
