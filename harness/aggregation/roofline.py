"""The roofline of a row: its shares of the measured limits of its device, its bound, and impossible times (pure).

The roofline model: a pass needs at least its arithmetic at the speed of the best matrix product, and at least its
traffic at the speed of the best copy (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).

The time of a pass on a GPU is device time. On a CPU it is host time: in sync mode the median; at the e2e boundary the
inference part, from handing over the inputs to having the outputs, because tokenising and decoding are no work of the
model; in the offline and pipelined modes wall time per batch, because two batches in flight share it and the CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harness.aggregation.checks import ABOVE_ROOF
from harness.aggregation.flags import GroupKey, is_calibration
from harness.aggregation.flags_gpu import MAX_ENQUEUE_SHARE
from harness.aggregation.grades import Finding, finding
from harness.core.schemas import (
    ELEMENT_BYTES,
    REMOVES_PADDING,
    Bottleneck,
    Check,
    CpuRoof,
    Device,
    Environment,
    ExportRecord,
    GenerationCase,
    Precision,
    Roof,
    Roofline,
    Row,
    Work,
)


def fixed_shares(rows: Iterable[Row]) -> dict[str, float]:
    """Case id → share of its device time, by time = fixed + batch x each through it and the next batch size.

    The next larger size, because a reader may change to that batch; for the largest, the size before. Rows without a
    neighbour are left out. Below 0 where a larger batch takes more than its share.
    """
    shares: dict[str, float] = {}
    for series in batch_series(row for row in rows if _device_ns(row)):
        for small, large in pairwise(series):
            shares[small.case_id] = _fixed_share(small, small, large)
        if len(series) > 1:
            shares[series[-1].case_id] = _fixed_share(series[-1], *series[-2:])
    return shares


def _fixed_share(row: Row, small: Row, large: Row) -> float:
    each_ns = (_device_ns(large) - _device_ns(small)) / (large.batch_size - small.batch_size)
    return 1 - each_ns * row.batch_size / _device_ns(row)


def batch_series(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups of rows that differ only in the batch size, smallest first."""
    groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        groups.setdefault(GroupKey.of(row).without("batch_size"), []).append(row)
    return [sorted(series, key=lambda row: row.batch_size) for series in groups.values()]


def _device_ns(row: Row) -> float:
    """Device time of the pass alone; 0 where the GPU's clock did not time it."""
    times = row.device_ns
    return 0.0 if times is None else times.device if times.compute is None else times.compute


MIN_SHARE = 0.3
"""Share of a limit, from which on this limit bounds the row. A choice, not a law: kernels that one resource bounds
reach more than half of it, and a row of many small kernels, each waiting for the previous, stays below a third of
both."""

MIN_FIXED_SHARE = 0.5
"""Share of the device time that does not grow with the batch: launches and small kernels that wait for each other.
Where more than half grows with the batch, and neither limit is near, the kernels are slow."""

CLEARLY_SHORTER = 0.95
"""Share of the least time that the work can take on a GPU: between the run of the limits and that of a row, clocks
differ by a few per cent."""

CPU_CLEARLY_SHORTER = 0.5
"""The same on a CPU. Limits and rows are measured minutes apart. In between, a core's clock may rise (turbo) or its
other thread become idle, by up to a half each; a neighbour on the same host can halve the measured limit. A row that
leaves its work out is faster than this by far."""

CACHE_BYTES = 128 << 20
"""Traffic that a GPU's cache may have saved: weights of small models stay in L2 from one pass to the next. The largest
L2 so far (RTX PRO 6000: 128 MB, B200: 126 MB, H100: 50 MB; NVIDIA's architecture papers), so that the proof holds on
all."""

CPU_CACHE_BYTES = 2304 << 20
"""The same of a CPU: two sockets of the largest last-level cache so far (EPYC 9684X: 1,152 MB each; AMD's data sheet).
What a virtual machine reports may be less than its host has."""

WINOGRAD_SAVES = 4.0
"""How often fewer products Winograd's algorithm needs for 3 x 3 kernels in tiles of 4 x 4 (Lavin, Gray, CVPR 2016,
F(4 x 4, 3 x 3): 36 instead of 144), which cuDNN, oneDNN and the Arm Compute Library may choose."""

_COUNTED_BYTES = 4
"""Bytes of an element of the inputs that Work counts: fp32, or token ids, whose few bytes may be counted too low."""


@dataclass(frozen=True)
class RooflineBounds:
    """The limits of a device for one row, and how much shorter than the least time a time must be to prove an error.

    flops_per_s, copy_bytes_per_s: the limits. cached_bytes: traffic that a cache may have saved in any device of this
    kind. cache_bytes: size of this device's cache, None where it is unknown. clearly_shorter: share of the least time.
    """

    flops_per_s: float
    copy_bytes_per_s: float | None
    cached_bytes: int
    cache_bytes: int | None
    clearly_shorter: float


def best_product(case: GenerationCase | Row, threads: int | None, roof: Roof | CpuRoof | None) -> float | str:
    """FLOP/s of the best matrix product in the precision of a case, on a CPU with its threads; else why none.

    On a CPU no precision is slower than fp32: a library may convert, and int8 files keep layers in fp32.
    """
    if roof is None or isinstance(roof, CpuRoof) != (case.device == "cpu"):
        return f"what this {_KIND[case.device]} can do at most was not measured"
    if isinstance(roof, Roof):
        return roof.flops.get(case.precision) or f"no best matrix product in {case.precision} was measured"
    limits = None if threads is None else roof.of(threads)
    if limits is None:
        return f"no limits were measured with {threads} threads"
    if case.precision in limits.flops:
        return max(limits.flops[case.precision], limits.flops.get("fp32", 0.0))
    why = roof.unmeasured.get(case.precision)
    return f"no best matrix product in {case.precision} was measured{f' ({why})' if why else ''}"


def bounds_of(case: GenerationCase | Row, threads: int | None, roof: Roof | CpuRoof | None) -> RooflineBounds | str:
    """The limits of the device for a case with its threads; else why they are unknown."""
    flops = best_product(case, threads, roof)
    if isinstance(flops, str):
        return flops
    if isinstance(roof, CpuRoof):
        limits = roof.of(threads or 0)
        copies = None if limits is None else limits.copy_bytes_per_s
        cached = max(CPU_CACHE_BYTES, roof.cache_bytes or 0)
        return RooflineBounds(flops, copies, cached, roof.cache_bytes, CPU_CLEARLY_SHORTER)
    return RooflineBounds(flops, roof.copy_bytes_per_s if roof else None, CACHE_BYTES, None, CLEARLY_SHORTER)


def other_device(roof: Roof | CpuRoof, environments: Iterable[Environment]) -> str | None:
    """The reason, in words, why the limits belong to another device than these environments; None where they do not."""
    return other_cpu(roof, environments) if isinstance(roof, CpuRoof) else other_gpu(roof, environments)


def other_gpu(roof: Roof, environments: Iterable[Environment]) -> str | None:
    """As other_device, for a GPU."""
    names = {environment.gpu.name for environment in environments if environment.gpu is not None}
    if names <= {roof.device}:  # models may be spread over equal GPUs
        return None
    return f"The limits in roof.json are those of another GPU ({roof.device}): no rooflines. Run `make roof`."


_SAME_CPU = ("cpu", "architecture", "logical_cpus", "sockets", "cpu_features", "hypervisor")
"""Facts of a machine that determine its limits. Others change with a reboot, or from an image to its host."""


def other_cpu(roof: CpuRoof, environments: Iterable[Environment]) -> str | None:
    """As other_device, for a CPU: name, number of CPUs and instruction sets decide, because no CPU has a serial number.
    Limits that were measured on fewer CPUs than the samples are too low as well."""
    for environment in environments:
        for name in _SAME_CPU:
            theirs, ours = getattr(roof.machine, name), getattr(environment.machine, name)
            if theirs != ours:
                fact = f"{name.replace('_', ' ')} {_fact(theirs)}, here {_fact(ours)}"
                return f"The limits in roof.json are those of another machine ({fact}): no rooflines. Run `make roof`."
        cpus = len(environment.limits.affinity)
        if cpus > roof.cpus:
            few = f"The limits in roof.json were measured on {roof.cpus} of {cpus} CPUs"
            return f"{few}: no rooflines. Run `make roof FORCE=1` with the affinity of the run."
    return None


def _fact(value: object) -> str:
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class JudgedRoofline:
    """A row compared with the limits. checks: ABOVE_ROOF, in how many rounds; empty where it does not apply."""

    roofline: Roofline | None
    findings: tuple[Finding, ...]
    checks: Mapping[str, Check]


def rooflines(
    rows: Sequence[Row], exports: Mapping[str, ExportRecord], roof: Roof | CpuRoof | None
) -> dict[str, JudgedRoofline]:
    """Case id → the roofline of the row, ABOVE_ROOF where it is impossibly fast, and whether that was checked.

    exports: by model name. Rows without figures and those that compute nothing are left out. The check applies to every
    other row whose work was counted: where it could not be made, the row is UNCHECKED.
    """
    timed = [row for row in rows if row.latency_ns is not None and not is_calibration(row)]
    judged = {row.case_id: _judged(row, _work(row, exports), roof) for row in timed}
    fixed = fixed_shares(row for row in timed if not judged[row.case_id].findings)
    return {
        name: replace(entry, roofline=_with_fixed_limit(entry.roofline, fixed.get(name)))
        for name, entry in judged.items()
    }


def roofline_of(row: Row, work: Work, bounds: RooflineBounds) -> Roofline | None:
    """The roofline of a row; None where the time of a pass is unknown, no copy was measured, or none of its products
    was counted."""
    time_ns, copies = pass_ns(row), bounds.copy_bytes_per_s
    if time_ns is None or copies is None or (work.uncounted and not work.flops_per_item):
        return None
    each = work.least_flops_per_item if _removes_padding(row) else work.flops_per_item
    flops, traffic = row.batch_size * each, least_bytes(work, row.precision, row.batch_size)
    flops_share = flops / bounds.flops_per_s * 1e9 / time_ns
    bytes_share = traffic / copies * 1e9 / time_ns
    # Data that stay in a CPU's cache from one pass to the next do not go through memory, however often they are read.
    cached = bounds.cache_bytes is not None and traffic <= bounds.cache_bytes
    return Roofline(
        flops=flops,
        bytes=traffic,
        flops_share=flops_share,
        bytes_share=bytes_share,
        limit=_limit(row, flops_share, 0.0 if cached else bytes_share),
        at_least=bool(work.uncounted),
    )


def above_roof(row: Row, work: Work | None, roof: Roof | CpuRoof | None) -> tuple[list[Finding], Check]:
    """Findings that a row did less than its work: both bounds are lower than any implementation's time.

    Where that cannot be judged, the Check says why. Work that cannot be counted (a user's ONNX file) has no bound: the
    check applies to no round of such a row.
    """
    rounds = row.latency_ns.rounds if row.latency_ns else 0
    if work is None:
        return [], Check(rounds=0, of=0, missing="the work of a pass was not counted")
    bounds, time_ns = bounds_of(row, row.threads, roof), pass_ns(row)
    if isinstance(bounds, str):
        return [], Check(rounds=0, of=rounds, missing=bounds)
    if time_ns is None:
        return [], Check(rounds=0, of=rounds, missing="the time of a pass is not known")
    flops = row.batch_size * (work.least_flops_per_item - (1 - 1 / WINOGRAD_SAVES) * work.winograd_flops_per_item)
    findings = too_fast(row, time_ns, flops, least_bytes(work, row.precision, row.batch_size), bounds)
    return findings, Check(rounds=rounds, of=rounds, missing=None)


def too_fast(
    case: GenerationCase | Row, time_ns: float, flops: float, traffic: float, bounds: RooflineBounds
) -> list[Finding]:
    """ABOVE_ROOF where a time is too short for so many operations, or for so many bytes that are read or written."""
    least_ns, what = _least_ns(case.device, flops, traffic, bounds)
    if time_ns >= bounds.clearly_shorter * least_ns:
        return []
    each = "a pass" if isinstance(case, Row) else "a step"
    where, short = ("on the device", "") if case.device == "cuda" else (each, "half of ")
    detail = f"{time_ns / 1e3:,.1f} µs {where} is less than {short}the {least_ns / 1e3:,.1f} µs of {what}"
    remedy = (
        f"{case.backend} left work out or computed in a lower precision: compare its placement and outputs. If the "
        f"{_KIND[case.device]} was busy when its limits were measured, `make roof FORCE=1`."
    )
    return [finding("F", ABOVE_ROOF, detail, remedy)]


def _least_ns(device: Device, flops: float, traffic: float, bounds: RooflineBounds) -> tuple[float, str]:
    """(least time, its cause in words)."""
    peak, copies = bounds.flops_per_s, bounds.copy_bytes_per_s
    rate = f"{peak / 1e12:,.0f} TFLOP/s" if device == "cuda" else f"{peak / 1e9:,.0f} GFLOP/s"
    times = [(flops / peak * 1e9, f"{flops / 1e9:,.1f} GFLOP at the {rate} of the best matrix product")]
    uncached = traffic - bounds.cached_bytes
    if copies is not None:
        slow = f"{uncached / 1e6:,.0f} MB beyond any cache at the {copies / 1e9:,.0f} GB/s of the best copy"
        times.append((uncached / copies * 1e9, slow))
    return max(times)


_KIND = {"cpu": "CPU", "cuda": "GPU"}


def _judged(row: Row, work: Work | None, roof: Roof | CpuRoof | None) -> JudgedRoofline:
    findings, check = above_roof(row, work, roof)
    bounds = bounds_of(row, row.threads, roof)
    roofline = None if work is None or isinstance(bounds, str) else roofline_of(row, work, bounds)
    # Work that was not counted has no bound: the check does not apply.
    return JudgedRoofline(roofline, tuple(findings), {ABOVE_ROOF: check} if check.of else {})


def _removes_padding(row: Row) -> bool:
    """Whether the row computed fewer tokens than its inputs have: as many as their masks show."""
    return row.placement is not None and bool(row.placement.settings.get(REMOVES_PADDING))


def _work(row: Row, exports: Mapping[str, ExportRecord]) -> Work | None:
    export = exports.get(row.model)
    works: Collection[Work] = export.work if export else ()
    return next((work for work in works if work.sequence_length == row.sequence_length), None)


def pass_ns(row: Row) -> float | None:
    """Time of the pass alone, per batch: the other parts of a row have limits of their own."""
    if row.device != "cpu":
        return _device_ns(row) or None
    if row.mode == "pipelined":
        return row.batch_size * 1e9 / row.throughput_per_s if row.throughput_per_s else None
    if row.split is not None:
        return row.split.inference.median_ns or None
    return row.latency_ns.median if row.latency_ns else None


def least_bytes(work: Work, precision: Precision, batch_size: int) -> int:
    """Least traffic of a batch: weights, inputs and outputs once, in this precision; a backend may take inputs in it.

    For int8, weights alone: each has one byte at least, while inputs and outputs of quantised files stay in fp32. For
    fp8 likewise, with inputs and outputs in bf16.
    """
    if precision == "fp8":
        sample = work.input_bytes_per_item * 2 // _COUNTED_BYTES + 2 * work.output_elements_per_item
        return work.parameters + batch_size * sample
    if precision == "int8":
        return work.parameters + batch_size * (work.input_bytes_per_item + 4 * work.output_elements_per_item)
    element = ELEMENT_BYTES[precision]
    sample = work.input_bytes_per_item * element // _COUNTED_BYTES + work.output_elements_per_item * element
    return work.parameters * element + batch_size * sample


def _with_fixed_limit(roofline: Roofline | None, fixed_share: float | None) -> Roofline | None:
    """Below both limits: with `launch` or `kernels`, by the fixed share of the time; unchanged where it is unknown."""
    if roofline is None or roofline.limit is not None or roofline.at_least or fixed_share is None:
        return roofline
    limit: Bottleneck = "launch" if fixed_share >= MIN_FIXED_SHARE else "kernels"
    return roofline.model_copy(update={"limit": limit})


def _limit(row: Row, flops_share: float, bytes_share: float) -> Bottleneck | None:
    """The limit that the row alone shows."""
    # Back to back, the queue fills up, and submitting waits for the GPU instead of the other way round.
    times = row.device_ns
    if times is not None and row.mode != "offline" and times.enqueue > MAX_ENQUEUE_SHARE * times.device:
        return "host"
    if max(flops_share, bytes_share) < MIN_SHARE:
        return None
    return "compute" if flops_share >= bytes_share else "memory"
