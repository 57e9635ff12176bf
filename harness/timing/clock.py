"""The only clock: `perf_counter_ns`, the same for every backend, with its own cost measured; and what clocks the CPU.

A guest does not see its CPU's frequency. How long a fixed piece of work takes shows it all the same, and shows a
neighbour on the same core as well.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable

from harness.core.schemas import Clock

now_ns = time.perf_counter_ns
"""Monotonic host time in nanoseconds."""

unix_s = time.time
"""Seconds since the epoch: the one instant that processes of a command can hand on. Never for a latency."""

cpu_time_ns = time.process_time_ns
"""CPU time of this process, all threads that ever ran in it together, in nanoseconds."""


def suspended_ns() -> int | None:
    """How long the machine has been suspended since it started, of which `now_ns` knows nothing; None where no clock
    counts it (Linux alone does)."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    # Monotonic first: read the other way round, the difference could shrink between two calls by an interrupt.
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - monotonic


_READS = 2_000

_WORK = bytes(16 << 10)
"""Fits into the first-level cache of every CPU of today, so that memory has no part in it."""
_REPEATS = 24
"""Of some 10 µs each. The least of them has met no interrupt."""


def calibrate() -> Clock:
    """Measure what reading the clock costs: the median of reads back to back."""
    read = now_ns
    gaps = [-(read() - read()) for _ in range(_READS)]
    return Clock(
        name="perf_counter_ns",
        resolution_ns=time.get_clock_info("perf_counter").resolution * 1e9,
        overhead_ns=int(statistics.median(gaps)),
    )


def work_ns() -> int:
    """How long a fixed piece of computing takes on one thread: the least of a quarter of a millisecond of repeats."""
    read, digest = now_ns, hashlib.sha256
    least = 1 << 62
    for _ in range(_REPEATS):
        start = read()
        digest(_WORK)
        least = min(least, read() - start)
    return least


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
