"""What the card did while a case was timed: looks of one round → one figure, rounds → one (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import GpuSample, GpuUsage
from harness.measure.figures import extreme, known, mean


def gpu_usage_of(looks: Sequence[GpuSample], memory_before_bytes: int | None) -> GpuUsage | None:
    """The looks of one timed window as one; None without any. They are equally far apart, so that a mean is plain."""
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
    """The rounds of a row as one: means weighted by the number of looks, extremes kept. None without any."""
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
