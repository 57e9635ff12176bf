"""The counters of the measured process, read around its timed part: stops, CPU time, waits for a CPU, memory."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from harness.core.host import limits, orphans
from harness.core.schemas import CpuUse, Stops
from harness.timing import clock

_TASKS = Path("/proc/self/task")


class StopCounter:
    """Counts stops by phase, from its creation on. enter: also called when a phase begins."""

    def __init__(self, enter: Callable[[str], None]) -> None:
        self._enter = enter
        self._phase = "start"
        self._continued: list[str] = []
        self._suspended_ns = clock.suspended_ns()
        self._counts = threading.current_thread() is threading.main_thread()
        if self._counts:
            self._before = signal.signal(signal.SIGCONT, self._on_continue)
            # Calls of native libraries that a stop interrupts continue as they would without a handler.
            signal.siginterrupt(signal.SIGCONT, False)

    def enter(self, phase: str) -> None:
        """A phase begins."""
        self._phase = phase
        self._enter(phase)

    def end(self) -> Stops | None:
        """The counts; None where signals could not be counted (outside of the main thread)."""
        if not self._counts:
            return None
        signal.signal(signal.SIGCONT, signal.SIG_DFL if self._before is None else self._before)
        before_ns, now_ns = self._suspended_ns, clock.suspended_ns()
        # Two clocks are read one after the other: the difference may be negative by some nanoseconds.
        suspended_ns = None if before_ns is None or now_ns is None else max(0, now_ns - before_ns)
        return Stops(continued=tuple(self._continued), suspended_ns=suspended_ns)

    def _on_continue(self, _signal: int, _frame: FrameType | None) -> None:
        self._continued.append(self._phase)


@dataclass(frozen=True)
class CpuAllowance:
    """The CPUs and the scheduling of a process before its backend can change them."""

    affinity: tuple[int, ...]
    scheduling: str

    @classmethod
    def now(cls) -> CpuAllowance:
        """The present allowance of this process."""
        return cls(limits.affinity(), limits.scheduling())


class CpuWatch:
    """Measures the process's use of CPUs, from its creation on. given: its allowance before loading."""

    def __init__(self, tasks: Path = _TASKS, given: CpuAllowance | None = None) -> None:
        self._tasks, self._given = tasks, given
        self._work: list[int] = []
        self._affinity, self._quota = limits.affinity(), limits.cpu_quota()
        self._waited, self._helpers = cpu_waits_ns(tasks), descendants_cpu_ns()
        self._cpu_ns, self._start_ns = clock.cpu_time_ns(), clock.now_ns()

    def time_work(self) -> None:
        """Time the fixed piece of work again. Only between windows and between blocks, never inside."""
        self._work.append(clock.work_ns())

    def end(self) -> CpuUse:
        """The use since its creation."""
        wall_ns, cpu_ns = clock.now_ns() - self._start_ns, clock.cpu_time_ns() - self._cpu_ns
        given, before, after = self._given, self._waited, cpu_waits_ns(self._tasks)
        return CpuUse(
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            waited_ns=waited_between_ns(before, after),
            threads=len(after) or 1,
            threads_ended=len(before.keys() - after.keys()),
            affinity_start=self._affinity,
            affinity_end=limits.affinity(),
            quota_start=self._quota,
            quota_end=limits.cpu_quota(),
            helpers_ns=max(0, descendants_cpu_ns() - self._helpers),
            affinity_given=None if given is None else given.affinity,
            scheduling_given=None if given is None else given.scheduling,
            scheduling_end=None if given is None else limits.scheduling(),
            started_ticks=orphans.started_ticks(os.getpid()),
            work_ns=tuple(self._work),
        )


def cpu_waits_ns(tasks: Path = _TASKS) -> dict[str, int]:
    """Thread id → ns that each thread of this process was ready and waited for a CPU; empty where it is not counted.

    schedstat contains time on a CPU, time waited for a CPU, and time slices (Documentation/scheduler/sched-stats in the
    kernel's source); the kernel leaves it out without CONFIG_SCHED_INFO.
    """
    waited = {task.parent.name: _wait_ns(task) for task in tasks.glob("*/schedstat")}
    return {thread: wait_ns for thread, wait_ns in waited.items() if wait_ns is not None}


def caller_wait_ns(schedstat: Path = Path("/proc/thread-self/schedstat")) -> int | None:
    """How long this thread was ready and waited for a CPU since it began, in ns; None where it is not counted."""
    return _wait_ns(schedstat)


def _wait_ns(schedstat: Path) -> int | None:
    try:
        return int(schedstat.read_text().split()[1])
    except (OSError, IndexError):  # the thread ended while we read, or nothing is counted here
        return None


def waited_between_ns(before: Mapping[str, int], after: Mapping[str, int]) -> int | None:
    """Sum over threads of the waits between two readings of cpu_waits_ns, in ns; None where waits are not counted.

    A new thread counts from 0. A thread with the id of an ended thread counts only beyond the time of that thread.
    """
    return sum(max(0, waited - before.get(thread, 0)) for thread, waited in after.items()) if after else None


def descendants_cpu_ns() -> int:
    """CPU time in ns of all processes below this one, also of ended ones that were waited for; 0 without /proc."""
    processes: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we read
            # The command's name is in parentheses and may contain spaces: count from its end.
            processes[int(path.parent.name)] = path.read_text(errors="replace").rpartition(")")[2].split()
    own, parents = os.getpid(), {pid: int(fields[1]) for pid, fields in processes.items()}
    # A case's process leads a session of its own; a helper in it may have lost its parent.
    leads = os.getsid(0) == own

    def is_below(pid: int) -> bool:
        if leads and int(processes[pid][3]) == own:
            return True
        for _ in parents:  # so that parents that changed while we read cannot make a circle
            if (pid := parents.get(pid, 0)) in (0, own):
                break
        return pid == own

    ticks = sum(sum(map(int, fields[11:15])) for pid, fields in processes.items() if pid != own and is_below(pid))
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(1e9 * (ticks / os.sysconf("SC_CLK_TCK") + ended.ru_utime + ended.ru_stime))


def resident_bytes() -> int:
    """Resident set now; the peak where the kernel does not show it (macOS)."""
    return _status("VmRSS") or _peak_by_rusage()


def peak_bytes() -> int:
    """Largest resident set since the process began."""
    return _status("VmHWM") or _peak_by_rusage()


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), None)


def _peak_by_rusage() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
