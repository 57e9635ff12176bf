"""What every row of a summary may have: intervals, flags, checks, and the machine load while it was timed."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, model_validator

from harness.core.schemas.raw_record import BusyProcess
from harness.core.schemas.vocabulary import Grade, Record


class Interval(Record):
    low: float
    high: float


OLD_FLAGS = {"CI_NOT_MET": "NOT_CONVERGED", "COTENANT": "CPU_SHARED", "NOT_STEADY": "NOT_WARMED_UP"}
"""Names in older versions. COTENANT was for CPUs and GPUs; the detail of the flag shows which."""


class Flag(Record):
    """Why a row is not grade A, and how to change that."""

    name: str
    detail: str
    remedy: str
    caps_at: Grade | None = None
    """Best possible grade of a row with this flag; None in older summaries."""

    @model_validator(mode="after")
    def _renamed(self) -> Flag:
        # Not a validator of the field, which could not see `detail`; nor one before, which is slow for JSON.
        if self.name in OLD_FLAGS:
            of_a_gpu = self.name == "COTENANT" and re.search("card|GPU", self.detail)
            self.__dict__["name"] = "GPU_SHARED" if of_a_gpu else OLD_FLAGS[self.name]
        return self

    @property
    def is_note(self) -> bool:
        """True where it costs no grade: information, not a reason for doubt."""
        return self.caps_at == "A"


class Check(Record):
    """In how many rounds of a row an applicable check was made (harness/aggregation/checks.py)."""

    rounds: int
    of: int
    missing: str | None = None
    """Why not in the other rounds; None where it was made in all."""


def _renamed(checks: dict[str, Check]) -> dict[str, Check]:
    if OLD_FLAGS.keys().isdisjoint(checks):
        return checks
    return {OLD_FLAGS.get(name, name): check for name, check in checks.items()}


Checks = Annotated[dict[str, Check], AfterValidator(_renamed)]
"""By the name of the flag."""


class GpuUsage(Record):
    """Use of the GPU while a row was timed, over all its rounds."""

    sm_mhz_min: int | None
    sm_mhz_mean: float | None
    sm_mhz_max: int | None
    memory_mhz_mean: float | None
    temperature_c_max: int | None
    power_w_mean: float | None
    power_w_max: float | None
    utilisation_percent_mean: float | None
    memory_peak_bytes: int | None
    """Growth of the memory in use on the whole GPU since before the process: NVML cannot see into PID namespaces."""
    reasons: dict[str, float]
    """Share of the samples in which the clock was reduced, by reason."""
    other_processes_max: int | None
    samples: int = 0
    """Readings of the GPU in all timed windows."""
    memory_before_bytes: int | None = None
    """Memory in use on the whole GPU before the case's process used it; the largest of all rounds."""


class UsageSummary(Record):
    """Machine load while a row was warmed up and timed, which is the same work, over all its rounds.

    100% is one CPU.
    """

    rounds: int
    """Rounds that were monitored."""
    watched_ns: int
    """Total length of the windows, each with warm-up and timed part."""
    cpu_percent_mean: float
    cpu_percent_peak: float | None
    """Peaks are None where no single sample was long enough (the kernel counts in ticks of 10 ms)."""
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
    """CPU time of the monitor itself, as a share of the monitored time; the largest of the rounds."""
    gpu: GpuUsage | None = None
    process_ns: int | None = None
    """Lifetime of a process, loading and checks included: the median of the rounds. None in older files."""
    allowed_cpus: int | None = None
    """CPUs that the process could use; the fewest of all samples."""
    allowed_cores: int | None = None
    allowed_others_percent_mean: float | None = None
    """CPU time of everything else on those CPUs."""
    siblings_percent_mean: float | None = None
    """CPU time on SMT siblings of those CPUs that the process may not use."""
    busiest: tuple[BusyProcess, ...] = ()
    """Other processes, the busiest first; over several rounds each with its largest share."""
    longest_look_ns: int | None = None
    """Longest time between two readings of the monitor. None in older files."""
    look_interval_ns: int | None = None
    """Planned time between two readings of the monitor."""
    stopped_looks: int | None = None
    """Readings at which the process was stopped or traced; None where that was not checked."""
