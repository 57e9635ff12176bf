"""What the monitor's looks at the card prove against a round: heat, slowdowns, power, a moving clock, company (pure).

Clocks that a person set (applications_clocks_setting) and a card that waits for work (gpu_idle) disturb nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import GpuUsage
from harness.measure.clock_drift import drift
from harness.measure.grades import Finding, finding

MIN_LOOKS = 2
"""Of a round that is judged: a single look may have met a clock that was just rising, and no slow-down."""

MIN_CAPPED_SHARE = 0.1
"""Of the looks: below it, at most one sample in ten was taken under the cap, which the medians do not show."""

MAX_FOREIGN_BYTES = 256 << 20
"""On the card before the case came. The driver's own part is not counted, and a CUDA context takes about 300 MiB or
more on a data-centre card: beyond this somebody has one."""

HEAT = ("sw_thermal", "hw_thermal")
SLOWDOWN = ("hw_slowdown", "hw_power_brake")
POWER_CAP = "sw_power_cap"

HOT = "Cool the GPU (fans, airflow, load of its neighbours), then `make run FORCE=1`."
SLOWED = "The GPU protects itself: look at its power supply and cooling (`nvidia-smi -q -d PERFORMANCE`)."
SHARED = "Stop the other programs on the GPU (`nvidia-smi` lists them), then `make run FORCE=1`."


def thermal(gpu: GpuUsage) -> str | None:
    """Heat lowered the clock in at least one look."""
    return _held_back(gpu, HEAT, "heat lowered the GPU's clock")


def slowdown(gpu: GpuUsage) -> str | None:
    """The card's protection lowered the clock in at least one look, for another reason than heat."""
    # NVML sets hw_slowdown beside hw_thermal: heat is already a finding of its own.
    return None if "hw_thermal" in gpu.reasons else _held_back(gpu, SLOWDOWN, "the GPU's hardware lowered its clock")


def company(gpu: GpuUsage) -> str | None:
    """Somebody else computed on the card."""
    if not gpu.other_processes_max:
        return None
    return f"up to {gpu.other_processes_max} other processes computed on the same GPU"


def foreign_memory(rounds: Sequence[GpuUsage]) -> list[Finding]:
    """Somebody had so much of the card's memory that a CUDA context must be in it; whether it works cannot be told.

    Where processes are told apart and none computes, memory is held by something that is no competitor.
    """
    untold = [one.memory_before_bytes for one in rounds if one.other_processes_max is None]
    most = max((size for size in untold if size is not None), default=0)
    if most <= MAX_FOREIGN_BYTES:
        return []
    held = f"{most / (1 << 20):,.0f} MiB of the GPU were in use before the case started"
    return [finding("B", "COTENANT", f"{held}; it is unknown whether another program computed there", SHARED)]


def power_cap(rounds: Sequence[GpuUsage]) -> list[Finding]:
    """A clock that the power limit set is right, and only true of cards with that limit."""
    looks = sum(one.samples for one in rounds)
    capped = sum(one.reasons.get(POWER_CAP, 0) * one.samples for one in rounds)
    if not looks or capped / looks < MIN_CAPPED_SHARE:
        return []
    powers = [one.power_w_max for one in rounds if one.power_w_max is not None]
    reached = f", up to {max(powers):.0f} W" if powers else ""
    detail = f"the power limit lowered the GPU's clock in {capped / looks:.0%} of the looks{reached}"
    remedy = "Nothing is wrong: it is this GPU's speed at this limit. Compare it only with GPUs of the same limit."
    return [finding("B", "POWER_CAP", detail, remedy)]


def clock(seen: Mapping[int, GpuUsage], rounds: int) -> list[Finding]:
    """The card's mean clock was not the same in all rounds; `seen` by round."""
    means = {number: one.sm_mhz_mean for number, one in seen.items() if one.samples >= MIN_LOOKS and one.sm_mhz_mean}
    remedy = "Let the GPU warm up, or have its owner lock the clock (`nvidia-smi -lgc`); then `make run FORCE=1`."
    return drift(means, rounds, "the GPU's mean clocks", "MHz", remedy)


def _held_back(gpu: GpuUsage, names: Sequence[str], what: str) -> str | None:
    found = {name: gpu.reasons[name] for name in names if gpu.reasons.get(name)}
    if not found:
        return None
    shares = ", ".join(f"{name} in {share:.0%} of the looks" for name, share in found.items())
    hottest = "" if gpu.temperature_c_max is None else f", up to {gpu.temperature_c_max} °C"
    return f"{what}: {shares}{hottest}"
