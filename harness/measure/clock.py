"""The only clock: `perf_counter_ns`, the same for every backend, with its own cost measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from harness.core.schemas import Clock

now_ns = time.perf_counter_ns
"""Monotonic host time in nanoseconds."""

_READS = 2_000


def calibrate() -> Clock:
    """Measure what reading the clock costs: the median of reads back to back."""
    read = now_ns
    gaps = [-(read() - read()) for _ in range(_READS)]
    return Clock(
        name="perf_counter_ns",
        resolution_ns=time.get_clock_info("perf_counter").resolution * 1e9,
        overhead_ns=int(statistics.median(gaps)),
    )


def shortest_ns(work: Callable[[], object], span_ns: int, min_calls: int = 3) -> int:
    """The shortest of the calls that fit into span_ns, of min_calls at least: what the work takes undisturbed."""
    shortest, calls = None, 0
    end = now_ns() + span_ns
    while True:
        start = now_ns()
        work()
        stop = now_ns()
        calls += 1
        shortest = stop - start if shortest is None else min(shortest, stop - start)
        if stop >= end and calls >= min_calls:
            return max(shortest, 1)
