"""What the monitor's witness proves against a row: CPUs lost to others, throttling, paging, a clock that moved (pure).

Each threshold stands here with its source; what the flags do to a grade is defined in harness/measure/grades.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.core.schemas import Environment, Grade, Measured, UsageSummary
from harness.measure.grades import MAX_INTERVAL_HALF_WIDTH, Finding, finding

MAX_LOST_SHARE = MAX_INTERVAL_HALF_WIDTH
"""Share of the CPU time that a case's threads want and others got. CPU time is conserved: who loses a share s of it
takes 1 / (1 - s) as long in all, so beyond this share the error may be larger than the widest interval of a grade A
row (calculated, not measured). Threads that wait for the slowest of them lose more, a median over short inferences
less. What others do on CPUs that the case leaves free is not counted; shared caches and memory are not seen here."""

MIN_WATCHED_NS = 500_000_000
"""Shorter windows are not judged by CPU shares: the kernel counts in ticks of 10 ms (USER_HZ, proc(5)), and two ticks
too many in half a second are 4% of a CPU, less than MAX_LOST_SHARE of two threads."""

MAX_CLOCK_DRIFT = 0.03
"""Between the mean clocks of the rounds (METHOD 2.9)."""

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


Check = Callable[[Round], str | None]
"""What is wrong with a round, in numbers; None where nothing is."""


def findings(
    records: Sequence[Measured], usage: Mapping[int, UsageSummary], environment: Environment | None
) -> list[Finding]:
    """Everything that happened while the rounds of one case were timed. `usage`: by round, those that were watched."""
    rounds = [Round(record, usage[record.round]) for record in records if record.round in usage]
    found = [] if environment is None else _oversubscribed(records, environment)
    if environment is not None:
        cpus = environment.machine.logical_cpus
        found += _in_rounds("COTENANT", rounds, lambda one: _cotenant(one, cpus), _QUIET)
    found += _in_rounds("STEAL", rounds, _steal, _STOLEN)
    found += _in_rounds("CPU_QUOTA", rounds, _quota, _QUOTA)
    found += _in_rounds("THERMAL", rounds, _thermal, _HOT)
    found += _in_rounds("MAJOR_FAULTS", rounds, _paging, _PAGED)
    return [*found, *_clock(rounds)]


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


def _cotenant(one: Round, cpus: int) -> str | None:
    wanted = min(one.record.threads, cpus)
    others = one.usage.others_percent_mean / 100
    lost = max(0.0, others - (cpus - wanted))
    if one.usage.watched_ns < MIN_WATCHED_NS or lost <= MAX_LOST_SHARE * wanted:
        return None
    left = f"{wanted} of {cpus} CPUs wanted" if wanted < cpus else f"all {cpus} CPUs wanted"
    return f"other processes used {others:.2f} CPUs with {left}: {lost / wanted:.0%} lost, {MAX_LOST_SHARE:.0%} allowed"


def _steal(one: Round) -> str | None:
    stolen = (one.usage.steal_percent_mean or 0) / 100
    if one.usage.watched_ns < MIN_WATCHED_NS or stolen <= MAX_LOST_SHARE * one.record.threads:
        return None
    share = stolen / one.record.threads
    return f"the hypervisor kept {stolen:.2f} CPUs: {share:.0%} of {one.record.threads}, {MAX_LOST_SHARE:.0%} allowed"


def _quota(one: Round) -> str | None:
    periods = one.usage.throttled_periods
    return f"the cgroup's CPU quota held its processes back in {periods} periods" if periods else None


def _thermal(one: Round) -> str | None:
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
    if not means or 1 - min(means) / max(means) <= MAX_CLOCK_DRIFT:
        return []
    detail = (
        f"the mean clock of the rounds lay between {min(means):,.0f} and {max(means):,.0f} MHz, "
        f"{1 - min(means) / max(means):.1%} apart, {MAX_CLOCK_DRIFT:.0%} allowed"
    )
    remedy = "Fix the clock (governor `performance`, turbo off) or let the machine warm up, then `make run FORCE=1`."
    return [finding("C", "CLOCK_DRIFT", detail, remedy)]


def _oversubscribed(records: Sequence[Measured], environment: Environment) -> list[Finding]:
    threads, room = max(record.threads for record in records), environment.limits.threads
    if threads <= room:
        return []
    detail = f"{threads} threads on {room} CPUs by affinity and quota: they wait for each other"
    return [finding("B", "OVERSUBSCRIBED", detail, f"Set `measurement.threads` to {room} or less, or leave it out.")]
