"""A row against what its GPU can do at most: shares of the measured limits, what bounds it, and what cannot be (pure).

The roofline model: a pass needs at least its arithmetic at the speed of the best matrix product, and at least its
traffic at the speed of the best copy (Williams, Waterman, Patterson, "Roofline", CACM 52, 2009).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from harness.core.schemas import ELEMENT_BYTES, Environment, ExportRecord, Limit, Precision, Roof, Roofline, Row, Work
from harness.measure.batch_growth import fixed_shares
from harness.measure.device_grades import MAX_ENQUEUE_SHARE
from harness.measure.grades import Finding, finding, worse
from harness.measure.rows import is_calibration

MIN_SHARE = 0.3
"""Of a limit, from which on it is what bounds the row. A choice, not a law: kernels that one resource bounds reach more
than half of it, and a row of many small kernels, each waiting for the one before, stays below a third of both."""

MIN_FIXED_SHARE = 0.5
"""Of the device time, that a larger batch does not add to: launches and small kernels that wait for each other. Where
more than half grows with the batch, and neither limit is near, it is the kernels that are slow."""

CLEARLY_SHORTER = 0.95
"""Of the least time that the work can take: clocks differ by a few per cent between the limits' run and a row's."""

CACHE_BYTES = 128 << 20
"""Traffic that a cache may have saved: weights of small models stay in L2 from one pass to the next. The largest L2 so
far (RTX PRO 6000: 128 MB, B200: 126 MB, H100: 50 MB; NVIDIA's architecture papers), so that the proof holds on all."""

WINOGRAD_SAVES = 4.0
"""How often fewer products Winograd's algorithm needs for 3 x 3 kernels in tiles of 4 x 4 (Lavin, Gray, CVPR 2016,
F(4 x 4, 3 x 3): 36 instead of 144), which cuDNN may choose."""

_COUNTED_BYTES = 4
"""Of an element of the inputs that Work counts: fp32, or token ids, whose few bytes may count for too little."""


def other_card(roof: Roof, environments: Iterable[Environment]) -> str | None:
    """Why the limits are not those of the GPU that these environments name, in words; None where they are."""
    names = {found.gpu.name for found in environments if found.gpu is not None}
    if names <= {roof.device}:  # models may be spread over equal cards
        return None
    return f"The limits in roof.json are those of another GPU ({roof.device}): no rooflines. Run `make roof`."


def with_rooflines(rows: Sequence[Row], exports: Mapping[str, ExportRecord], roof: Roof | None) -> list[Row]:
    """Rows that ran on the GPU of `roof` with their roofline, and ABOVE_ROOF on each that is faster than can be.

    exports: by model name. Rows without device times, without counted work, in a precision without a measured limit
    (int8), and those that compute nothing or are void for other reasons stay as they are.
    """
    if roof is None:
        return list(rows)
    judged = [_judged(row, _work(row, exports), roof) for row in rows]
    fixed = fixed_shares(judged)
    return [_told_apart(row, fixed.get(row.case_id)) for row in judged]


def roofline_of(row: Row, work: Work, roof: Roof) -> Roofline | None:
    """The roofline of a row; None where its device time or the limit of its precision is not known, or nothing of its
    products was counted."""
    peak, device_ns = roof.flops.get(row.precision), pass_ns(row)
    if peak is None or device_ns is None or (work.uncounted and not work.flops_per_item):
        return None
    flops, traffic = row.batch_size * work.flops_per_item, least_bytes(work, row.precision, row.batch_size)
    flops_share = flops / peak * 1e9 / device_ns
    bytes_share = traffic / roof.copy_bytes_per_s * 1e9 / device_ns
    return Roofline(
        flops=flops,
        bytes=traffic,
        flops_share=flops_share,
        bytes_share=bytes_share,
        limit=_limit(row, flops_share, bytes_share),
        at_least=bool(work.uncounted),
    )


def above_roof(row: Row, work: Work, roof: Roof) -> Finding | None:
    """What proves that a row did less than its work: both bounds are lower than any implementation's time."""
    peak, device_ns = roof.flops.get(row.precision), pass_ns(row)
    if peak is None or device_ns is None:
        return None
    flops = row.batch_size * (work.flops_per_item - (1 - 1 / WINOGRAD_SAVES) * work.winograd_flops_per_item)
    uncached = least_bytes(work, row.precision, row.batch_size) - CACHE_BYTES
    copy = roof.copy_bytes_per_s
    bounds = (
        (flops / peak * 1e9, f"{flops / 1e9:,.1f} GFLOP at the {peak / 1e12:,.0f} TFLOP/s of the best matrix product"),
        (
            uncached / copy * 1e9,
            f"{uncached / 1e6:,.0f} MB beyond any cache at the {copy / 1e9:,.0f} GB/s of the best copy",
        ),
    )
    least_ns, what = max(bounds)
    if device_ns >= CLEARLY_SHORTER * least_ns:
        return None
    detail = f"{device_ns / 1e3:,.1f} µs on the device is less than the {least_ns / 1e3:,.1f} µs of {what}"
    remedy = (
        f"{row.backend} left work out or computed in a lower precision: compare its placement and outputs. If the GPU "
        "was busy when its limits were measured, `python -m harness.roof --force`."
    )
    return finding("F", "ABOVE_ROOF", detail, remedy)


def _judged(row: Row, work: Work | None, roof: Roof) -> Row:
    if work is None or row.grade in (None, "F") or is_calibration(row):
        return row
    found = above_roof(row, work, roof)
    judged = row.model_copy(update={"roofline": roofline_of(row, work, roof)})
    if found is None:
        return judged
    grade = row.grade and worse(row.grade, found.caps_at)
    return judged.model_copy(update={"grade": grade, "flags": (*row.flags, found.flag)})


def _work(row: Row, exports: Mapping[str, ExportRecord]) -> Work | None:
    export = exports.get(row.model)
    works: Collection[Work] = export.work if export else ()
    return next((work for work in works if work.sequence_length == row.sequence_length), None)


def pass_ns(row: Row) -> float | None:
    """Of the pass alone: copies over the link have limits of their own."""
    if row.device_ns is None:
        return None
    compute = row.device_ns.compute
    return (row.device_ns.device if compute is None else compute) or None


def least_bytes(work: Work, precision: Precision, batch_size: int) -> int:
    """Of one batch: weights, inputs and outputs once, in that precision (not int8); a backend may take inputs in it."""
    element = ELEMENT_BYTES[precision]
    item = work.input_bytes_per_item * element // _COUNTED_BYTES + work.output_elements_per_item * element
    return work.parameters * element + batch_size * item


def _told_apart(row: Row, fixed_share: float | None) -> Row:
    """A row below both limits, with `launch` or `kernels` by how much of its time is fixed; None where nobody knows."""
    if row.roofline is None or row.roofline.limit is not None or row.roofline.at_least or fixed_share is None:
        return row
    limit: Limit = "launch" if fixed_share >= MIN_FIXED_SHARE else "kernels"
    return row.model_copy(update={"roofline": row.roofline.model_copy(update={"limit": limit})})


def _limit(row: Row, flops_share: float, bytes_share: float) -> Limit | None:
    """What one row alone tells."""
    # Back to back, the queue fills up, and submitting waits for the GPU instead of the other way round.
    times = row.device_ns
    if times is not None and row.mode != "offline" and times.enqueue > MAX_ENQUEUE_SHARE * times.device:
        return "host"
    if max(flops_share, bytes_share) < MIN_SHARE:
        return None
    return "compute" if flops_share >= bytes_share else "memory"
