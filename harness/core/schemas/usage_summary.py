"""Within results/summary.json: what the monitor saw of all rounds of a row."""

from __future__ import annotations

from harness.core.schemas.usage import BusyProcess
from harness.core.schemas.vocabulary import Record


class GpuUsage(Record):
    """What the card did while a row was timed, over all its rounds."""

    sm_mhz_min: int | None
    sm_mhz_mean: float | None
    sm_mhz_max: int | None
    memory_mhz_mean: float | None
    temperature_c_max: int | None
    power_w_mean: float | None
    power_w_max: float | None
    utilisation_percent_mean: float | None
    memory_peak_bytes: int | None
    """Growth of the memory in use on the whole card since before the process: NVML cannot see into PID namespaces."""
    reasons: dict[str, float]
    """Share of the samples in which the clock was held back, by reason."""
    other_processes_max: int | None
    samples: int = 0
    """Looks at the card in the timed windows together."""
    memory_before_bytes: int | None = None
    """In use on the whole card before the case's process came to it; the most of all rounds."""


class UsageSummary(Record):
    """What the monitor saw while a row was warmed up and timed, which is the same work, over all its rounds.

    100% is one CPU.
    """

    rounds: int
    """Rounds that were watched."""
    watched_ns: int
    """Length of the windows together, warm-up and timed part each."""
    cpu_percent_mean: float
    cpu_percent_peak: float | None
    """Peaks are None where no sample was long enough to be read on its own (the kernel counts in ticks of 10 ms)."""
    others_percent_mean: float
    others_percent_peak: float | None
    steal_percent_mean: float | None
    steal_percent_peak: float | None
    rss_peak_bytes: int
    pss_peak_bytes: int | None
    major_faults: int
    minor_faults: int
    read_bytes: int | None
    written_bytes: int | None
    frequency_mhz_min: float | None
    frequency_mhz_mean: float | None
    frequency_mhz_max: float | None
    temperature_c_max: float | None
    throttled_periods: int | None
    thermal_events: int | None
    unavailable: dict[str, str]
    """Why a figure is None, by the name of the counter."""
    monitor_share: float
    """CPU time that the monitor itself took, as a share of the time it watched; the largest of the rounds."""
    gpu: GpuUsage | None = None
    process_ns: int | None = None
    """Life of a process, loading and checks included: the middle of the rounds. None in older files."""
    allowed_cpus: int | None = None
    """CPUs that the process might use; the fewest of all samples."""
    allowed_cores: int | None = None
    allowed_others_percent_mean: float | None = None
    """CPU time of everything else on those CPUs."""
    siblings_percent_mean: float | None = None
    """CPU time on SMT siblings of those CPUs that the process may not use."""
    busiest: tuple[BusyProcess, ...] = ()
    """Other processes, the busiest first; of several rounds each with its largest share."""
    longest_look_ns: int | None = None
    """Longest time between two looks of the monitor. None in older files."""
    look_interval_ns: int | None = None
    """Time between two looks as the monitor plans it."""
    stopped_looks: int | None = None
    """Looks at which the process was stopped or traced; None where that was not looked at."""
