"""results/raw/<case_id>/<round>.usage.json: what the monitor saw meanwhile."""

from __future__ import annotations

from harness.core.schemas.vocabulary import Format2, Record, SettingsId


class GpuSample(Record):
    """One reading of the whole card by NVML; None where it does not tell (the reason stands in Usage.unavailable)."""

    sm_mhz: int | None
    memory_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    utilisation_percent: int | None
    memory_used_bytes: int | None
    reasons: tuple[str, ...]
    """Why the clock is held back, by NVML's names: `hw_slowdown`, `sw_power_cap`, `sw_thermal`, …"""
    other_processes: int | None
    """Compute processes that are not the case's; None where process ids cannot be told apart."""


class UsageSample(Record):
    """What the machine and the case's process did since the sample before; None where it cannot be read."""

    at_ns: int
    """Since the process was first seen."""
    phase: str
    cpu_percent: float
    """CPU time of the case's process; 100 is one CPU."""
    others_percent: float
    """CPU time of everything else, the monitor's own left out; 100 is one CPU."""
    steal_percent: float | None
    """Time that the hypervisor gave to other guests; 100 is one CPU."""
    rss_bytes: int
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz: float | None
    temperature_c: float | None
    throttled_periods: int | None
    """Periods in which the cgroup's CPU quota held its processes back."""
    thermal_events: int | None = None
    """Times that heat lowered the clock, as the processor itself counts them."""
    gpu: GpuSample | None = None
    allowed_cpus: int | None = None
    """CPUs that the affinity of any of the process's threads lets it use."""
    allowed_cores: int | None = None
    """Cores among them, as this machine shows them: a guest may see each CPU as a core of its own."""
    allowed_others_percent: float | None = None
    """CPU time of everything else on those CPUs, the monitor's own left out; 100 is one CPU."""
    siblings_percent: float | None = None
    """CPU time on their SMT siblings that the process may not use; 100 is one CPU."""
    stopped: bool | None = None
    """The process was stopped or traced when the monitor looked; None in older files."""


class BusyProcess(Record):
    """Another process that used CPU time while a case was warmed up and timed."""

    pid: int
    name: str
    """As the kernel has it, 15 characters at most, without control characters: the process chose it itself."""
    cpu_percent: float
    """Mean; 100 is one CPU."""


class Usage(Record):
    """What the monitor saw of one process; written by a process of its own."""

    schema_version: Format2 = 2
    case_id: str
    round: int
    settings_id: SettingsId
    interval_ns: int
    samples: tuple[UsageSample, ...]
    pss_peak_bytes: int | None
    """Proportional set size (shared pages by share), read once, after the timed loop: reading it stops the process."""
    gpu_memory_before_bytes: int | None = None
    """Memory in use on the whole card before the case's process came to it."""
    busiest: tuple[BusyProcess, ...] = ()
    """The other processes that used most, of those that the system shows and that lived all the while; the busiest
    first. Empty in files from before they were looked for."""
    unavailable: dict[str, str]
    """Why a field is None."""
    monitor_cpu_ns: int
    """CPU time that the monitor itself took while it watched."""
    watched_ns: int
