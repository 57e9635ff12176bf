"""The monitor's samples of a case → one summary for each round; those of all rounds → one summary (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import compress
from operator import attrgetter, mul, sub
from statistics import median
from typing import Any, TypeVar

from harness.core.schemas import BusyProcess, GpuSample, GpuUsage, Record, Usage, UsageSummary
from harness.monitoring.cpu_probe import MAX_BUSIEST

N = TypeVar("N", int, float)


def columns(records: Sequence[Record]) -> dict[str, tuple[Any, ...]]:
    """The values of each field of some records of one kind, by name."""
    names, read = _reader(type(records[0]))
    return dict(zip(names, zip(*map(read, records), strict=True), strict=True))


@cache
def _reader(kind: type[Record]) -> tuple[tuple[str, ...], Callable[[Record], tuple[Any, ...]]]:
    return tuple(kind.model_fields), attrgetter(*kind.model_fields)


def known_values(values: Sequence[N | None]) -> Sequence[N]:
    """The known values of one figure."""
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def known_extreme(choose: Callable[[Iterable[N]], N], values: Sequence[N | None]) -> N | None:
    """The result of `choose` (min or max) on the known values of a figure; None without any."""
    known = known_values(values)
    return choose(known) if known else None


def known_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted mean of the known values of a figure; None without any."""
    if None not in values:
        return sum(map(mul, weights, values)) / sum(weights) if values else None
    pairs = [(weight, value) for weight, value in zip(weights, values, strict=True) if value is not None]
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs) if pairs else None


def complete_sum(values: Sequence[int | None]) -> int | None:
    """The sum of a figure; None where any value is unknown: a sum of some would look like the sum of all."""
    return None if None in values or not values else sum(known_values(values))


def gpu_usage_of(looks: Sequence[GpuSample], memory_before_bytes: int | None) -> GpuUsage | None:
    """The looks of one timed window as one summary; None without any. Equally far apart, they weigh the same."""
    if not looks:
        return None
    seen = columns(looks)
    memory = known_values(seen["memory_used_bytes"])
    alike = [1] * len(looks)
    grown = None if memory_before_bytes is None or not memory else max(0, max(memory) - memory_before_bytes)
    reasons = [reason for look in looks for reason in look.reasons]
    return GpuUsage(
        sm_mhz_min=known_extreme(min, seen["sm_mhz"]),
        sm_mhz_mean=known_mean(seen["sm_mhz"], alike),
        sm_mhz_max=known_extreme(max, seen["sm_mhz"]),
        memory_mhz_mean=known_mean(seen["memory_mhz"], alike),
        temperature_c_max=known_extreme(max, seen["temperature_c"]),
        power_w_mean=known_mean(seen["power_w"], alike),
        power_w_max=known_extreme(max, seen["power_w"]),
        utilisation_percent_mean=known_mean(seen["utilisation_percent"], alike),
        memory_peak_bytes=grown,
        reasons={reason: reasons.count(reason) / len(looks) for reason in sorted(set(reasons))},
        other_processes_max=known_extreme(max, seen["other_processes"]),
        samples=len(looks),
        memory_before_bytes=memory_before_bytes,
    )


def gpu_usage_over(rounds: Sequence[GpuUsage]) -> GpuUsage | None:
    """The rounds of a row as one summary: means weighted by the number of looks, extremes kept. None without any."""
    if not rounds:
        return None
    seen, counts = columns(rounds), [usage.samples for usage in rounds]
    names = sorted({reason for usage in rounds for reason in usage.reasons})
    return GpuUsage(
        sm_mhz_min=known_extreme(min, seen["sm_mhz_min"]),
        sm_mhz_mean=known_mean(seen["sm_mhz_mean"], counts),
        sm_mhz_max=known_extreme(max, seen["sm_mhz_max"]),
        memory_mhz_mean=known_mean(seen["memory_mhz_mean"], counts),
        temperature_c_max=known_extreme(max, seen["temperature_c_max"]),
        power_w_mean=known_mean(seen["power_w_mean"], counts),
        power_w_max=known_extreme(max, seen["power_w_max"]),
        utilisation_percent_mean=known_mean(seen["utilisation_percent_mean"], counts),
        memory_peak_bytes=known_extreme(max, seen["memory_peak_bytes"]),
        reasons={
            name: sum(usage.reasons.get(name, 0) * usage.samples for usage in rounds) / sum(counts) for name in names
        },
        other_processes_max=known_extreme(max, seen["other_processes_max"]),
        samples=sum(counts),
        memory_before_bytes=known_extreme(max, seen["memory_before_bytes"]),
    )


TIMED_PHASE = "measure"
"""The phase of a session in which samples are taken."""

JUDGED_PHASES = frozenset({"warm-up", TIMED_PHASE})
"""The same work before the samples and while they are taken: both together are long enough to be judged. Loading and
checking are not part of a row."""

MIN_PEAK_SHARE = 0.5
"""A sample shorter than this share of the monitor's interval counts for the mean but not as a peak: the kernel counts
CPU time in ticks of 10 ms, and one tick in a sample of 5 ms would look like two CPUs."""


PEAKS = ("cpu_percent", "others_percent", "steal_percent")


def timed_usage(usage: Usage) -> UsageSummary | None:
    """One round's warm-up and timed part; None where they ended before the monitor's first look."""
    every = usage.by_column
    if not every:
        return None
    judged = [phase in JUDGED_PHASES for phase in every["phase"]]
    times = list(compress(map(sub, every["at_ns"], (0, *every["at_ns"])), judged))
    if not sum(times):
        return None
    looks = compress(zip(*every.values(), strict=True), judged)
    seen = dict(zip(every, zip(*looks, strict=True), strict=True))
    shortest = MIN_PEAK_SHARE * usage.interval_ns
    long = seen
    if min(times) < shortest:
        is_whole = [span >= shortest for span in times]
        long = {name: tuple(compress(seen[name], is_whole)) for name in PEAKS}
    return UsageSummary(
        rounds=1,
        watched_ns=sum(times),
        process_ns=usage.watched_ns,
        cpu_percent_mean=known_mean(seen["cpu_percent"], times) or 0.0,
        cpu_percent_peak=known_extreme(max, long["cpu_percent"]),
        others_percent_mean=known_mean(seen["others_percent"], times) or 0.0,
        others_percent_peak=known_extreme(max, long["others_percent"]),
        steal_percent_mean=known_mean(seen["steal_percent"], times),
        steal_percent_peak=known_extreme(max, long["steal_percent"]),
        rss_peak_bytes=max(seen["rss_bytes"]),
        pss_peak_bytes=usage.pss_peak_bytes,
        major_faults=sum(seen["major_faults"]),
        minor_faults=sum(seen["minor_faults"]),
        read_bytes=complete_sum(seen["read_bytes"]),
        written_bytes=complete_sum(seen["written_bytes"]),
        frequency_mhz_min=known_extreme(min, seen["frequency_mhz"]),
        frequency_mhz_mean=known_mean(seen["frequency_mhz"], times),
        frequency_mhz_max=known_extreme(max, seen["frequency_mhz"]),
        temperature_c_max=known_extreme(max, seen["temperature_c"]),
        throttled_periods=complete_sum(seen["throttled_periods"]),
        thermal_events=complete_sum(seen["thermal_events"]),
        unavailable=usage.unavailable,
        monitor_share=usage.monitor_cpu_ns / usage.watched_ns if usage.watched_ns else 0.0,
        busiest=usage.busiest,
        gpu=gpu_usage_of(known_values(seen["gpu"]), usage.gpu_memory_before_bytes),
        longest_look_ns=max(times),
        look_interval_ns=usage.interval_ns,
        stopped_looks=None if None in seen["stopped"] else sum(map(bool, seen["stopped"])),
        **_allowed(seen, times),
    )


def merged_usage(rounds: Sequence[UsageSummary]) -> UsageSummary | None:
    """The rounds of a row as one summary: means weighted by time, totals added up, extremes kept. None without any."""
    if not rounds:
        return None
    seen = columns(rounds)
    times, lives = seen["watched_ns"], known_values(seen["process_ns"])
    return UsageSummary(
        rounds=len(rounds),
        watched_ns=sum(times),
        process_ns=round(median(lives)) if lives else None,
        cpu_percent_mean=known_mean(seen["cpu_percent_mean"], times) or 0.0,
        cpu_percent_peak=known_extreme(max, seen["cpu_percent_peak"]),
        others_percent_mean=known_mean(seen["others_percent_mean"], times) or 0.0,
        others_percent_peak=known_extreme(max, seen["others_percent_peak"]),
        steal_percent_mean=known_mean(seen["steal_percent_mean"], times),
        steal_percent_peak=known_extreme(max, seen["steal_percent_peak"]),
        rss_peak_bytes=max(seen["rss_peak_bytes"]),
        pss_peak_bytes=known_extreme(max, seen["pss_peak_bytes"]),
        major_faults=sum(seen["major_faults"]),
        minor_faults=sum(seen["minor_faults"]),
        read_bytes=complete_sum(seen["read_bytes"]),
        written_bytes=complete_sum(seen["written_bytes"]),
        frequency_mhz_min=known_extreme(min, seen["frequency_mhz_min"]),
        frequency_mhz_mean=known_mean(seen["frequency_mhz_mean"], times),
        frequency_mhz_max=known_extreme(max, seen["frequency_mhz_max"]),
        temperature_c_max=known_extreme(max, seen["temperature_c_max"]),
        throttled_periods=complete_sum(seen["throttled_periods"]),
        thermal_events=complete_sum(seen["thermal_events"]),
        unavailable={name: reason for usage in rounds for name, reason in usage.unavailable.items()},
        monitor_share=max(seen["monitor_share"]),
        busiest=_busiest([process for usage in rounds for process in usage.busiest]),
        gpu=gpu_usage_over([usage.gpu for usage in rounds if usage.gpu is not None]),
        allowed_cpus=known_extreme(min, seen["allowed_cpus"]),
        allowed_cores=known_extreme(min, seen["allowed_cores"]),
        allowed_others_percent_mean=known_mean(seen["allowed_others_percent_mean"], times),
        siblings_percent_mean=known_mean(seen["siblings_percent_mean"], times),
        longest_look_ns=known_extreme(max, seen["longest_look_ns"]),
        look_interval_ns=known_extreme(max, seen["look_interval_ns"]),
        stopped_looks=complete_sum(seen["stopped_looks"]),
    )


def _busiest(processes: Sequence[BusyProcess]) -> tuple[BusyProcess, ...]:
    """Each process once, with its largest share; the busiest first."""
    largest: dict[tuple[int, str], BusyProcess] = {}
    for busy_process in sorted(processes, key=lambda process: -process.cpu_percent):
        largest.setdefault((busy_process.pid, busy_process.name), busy_process)
    return tuple(largest.values())[:MAX_BUSIEST]


def _allowed(seen: Mapping[str, Sequence[Any]], times: Sequence[int]) -> dict[str, Any]:
    """Use by others of the CPUs that the process may use; empty where any sample does not have it."""
    if None in seen["allowed_others_percent"]:
        return {}
    return {
        "allowed_cpus": known_extreme(min, seen["allowed_cpus"]),
        "allowed_cores": known_extreme(min, seen["allowed_cores"]),
        "allowed_others_percent_mean": known_mean(seen["allowed_others_percent"], times),
        "siblings_percent_mean": known_mean(seen["siblings_percent"], times),
    }
