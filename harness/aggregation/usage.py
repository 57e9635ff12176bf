"""The monitor's samples of a case → one summary for each round; those of all rounds → one summary (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from harness.core.schemas import BusyProcess, GpuSample, GpuUsage, Record, Usage, UsageSample, UsageSummary
from harness.monitoring.cpu_probe import MAX_BUSIEST

N = TypeVar("N", int, float)


def known(name: str, records: Sequence[Record]) -> list[N]:
    """The known values of one figure."""
    return [value for record in records if (value := getattr(record, name)) is not None]


def extreme(name: str, choose: Callable[[Iterable[N]], N], records: Sequence[Record]) -> N | None:
    """The result of `choose` (min or max) on the known values of a figure; None without any."""
    values: list[N] = known(name, records)
    return choose(values) if values else None


def mean(name: str, records: Sequence[Record], weights: Sequence[float]) -> float | None:
    """The weighted mean of the known values of a figure; None without any."""
    pairs = zip(weights, (getattr(record, name) for record in records), strict=True)
    found = [(weight, value) for weight, value in pairs if value is not None]
    return sum(weight * value for weight, value in found) / sum(weight for weight, _ in found) if found else None


def total(name: str, records: Sequence[Record]) -> int | None:
    """The sum of a figure; None where any value is unknown: a sum of some would look like the sum of all."""
    values: list[int] = known(name, records)
    return sum(values) if values and len(values) == len(records) else None


def gpu_usage_of(looks: Sequence[GpuSample], memory_before_bytes: int | None) -> GpuUsage | None:
    """The looks of one timed window as one summary; None without any. Equally far apart, they weigh the same."""
    if not looks:
        return None
    memory: list[int] = known("memory_used_bytes", looks)
    alike = [1] * len(looks)
    grown = None if memory_before_bytes is None or not memory else max(0, max(memory) - memory_before_bytes)
    reasons = [reason for look in looks for reason in look.reasons]
    return GpuUsage(
        sm_mhz_min=extreme("sm_mhz", min, looks),
        sm_mhz_mean=mean("sm_mhz", looks, alike),
        sm_mhz_max=extreme("sm_mhz", max, looks),
        memory_mhz_mean=mean("memory_mhz", looks, alike),
        temperature_c_max=extreme("temperature_c", max, looks),
        power_w_mean=mean("power_w", looks, alike),
        power_w_max=extreme("power_w", max, looks),
        utilisation_percent_mean=mean("utilisation_percent", looks, alike),
        memory_peak_bytes=grown,
        reasons={reason: reasons.count(reason) / len(looks) for reason in sorted(set(reasons))},
        other_processes_max=extreme("other_processes", max, looks),
        samples=len(looks),
        memory_before_bytes=memory_before_bytes,
    )


def gpu_usage_over(rounds: Sequence[GpuUsage]) -> GpuUsage | None:
    """The rounds of a row as one summary: means weighted by the number of looks, extremes kept. None without any."""
    if not rounds:
        return None
    counts = [one.samples for one in rounds]
    total = sum(counts)
    names = sorted({reason for one in rounds for reason in one.reasons})
    return GpuUsage(
        sm_mhz_min=extreme("sm_mhz_min", min, rounds),
        sm_mhz_mean=mean("sm_mhz_mean", rounds, counts),
        sm_mhz_max=extreme("sm_mhz_max", max, rounds),
        memory_mhz_mean=mean("memory_mhz_mean", rounds, counts),
        temperature_c_max=extreme("temperature_c_max", max, rounds),
        power_w_mean=mean("power_w_mean", rounds, counts),
        power_w_max=extreme("power_w_max", max, rounds),
        utilisation_percent_mean=mean("utilisation_percent_mean", rounds, counts),
        memory_peak_bytes=extreme("memory_peak_bytes", max, rounds),
        reasons={name: sum(one.reasons.get(name, 0) * one.samples for one in rounds) / total for name in names},
        other_processes_max=extreme("other_processes_max", max, rounds),
        samples=total,
        memory_before_bytes=extreme("memory_before_bytes", max, rounds),
    )


TIMED_PHASE = "measure"
"""The phase of a session in which samples are taken."""

JUDGED_PHASES = frozenset({"warm-up", TIMED_PHASE})
"""The same work before the samples and while they are taken: both together are long enough to be judged. Loading and
checking are not part of a row."""

MIN_PEAK_SHARE = 0.5
"""A sample shorter than this share of the monitor's interval counts for the mean but not as a peak: the kernel counts
CPU time in ticks of 10 ms, and one tick in a sample of 5 ms would look like two CPUs."""


def timed(usage: Usage) -> UsageSummary | None:
    """One round's warm-up and timed part; None where they ended before the monitor's first look."""
    starts = [0, *(sample.at_ns for sample in usage.samples)]
    spans = [end - start for start, end in pairwise(starts)]
    window = [(span, one) for span, one in zip(spans, usage.samples, strict=True) if one.phase in JUDGED_PHASES]
    times, samples = [span for span, _ in window], [sample for _, sample in window]
    if not sum(times):
        return None
    long = [sample for span, sample in window if span >= MIN_PEAK_SHARE * usage.interval_ns]
    return UsageSummary(
        rounds=1,
        watched_ns=sum(times),
        process_ns=usage.watched_ns,
        cpu_percent_mean=mean("cpu_percent", samples, times) or 0.0,
        cpu_percent_peak=extreme("cpu_percent", max, long),
        others_percent_mean=mean("others_percent", samples, times) or 0.0,
        others_percent_peak=extreme("others_percent", max, long),
        steal_percent_mean=mean("steal_percent", samples, times),
        steal_percent_peak=extreme("steal_percent", max, long),
        rss_peak_bytes=max(sample.rss_bytes for sample in samples),
        pss_peak_bytes=usage.pss_peak_bytes,
        major_faults=sum(sample.major_faults for sample in samples),
        minor_faults=sum(sample.minor_faults for sample in samples),
        read_bytes=total("read_bytes", samples),
        written_bytes=total("written_bytes", samples),
        frequency_mhz_min=extreme("frequency_mhz", min, samples),
        frequency_mhz_mean=mean("frequency_mhz", samples, times),
        frequency_mhz_max=extreme("frequency_mhz", max, samples),
        temperature_c_max=extreme("temperature_c", max, samples),
        throttled_periods=total("throttled_periods", samples),
        thermal_events=total("thermal_events", samples),
        unavailable=usage.unavailable,
        monitor_share=usage.monitor_cpu_ns / usage.watched_ns if usage.watched_ns else 0.0,
        busiest=usage.busiest,
        gpu=gpu_usage_of([one.gpu for one in samples if one.gpu is not None], usage.gpu_memory_before_bytes),
        longest_look_ns=max(times),
        look_interval_ns=usage.interval_ns,
        stopped_looks=_stopped(samples),
        **_allowed(samples, times),
    )


def merged(rounds: Sequence[UsageSummary]) -> UsageSummary | None:
    """The rounds of a row as one summary: means weighted by time, totals added up, extremes kept. None without any."""
    if not rounds:
        return None
    times = [one.watched_ns for one in rounds]
    lives = [one.process_ns for one in rounds if one.process_ns is not None]
    return UsageSummary(
        rounds=len(rounds),
        watched_ns=sum(times),
        process_ns=round(median(lives)) if lives else None,
        cpu_percent_mean=mean("cpu_percent_mean", rounds, times) or 0.0,
        cpu_percent_peak=extreme("cpu_percent_peak", max, rounds),
        others_percent_mean=mean("others_percent_mean", rounds, times) or 0.0,
        others_percent_peak=extreme("others_percent_peak", max, rounds),
        steal_percent_mean=mean("steal_percent_mean", rounds, times),
        steal_percent_peak=extreme("steal_percent_peak", max, rounds),
        rss_peak_bytes=max(one.rss_peak_bytes for one in rounds),
        pss_peak_bytes=extreme("pss_peak_bytes", max, rounds),
        major_faults=sum(one.major_faults for one in rounds),
        minor_faults=sum(one.minor_faults for one in rounds),
        read_bytes=total("read_bytes", rounds),
        written_bytes=total("written_bytes", rounds),
        frequency_mhz_min=extreme("frequency_mhz_min", min, rounds),
        frequency_mhz_mean=mean("frequency_mhz_mean", rounds, times),
        frequency_mhz_max=extreme("frequency_mhz_max", max, rounds),
        temperature_c_max=extreme("temperature_c_max", max, rounds),
        throttled_periods=total("throttled_periods", rounds),
        thermal_events=total("thermal_events", rounds),
        unavailable={name: reason for one in rounds for name, reason in one.unavailable.items()},
        monitor_share=max(one.monitor_share for one in rounds),
        busiest=_busiest([process for one in rounds for process in one.busiest]),
        gpu=gpu_usage_over([one.gpu for one in rounds if one.gpu is not None]),
        allowed_cpus=extreme("allowed_cpus", min, rounds),
        allowed_cores=extreme("allowed_cores", min, rounds),
        allowed_others_percent_mean=mean("allowed_others_percent_mean", rounds, times),
        siblings_percent_mean=mean("siblings_percent_mean", rounds, times),
        longest_look_ns=extreme("longest_look_ns", max, rounds),
        look_interval_ns=extreme("look_interval_ns", max, rounds),
        stopped_looks=total("stopped_looks", rounds),
    )


def _busiest(processes: Sequence[BusyProcess]) -> tuple[BusyProcess, ...]:
    """Each process once, with its largest share; the busiest first."""
    largest: dict[tuple[int, str], BusyProcess] = {}
    for one in sorted(processes, key=lambda process: -process.cpu_percent):
        largest.setdefault((one.pid, one.name), one)
    return tuple(largest.values())[:MAX_BUSIEST]


def _stopped(samples: Sequence[UsageSample]) -> int | None:
    """Number of samples in which the process was stopped; None where any sample does not say."""
    seen = [sample.stopped for sample in samples]
    return None if None in seen else sum(map(bool, seen))


def _allowed(samples: Sequence[UsageSample], times: Sequence[int]) -> dict[str, Any]:
    """Use by others of the CPUs that the process may use; empty where any sample does not have it."""
    if any(sample.allowed_others_percent is None for sample in samples):
        return {}
    return {
        "allowed_cpus": extreme("allowed_cpus", min, samples),
        "allowed_cores": extreme("allowed_cores", min, samples),
        "allowed_others_percent_mean": mean("allowed_others_percent", samples, times),
        "siblings_percent_mean": mean("siblings_percent", samples, times),
    }
