"""What the monitor saw while a case was timed: samples of one round → one summary, rounds → one (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from harness.core.schemas import Usage, UsageSample, UsageSummary
from harness.measure import gpu_usage

TIMED_PHASE = "measure"
"""The phase of a session in which samples are taken; loading and checking are not what a row is about."""

MIN_PEAK_SHARE = 0.5
"""A sample shorter than this share of the monitor's interval is part of the mean and never a peak: the kernel counts
CPU time in ticks of 10 ms, and one tick in a sample of 5 ms would read as two CPUs."""

N = TypeVar("N", int, float)


def timed(usage: Usage) -> UsageSummary | None:
    """One round's timed window; None where it ended before the monitor came to see it."""
    starts = [0, *(sample.at_ns for sample in usage.samples)]
    spans = [end - start for start, end in pairwise(starts)]
    window = [(span, one) for span, one in zip(spans, usage.samples, strict=True) if one.phase == TIMED_PHASE]
    total_ns = sum(span for span, _ in window)
    if not total_ns:
        return None
    samples = [sample for _, sample in window]
    long = [sample for span, sample in window if span >= MIN_PEAK_SHARE * usage.interval_ns]
    steal, frequency = _of("steal_percent", samples), _of("frequency_mhz", samples)

    def mean(name: str) -> float | None:
        known = [(span, getattr(sample, name)) for span, sample in window if getattr(sample, name) is not None]
        return sum(span * value for span, value in known) / sum(span for span, _ in known) if known else None

    return UsageSummary(
        rounds=1,
        watched_ns=total_ns,
        cpu_percent_mean=mean("cpu_percent") or 0.0,
        cpu_percent_peak=max(_of("cpu_percent", long), default=None),
        others_percent_mean=mean("others_percent") or 0.0,
        others_percent_peak=max(_of("others_percent", long), default=None),
        steal_percent_mean=mean("steal_percent"),
        steal_percent_peak=max(_of("steal_percent", long), default=None) if steal else None,
        rss_peak_bytes=max(sample.rss_bytes for sample in samples),
        pss_peak_bytes=usage.pss_peak_bytes,
        major_faults=sum(sample.major_faults for sample in samples),
        minor_faults=sum(sample.minor_faults for sample in samples),
        read_bytes=_total("read_bytes", samples),
        written_bytes=_total("written_bytes", samples),
        frequency_mhz_min=min(frequency, default=None),
        frequency_mhz_mean=mean("frequency_mhz"),
        frequency_mhz_max=max(frequency, default=None),
        temperature_c_max=max(_of("temperature_c", samples), default=None),
        throttled_periods=_total("throttled_periods", samples),
        thermal_events=_total("thermal_events", samples),
        unavailable=usage.unavailable,
        monitor_share=usage.monitor_cpu_ns / usage.watched_ns if usage.watched_ns else 0.0,
        gpu=gpu_usage.seen([one.gpu for one in samples if one.gpu is not None], usage.gpu_memory_before_bytes),
    )


def merged(rounds: Sequence[UsageSummary]) -> UsageSummary | None:
    """The rounds of a row as one: means weighted by time, totals added up, extremes kept. None without any."""
    if not rounds:
        return None

    def mean(name: str) -> float | None:
        known = [(one.watched_ns, getattr(one, name)) for one in rounds if getattr(one, name) is not None]
        return sum(span * value for span, value in known) / sum(span for span, _ in known) if known else None

    def extreme(name: str, choose: Callable[[Iterable[N]], N]) -> N | None:
        known: list[N] = _of(name, rounds)
        return choose(known) if known else None

    return UsageSummary(
        rounds=len(rounds),
        watched_ns=sum(one.watched_ns for one in rounds),
        cpu_percent_mean=mean("cpu_percent_mean") or 0.0,
        cpu_percent_peak=extreme("cpu_percent_peak", max),
        others_percent_mean=mean("others_percent_mean") or 0.0,
        others_percent_peak=extreme("others_percent_peak", max),
        steal_percent_mean=mean("steal_percent_mean"),
        steal_percent_peak=extreme("steal_percent_peak", max),
        rss_peak_bytes=max(one.rss_peak_bytes for one in rounds),
        pss_peak_bytes=extreme("pss_peak_bytes", max),
        major_faults=sum(one.major_faults for one in rounds),
        minor_faults=sum(one.minor_faults for one in rounds),
        read_bytes=_total("read_bytes", rounds),
        written_bytes=_total("written_bytes", rounds),
        frequency_mhz_min=extreme("frequency_mhz_min", min),
        frequency_mhz_mean=mean("frequency_mhz_mean"),
        frequency_mhz_max=extreme("frequency_mhz_max", max),
        temperature_c_max=extreme("temperature_c_max", max),
        throttled_periods=_total("throttled_periods", rounds),
        thermal_events=_total("thermal_events", rounds),
        unavailable={name: reason for one in rounds for name, reason in one.unavailable.items()},
        monitor_share=max(one.monitor_share for one in rounds),
        gpu=gpu_usage.together([one.gpu for one in rounds if one.gpu is not None]),
    )


def _of(name: str, records: Sequence[UsageSample] | Sequence[UsageSummary]) -> list[N]:
    """The values of one figure that are known."""
    return [value for record in records if (value := getattr(record, name)) is not None]


def _total(name: str, records: Sequence[UsageSample] | Sequence[UsageSummary]) -> int | None:
    """Their sum; None where any is unknown: a total of some of them would pass for all."""
    known: list[int] = _of(name, records)
    return sum(known) if known and len(known) == len(records) else None
