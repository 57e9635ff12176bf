"""What the monitor's witness proves against a row: CPUs lost to others, throttling, paging, a clock that moved (pure).

Each threshold stands here with its source; what the flags do to a grade is defined in harness/measure/grades.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.core.schemas import Environment, GpuUsage, Grade, Measured, UsageSummary
from harness.measure import gpu_disturbance
from harness.measure.clock_drift import drift
from harness.measure.grades import MAX_INTERVAL_HALF_WIDTH, Finding, finding

MAX_LOST_SHARE = MAX_INTERVAL_HALF_WIDTH
"""Share of the CPU time that a case's threads want and others got. CPU time is conserved: who loses a share s of it
takes 1 / (1 - s) as long in all, so beyond this share the error may be larger than the widest interval of a grade A
row (calculated, not measured). Threads that wait for the slowest of them lose more, a median over short inferences
less. What others do on CPUs that the case leaves free is not counted; shared caches and memory are not seen here."""

MIN_WATCHED_NS = 500_000_000
"""Shorter windows are not judged by CPU shares: the kernel counts in ticks of 10 ms (USER_HZ, proc(5)), and two ticks
too many in half a second are 4% of a CPU, less than MAX_LOST_SHARE of two threads."""

FEW_FAULTS = 10
"""Reads of some 0.1 ms each: a millisecond in a timed window of half a second or more tells nothing."""

MAX_FAULTS_PER_INFERENCE = 0.01
"""Pages read from disk, for each inference: below it, at most one inference in a hundred waited for a disk, which the
median and p99 do not show."""


@dataclass(frozen=True)
class Round:
    """One round that was watched."""

    record: Measured
    usage: UsageSummary

    @property
    def cpus(self) -> int:
        """CPUs that the case needs all the time."""
        return _cpus_wanted(self.record)


class Seen(Protocol):
    """What a check of the machine alone looks at: a round, or a pass under a profiler."""

    @property
    def usage(self) -> UsageSummary:
        """What the monitor saw while it was timed."""

    @property
    def cpus(self) -> int:
        """CPUs that it needs all the time."""


@dataclass(frozen=True)
class Pass:
    """A process that was timed under a profiler: it was watched as a round is, and has no samples."""

    usage: UsageSummary
    cpus: int


Check = Callable[[Round], str | None]
"""What is wrong with a round, in numbers; None where nothing is."""


def findings(
    records: Sequence[Measured], usage: Mapping[int, UsageSummary], environment: Environment | None
) -> list[Finding]:
    """Everything that happened while the rounds of one case were timed. `usage`: by round, those that were watched."""
    rounds = [Round(record, usage[record.round]) for record in records if record.round in usage]
    found = _other_threads(records)
    found += [] if environment is None else _oversubscribed(records, environment)
    if environment is not None:
        cpus = environment.machine.logical_cpus
        found += _in_rounds("COTENANT", rounds, lambda one: _cotenant(one, cpus), _QUIET)
    found += _in_rounds("STEAL", rounds, _steal, _STOLEN)
    found += _in_rounds("CPU_QUOTA", rounds, _quota, _QUOTA)
    found += _in_rounds("THERMAL", rounds, _thermal, _HOT)
    found += _in_rounds("MAJOR_FAULTS", rounds, _paging, _PAGED)
    return [*found, *(_card(rounds) if any(map(_on_gpu, records)) else _clock(rounds))]


def _card(rounds: Sequence[Round]) -> list[Finding]:
    """What disturbed the card; its clock decides such a row, and the processor's does not."""
    found = _in_rounds("THERMAL", rounds, _of_card(gpu_disturbance.thermal), gpu_disturbance.HOT)
    found += _in_rounds("HW_SLOWDOWN", rounds, _of_card(gpu_disturbance.slowdown), gpu_disturbance.SLOWED)
    found += _in_rounds("COTENANT", rounds, _of_card(gpu_disturbance.company), gpu_disturbance.SHARED)
    seen = [one.usage.gpu for one in rounds if one.usage.gpu is not None]
    found += gpu_disturbance.foreign_memory(seen)
    return [*found, *gpu_disturbance.power_cap(seen), *gpu_disturbance.clock(seen)]


def _of_card(check: Callable[[GpuUsage], str | None]) -> Check:
    return lambda one: None if one.usage.gpu is None else check(one.usage.gpu)


def _on_gpu(record: Measured) -> bool:
    return record.placement.device.partition(":")[0] == "cuda"


def _cpus_wanted(record: Measured) -> int:
    """On a GPU only the thread that submits works all the time, however many the case was given."""
    return 1 if _on_gpu(record) else record.threads


_QUIET = "Stop what else runs on this machine, then `make run FORCE=1`."
_STOLEN = "The host gave this guest's CPUs to others: measure on a dedicated or less busy machine."
_QUOTA = "Raise the container's CPU quota, or set `measurement.threads` below it; then `make run FORCE=1`."
_HOT = "Cool the machine or cap its power, so that it can hold its clock; then `make run FORCE=1`."
_PAGED = "Free memory, or choose a smaller batch: parts of the process were read from disk while it was timed."


def _in_rounds(name: str, rounds: Sequence[Round], check: Check, remedy: str) -> list[Finding]:
    """A finding with the detail of the worst hit round. The headline is a median: a minority of rounds cannot move it
    far."""
    hit = {one.record.round: detail for one in rounds if (detail := check(one)) is not None}
    if not hit:
        return []
    caps_at: Grade = "C" if 2 * len(hit) >= len(rounds) else "B"
    number, detail = next(iter(hit.items()))
    where = f"round {number}" if len(hit) == 1 else f"{len(hit)} of {len(rounds)} watched rounds, the first of them"
    return [finding(caps_at, name, f"{where}: {detail}", remedy)]


def _cotenant(one: Seen, cpus: int) -> str | None:
    wanted = min(one.cpus, cpus)
    others = one.usage.others_percent_mean / 100
    lost = max(0.0, others - (cpus - wanted))
    if one.usage.watched_ns < MIN_WATCHED_NS or lost <= MAX_LOST_SHARE * wanted:
        return None
    left = f"{wanted} of {cpus} CPUs wanted" if wanted < cpus else f"all {cpus} CPUs wanted"
    return f"other processes used {others:.2f} CPUs with {left}: {lost / wanted:.0%} lost, {MAX_LOST_SHARE:.0%} allowed"


def _steal(one: Seen) -> str | None:
    # Which CPUs were stolen is not told: every thread of the machine that wanted one is taken to have lost alike.
    stolen = (one.usage.steal_percent_mean or 0) / 100
    wanted = (one.usage.cpu_percent_mean + one.usage.others_percent_mean) / 100 + stolen
    if one.usage.watched_ns < MIN_WATCHED_NS or stolen <= MAX_LOST_SHARE * wanted:
        return None
    kept = f"the hypervisor kept {stolen:.2f} of the {wanted:.2f} CPUs that were wanted"
    return f"{kept}: {stolen / wanted:.0%}, {MAX_LOST_SHARE:.0%} allowed"


def _quota(one: Seen) -> str | None:
    periods = one.usage.throttled_periods
    return f"the cgroup's CPU quota held its processes back in {periods} periods" if periods else None


def _thermal(one: Seen) -> str | None:
    events, hottest = one.usage.thermal_events, one.usage.temperature_c_max
    if not events:
        return None
    return f"heat lowered the clock {events} times" + (f", up to {hottest:.0f} °C" if hottest is not None else "")


def _paging(one: Round) -> str | None:
    inferences = sum(block.iterations for block in one.record.blocks)
    faults = one.usage.major_faults
    if faults <= max(FEW_FAULTS, MAX_FAULTS_PER_INFERENCE * inferences):
        return None
    return f"{faults} pages were read from disk in {inferences} inferences"


def _clock(rounds: Sequence[Round]) -> list[Finding]:
    means = [one.usage.frequency_mhz_mean for one in rounds if one.usage.frequency_mhz_mean]
    remedy = "Fix the clock (governor `performance`, turbo off) or let the machine warm up, then `make run FORCE=1`."
    return drift(means, "the", remedy)


def _other_threads(records: Sequence[Measured]) -> list[Finding]:
    """A library may take fewer threads than it is given, as OpenVINO does beyond the physical cores."""
    own = {(one.placement.settings.get("threads"), one.threads) for one in records if not _on_gpu(one)}
    other = [(ran, given) for ran, given in own if isinstance(ran, int) and ran != given]
    if not other:
        return []
    ran, given = min(other)
    detail = f"ran with {ran} threads of its own choice where it was given {given}"
    return [finding("A", "OTHER_THREADS", detail, f"Set `measurement.threads` to {ran} to compare like with like.")]


def _oversubscribed(records: Sequence[Measured], environment: Environment) -> list[Finding]:
    threads, room = max(map(_cpus_wanted, records)), environment.limits.threads
    if threads <= room:
        return []
    detail = f"{threads} threads on {room} CPUs by affinity and quota: they wait for each other"
    remedy = f"Give it {room} or less (`measurement.threads`, or a setting that names fewer), or leave the number out."
    return [finding("B", "OVERSUBSCRIBED", detail, remedy)]


def of_a_pass(
    usage: UsageSummary, threads: int, on_gpu: bool, environment: Environment
) -> tuple[list[Finding], dict[str, str]]:
    """(everything that happened on the machine while one process was timed under a profiler, checks that could not be
    made by name and why). It alone is shown, so that each hit costs the rank, where a minority of the rounds of a row
    costs less. threads: that the process was given.
    """
    one = Pass(usage, 1 if on_gpu else threads)
    cpus = environment.machine.logical_cpus
    gpu = usage.gpu if on_gpu else None
    hits = [
        ("COTENANT", _cotenant(one, cpus), _QUIET),
        ("STEAL", _steal(one), _STOLEN),
        ("CPU_QUOTA", _quota(one), _QUOTA),
        ("THERMAL", _thermal(one), _HOT),
        ("THERMAL", gpu and gpu_disturbance.thermal(gpu), gpu_disturbance.HOT),
        ("HW_SLOWDOWN", gpu and gpu_disturbance.slowdown(gpu), gpu_disturbance.SLOWED),
        ("COTENANT", gpu and gpu_disturbance.company(gpu), gpu_disturbance.SHARED),
    ]
    found = [finding("C", name, detail, remedy) for name, detail, remedy in hits if detail]
    found += gpu_disturbance.foreign_memory([gpu]) + gpu_disturbance.power_cap([gpu]) if gpu else []
    short = f"it was watched for less than the {MIN_WATCHED_NS / 1e9:g} s that ticks of the kernel's clock need"
    return found, dict.fromkeys(("COTENANT", "STEAL"), short) if usage.watched_ns < MIN_WATCHED_NS else {}
