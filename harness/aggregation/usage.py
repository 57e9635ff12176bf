"""The monitor's samples of a case → one summary for each round; those of all rounds → one summary (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter, mul
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

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


def known(values: Sequence[N | None]) -> Sequence[N]:
    """The known values of one figure."""
    return [value for value in values if value is not None] if None in values else values  # type: ignore[return-value]


def extreme(choose: Callable[[Iterable[N]], N], values: Sequence[N | None]) -> N | None:
    """The result of `choose` (min or max) on the known values of a figure; None without any."""
    known_values = known(values)
    return choose(known_values) if known_values else None


def mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """The weighted mean of the known values of a figure; None without any."""
    if None not in values:
        return sum(map(mul, weights, values)) / sum(weights) if values else None
    pairs = [(weight, value) for weight, value in zip(weights, values, strict=True) if value is not None]
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs) if pairs else None


def total(values: Sequence[int | None]) -> int | None:
    """The sum of a figure; None where any value is unknown: a sum of some would look like the sum of all."""
    return None if None in values or not values else sum(known(values))


def gpu_usage_of(looks: Sequence[GpuSample], memory_before_bytes: int | None) -> GpuUsage | None:
    """The looks of one timed window as one summary; None without any. Equally far apart, they weigh the same."""
    if not looks:
        return None
    seen = columns(looks)
    memory = known(seen["memory_used_bytes"])
    alike = [1] * len(looks)
    grown = None if memory_before_bytes is None or not memory else max(0, max(memory) - memory_before_bytes)
    reasons = [reason for look in looks for reason in look.reasons]
    return GpuUsage(
        sm_mhz_min=extreme(min, seen["sm_mhz"]),
        sm_mhz_mean=mean(seen["sm_mhz"], alike),
        sm_mhz_max=extreme(max, seen["sm_mhz"]),
        memory_mhz_mean=mean(seen["memory_mhz"], alike),
        temperature_c_max=extreme(max, seen["temperature_c"]),
        power_w_mean=mean(seen["power_w"], alike),
        power_w_max=extreme(max, seen["power_w"]),
        utilisation_percent_mean=mean(seen["utilisation_percent"], alike),
        memory_peak_bytes=grown,
        reasons={reason: reasons.count(reason) / len(looks) for reason in sorted(set(reasons))},
        other_processes_max=extreme(max, seen["other_processes"]),
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
        sm_mhz_min=extreme(min, seen["sm_mhz_min"]),
        sm_mhz_mean=mean(seen["sm_mhz_mean"], counts),
        sm_mhz_max=extreme(max, seen["sm_mhz_max"]),
        memory_mhz_mean=mean(seen["memory_mhz_mean"], counts),
        temperature_c_max=extreme(max, seen["temperature_c_max"]),
        power_w_mean=mean(seen["power_w_mean"], counts),
        power_w_max=extreme(max, seen["power_w_max"]),
        utilisation_percent_mean=mean(seen["utilisation_percent_mean"], counts),
        memory_peak_bytes=extreme(max, seen["memory_peak_bytes"]),
        reasons={
            name: sum(usage.reasons.get(name, 0) * usage.samples for usage in rounds) / sum(counts) for name in names
        },
        other_processes_max=extreme(max, seen["other_processes_max"]),
        samples=sum(counts),
        memory_before_bytes=extreme(max, seen["memory_before_bytes"]),
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
_TOTALS = ("major_faults", "minor_faults", "read_bytes", "written_bytes", "throttled_periods", "thermal_events")


class _Looks:
    """The looks of the monitor at the judged phases of some rounds, one after the other.

    rounds: the places of the rounds that have any. times: of each look, since the look before it. Figures of these
    rounds are arrays of NumPy, in which NaN is an unknown value.
    """

    def __init__(self, rounds: Sequence[Mapping[str, Sequence[Any]]]) -> None:
        self._seen = [columns for columns in rounds if columns]
        of_round = np.repeat(np.arange(len(rounds)), [len(columns.get("at_ns", ())) for columns in rounds])
        at_ns, first = self._all("at_ns"), np.diff(of_round, prepend=-1) > 0
        times = np.where(first, at_ns, np.diff(at_ns, prepend=0.0))
        judged = np.array([phase in JUDGED_PHASES for columns in self._seen for phase in columns["phase"]], dtype=bool)
        watched = np.bincount(of_round, weights=times * judged, minlength=len(rounds))
        self._used = judged & (watched[of_round] > 0)
        self._first = np.flatnonzero(np.diff(of_round[self._used], prepend=-1))
        self.rounds: list[int] = of_round[self._used][self._first].tolist()
        self.times = times[self._used]

    def _all(self, name: str) -> NDArray[np.float64]:
        arrays = [np.asarray(columns[name], dtype=np.float64) for columns in self._seen]
        return np.concatenate(arrays) if arrays else np.zeros(0)

    def values(self, name: str) -> NDArray[np.float64]:
        """The values of a field, a value a look."""
        return self._all(name)[self._used]

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of a figure; unknown where any value is: a sum of some would look like the sum of all."""
        return np.add.reduceat(values, self._first)

    def extreme(self, choose: np.ufunc, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The result of `choose` (fmin or fmax) on the known values of a figure."""
        chosen: NDArray[np.float64] = choose.reduceat(values, self._first)
        return chosen

    def mean(self, name: str) -> NDArray[np.float64]:
        """The mean of the known values of a field, weighted by time."""
        values = self.values(name)
        weights = np.where(np.isnan(values), 0.0, self.times)
        with np.errstate(invalid="ignore"):  # 0 / 0 where none is known
            return self.total(weights * np.nan_to_num(values)) / self.total(weights)

    def without_short(self, name: str, shortest_ns: Sequence[float]) -> NDArray[np.float64]:
        """The values of a field; unknown in looks below a length, which each round has."""
        counts = np.diff(self._first, append=len(self.times))
        return np.where(self.times < np.repeat(shortest_ns, counts), np.nan, self.values(name))


def timed(usage: Usage) -> UsageSummary | None:
    """One round's warm-up and timed part; None where they ended before the monitor's first look."""
    return timed_rounds([usage])[0]


def timed_rounds(usages: Sequence[Usage]) -> list[UsageSummary | None]:
    """The same of some rounds, computed together: a call of NumPy costs more than its work on a few looks."""
    seen = [usage.by_column for usage in usages]
    looks = _Looks(seen)
    windows: list[UsageSummary | None] = [None] * len(usages)
    if not looks.rounds:
        return windows
    frequency, shortest = (
        looks.values("frequency_mhz"),
        [MIN_PEAK_SHARE * usages[at].interval_ns for at in looks.rounds],
    )
    whole = {
        "watched_ns": looks.total(looks.times),
        "longest_look_ns": looks.extreme(np.fmax, looks.times),
        "rss_peak_bytes": looks.extreme(np.fmax, looks.values("rss_bytes")),
        **{name: looks.total(looks.values(name)) for name in _TOTALS},
        "stopped_looks": looks.total(looks.values("stopped")),
        "allowed_cpus": looks.extreme(np.fmin, looks.values("allowed_cpus")),
        "allowed_cores": looks.extreme(np.fmin, looks.values("allowed_cores")),
    }
    figures = {
        **{f"{name}_mean": looks.mean(name) for name in (*PEAKS, "frequency_mhz")},
        **{f"{name}_peak": looks.extreme(np.fmax, looks.without_short(name, shortest)) for name in PEAKS},
        "frequency_mhz_min": looks.extreme(np.fmin, frequency),
        "frequency_mhz_max": looks.extreme(np.fmax, frequency),
        "temperature_c_max": looks.extreme(np.fmax, looks.values("temperature_c")),
        "allowed_others_percent_mean": looks.mean("allowed_others_percent"),
        "siblings_percent_mean": looks.mean("siblings_percent"),
    }
    columns = {name: _or_none(values, int) for name, values in whole.items()}
    columns |= {name: _or_none(values, float) for name, values in figures.items()}
    # Use by others of the CPUs that the process may use is known where every look has it.
    known = np.isfinite(looks.total(looks.values("allowed_others_percent"))).tolist()
    for at, has_allowed, values in zip(looks.rounds, known, zip(*columns.values(), strict=True), strict=True):
        of_round = dict(zip(columns, values, strict=True))
        windows[at] = _window(usages[at], seen[at], of_round if has_allowed else {**of_round, **_NOT_ALLOWED})
    return windows


_NOT_ALLOWED = dict.fromkeys(
    ("allowed_cpus", "allowed_cores", "allowed_others_percent_mean", "siblings_percent_mean"), None
)


def _or_none(values: NDArray[np.float64], kind: Callable[[float], Any]) -> list[Any]:
    return [kind(value) if value == value else None for value in values.tolist()]  # noqa: PLR0124 - NaN is not equal


def _window(usage: Usage, looks: Mapping[str, Sequence[Any]], figures: Mapping[str, Any]) -> UsageSummary:
    """The summary of one round from its figures, and those that need no arrays."""
    on_gpu = [look for look, phase in zip(looks["gpu"], looks["phase"], strict=True) if phase in JUDGED_PHASES and look]
    return UsageSummary(
        **figures,
        rounds=1,
        process_ns=usage.watched_ns,
        pss_peak_bytes=usage.pss_peak_bytes,
        unavailable=usage.unavailable,
        monitor_share=usage.monitor_cpu_ns / usage.watched_ns if usage.watched_ns else 0.0,
        busiest=usage.busiest,
        gpu=gpu_usage_of(on_gpu, usage.gpu_memory_before_bytes),
        look_interval_ns=usage.interval_ns,
    )


def merged(rounds: Sequence[UsageSummary]) -> UsageSummary | None:
    """The rounds of a row as one summary: means weighted by time, totals added up, extremes kept. None without any."""
    if not rounds:
        return None
    seen = columns(rounds)
    times, lives = seen["watched_ns"], known(seen["process_ns"])
    return UsageSummary(
        rounds=len(rounds),
        watched_ns=sum(times),
        process_ns=round(median(lives)) if lives else None,
        cpu_percent_mean=mean(seen["cpu_percent_mean"], times) or 0.0,
        cpu_percent_peak=extreme(max, seen["cpu_percent_peak"]),
        others_percent_mean=mean(seen["others_percent_mean"], times) or 0.0,
        others_percent_peak=extreme(max, seen["others_percent_peak"]),
        steal_percent_mean=mean(seen["steal_percent_mean"], times),
        steal_percent_peak=extreme(max, seen["steal_percent_peak"]),
        rss_peak_bytes=max(seen["rss_peak_bytes"]),
        pss_peak_bytes=extreme(max, seen["pss_peak_bytes"]),
        major_faults=sum(seen["major_faults"]),
        minor_faults=sum(seen["minor_faults"]),
        read_bytes=total(seen["read_bytes"]),
        written_bytes=total(seen["written_bytes"]),
        frequency_mhz_min=extreme(min, seen["frequency_mhz_min"]),
        frequency_mhz_mean=mean(seen["frequency_mhz_mean"], times),
        frequency_mhz_max=extreme(max, seen["frequency_mhz_max"]),
        temperature_c_max=extreme(max, seen["temperature_c_max"]),
        throttled_periods=total(seen["throttled_periods"]),
        thermal_events=total(seen["thermal_events"]),
        unavailable={name: reason for usage in rounds for name, reason in usage.unavailable.items()},
        monitor_share=max(seen["monitor_share"]),
        busiest=_busiest([process for usage in rounds for process in usage.busiest]),
        gpu=gpu_usage_over([usage.gpu for usage in rounds if usage.gpu is not None]),
        allowed_cpus=extreme(min, seen["allowed_cpus"]),
        allowed_cores=extreme(min, seen["allowed_cores"]),
        allowed_others_percent_mean=mean(seen["allowed_others_percent_mean"], times),
        siblings_percent_mean=mean(seen["siblings_percent_mean"], times),
        longest_look_ns=extreme(max, seen["longest_look_ns"]),
        look_interval_ns=extreme(max, seen["look_interval_ns"]),
        stopped_looks=total(seen["stopped_looks"]),
    )


def _busiest(processes: Sequence[BusyProcess]) -> tuple[BusyProcess, ...]:
    """Each process once, with its largest share; the busiest first."""
    largest: dict[tuple[int, str], BusyProcess] = {}
    for busy_process in sorted(processes, key=lambda process: -process.cpu_percent):
        largest.setdefault((busy_process.pid, busy_process.name), busy_process)
    return tuple(largest.values())[:MAX_BUSIEST]
