"""Findings about the host during a round: CPUs lost to others, a moving clock, throttling, paging, another number of
threads (pure).

The evidence is the monitor's record beside the samples (UsageSummary) and the process's own counts (CpuUse). Each
threshold is here with its source; the table of harness/aggregation/checks.py says which check applies to which row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from harness.aggregation import batch_times, flags, flags_gpu, grades
from harness.aggregation.clock_drift import clock_drift
from harness.aggregation.flags import MAX_INTERVAL_HALF_WIDTH
from harness.aggregation.grades import Finding, finding
from harness.core.schemas import Environment, GpuUsage, Measured, TimedRecord, UsageSummary
from harness.core.text import plain_name
from harness.statistics import estimators

MAX_LOST_SHARE = MAX_INTERVAL_HALF_WIDTH
"""Share of the CPU time that a case's threads want and others got. CPU time is conserved: a process that loses a share
s takes 1 / (1 - s) as long in all, so beyond this share the error may be larger than the widest interval of a grade A
row (calculated, not measured). Threads that wait for the slowest of them lose more, a median over short inferences
less. Work of others on cores that the case leaves free is not counted; shared caches and memory are not seen here."""

MIN_WATCHED_NS = 950_000_000
"""Of warm-up and timed part together. The kernel counts in ticks of 10 ms (USER_HZ, proc(5)): one tick too many in a
second is 1% of a CPU, less than MAX_LOST_SHARE. A little less than Measurement.min_s, because the monitor learns of a
phase some milliseconds after it began."""

MAX_THREADS_OVER = MAX_INTERVAL_HALF_WIDTH
"""CPU time beyond the most that the given threads can use, as a share of that: a row can gain no more than this."""

LEAST_OWN_SHARE = 0.5
"""CPUs that a process on a CPU uses or waits for at least: the thread that calls the backend computes, or waits in the
kernel for threads that do."""

FEW_FAULTS = 10
"""Reads of some 0.1 ms each: a millisecond in a window of a second shows nothing."""

MAX_FAULTS_PER_INFERENCE = 0.01
"""Pages read from disk per inference: below it, at most one inference in a hundred waited for a disk, which the median
and p99 do not show."""

MAX_CLOCK_SHARE = 0.05
MAX_CLOCK_NS = 100_000_000
"""Between the clocks of the process and of the monitor, the larger of both: the monitor learns of a phase through the
process that runs the cases. Five processes on each CPU made up to 45 ms of it (epyc-2-vcpu, 2026-11-30)."""

MISSED_LOOKS = 2
"""Multiple of the planned time between two looks of the monitor; in a longer gap the monitor itself could not run."""

MIN_SUSPENDED_NS = 1_000_000
"""Two clocks read one after the other differ by less; no machine sleeps and wakes within it."""

SHORT_SAMPLE_NS = 20_000_000
"""With a median below it, any stop of a tenth of a second appears as a long iteration (LONG_ITERATIONS), and a shorter
stop is shorter than typing the next command: records from before stops were counted are judged by that."""

OLD_RECORD = "measured before this check existed"

QUIET = "Stop what else runs on this machine, then `make run FORCE=1`."
STOLEN = "The host gave this guest's CPUs to others: measure on a dedicated or less busy machine."
QUOTA = "Raise the container's CPU quota, or set `measurement.threads` below it; then `make run FORCE=1`."
HOT = "Cool the machine or cap its power, so that it can hold its clock; then `make run FORCE=1`."
PAGED = "Free memory, or choose a smaller batch: parts of the process were read from disk while it was timed."
STARVED = "Stop what else runs on these CPUs, or give the case fewer threads; then `make run FORCE=1`."
THREADS = (
    "Let the backend compute in its own process with the threads that it is given, or set `measurement.threads` to "
    "what it really uses."
)
CHANGED = "Leave affinity, scheduling and CPU quota alone while a case runs; then `make run FORCE=1`."
CLOCKS = "`make run FORCE=1` measures again; if it stays, a library changes the clock of the process."
STOPPED = "Let it run: neither stop it nor pause its container nor suspend the machine; then `make run FORCE=1`."


@dataclass(frozen=True)
class Round:
    """One round of a row, with the monitor's record of it.

    usage: the monitor's summary; None where there is none, and then `unwatched` says why.
    """

    record: TimedRecord
    usage: UsageSummary | None
    unwatched: str | None = None
    environment: Environment | None = None

    @cached_property
    def on_gpu(self) -> bool:
        """Whether the case ran on a GPU."""
        return on_gpu(self.record)

    @cached_property
    def cpus(self) -> int:
        """CPUs that the case needs all the time."""
        return cpus_wanted(self.record)

    @property
    def machine_cpus(self) -> int | None:
        """CPUs of the machine."""
        return None if self.environment is None else self.environment.machine.logical_cpus

    @property
    def cpu_quota(self) -> float | None:
        """CPUs that the cgroup's quota allows."""
        return None if self.environment is None else self.environment.limits.cpu_quota


class ObservedPass(Protocol):
    """The input of checks of the machine alone: a round, or a pass under a profiler."""

    @property
    def machine_cpus(self) -> int | None:
        """CPUs of the machine; None where the number is unknown."""

    @property
    def cpu_quota(self) -> float | None:
        """CPUs that the cgroup's quota allows; None without a quota, or where it is unknown."""

    @property
    def cpus(self) -> int:
        """CPUs that it needs all the time."""


@dataclass(frozen=True)
class Pass:
    """A process that was timed under a profiler: the monitor watched it as it watches a round; it has no samples."""

    cpus: int
    machine_cpus: int | None
    cpu_quota: float | None = None


Judge = Callable[[Round], str | None]
"""The problem of a round, in numbers, or why a check could not be made; None without either."""


def on_gpu(record: TimedRecord) -> bool:
    """Whether a record's case ran on a GPU."""
    return record.placement.device.partition(":")[0] == "cuda"


def cpus_wanted(record: TimedRecord) -> int:
    """On a GPU only the thread that submits works all the time, whatever number of threads the case was given."""
    return 1 if on_gpu(record) else record.threads


def needs_usage(known: Callable[[UsageSummary], str | None]) -> Judge:
    """Why a check based on the monitor's record could not be made: the record or a value in it is missing."""

    def unmade(timed_round: Round) -> str | None:
        return (timed_round.unwatched or "no usage record") if timed_round.usage is None else known(timed_round.usage)

    return unmade


def by_usage(check: Callable[[Round, UsageSummary], str | None]) -> Judge:
    """A check of the monitor's record; finds nothing where there is none."""
    return lambda timed_round: None if timed_round.usage is None else check(timed_round, timed_round.usage)


def by_gpu(check: Callable[[GpuUsage], str | None]) -> Judge:
    """A check of the monitor's record of the GPU; finds nothing where there is none."""
    return lambda timed_round: (
        None if timed_round.usage is None or timed_round.usage.gpu is None else check(timed_round.usage.gpu)
    )


def short_window(usage: UsageSummary) -> str | None:
    """Why shares of CPU time cannot be judged; None where they can."""
    if usage.watched_ns >= MIN_WATCHED_NS:
        return None
    return f"warm-up and timed part lasted less than {MIN_WATCHED_NS / 1e9:.2f} s, too short for shares of CPU time"


def cotenant_unmade(timed_round: Round) -> str | None:
    """Why the use by others of the CPUs that the process may use is unknown."""
    unmade = needs_usage(short_window)(timed_round)
    if unmade is not None or timed_round.usage is None or timed_round.usage.allowed_cpus is not None:
        return unmade
    if (reason := timed_round.usage.unavailable.get("allowed_others_percent")) is not None:
        return reason
    if timed_round.environment is None:
        return "the environment record is not readable"
    has_all_cpus = len(timed_round.environment.limits.affinity) == timed_round.environment.machine.logical_cpus
    return None if has_all_cpus else OLD_RECORD


def cotenant(observed_pass: ObservedPass, usage: UsageSummary) -> str | None:
    """Others used CPUs that the process may use, beyond the cores that its threads leave free, or their SMT siblings.

    Records from before the monitor looked at single CPUs are judged by all CPUs of the machine.
    """
    if short_window(usage) is not None:
        return None
    cpus, others, cores = usage.allowed_cpus, usage.allowed_others_percent_mean, usage.allowed_cores
    if cpus is None or others is None:
        if observed_pass.machine_cpus is None:
            return None
        cpus, others, cores = observed_pass.machine_cpus, usage.others_percent_mean, None
    wanted = (
        min(observed_pass.cpus, cpus)
        if observed_pass.cpu_quota is None
        else min(observed_pass.cpus, cpus, observed_pass.cpu_quota)
    )
    # Work on a free CPU of a core that one of the threads uses slows that thread.
    free = max(0.0, (cores or cpus) - wanted)
    lost = max(0.0, others / 100 - free)
    beside = (usage.siblings_percent_mean or 0.0) / 100
    if lost + beside <= MAX_LOST_SHARE * wanted:
        return None
    units = "cores" if cores is not None and cores < cpus else "CPUs"
    all_text = "its only CPU wanted" if cpus == 1 else f"all {cpus} CPUs wanted"
    left = f"{wanted:g} of {cores or cpus} {units} wanted" if free else all_text
    used = f"other processes used {others / 100:.2f} CPUs with {left}"
    siblings = f" and {beside:.2f} of their SMT siblings" if beside else ""
    share = f"{(lost + beside) / wanted:.0%} lost, {MAX_LOST_SHARE:.0%} allowed"
    return f"{used}{siblings}: {share}" + (f"; {who}" if (who := busiest_text(usage)) else "")


def busiest_text(usage: UsageSummary) -> str:
    """`mostly cc1plus (process 4711), 0.87 CPUs`; empty where the system shows no other busy process, as from within a
    container."""
    if not usage.busiest:
        return ""
    process = usage.busiest[0]
    return f"mostly {plain_name(process.name)} (process {process.pid}), {process.cpu_percent / 100:.2f} CPUs"


def steal_unmade(usage: UsageSummary) -> str | None:
    """Why stolen time is not known."""
    unknown = usage.unavailable.get("steal_percent", "this system does not count stolen time")
    return short_window(usage) or (unknown if usage.steal_percent_mean is None else None)


def steal(_observed_pass: ObservedPass, usage: UsageSummary) -> str | None:
    """The hypervisor gave CPUs to other guests."""
    # Which CPUs were stolen is unknown: all threads of the machine that wanted a CPU count as having lost equally.
    stolen = (usage.steal_percent_mean or 0) / 100
    wanted = (usage.cpu_percent_mean + usage.others_percent_mean) / 100 + stolen
    if short_window(usage) is not None or stolen <= MAX_LOST_SHARE * max(0.0, wanted):
        return None
    kept = f"the hypervisor kept {stolen:.2f} of the {wanted:.2f} CPUs that were wanted"
    return f"{kept}: {stolen / wanted:.0%}, {MAX_LOST_SHARE:.0%} allowed"


def quota_unmade(timed_round: Round) -> str | None:
    """Why periods of throttling are not known, where a quota can throttle."""
    free = timed_round.environment is not None and timed_round.environment.limits.cpu_quota is None
    unmade = needs_usage(
        lambda usage: None if usage.throttled_periods is not None else _unavailable_text(usage, "throttled_periods")
    )
    return None if free and timed_round.usage is not None else unmade(timed_round)


def quota(_observed_pass: ObservedPass, usage: UsageSummary) -> str | None:
    """The cgroup's quota throttled the process."""
    periods = usage.throttled_periods
    return f"the cgroup's CPU quota held its processes back in {periods} periods" if periods else None


def thermal_unmade(usage: UsageSummary) -> str | None:
    """Why the processor's own count of heat is not known."""
    return None if usage.thermal_events is not None else _unavailable_text(usage, "thermal_events")


def thermal(_observed_pass: ObservedPass, usage: UsageSummary) -> str | None:
    """The processor lowered its clock for heat."""
    events, hottest = usage.thermal_events, usage.temperature_c_max
    if not events:
        return None
    return f"heat lowered the clock {events} times" + (f", up to {hottest:.0f} °C" if hottest is not None else "")


def paging(timed_round: Round, usage: UsageSummary) -> str | None:
    """Pages were read from disk. Those of the warm-up count as well, its inferences do not."""
    inferences = sum(block.iterations for block in timed_round.record.blocks)
    faults = usage.major_faults
    if faults <= max(FEW_FAULTS, MAX_FAULTS_PER_INFERENCE * inferences):
        return None
    return f"{faults} pages were read from disk in {inferences} inferences"


def cpu_use_unmade(timed_round: Round) -> str | None:
    """Why the CPU time of the process is unknown."""
    return OLD_RECORD if timed_round.record.cpu_use is None else None


def threads(timed_round: Round) -> str | None:
    """The process used more CPU time than its given number of threads can use, or too little to have done the work.

    Counted by itself with its helper processes, and by the monitor: the larger.
    """
    used, given, usage = timed_round.record.cpu_use, timed_round.record.threads, timed_round.usage
    if used is None:
        return None
    counted = (used.cpu_ns + used.helpers_ns) / used.wall_ns
    seen = 0.0 if usage is None or short_window(usage) else usage.cpu_percent_mean / 100
    helpers = f", {used.helpers_ns / used.wall_ns:.2f} of them in processes that it started" if used.helpers_ns else ""
    if max(counted, seen) > given * (1 + MAX_THREADS_OVER):
        own = "1 thread" if given == 1 else f"{given} threads"
        return f"used {max(counted, seen):.2f} CPUs on average{helpers} where it was given {own}"
    wanted = (used.cpu_ns + (used.waited_ns or 0)) / used.wall_ns
    if _is_held(timed_round) or max(wanted, seen) >= LEAST_OWN_SHARE:
        return None
    return f"wanted {wanted:.2f} CPUs while it was timed, {LEAST_OWN_SHARE:g} needed: it slept or waited for other work"


def _is_held(timed_round: Round) -> bool:
    """Whether something keeps the process off its CPUs, which other checks report, or it waits for others by itself."""
    used, usage, record = timed_round.record.cpu_use, timed_round.usage, timed_round.record
    waits = isinstance(record, Measured) and bool(record.windows)
    quota = used is not None and used.quota_start is not None
    stolen = usage is not None and (usage.steal_percent_mean or 0) > 100 * MAX_LOST_SHARE
    return (
        waits
        or quota
        or stolen
        or stopped(timed_round) is not None
        or (usage is not None and paging(timed_round, usage) is not None)
    )


def starved_unmade(timed_round: Round) -> str | None:
    """Why the time that the process waited for a CPU is unknown."""
    used = timed_round.record.cpu_use
    if used is None:
        return OLD_RECORD
    if used.waited_ns is None:
        return "the kernel does not count how long threads wait for a CPU (/proc/self/task/*/schedstat)"
    if used.threads_ended and starved(timed_round) is None:
        return f"{used.threads_ended} threads ended with their count of how long they waited for a CPU"
    return None


def starved(timed_round: Round) -> str | None:
    """The threads were ready to run and had no CPU, for longer than their own number explains."""
    used = timed_round.record.cpu_use
    if used is None or used.waited_ns is None:
        return None
    room = min(len(used.affinity_start), used.quota_start or timed_round.cpus)
    explained = max(0.0, timed_round.cpus - room) * used.wall_ns  # OVERSUBSCRIBED reports it
    share = (used.waited_ns - explained) / (min(timed_round.cpus, room) * used.wall_ns)
    if share <= MAX_LOST_SHARE:
        return None
    return f"its threads waited for a CPU for {share:.0%} of the time that they wanted, {MAX_LOST_SHARE:.0%} allowed"


def waited_ns(rounds: Iterable[Round]) -> dict[int, int]:
    """By number of the round, how long each process waited for a CPU (_waited_ns)."""
    return {timed_round.record.round: _waited_ns(timed_round) for timed_round in rounds}


def _waited_ns(timed_round: Round) -> int:
    """How long the process waited for a CPU at most, where STARVED reports it, else 0.

    The kernel counts all threads together: their sum, but no more than the time that passed.
    """
    used = timed_round.record.cpu_use
    if used is None or used.waited_ns is None or starved(timed_round) is None:
        return 0
    return min(used.waited_ns, used.wall_ns)


def stopped_unmade(timed_round: Round) -> str | None:
    """Why it is unknown whether the process, its container or the machine was stopped during the round."""
    if stopped(timed_round) is not None:
        return None
    if timed_round.record.stops is None and not (
        timed_round.record.latency_ns and batch_times.batch_ns(timed_round.record) <= SHORT_SAMPLE_NS
    ):
        return OLD_RECORD
    return needs_usage(_monitor_held)(timed_round)


def stopped(timed_round: Round) -> str | None:
    """The process was stopped and continued, its container paused, or the machine suspended."""
    return counted_stop(timed_round.record) or (
        None if timed_round.usage is None else _paused(timed_round, timed_round.usage)
    )


def counted_stop(record: TimedRecord) -> str | None:
    """A stop that the process itself counted."""
    stops = record.stops
    if stops is None:
        return None
    if stops.continued:
        phases = ", ".join(f"{name} ({count}x)" for name, count in Counter(stops.continued).items())
        return f"the process was stopped and continued (SIGCONT): {phases}"
    if (stops.suspended_ns or 0) > MIN_SUSPENDED_NS:
        return f"the machine was suspended for {(stops.suspended_ns or 0) / 1e9:.1f} s meanwhile"
    return None


def seen_stopped(usage: UsageSummary) -> str | None:
    """The monitor looked while the process was stopped or traced."""
    looks = usage.stopped_looks
    return f"the process was stopped or traced at {looks} looks of the monitor" if looks else None


def _monitor_held(usage: UsageSummary) -> str | None:
    longest, planned = usage.longest_look_ns, usage.look_interval_ns
    if longest is None or planned is None:
        return OLD_RECORD
    if longest <= MISSED_LOOKS * planned:
        return None
    return f"the monitor was kept from looking for {longest / 1e9:.1f} s"


def _paused(timed_round: Round, usage: UsageSummary) -> str | None:
    """The monitor saw a stop; or both did nothing for longer than the monitor alone could miss.

    Where the process waited for a CPU (STARVED), the monitor waits as well, and nothing was held.
    """
    if (seen := seen_stopped(usage)) is not None:
        return seen
    longest, planned = usage.longest_look_ns or 0, usage.look_interval_ns or 0
    own_ns = flags.longest_pause_ns(timed_round.record)
    if _monitor_held(usage) is None or own_ns - _waited_ns(timed_round) < longest - MISSED_LOOKS * planned:
        return None
    both = f"neither the process (for {own_ns / 1e9:.1f} s) nor the monitor (for {longest / 1e9:.1f} s) got on"
    return f"{both}: both were held"


def other_clock(timed_round: Round, usage: UsageSummary) -> str | None:
    """The monitor's clock saw another time pass during warm-up and timed part than the process's own.

    Where the process waited for a CPU (STARVED), the monitor and the process between them wait as well.
    """
    used, record = timed_round.record.cpu_use, timed_round.record
    if used is None or (isinstance(record, Measured) and record.windows):
        return None
    allowed = max(MAX_CLOCK_SHARE * used.wall_ns, MAX_CLOCK_NS) + _waited_ns(timed_round)
    if abs(usage.watched_ns - used.wall_ns) <= allowed:
        return None
    own = f"warm-up and timed part took {used.wall_ns / 1e9:.2f} s by the process's own clock"
    return f"{own} and {usage.watched_ns / 1e9:.2f} s by the monitor's"


def allowance_changed(timed_round: Round) -> str | None:
    """Affinity, quota or scheduling differed between the start and the end, or loading took more CPUs than given."""
    used = timed_round.record.cpu_use
    if used is None:
        return None
    changes = []
    if used.affinity_start != used.affinity_end:
        changes.append(
            f"CPUs {_numbers(used.affinity_start)} at the start and {_numbers(used.affinity_end)} at the end"
        )
    if used.quota_start != used.quota_end:
        changes.append(f"a quota of {_cores(used.quota_start)} at the start and {_cores(used.quota_end)} at the end")
    taken = () if used.affinity_given is None else sorted(set(used.affinity_start) - set(used.affinity_given))
    if taken:
        changes.append(f"CPUs {_numbers(used.affinity_given or ())} when it began and {_numbers(taken)} after loading")
    wide, usage = used.affinity_given, timed_round.usage
    if wide is not None and usage is not None and (usage.allowed_cpus or 0) > len(wide):
        changes.append(f"CPUs {_numbers(wide)} when it began, and its threads together {usage.allowed_cpus} CPUs")
    if used.scheduling_given != used.scheduling_end:
        changes.append(f"scheduling `{used.scheduling_given}` when it began and `{used.scheduling_end}` at the end")
    return f"the process was allowed {'; '.join(changes)}" if changes else None


def clock(rounds: Sequence[Round]) -> list[Finding]:
    """The processor's clock, by a fixed piece of work and by its frequency where the system shows it: the worse."""
    remedy = "Fix the clock (governor `performance`, turbo off) or let the machine warm up, then `make run FORCE=1`."
    work = {
        timed_round.record.round: estimators.median(timed_round.record.cpu_use.work_ns) / 1e3
        for timed_round in rounds
        if timed_round.record.cpu_use is not None and timed_round.record.cpu_use.work_ns
    }
    timed = clock_drift(work, len(rounds), "a fixed piece of work took other times: the medians", "µs", remedy)
    means = {
        timed_round.record.round: timed_round.usage.frequency_mhz_mean
        for timed_round in rounds
        if timed_round.usage is not None and timed_round.usage.frequency_mhz_mean
    }
    shown = clock_drift(means, len(rounds), "the mean clocks", "MHz", remedy, without_usage(rounds))
    return shown if grades.worse(grades.grade(timed), grades.grade(shown)) != grades.grade(timed) else timed


def without_usage(rounds: Sequence[Round]) -> int:
    """Rounds that lost the file of the monitor."""
    return sum(timed_round.usage is None for timed_round in rounds)


def other_threads(records: Sequence[TimedRecord]) -> list[Finding]:
    """A library may take fewer threads than it is given, as OpenVINO does beyond the physical cores; rounds of one row
    may not differ in what they are given."""
    numbers = sorted({record.threads for record in records})
    if len(numbers) > 1:
        detail = f"the rounds were given different numbers of threads: {_numbers(numbers)}"
        return [finding("C", "OTHER_THREADS", detail, "`make run FORCE=1` measures all rounds with one number.")]
    own = {(record.placement.settings.get("threads"), record.threads) for record in records if not on_gpu(record)}
    other = [(ran, given) for ran, given in own if isinstance(ran, int) and ran != given]
    if not other:
        return []
    ran, given = min(other)
    detail = f"ran with {ran} threads of its own choice where it was given {given}"
    return [finding("A", "OTHER_THREADS", detail, f"Set `measurement.threads` to {ran} to compare like with like.")]


def oversubscribed(records: Sequence[TimedRecord], environment: Environment) -> list[Finding]:
    """More threads than CPUs by affinity and quota."""
    given, room = max(map(cpus_wanted, records)), environment.limits.threads
    if given <= room:
        return []
    detail = f"{given} threads on {room} CPUs by affinity and quota: they wait for each other"
    remedy = f"Give it {room} or less (`measurement.threads`, or a setting that names fewer), or leave the number out."
    return [finding("B", "OVERSUBSCRIBED", detail, remedy)]


def _unavailable_text(usage: UsageSummary, name: str) -> str:
    return usage.unavailable.get(name, f"{name} is not known")


def _numbers(cpus: Sequence[int]) -> str:
    return ", ".join(map(str, cpus))


def _cores(cores: float | None) -> str:
    return "no limit" if cores is None else f"{cores:g} cores"


def profile_findings(
    usage: UsageSummary, threads: int, on_gpu: bool, environment: Environment
) -> tuple[list[Finding], dict[str, str]]:
    """(findings about the machine while one process was timed under a profiler, by name why a check could not be made).

    Only this process is shown, so each hit costs the rank; in a row, a minority of hit rounds costs less. threads:
    the number that the process was given.
    """
    timed_pass = Pass(1 if on_gpu else threads, environment.machine.logical_cpus, environment.limits.cpu_quota)
    gpu = usage.gpu if on_gpu else None
    hits = [
        ("CPU_SHARED", cotenant(timed_pass, usage), QUIET),
        ("STEAL", steal(timed_pass, usage), STOLEN),
        ("CPU_QUOTA", quota(timed_pass, usage), QUOTA),
        ("THERMAL", thermal(timed_pass, usage), HOT),
        ("THERMAL", gpu and flags_gpu.thermal(gpu), flags_gpu.HOT),
        ("HW_SLOWDOWN", gpu and flags_gpu.slowdown(gpu), flags_gpu.SLOWED),
        ("GPU_SHARED", gpu and flags_gpu.company(gpu), flags_gpu.SHARED),
    ]
    findings = [finding("C", name, detail, remedy) for name, detail, remedy in hits if detail]
    findings += flags_gpu.foreign_memory([gpu]) + flags_gpu.power_cap([gpu]) if gpu else []
    held = seen_stopped(usage)
    findings += [] if held is None else [finding("C", "STOPPED", held, STOPPED)]
    short, blind = short_window(usage), _monitor_held(usage) if held is None else None
    unmade = {} if short is None else dict.fromkeys(("CPU_SHARED", "STEAL"), short)
    return findings, unmade if blind is None else {**unmade, "STOPPED": blind}
