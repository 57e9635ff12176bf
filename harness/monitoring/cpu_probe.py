"""Counters of a process and of the machine, and the difference between two readings as one sample (psutil)."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from harness.core.host import limits
from harness.core.schemas import BusyProcess, UsageSample

_SYS_CPU = Path("/sys/devices/system/cpu")

_PROC = Path("/proc")

_STOPPED = frozenset("Tt")
"""States of a process that a signal or a tracer stopped (proc(5))."""

_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal")
"""hwmon's names for the sensors of a processor; others belong to a disk or a radio."""


@dataclass(frozen=True)
class Reading:
    """Totals at one instant; times in seconds of CPU, None where the system does not show them."""

    at_ns: int
    process_s: float
    machine_s: float
    monitor_s: float
    steal_s: float | None
    rss_bytes: int
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz: float | None
    temperature_c: float | None
    throttled: int | None
    thermal_events: int | None
    cpus: Mapping[int, float] = field(default_factory=dict)
    """By number of the CPU: its busy time in seconds."""
    allowed: frozenset[int] = frozenset()
    """CPUs that any thread of the process may use."""
    stopped: bool = False
    """The process is stopped, by a signal or by a tracer."""


@dataclass(frozen=True)
class ProcessCpu:
    """CPU time of a process so far, in seconds. started: in ticks since boot, to detect that a pid was used again."""

    name: str
    started: int
    cpu_s: float


@dataclass
class Probe:
    """Reads the counters of one process. `unavailable` holds the reason for what cannot be read."""

    pid: int
    unavailable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._process = psutil.Process(self.pid)
        if in_guest():
            self.unavailable["siblings_percent"] = "a guest may not see which of its CPUs share a core"

    def read(self, at_ns: int) -> Reading:
        """All counters now. Raises psutil.NoSuchProcess when the process is gone."""
        with self._process.oneshot():
            times = self._process.cpu_times()
            memory = self._process.memory_info()
            state, major, minor, cpu = stat_of(self.pid)
            read, written = self._io()
        machine = psutil.cpu_times()
        own = resource.getrusage(resource.RUSAGE_SELF)  # in microseconds; psutil has it in ticks of 10 ms
        busy = machine.user + machine.system + getattr(machine, "irq", 0.0) + getattr(machine, "softirq", 0.0)
        return Reading(
            at_ns=at_ns,
            process_s=times.user + times.system,
            machine_s=busy + getattr(machine, "nice", 0.0),
            monitor_s=own.ru_utime + own.ru_stime,
            steal_s=getattr(machine, "steal", None),
            rss_bytes=memory.rss,
            major_faults=major,
            minor_faults=minor,
            read_bytes=read,
            written_bytes=written,
            frequency_mhz=self._frequency_mhz(cpu),
            temperature_c=self._temperature_c(),
            throttled=self._throttled(),
            thermal_events=self._thermal_events(),
            cpus=self._busy_by_cpu(),
            allowed=self._allowed(),
            stopped=state in _STOPPED,
        )

    def pss_bytes(self) -> int | None:
        """Proportional set size; slow, and locks the process's memory map while reading."""
        try:
            return int(self._process.memory_full_info().pss)
        except (psutil.Error, AttributeError) as error:
            self.unavailable["pss_peak_bytes"] = f"not readable: {error}"
            return None

    def others(self) -> dict[int, ProcessCpu]:
        """Pid → process, for every visible process except the watched one, those it started, and this process."""
        others, ticks, own = {}, os.sysconf("SC_CLK_TCK"), {self.pid, os.getpid()}
        for path in _PROC.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # ended while we looked, or hidden
                head, _, rest = path.read_text(errors="replace").rpartition(")")
                fields, pid = rest.split(), int(path.parent.name)
                # A case's process is the leader of a session of its own (harness/processes/worker.py).
                if pid not in own and int(fields[3]) != self.pid:
                    cpu_s = (int(fields[11]) + int(fields[12])) / ticks
                    others[pid] = ProcessCpu(head.partition("(")[2], int(fields[19]), cpu_s)
        return others

    def _busy_by_cpu(self) -> dict[int, float]:
        """Not from psutil, whose list has no gap for an offline CPU, so that later CPUs have wrong numbers."""
        try:
            lines = [line.split() for line in (_PROC / "stat").read_text().splitlines()]
        except OSError as error:
            self.unavailable["allowed_others_percent"] = f"not readable: {error}"
            return {}
        ticks = os.sysconf("SC_CLK_TCK")
        # user, nice, system, idle, iowait, irq, softirq; user holds the time of guests (proc(5))
        busy = {
            name[3:]: (int(t[0]) + int(t[1]) + int(t[2]) + int(t[5]) + int(t[6])) / ticks
            for name, *t in lines
            if name.startswith("cpu") and name != "cpu"
        }
        return {int(number): seconds for number, seconds in busy.items()}

    def _allowed(self) -> frozenset[int]:
        """CPUs of all threads together: a library may pin the main thread to a single CPU."""
        cpus: set[int] = set()
        for task in (_PROC / str(self.pid) / "task").glob("*"):
            with contextlib.suppress(OSError):  # the thread ended while we looked
                cpus |= os.sched_getaffinity(int(task.name))
        if not cpus:
            self.unavailable["allowed_others_percent"] = "the affinity of the process is not readable"
        return frozenset(cpus)

    def _io(self) -> tuple[int | None, int | None]:
        try:
            counters = self._process.io_counters()
        except (psutil.AccessDenied, AttributeError, NotImplementedError) as error:
            self.unavailable["read_bytes"] = self.unavailable["written_bytes"] = f"not readable: {error}"
            return None, None
        return counters.read_bytes, counters.write_bytes

    def _frequency_mhz(self, cpu: int) -> float | None:
        """Clock of the CPU that the process ran on last: a mean over all CPUs would depend on the sleep of idle CPUs.

        /proc/cpuinfo is no second source: without cpufreq it repeats one nominal figure.
        """
        try:
            return int((_SYS_CPU / f"cpu{cpu}/cpufreq/scaling_cur_freq").read_text()) / 1000
        except (OSError, ValueError):
            self.unavailable["frequency_mhz"] = "no scaling_cur_freq below /sys/devices/system/cpu (usual in a guest)"
            return None

    def _temperature_c(self) -> float | None:
        if "temperature_c" in self.unavailable:  # asking again would walk all of /sys/class/hwmon for nothing
            return None
        zones = psutil.sensors_temperatures() if hasattr(psutil, "sensors_temperatures") else {}
        temperatures = [zone.current for name in _CPU_SENSORS for zone in zones.get(name, ()) if zone.current]
        if not temperatures:
            self.unavailable["temperature_c"] = "no sensor of the processor is readable (usual in a guest)"
            return None
        return float(max(temperatures))

    def _throttled(self) -> int | None:
        periods = limits.throttled_periods()
        if periods is None:
            self.unavailable["throttled_periods"] = "the cgroup shows no nr_throttled: there is no CPU controller here"
        return periods

    def _thermal_events(self) -> int | None:
        counters = throttle_counters()
        if not counters:
            self.unavailable["thermal_events"] = "no package_throttle_count below /sys/devices/system/cpu (Intel only)"
            return None
        return sum(int(file.read_text()) for file in counters)


def sample(before: Reading, now: Reading, phase: str, first_ns: int) -> UsageSample:
    """The difference of two readings, as rates (pure)."""
    seconds = max((now.at_ns - before.at_ns) / 1e9, 1e-9)
    process_s = now.process_s - before.process_s
    others_s = (now.machine_s - before.machine_s) - process_s - (now.monitor_s - before.monitor_s)
    steal = None if now.steal_s is None or before.steal_s is None else now.steal_s - before.steal_s
    return UsageSample(
        at_ns=now.at_ns - first_ns,
        phase=phase,
        # Counters tick every 10 ms, and those of an ended helper are lost: a difference may be slightly negative.
        cpu_percent=max(0.0, 100 * process_s / seconds),
        others_percent=max(0.0, 100 * others_s / seconds),
        steal_percent=None if steal is None else 100 * steal / seconds,
        rss_bytes=now.rss_bytes,
        major_faults=now.major_faults - before.major_faults,
        minor_faults=now.minor_faults - before.minor_faults,
        read_bytes=_difference(before.read_bytes, now.read_bytes),
        written_bytes=_difference(before.written_bytes, now.written_bytes),
        frequency_mhz=now.frequency_mhz,
        temperature_c=now.temperature_c,
        throttled_periods=_difference(before.throttled, now.throttled),
        thermal_events=_difference(before.thermal_events, now.thermal_events),
        stopped=now.stopped,
        **_use_by_others(before, now, process_s + now.monitor_s - before.monitor_s, seconds),
    )


MAX_BUSIEST = 3
MIN_BUSY_PERCENT = 1.0
"""Share of one CPU, from which on another process is named."""


def busiest(before: Mapping[int, ProcessCpu], now: Mapping[int, ProcessCpu], seconds: float) -> tuple[BusyProcess, ...]:
    """The other processes that used most CPU time between two looks, `seconds` apart (pure)."""
    spenders = [
        BusyProcess(
            pid=pid,
            name="".join(character for character in spent.name if character.isprintable()),
            cpu_percent=100 * (spent.cpu_s - before[pid].cpu_s) / max(seconds, 1e-9),
        )
        for pid, spent in now.items()
        if pid in before and before[pid].started == spent.started
    ]
    busy = [process for process in spenders if process.cpu_percent >= MIN_BUSY_PERCENT]
    return tuple(sorted(busy, key=lambda process: -process.cpu_percent)[:MAX_BUSIEST])


def _use_by_others(before: Reading, now: Reading, own_s: float, seconds: float) -> dict[str, Any]:
    """Use by others of the CPUs that the process may use, and of the SMT siblings that it may not use."""
    allowed = before.allowed & now.allowed
    if not allowed or not allowed <= before.cpus.keys() & now.cpus.keys():
        return {}
    cores = {cpu: core_of(cpu) for cpu in allowed}
    known = [core for core in cores.values() if core is not None]
    beside = frozenset().union(*known) - now.allowed
    busy = {cpu: now.cpus[cpu] - before.cpus[cpu] for cpu in now.cpus.keys() & before.cpus.keys()}
    all_known = len(known) == len(allowed)
    return {
        "allowed_cpus": len(allowed),
        "allowed_cores": len(set(known)) if all_known else None,
        "allowed_others_percent": max(0.0, 100 * (sum(busy[cpu] for cpu in allowed) - own_s) / seconds),
        "siblings_percent": 100 * sum(busy.get(cpu, 0.0) for cpu in beside) / seconds if all_known else None,
    }


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else now - before


@cache
def core_of(cpu: int) -> frozenset[int] | None:
    """All CPUs of its core, SMT siblings and itself; None where the system does not show them."""
    try:
        text = (_SYS_CPU / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        ends = [part.partition("-") for part in text.strip().split(",")]
        return frozenset(n for low, _, high in ends for n in range(int(low), int(high or low) + 1))
    except (OSError, ValueError):
        return None


@cache
def in_guest() -> bool:
    """Whether the processor's flags name a hypervisor (cpuid; x86 only)."""
    try:
        return " hypervisor" in (_PROC / "cpuinfo").read_text()
    except OSError:
        return False


@cache
def throttle_counters() -> tuple[Path, ...]:
    """One counter of thermal throttling for each package."""
    first: dict[str, Path] = {}
    for counter in sorted(_SYS_CPU.glob("cpu[0-9]*/thermal_throttle/package_throttle_count")):
        package = counter.parents[1] / "topology/physical_package_id"
        first.setdefault(package.read_text(), counter)
    return tuple(first.values())


def stat_of(pid: int) -> tuple[str, int, int, int]:
    """(state, major faults, minor faults, CPU that it ran on last) of a process; psutil does not show all of them."""
    try:
        # The command's name is in parentheses and may contain spaces and parentheses: count from its end.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    return fields[0], int(fields[9]), int(fields[7]), int(fields[36])
