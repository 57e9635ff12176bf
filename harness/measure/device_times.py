"""What the GPU's clock says about a row (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import DeviceSamples, DeviceTimes, Measured
from harness.measure import stats


def device_of(records: Sequence[Measured]) -> DeviceTimes | None:
    """Medians of process medians, in ns a batch; None where no process had a GPU's clock on its samples."""
    clocks = [record.device.clock for record in records if record.device is not None]
    times = [found for record in records if (found := _per_batch(record)) is not None]
    if not times:
        return None
    medians = [device for device, _ in times]
    samples = [record.device for record in records if record.device is not None]
    return DeviceTimes(
        clock=clocks[0],
        device=stats.median(medians),
        device_ci95=stats.log_t_interval(medians),
        enqueue=stats.median([enqueue for _, enqueue in times]),
        h2d=_part([found.h2d_ns for found in samples]),
        compute=_part([found.compute_ns for found in samples]),
        d2h=_part([found.d2h_ns for found in samples]),
    )


def _per_batch(record: Measured) -> tuple[float, float] | None:
    """Device and enqueue time of one process: medians of its samples, or of all its blocks by their batches."""
    if record.device is None:
        return None
    if record.device.device_ns:
        return _medians(record.device)
    # A block has both or neither (schemas.Block).
    blocks = [(b.iterations, b.device_ns, b.enqueue_ns or 0) for b in record.blocks if b.device_ns is not None]
    batches = sum(iterations for iterations, _, _ in blocks)
    if not batches:
        return None
    return sum(device for _, device, _ in blocks) / batches, sum(enqueue for *_, enqueue in blocks) / batches


def _medians(samples: DeviceSamples) -> tuple[float, float]:
    return stats.median(samples.device_ns), stats.median(samples.enqueue_ns)


def _part(processes: Sequence[Sequence[int]]) -> float | None:
    medians = [stats.median(samples) for samples in processes if samples]
    return stats.median(medians) if medians else None
