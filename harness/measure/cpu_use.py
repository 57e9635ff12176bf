"""What this process takes of its CPUs between two instants: CPU time, waiting for a CPU, what it may use, its clock."""

from __future__ import annotations

from pathlib import Path

from harness.core import limits
from harness.core.schemas import CpuUse
from harness.measure import clock

_TASKS = Path("/proc/self/task")


class CpuWatch:
    """Begins when it is made."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._work: list[int] = []
        self._affinity, self._quota = limits.affinity(), limits.cpu_quota()
        self._waited = waited_ns(tasks)
        self._cpu_ns, self._start_ns = clock.cpu_time_ns(), clock.now_ns()

    def time_work(self) -> None:
        """Time the fixed piece of work once more. Between windows and blocks, never inside of one."""
        self._work.append(clock.work_ns())

    def end(self) -> CpuUse:
        """What was used since it began."""
        wall_ns, cpu_ns = clock.now_ns() - self._start_ns, clock.cpu_time_ns() - self._cpu_ns
        before, after = self._waited, waited_ns(self._tasks)
        return CpuUse(
            wall_ns=wall_ns,
            cpu_ns=cpu_ns,
            # A thread that was not there at the start begins with nothing waited.
            waited_ns=sum(waited - before.get(thread, 0) for thread, waited in after.items()) if after else None,
            threads=len(after) or 1,
            threads_ended=len(before.keys() - after.keys()),
            affinity_start=self._affinity,
            affinity_end=limits.affinity(),
            quota_start=self._quota,
            quota_end=limits.cpu_quota(),
            work_ns=tuple(self._work),
        )


def waited_ns(tasks: Path = _TASKS) -> dict[str, int]:
    """By thread id, how long each thread of this process was ready and waited for a CPU; empty where it is not counted.

    schedstat holds time on a CPU, time waited for one, and time slices (Documentation/scheduler/sched-stats in the
    kernel's source); the kernel leaves it out without CONFIG_SCHED_INFO.
    """
    found = {}
    for task in tasks.glob("*/schedstat"):
        try:
            found[task.parent.name] = int(task.read_text().split()[1])
        except (OSError, IndexError):  # the thread ended while we looked, or nothing is counted here
            continue
    return found
