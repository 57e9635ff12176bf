"""The only host clock (`perf_counter_ns`, for every backend), its measured overhead, and a fixed piece of work.

A guest cannot read its CPU's frequency. The time of a fixed piece of work shows it nevertheless, and also shows a
neighbour on the same core.
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
"""Seconds since the epoch: the only time that processes of a command can pass to each other. Never for a latency."""

cpu_time_ns = time.process_time_ns
"""CPU time of this process in nanoseconds, the sum over all threads that ever ran in it."""


def suspended_ns() -> int | None:
    """How long the machine has been suspended since it started, which `now_ns` does not count; None where no clock
    counts it (only Linux does)."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    # Monotonic first: in the other order, an interrupt could make the difference shrink between two calls.
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - monotonic


_READS = 2_000

_WORK = bytes(16 << 10)
"""Fits into the first-level cache of every current CPU, so that memory does not matter."""
_REPEATS = 24
"""About 10 µs each. The shortest was not interrupted."""


def calibrate() -> Clock:
    """Measure the overhead of reading the clock: the median of reads back to back."""
    read = now_ns
    gaps = [-(read() - read()) for _ in range(_READS)]
    return Clock(
        name="perf_counter_ns",
        resolution_ns=time.get_clock_info("perf_counter").resolution * 1e9,
        overhead_ns=int(statistics.median(gaps)),
    )


def work_ns() -> int:
    """Time of a fixed piece of work on one thread: the shortest of a quarter of a millisecond of repeats."""
    read, digest = now_ns, hashlib.sha256
    least = 1 << 62
    for _ in range(_REPEATS):
        start = read()
        digest(_WORK)
        least = min(least, read() - start)
    return least


def shortest_ns(work: Callable[[], object], span_ns: int, min_calls: int = 3) -> int:
    """Time of the shortest call within span_ns, of min_calls at least: the time of the undisturbed work."""
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
