"""The metric. Only the stage `aggregate` imports this module."""

from __future__ import annotations

from harness.aggregation.plugin_metrics import Metric
from harness.core.schemas import Row, Unavailable


def _throughput_per_thread(row: Row) -> float | Unavailable:
    if row.throughput_per_s is None or row.threads is None:
        return Unavailable(unavailable="the row has no throughput or no thread count")
    return row.throughput_per_s / row.threads


THROUGHPUT_PER_THREAD = Metric(
    value=_throughput_per_thread,
    unit="items/s",
    better="higher",
    summary="Items per second of wall time, divided by the threads that the backend was given.",
)
