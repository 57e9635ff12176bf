"""What the GPU's clock says about a row (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import DeviceSamples, DeviceTimes, Measured, Mode
from harness.measure import stats


def device_of(records: Sequence[Measured], mode: Mode) -> DeviceTimes | None:
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
        device_ci95=stats.median_interval(medians),
        enqueue=stats.median([enqueue for _, enqueue in times]),
        h2d=_part([found.h2d_ns for found in samples]),
        compute=_part([found.compute_ns for found in samples]),
        d2h=_part([found.d2h_ns for found in samples]),
        overlap=_overlap(records) if mode == "pipelined" else None,
    )


def hidden_share(batch_ns: float, compute_ns: float, copies_ns: float) -> float | None:
    """Share of the copies' time that ran behind computing, from 0 to 1; None where there are no copies.

    batch_ns: wall time of a full pipeline by its batches; compute_ns, copies_ns: of one batch, by events while the
    others ran. What a batch takes beyond its pass was not hidden; time in which nothing ran counts as that as well.
    """
    if copies_ns <= 0:
        return None
    return min(1.0, max(0.0, 1 - (batch_ns - compute_ns) / copies_ns))


def _overlap(records: Sequence[Measured]) -> float | None:
    """Median over processes; each from all of its blocks and the medians of its parts."""
    shares = [share for record in records if (share := _hidden(record)) is not None]
    return stats.median(shares) if shares else None


def _hidden(record: Measured) -> float | None:
    found, batches = record.device, sum(block.iterations for block in record.blocks)
    if found is None or not found.h2d_ns or not batches:
        return None
    h2d, compute, d2h = (stats.median(part) for part in (found.h2d_ns, found.compute_ns, found.d2h_ns))
    return hidden_share(sum(block.wall_ns for block in record.blocks) / batches, compute, h2d + d2h)


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
