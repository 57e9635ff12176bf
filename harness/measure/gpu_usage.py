"""What the card did while a case was timed: looks of one round → one figure, rounds → one (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from harness.core.schemas import GpuSample, GpuUsage

N = TypeVar("N", int, float)


def seen(looks: Sequence[GpuSample], memory_before_bytes: int | None) -> GpuUsage | None:
    """The looks of one timed window as one; None without any. They are equally far apart, so that a mean is plain."""
    if not looks:
        return None
    memory = _of("memory_used_bytes", looks)
    grown = None if memory_before_bytes is None or not memory else max(0, max(memory) - memory_before_bytes)
    reasons = [reason for look in looks for reason in look.reasons]
    return GpuUsage(
        sm_mhz_min=_extreme("sm_mhz", min, looks),
        sm_mhz_mean=_mean("sm_mhz", looks),
        sm_mhz_max=_extreme("sm_mhz", max, looks),
        memory_mhz_mean=_mean("memory_mhz", looks),
        temperature_c_max=_extreme("temperature_c", max, looks),
        power_w_mean=_mean("power_w", looks),
        power_w_max=_extreme("power_w", max, looks),
        utilisation_percent_mean=_mean("utilisation_percent", looks),
        memory_peak_bytes=grown,
        reasons={reason: reasons.count(reason) / len(looks) for reason in sorted(set(reasons))},
        other_processes_max=_extreme("other_processes", max, looks),
        samples=len(looks),
        memory_before_bytes=memory_before_bytes,
    )


def together(rounds: Sequence[GpuUsage]) -> GpuUsage | None:
    """The rounds of a row as one: means weighted by the number of looks, extremes kept. None without any."""
    if not rounds:
        return None
    total = sum(one.samples for one in rounds)

    def mean(name: str) -> float | None:
        known = [(one.samples, getattr(one, name)) for one in rounds if getattr(one, name) is not None]
        return sum(count * value for count, value in known) / sum(count for count, _ in known) if known else None

    names = sorted({reason for one in rounds for reason in one.reasons})
    return GpuUsage(
        sm_mhz_min=_extreme("sm_mhz_min", min, rounds),
        sm_mhz_mean=mean("sm_mhz_mean"),
        sm_mhz_max=_extreme("sm_mhz_max", max, rounds),
        memory_mhz_mean=mean("memory_mhz_mean"),
        temperature_c_max=_extreme("temperature_c_max", max, rounds),
        power_w_mean=mean("power_w_mean"),
        power_w_max=_extreme("power_w_max", max, rounds),
        utilisation_percent_mean=mean("utilisation_percent_mean"),
        memory_peak_bytes=_extreme("memory_peak_bytes", max, rounds),
        reasons={name: sum(one.reasons.get(name, 0) * one.samples for one in rounds) / total for name in names},
        other_processes_max=_extreme("other_processes_max", max, rounds),
        samples=total,
        memory_before_bytes=_extreme("memory_before_bytes", max, rounds),
    )


def _of(name: str, records: Sequence[GpuSample] | Sequence[GpuUsage]) -> list[N]:
    """The values of one figure that are known."""
    return [value for record in records if (value := getattr(record, name)) is not None]


def _mean(name: str, records: Sequence[GpuSample]) -> float | None:
    known: list[float] = _of(name, records)
    return sum(known) / len(known) if known else None


def _extreme(
    name: str, choose: Callable[[Iterable[N]], N], records: Sequence[GpuSample] | Sequence[GpuUsage]
) -> N | None:
    known: list[N] = _of(name, records)
    return choose(known) if known else None
