"""Resource limits of this process: CPUs by affinity, cores and memory by cgroup, and the resulting thread count."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


MIN_FILES = 64
"""Open files at once: a stage has about a dozen, and its libraries as many while they load."""
MIN_FILE_BYTES = 64 << 20
"""The largest record that is read (core/store.py)."""
MIN_ADDRESS_BYTES = 1 << 30
"""Address space: the libraries of a stage without computation map half of it."""


def too_narrow() -> tuple[str, str] | None:
    """(problem, hint) of the first limit of this process (`ulimit`) that is too low for any stage; else None."""
    for kind, least, thing, remedy in (
        (resource.RLIMIT_NOFILE, MIN_FILES, "open files", "-n 4096"),
        (resource.RLIMIT_FSIZE, MIN_FILE_BYTES, "bytes in a file", "-f unlimited"),
        (resource.RLIMIT_AS, MIN_ADDRESS_BYTES, "bytes of address space", "-v unlimited"),
    ):
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY and most < least:
            problem = f"This shell allows {most:,} {thing} (ulimit {remedy[:2]}); at least {least:,} are needed."
            return problem, f"Raise the limit: ulimit {remedy}"
    return None


def affinity() -> tuple[int, ...]:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


_POLICIES = {
    "SCHED_OTHER": "normal",
    "SCHED_BATCH": "batch",
    "SCHED_IDLE": "idle",
    "SCHED_FIFO": "FIFO",
    "SCHED_RR": "RR",
}
"""Names of os → words (sched(7))."""


def scheduling() -> str:
    """Scheduling policy and nice value of the calling thread, as `normal, nice 0`."""
    kept = getattr(os, "SCHED_RESET_ON_FORK", 0)
    policy = os.sched_getscheduler(0) & ~kept if hasattr(os, "sched_getscheduler") else 0
    name = next((word for name, word in _POLICIES.items() if getattr(os, name, None) == policy), f"policy {policy}")
    return f"{name}, nice {os.getpriority(os.PRIO_PROCESS, 0)}"


def cpu_quota(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> float | None:
    """Cores by cgroup quota, the smallest of this process's cgroup and its ancestors; None without a quota."""
    return min(filter(None, map(_quota, _folders("cpu", cgroup, membership))), default=None)


def memory_limit_bytes(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int | None:
    """Memory limit, the smallest of this process's cgroup and its ancestors; None without a limit."""
    return min(filter(None, map(_memory, _folders("memory", cgroup, membership))), default=None)


def throttled_periods(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int | None:
    """Periods in which a CPU quota throttled this process's cgroup or an ancestor; None where they are not counted."""
    # An ancestor's quota also throttles the cgroups below but is counted only there: the largest count is enough.
    counts = map(_throttled, _folders("cpu", cgroup, membership))
    return max((count for count in counts if count is not None), default=None)


def thread_count(cpus: int | None = None, quota: float | None = None) -> int:
    """Threads for every backend: the CPUs of the affinity mask, cut to the cgroup quota, rounded down, at least 1.

    Rounded down: a pool with more threads than quota is throttled in every period.
    """
    cpus = len(affinity()) if cpus is None else cpus
    quota = cpu_quota() if quota is None else quota
    return max(1, cpus if quota is None else min(cpus, math.floor(quota)))


def _folders(controller: str, cgroup: Path, membership: Path) -> Iterator[Path]:
    """Folders that may hold a limit: the mount and, without a cgroup namespace, also the process's path below it."""
    yield from (cgroup, cgroup / controller)  # version 2, version 1
    for line in (_read(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        own = PurePosixPath(path.lstrip("/"))
        if ".." not in own.parts:  # a path outside this namespace does not exist here
            mount = cgroup / controller if controllers else cgroup
            yield from (mount / level for level in (own, *own.parents))


def _quota(folder: Path) -> float | None:
    """Version 2 has `cpu.max` with quota and period, or the word max; version 1 has a file for each, -1: no quota."""
    unified = _read(folder / "cpu.max")
    split = (_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))
    quota, period = unified.split() if unified else split
    return int(quota) / int(period) if quota and period and quota not in ("max", "-1") else None


def _throttled(folder: Path) -> int | None:
    fields = dict(line.split(maxsplit=1) for line in (_read(folder / "cpu.stat") or "").splitlines() if " " in line)
    return int(fields["nr_throttled"]) if "nr_throttled" in fields else None


def _memory(folder: Path) -> int | None:
    text = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    # Version 1 writes "no limit" as a number near 2**63.
    return int(text) if text and text != "max" and int(text) < 2**60 else None


def _read(file: Path) -> str | None:
    try:
        return file.read_text().strip()
    except OSError:
        return None
