"""What this process may use: CPUs by affinity, cores and memory by cgroup, and so how many threads."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def affinity() -> tuple[int, ...]:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_quota(cgroup: Path = _CGROUP) -> float | None:
    """Cores by cgroup quota (v2 `cpu.max`, v1 `cpu.cfs_quota_us`); None where there is no quota."""
    unified = _read(cgroup / "cpu.max")
    if unified:
        quota, period = unified.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = _read(cgroup / "cpu/cpu.cfs_quota_us"), _read(cgroup / "cpu/cpu.cfs_period_us")
    if quota_us and period_us and int(quota_us) > 0:
        return int(quota_us) / int(period_us)
    return None


def memory_limit_bytes(cgroup: Path = _CGROUP) -> int | None:
    """Memory limit of the cgroup; None where there is none."""
    for file in (cgroup / "memory.max", cgroup / "memory/memory.limit_in_bytes"):
        text = _read(file)
        # Version 1 says "no limit" as a number near 2**63.
        if text and text != "max" and int(text) < 2**60:
            return int(text)
    return None


def threads(cpus: int | None = None, quota: float | None = None) -> int:
    """Threads for every backend: the CPUs of the affinity mask, cut to the cgroup quota, rounded down, at least 1.

    Rounded down: a pool with more threads than quota is throttled in every period.
    """
    cpus = len(affinity()) if cpus is None else cpus
    quota = cpu_quota() if quota is None else quota
    return max(1, cpus if quota is None else min(cpus, math.floor(quota)))


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
