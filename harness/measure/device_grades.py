"""What the GPU's clock proves about a row: who was waited for, and whether both clocks saw the same work (pure).

Each threshold stands here with its source; what the flags do to a grade is defined in harness/measure/grades.py.
"""

from __future__ import annotations

from harness.core.schemas import Case, DeviceTimes, Latency
from harness.measure.grades import MIN_CLOCK_READS, Finding, finding

MAX_ENQUEUE_SHARE = 0.8
"""Of device time (METHOD 2.9). Above it the GPU waits for the thread that submits, kernel by kernel."""

MAX_COPY_SHARE = 0.5
"""Of device time at the transfer boundary: from here on the link is the largest part of the row."""

CLOCKS_AGREE_WITHIN = 0.001
"""Two quartz oscillators are each specified to some 100 parts in a million, so a longer span may look longer by that on
one of them; ten times as much is no matter of the clocks any more."""

MIN_UNSEEN_NS = 100_000
"""Waking a thread that waits for the GPU takes some microseconds: 7 to 58 in the medians of the published H200 rows, at
most 12 where a batch takes less than a millisecond. Nothing below this is held against a row."""

MAX_UNSEEN_SHARE = 0.02
"""Of the host's time, in which the GPU's clock saw no work on the stream and the host submitted none. Published H200
rows of 5 ms and more have up to 0.5%."""


def device_findings(case: Case, latency: Latency, device: DeviceTimes | None) -> list[Finding]:
    """Everything that both clocks together prove about a row. Figures are times a batch, in offline mode as well."""
    if device is None:
        return []
    return [
        *_over_host(case, latency, device),
        *_off_stream(case, latency, device),
        *_enqueue_bound(case, device),
        *_transfer_bound(device),
        *_short(device),
    ]


def _over_host(case: Case, latency: Latency, device: DeviceTimes) -> list[Finding]:
    if device.device <= latency.median * (1 + CLOCKS_AGREE_WITHIN) + device.clock.resolution_ns:
        return []
    detail = f"{_us(device.device)} on the device is longer than the {_us(latency.median)} that the host waited for it"
    remedy = f"{case.backend} returned before its work was done: its synchronize() must wait for the stream it shows."
    return [finding("F", "DEVICE_OVER_HOST", detail, remedy)]


def _off_stream(case: Case, latency: Latency, device: DeviceTimes) -> list[Finding]:
    # Two in flight wait for one another: their host time holds another batch's device time.
    # Submitting lies between the same two events as the work that it submits, and is no time besides.
    unseen = latency.median - max(device.device, device.enqueue)
    if case.mode == "pipelined" or unseen <= max(MIN_UNSEEN_NS, MAX_UNSEEN_SHARE * latency.median):
        return []
    detail = (
        f"of {_us(latency.median)} that the host waited, the stream shows only {_us(device.device)} of work: the rest "
        "ran elsewhere"
    )
    remedy = f"{case.backend} must enqueue on the stream that it shows, not on one of its own or on the CPU."
    return [finding("F", "OFF_STREAM", detail, remedy)]


def _enqueue_bound(case: Case, device: DeviceTimes) -> list[Finding]:
    # Back to back, the queue between host and GPU fills up, and submitting waits for the GPU instead.
    if case.mode == "offline" or device.enqueue <= MAX_ENQUEUE_SHARE * device.device:
        return []
    share = f" ({device.enqueue / device.device:.0%})" if device.device > 0 else ""
    detail = (
        f"submitting takes {_us(device.enqueue)} of {_us(device.device)} on the device{share}: the host is the limit"
    )
    remedy = "Choose a setting with a CUDA graph, which submits a whole pass with one call, or a larger batch."
    return [finding("A", "ENQUEUE_BOUND", detail, remedy)]


def _transfer_bound(device: DeviceTimes) -> list[Finding]:
    copies = ((device.h2d or 0.0) + (device.d2h or 0.0)) * (1 - (device.overlap or 0.0))
    # Behind copies that are hidden, the device works on several batches: one takes its pass and what is not hidden.
    whole = device.device if device.overlap is None else (device.compute or 0.0) + copies
    if copies <= MAX_COPY_SHARE * whole:
        return []
    what = "copies" if device.overlap is None else "copies that are not hidden"
    detail = f"{what} take {_us(copies)} of {_us(whole)} on the device"
    remedy = "Keep inputs on the device, send smaller types (uint8 pictures, fp16), or return less."
    return [finding("A", "TRANSFER_BOUND", detail, remedy)]


def _short(device: DeviceTimes) -> list[Finding]:
    least = MIN_CLOCK_READS * device.clock.overhead_ns
    if device.device >= least:
        return []
    own = _us(device.clock.overhead_ns)
    detail = f"{_us(device.device)} on the device is below {MIN_CLOCK_READS} × the event clock's own {own}"
    remedy = "Trust the host's latency here; use a larger batch for the device's."
    return [finding("A", "DEVICE_BELOW_TIMER", detail, remedy)]


def _us(time_ns: float) -> str:
    return f"{time_ns / 1e3:,.1f} µs"
