"""Schedules of an open loop, drawn before a run: Poisson arrivals, and LoadGen's Server schedule (pure).

A schedule is an int64 array of instants in nanoseconds after the start of the run, sorted. Its gaps are raw
exponentials: gaps that are scaled to a fixed sum have thinner bursts than Poisson arrivals.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import UsageError

NS = 1e9
"""Nanoseconds of a second."""

MOST_NS = 2**53
"""Latest instant of a schedule, 104 days: a float holds it exactly."""


def poisson(rate_per_s: float, count: int, seed: int) -> NDArray[np.int64]:
    """`count` Poisson arrivals at `rate_per_s`; the first comes after the first gap.

    The generator is NumPy's PCG64 with this seed alone, so the schedule depends on nothing else in the process.
    UsageError for a rate or a count that gives no schedule.
    """
    return at_rate(unit_gaps(count, seed), rate_per_s)


def unit_gaps(count: int, seed: int | tuple[int, ...]) -> NDArray[np.float64]:
    """`count` exponential gaps with mean 1. The same seed at two rates gives the same pattern, stretched."""
    if count < 1:
        raise UsageError(f"A schedule of {count} requests is empty.", "Ask for at least one request.")
    return np.random.default_rng(seed).standard_exponential(count)


def at_rate(gaps: NDArray[np.float64], rate_per_s: float) -> NDArray[np.int64]:
    """The instants of unit gaps at a rate: sums along the last axis. UsageError for a rate that is not positive."""
    instants = np.cumsum(gaps, axis=-1) * (NS / _positive(rate_per_s))
    if float(instants.max()) > MOST_NS:
        raise UsageError(
            f"{gaps.shape[-1]:,} requests at {rate_per_s:g} a second last longer than 100 days.",
            "Ask for a higher rate or fewer requests.",
        )
    return instants.astype(np.int64)


def loadgen(rate_per_s: float, count: int, seed: int) -> NDArray[np.int64]:
    """LoadGen's Server schedule, equal to the nanosecond; its first query is at 0.

    LoadGen draws gaps with C++'s mt19937, seeded with the lower 32 bits of schedule_rng_seed: two 32-bit words make a
    uniform number, its exponential gap is cut to whole nanoseconds (mlcommons/inference, loadgen/loadgen.cc and
    utils; libstdc++'s generate_canonical). UsageError as in poisson.
    """
    rate = _positive(rate_per_s)
    if count < 1:
        raise UsageError(f"A schedule of {count} requests is empty.", "Ask for at least one request.")
    twister = np.random.RandomState()
    twister.seed(seed & 0xFFFFFFFF)
    words = np.frombuffer(twister.bytes(8 * count), dtype="<u4").astype(np.float64)
    uniform = (words[0::2] + words[1::2] * 2.0**32) / 2.0**64
    gaps = np.floor(-np.log1p(-uniform) / rate * NS)
    return np.concatenate([[0], np.cumsum(gaps)])[:count].astype(np.int64)


def rate_of(scheduled: NDArray[np.int64]) -> float:
    """Requests by the length of the schedule, per second: the scheduled rate, which chance moves from the asked one.

    Infinite where all requests are at 0.
    """
    last = int(scheduled[-1])
    return len(scheduled) / last * NS if last else math.inf


def digest(scheduled: NDArray[np.int64]) -> str:
    """sha256 of the schedule as little-endian int64, for its raw file."""
    return hashlib.sha256(np.ascontiguousarray(scheduled, dtype="<i8").tobytes()).hexdigest()


def _positive(rate_per_s: float) -> float:
    if not (math.isfinite(rate_per_s) and rate_per_s > 0):
        raise UsageError(
            f"A rate of {rate_per_s:g} requests a second gives no load.",
            "Ask for a rate above 0, for example RATES=50.",
        )
    return rate_per_s
