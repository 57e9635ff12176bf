"""Findings from the monitor's looks at the GPU: heat, slow-downs, power, a moving clock, other processes (pure).

Clocks that a person set (applications_clocks_setting) and a GPU that waits for work (gpu_idle) disturb nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.aggregation.clock_drift import clock_drift
from harness.aggregation.flags import MIN_CLOCK_READS
from harness.aggregation.grades import Finding, finding
from harness.core.schemas import Case, DeviceTimes, GpuUsage, Latency
from harness.core.units import in_us

MIN_LOOKS = 2
"""In a round that is judged: a single look may show a clock that was just rising, and no slow-down."""

MIN_CAPPED_SHARE = 0.1
"""Share of the looks: below it, at most one sample in ten was taken under the cap, which the medians do not show."""

MAX_FOREIGN_BYTES = 256 << 20
"""In use on the GPU before the case started. The driver's own part is not counted, and a CUDA context takes about 300
MiB or more on a data-centre GPU: beyond this limit another program has a CUDA context."""

HEAT = ("sw_thermal", "hw_thermal")
SLOWDOWN = ("hw_slowdown", "hw_power_brake")
POWER_CAP = "sw_power_cap"

HOT = "Cool the GPU (fans, airflow, load of its neighbours), then `make run FORCE=1`."
SLOWED = "The GPU protects itself: look at its power supply and cooling (`nvidia-smi -q -d PERFORMANCE`)."
SHARED = "Stop the other programs on the GPU (`nvidia-smi` lists them), then `make run FORCE=1`."


def thermal(gpu: GpuUsage) -> str | None:
    """Heat lowered the clock in at least one look."""
    return _throttling_text(gpu, HEAT, "heat lowered the GPU's clock")


def slowdown(gpu: GpuUsage) -> str | None:
    """The GPU's protection lowered the clock in at least one look, for another reason than heat."""
    # NVML sets hw_slowdown beside hw_thermal: heat is already a finding of its own.
    return (
        None if "hw_thermal" in gpu.reasons else _throttling_text(gpu, SLOWDOWN, "the GPU's hardware lowered its clock")
    )


def company(gpu: GpuUsage) -> str | None:
    """Another process computed on the GPU."""
    if not gpu.other_processes_max:
        return None
    return f"up to {gpu.other_processes_max} other processes computed on the same GPU"


def foreign_memory(rounds: Sequence[GpuUsage]) -> list[Finding]:
    """Other programs used so much GPU memory that it must contain a CUDA context; whether it computes is unknown.

    Where NVML lists the processes and no other computes, the memory belongs to a program that does not compete.
    """
    sizes = [usage.memory_before_bytes for usage in rounds if usage.other_processes_max is None]
    most = max((size for size in sizes if size is not None), default=0)
    if most <= MAX_FOREIGN_BYTES:
        return []
    held = f"{most / (1 << 20):,.0f} MiB of the GPU were in use before the case started"
    return [finding("B", "GPU_SHARED", f"{held}; it is unknown whether another program computed there", SHARED)]


def power_cap(rounds: Sequence[GpuUsage]) -> list[Finding]:
    """A clock that the power limit lowered is right, but only for GPUs with that limit."""
    looks = sum(usage.samples for usage in rounds)
    capped = sum(usage.reasons.get(POWER_CAP, 0) * usage.samples for usage in rounds)
    if not looks or capped / looks < MIN_CAPPED_SHARE:
        return []
    powers = [usage.power_w_max for usage in rounds if usage.power_w_max is not None]
    reached = f", up to {max(powers):.0f} W" if powers else ""
    detail = f"the power limit lowered the GPU's clock in {capped / looks:.0%} of the looks{reached}"
    remedy = "Nothing is wrong: it is this GPU's speed at this limit. Compare it only with GPUs of the same limit."
    return [finding("B", "POWER_CAP", detail, remedy)]


def clock(seen: Mapping[int, GpuUsage], rounds: int, unwatched: int = 0) -> list[Finding]:
    """The GPU's mean clock was not the same in all rounds; `seen` by round, unwatched: rounds without a usage file."""
    means = {
        number: usage.sm_mhz_mean for number, usage in seen.items() if usage.samples >= MIN_LOOKS and usage.sm_mhz_mean
    }
    remedy = "Let the GPU warm up, or have its owner lock the clock (`nvidia-smi -lgc`); then `make run FORCE=1`."
    return clock_drift(means, rounds, "the GPU's mean clocks", "MHz", remedy, unwatched)


def _throttling_text(gpu: GpuUsage, names: Sequence[str], what: str) -> str | None:
    reasons = {name: gpu.reasons[name] for name in names if gpu.reasons.get(name)}
    if not reasons:
        return None
    shares = ", ".join(f"{name} in {share:.0%} of the looks" for name, share in reasons.items())
    hottest = "" if gpu.temperature_c_max is None else f", up to {gpu.temperature_c_max} °C"
    return f"{what}: {shares}{hottest}"


MAX_ENQUEUE_SHARE = 0.8
"""Share of device time, a choice. Above it the GPU waits for the thread that submits, kernel by kernel."""

MAX_COPY_SHARE = 0.5
"""Share of device time at the transfer boundary: above it the link is the largest part of the row."""

CLOCKS_AGREE_WITHIN = 0.001
"""Two quartz oscillators are each specified to some 100 parts in a million, so one of them may show a span as longer by
that much; the clocks do not explain ten times as much."""

MIN_UNSEEN_NS = 100_000
"""Waking a thread that waits for the GPU takes some microseconds: 7 to 58 in the medians of the published H200 rows, at
most 12 where a batch takes less than a millisecond. Nothing below this is held against a row."""

MAX_UNSEEN_SHARE = 0.02
"""Share of the host's time in which the GPU's clock saw no work on the stream and the host submitted none. Published
H200 rows of 5 ms and more have up to 0.5%."""


def device_findings(
    case: Case, latency: Latency, device: DeviceTimes | None, usages: Sequence[GpuUsage] = ()
) -> list[Finding]:
    """Findings from both clocks together. Figures are times per batch, in offline mode as well.

    usages: the monitor's of each round, where it saw the GPU.
    """
    if device is None:
        return []
    return [
        *_over_host(case, latency, device),
        *_off_stream(case, latency, device, usages),
        *_enqueue_bound(case, device),
        *_transfer_bound(device),
        *_short(device),
    ]


def _over_host(case: Case, latency: Latency, device: DeviceTimes) -> list[Finding]:
    if device.device <= latency.median * (1 + CLOCKS_AGREE_WITHIN) + device.clock.resolution_ns:
        return []
    detail = (
        f"{in_us(device.device)} on the device is longer than the {in_us(latency.median)} that the host waited for it"
    )
    remedy = f"{case.backend} returned before its work was done: its synchronize() must wait for the stream it shows."
    return [finding("F", "DEVICE_OVER_HOST", detail, remedy)]


def _off_stream(case: Case, latency: Latency, device: DeviceTimes, usages: Sequence[GpuUsage]) -> list[Finding]:
    # Two in flight wait for one another: their host time holds another batch's device time.
    # Submitting lies between the same two events as the submitted work, and adds no time of its own.
    unseen = latency.median - max(device.device, device.enqueue)
    if case.mode == "pipelined" or unseen <= max(MIN_UNSEEN_NS, MAX_UNSEEN_SHARE * latency.median):
        return []
    waited, shown = in_us(latency.median), in_us(device.device)
    seen = f"of {waited} that the host waited, the stream shows only {shown} of work"
    if any(map(company, usages)) or foreign_memory(usages):
        # The GPU gives programs time in turn: a pass of 42 µs took 2.4 ms beside three others (H200, 2026-12-01).
        detail = f"{seen}: the rest ran elsewhere, or other programs had the GPU meanwhile"
        return [finding("C", "OFF_STREAM", detail, SHARED)]
    detail = f"{seen}: the rest ran elsewhere"
    remedy = f"{case.backend} must enqueue on the stream that it shows, not on one of its own or on the CPU."
    return [finding("F", "OFF_STREAM", detail, remedy)]


def _enqueue_bound(case: Case, device: DeviceTimes) -> list[Finding]:
    # Back to back, the queue between host and GPU fills up, and submitting waits for the GPU instead.
    if case.mode == "offline" or device.enqueue <= MAX_ENQUEUE_SHARE * device.device:
        return []
    share = f" ({device.enqueue / device.device:.0%})" if device.device > 0 else ""
    device_text = f"{in_us(device.device)} on the device{share}"
    detail = f"submitting takes {in_us(device.enqueue)} of {device_text}: the host is the limit"
    remedy = "Choose a setting with a CUDA graph, which submits a whole pass with one call, or a larger batch."
    return [finding("A", "ENQUEUE_BOUND", detail, remedy)]


def _transfer_bound(device: DeviceTimes) -> list[Finding]:
    copies = ((device.h2d or 0.0) + (device.d2h or 0.0)) * (1 - (device.overlap or 0.0))
    # With hidden copies the device works on several batches: each takes its pass and the part that is not hidden.
    total_ns = device.device if device.overlap is None else (device.compute or 0.0) + copies
    if copies <= MAX_COPY_SHARE * total_ns:
        return []
    what = "copies" if device.overlap is None else "copies that are not hidden"
    detail = f"{what} take {in_us(copies)} of {in_us(total_ns)} on the device"
    remedy = "Keep inputs on the device, send smaller types (uint8 pictures, fp16), or return less."
    return [finding("A", "TRANSFER_BOUND", detail, remedy)]


def _short(device: DeviceTimes) -> list[Finding]:
    least = MIN_CLOCK_READS * device.clock.overhead_ns
    if device.device >= least:
        return []
    own = in_us(device.clock.overhead_ns)
    detail = f"{in_us(device.device)} on the device is below {MIN_CLOCK_READS} × the event clock's own {own}"
    remedy = "Trust the host's latency here; use a larger batch for the device's."
    return [finding("A", "DEVICE_BELOW_TIMER", detail, remedy)]
