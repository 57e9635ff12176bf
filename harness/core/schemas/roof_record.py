"""results/roof.json: measured limits of a device: a Roof for a plan on a GPU, a CpuRoof for a plan on a CPU."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.environment_record import Machine
from harness.core.schemas.vocabulary import Precision, Record


class Roof(Record):
    """Measured limits of one GPU: no work on it is faster."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the GPU."""
    uuid: str
    flops: dict[Precision, float]
    """Best matrix product, FLOP/s, 2 per multiply-add."""
    copy_bytes_per_s: float
    """Best device-to-device copy, bytes read plus bytes written."""
    launch_ns: float
    """Device time of one more dependent empty kernel in a CUDA graph."""
    h2d_bytes_per_s: float | None = None
    d2h_bytes_per_s: float | None = None
    """Copies from and to pinned host memory."""


class CpuLimits(Record):
    """Measured limits of a CPU with so many threads, each with its own work at the same time."""

    threads: int
    flops: dict[Precision, float]
    """Best matrix products, FLOP/s of all threads together, 2 per multiply-add. A precision that could not be measured
    is absent."""
    by: dict[Precision, str] = {}
    """The library of that matrix product, in words."""
    copy_bytes_per_s: float | None
    """Best copies within memory, bytes read plus bytes written; None where they could not be measured."""


class CpuRoof(Record):
    """Measured limits of one CPU, by the number of threads."""

    schema_version: Literal[1] = 1
    created_at: str
    environment_id: str
    device: str
    """Name of the CPU."""
    machine: Machine
    cpus: int
    """CPUs that the measuring processes could use, by affinity."""
    cache_bytes: int | None
    """Total size of all last-level caches; None where the kernel does not list them."""
    limits: tuple[CpuLimits, ...]
    unmeasured: dict[Precision, str] = {}
    """Why a precision that the plan asks for has no limit."""
    without: tuple[str, ...] = ()
    """Libraries that were not available: their matrix products may be faster."""

    def of(self, threads: int) -> CpuLimits | None:
        """The limits with so many threads; None where they were not measured."""
        return next((limits for limits in self.limits if limits.threads == threads), None)
