"""The checks of a row: where each applies, in how many rounds it was made, and its findings (pure).

Grade A means that every check that applies was made in every round and passed (docs/decisions/0011-watching-a-gpu.md).
RULES is the table of the checks of rounds. Everything else that judges a row, such as a roof or a repeat of the run,
hands its findings and its Check to build_row (harness/aggregation/row.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from harness.aggregation import batch_times, flags, flags_gpu, flags_host
from harness.aggregation.batch_times import batch_ns
from harness.aggregation.causes import HELD_BACK, MACHINE
from harness.aggregation.flags_host import (
    Judge,
    Round,
    by_gpu,
    by_usage,
    needs_usage,
)
from harness.aggregation.grades import Finding, cap_of_rounds, finding
from harness.core.schemas import (
    Case,
    Check,
    Device,
    Environment,
    GpuUsage,
    Interval,
    Measured,
    OutputsTime,
    Repeats,
    TimedRecord,
    UsageSummary,
)
from harness.core.units import in_us

UNCHECKED = "UNCHECKED"
ABOVE_ROOF = "ABOVE_ROOF"
"""Judged by harness/aggregation/roofline.py."""

_OWN_FLAG = frozenset({"PARITY"})
"""Checks whose absence has a flag of its own (PARITY_UNCHECKED)."""


class _Kind(NamedTuple):
    """The facts about the rounds of a row that decide which checks apply."""

    on_gpu: bool
    heat_is_counted: bool
    """Only Intel's processors count it, and no guest shows it: elsewhere heat is seen as CLOCK_DRIFT."""


def _kind_of(rounds: Sequence[Round]) -> _Kind:
    counted = any(
        timed_round.usage is not None and timed_round.usage.thermal_events is not None for timed_round in rounds
    )
    return _Kind(any(timed_round.on_gpu for timed_round in rounds), counted)


@dataclass(frozen=True)
class RoundCheck:
    """A check of single rounds.

    applies: whether it applies to rounds of this kind. Rows of backends that compute nothing have no checks.
    unmade: why it could not be made in a round. hit: its finding there; None as well where it was not made. causes: as
    of a Finding.
    """

    name: str
    applies: Callable[[_Kind], bool]
    unmade: Judge
    hit: Judge
    remedy: str = ""
    causes: frozenset[str] = frozenset()


def _always(_kind: _Kind) -> bool:
    return True


def _on_gpu(kind: _Kind) -> bool:
    return kind.on_gpu


def _off_gpu(kind: _Kind) -> bool:
    return not kind.on_gpu


def _heat_is_counted(kind: _Kind) -> bool:
    return kind.heat_is_counted


@cache
def _rules_of(kind: _Kind) -> tuple[RoundCheck, ...]:
    return tuple(rule for rule in RULES if rule.applies(kind))


def _always_made(_timed_round: Round) -> None:
    return None


def _elsewhere(_timed_round: Round) -> None:
    """Its findings come from all rounds together (judge), or from harness/aggregation/flags.py."""
    return


def _no_parity(timed_round: Round) -> str | None:
    return None if timed_round.record.parity_timed is not None else "the outputs of the timed run were not compared"


def _no_looks(usage: UsageSummary) -> str | None:
    if usage.gpu is not None and usage.gpu.samples >= flags_gpu.MIN_LOOKS:
        return None
    looks = 0 if usage.gpu is None else usage.gpu.samples
    return usage.unavailable.get("gpu") or f"{looks} of {flags_gpu.MIN_LOOKS} looks at the GPU that it takes"


def _no_reasons(usage: UsageSummary) -> str | None:
    return _no_looks(usage) or usage.unavailable.get("gpu_reasons")


def _gpu_company_unknown(usage: UsageSummary) -> str | None:
    if usage.gpu is None:
        return _no_looks(usage)
    known = usage.gpu.other_processes_max is not None or usage.gpu.memory_before_bytes is not None
    return None if known else usage.unavailable.get("gpu_other_processes", "the GPU lists no processes")


def _gpu_clock_unknown(usage: UsageSummary) -> str | None:
    return _no_looks(usage) or (None if usage.gpu and usage.gpu.sm_mhz_mean else "the GPU shows no clock")


def _no_clock(timed_round: Round) -> str | None:
    if timed_round.on_gpu:
        return needs_usage(_gpu_clock_unknown)(timed_round)
    if timed_round.record.cpu_use is not None and timed_round.record.cpu_use.work_ns:
        return None
    if timed_round.usage is not None and timed_round.usage.frequency_mhz_mean:
        return None
    return flags_host.OLD_RECORD


STOPPED = RoundCheck("STOPPED", _always, flags_host.stopped_unmade, flags_host.stopped, flags_host.STOPPED)

RULES: tuple[RoundCheck, ...] = (
    RoundCheck("PARITY", _always, _no_parity, _elsewhere),
    RoundCheck("PLACEMENT", _always, _always_made, _elsewhere),
    RoundCheck("CPU_SHARED", _always, flags_host.cotenant_unmade, by_usage(flags_host.cotenant), flags_host.QUIET),
    RoundCheck("GPU_SHARED", _on_gpu, needs_usage(_gpu_company_unknown), by_gpu(flags_gpu.company), flags_gpu.SHARED),
    RoundCheck("STEAL", _always, needs_usage(flags_host.steal_unmade), by_usage(flags_host.steal), flags_host.STOLEN),
    RoundCheck("CPU_QUOTA", _always, flags_host.quota_unmade, by_usage(flags_host.quota), flags_host.QUOTA),
    RoundCheck(
        "THERMAL",
        _heat_is_counted,
        needs_usage(flags_host.thermal_unmade),
        by_usage(flags_host.thermal),
        flags_host.HOT,
    ),
    RoundCheck("THERMAL", _on_gpu, needs_usage(_no_reasons), by_gpu(flags_gpu.thermal), flags_gpu.HOT),
    RoundCheck("HW_SLOWDOWN", _on_gpu, needs_usage(_no_reasons), by_gpu(flags_gpu.slowdown), flags_gpu.SLOWED),
    RoundCheck("POWER_CAP", _on_gpu, needs_usage(_no_reasons), _elsewhere),
    RoundCheck("CLOCK_DRIFT", _always, _no_clock, _elsewhere),
    RoundCheck(
        "MAJOR_FAULTS", _always, needs_usage(lambda _usage: None), by_usage(flags_host.paging), flags_host.PAGED
    ),
    RoundCheck("STARVED", _always, flags_host.starved_unmade, flags_host.starved, flags_host.STARVED, HELD_BACK),
    # The GPU decides how fast its row is, whatever host threads do besides the thread that submits.
    RoundCheck("THREADS", _off_gpu, flags_host.cpu_use_unmade, flags_host.threads, flags_host.THREADS),
    RoundCheck(
        "AFFINITY_CHANGED", _always, flags_host.cpu_use_unmade, flags_host.allowance_changed, flags_host.CHANGED
    ),
    STOPPED,
    RoundCheck("SAMPLES_MISMATCH", _always, _always_made, by_usage(flags_host.other_clock), flags_host.CLOCKS, MACHINE),
    RoundCheck("LONG_ITERATIONS", _always, _always_made, _elsewhere),
)
"""Every check of rounds. A name that appears twice is one check with two parts."""


def timed_rounds(
    records: Sequence[TimedRecord],
    usage: Mapping[int, UsageSummary],
    unwatched: Mapping[int, str],
    environment: Environment | None,
) -> list[Round]:
    """The records of a row, each with the monitor's record; `usage` and `unwatched` by round."""
    return [Round(record, usage.get(record.round), unwatched.get(record.round), environment) for record in records]


def check_rounds(case: Case, rounds: Sequence[Round]) -> tuple[list[Finding], dict[str, Check]]:
    """Everything that happened while the rounds of one case were timed, and in how many of them each check was made."""
    findings, made = check_machine(rounds)
    return [
        *findings,
        *flags.mismatch(
            case,
            [timed_round.record for timed_round in rounds if isinstance(timed_round.record, Measured)],
            flags_host.waited_ns(rounds),
        ),
    ], made


def check_machine(rounds: Sequence[Round]) -> tuple[list[Finding], dict[str, Check]]:
    """check_rounds without the checks that only samples of `run` allow, so that it also serves rounds of `generate`."""
    records, environment = (
        [timed_round.record for timed_round in rounds],
        next((timed_round.environment for timed_round in rounds), None),
    )
    findings = [*_unwatched(rounds), *flags_host.other_threads(records)]
    findings += [] if environment is None else flags_host.oversubscribed(records, environment)
    reasons: dict[str, list[str | None]] = {}
    kind = _kind_of(rounds)
    for rule in _rules_of(kind):
        unmade = [rule.unmade(timed_round) for timed_round in rounds]
        before = reasons.get(rule.name)
        both = unmade if before is None else [reason or other for reason, other in zip(before, unmade, strict=True)]
        reasons[rule.name] = both
        if rule.hit is not _elsewhere:
            findings += _rounds_finding(rule, rounds, unmade)
    findings += flags.long_iterations(records)
    findings += _gpu(rounds) if kind.on_gpu else flags_host.clock(rounds)
    return findings, {name: combined_check(each) for name, each in reasons.items()}


def stop_findings(rounds: Sequence[Round]) -> list[Finding]:
    """Stops, for a row without other checks: the row of a backend that computes nothing shows the cost of a call."""
    return _rounds_finding(STOPPED, rounds, [None] * len(rounds))


def combined_check(reasons: Sequence[str | None]) -> Check:
    """The Check of a row from one entry for each round: None where the check was made, else why not."""
    return _check_of(tuple(reasons))


@lru_cache(maxsize=256)
def _check_of(reasons: tuple[str | None, ...]) -> Check:
    missing = dict.fromkeys(reason for reason in reasons if reason is not None)
    return Check(rounds=reasons.count(None), of=len(reasons), missing="; ".join(missing) or None)


def unchecked_findings(checks: Mapping[str, Check]) -> list[Finding]:
    """One finding that names every check that was not made in all rounds; empty without such a check."""
    lacking: dict[str, list[str]] = {}
    for name, check in checks.items():
        if check.rounds < check.of and name not in _OWN_FLAG:
            where = "" if check.rounds == 0 else f" in {check.of - check.rounds} of {check.of} rounds"
            lacking.setdefault(f"not made{where} ({check.missing})", []).append(name)
    if not lacking:
        return []
    detail = "; ".join(f"{', '.join(names)} {why}" for why, names in lacking.items())
    unmade = {name for names in lacking.values() for name in names}
    remedies = []
    if ABOVE_ROOF in unmade:
        remedies.append(
            "`make roof aggregate report` measures what this machine can do at most, with FORCE=1 after installing a "
            "library for a precision that it could not measure."
        )
    if NEW_ANSWERS in unmade:
        remedies.append("A model without answers to new samples has grade B at best.")
    if unmade - {ABOVE_ROOF}:
        remedies.append("`make run FORCE=1` measures again with every check that this machine allows.")
    remedy = " ".join(remedies)
    return [finding("B", UNCHECKED, detail, remedy)]


def _rounds_finding(rule: RoundCheck, rounds: Sequence[Round], unmade: Sequence[str | None]) -> list[Finding]:
    """A finding with the detail of the first hit round. A round without the check may be hit as well."""
    hit = {timed_round.record.round: detail for timed_round in rounds if (detail := rule.hit(timed_round)) is not None}
    if not hit:
        return []
    unknown = sum(
        why is not None and timed_round.record.round not in hit for timed_round, why in zip(rounds, unmade, strict=True)
    )
    caps_at = cap_of_rounds(len(hit) + unknown, len(rounds))
    number, detail = next(iter(hit.items()))
    where = f"round {number}" if len(hit) == 1 else f"{len(hit)} of {len(rounds)} rounds, the first of them"
    return [finding(caps_at, rule.name, f"{where}: {detail}", rule.remedy, rule.causes)]


def _unwatched(rounds: Sequence[Round]) -> list[Finding]:
    """Rounds without a record of the monitor: anything may have happened in them."""
    reasons = {
        timed_round.record.round: timed_round.unwatched or "no usage record"
        for timed_round in rounds
        if timed_round.usage is None
    }
    if not reasons:
        return []
    why = "; ".join(dict.fromkeys(reasons.values()))
    detail = f"what else the machine did is not known in {len(reasons)} of {len(rounds)} rounds: {why}"
    remedy = "`make run FORCE=1` measures again, with the monitor beside it."
    return [finding(cap_of_rounds(len(reasons), len(rounds)), "UNWATCHED", detail, remedy)]


def _gpu(rounds: Sequence[Round]) -> list[Finding]:
    """Disturbances of the GPU over all rounds; its clock decides such a row, the processor's clock does not."""
    seen: dict[int, GpuUsage] = {
        timed_round.record.round: timed_round.usage.gpu
        for timed_round in rounds
        if timed_round.usage is not None and timed_round.usage.gpu is not None
    }
    usages = list(seen.values())
    findings = flags_gpu.foreign_memory(usages) + flags_gpu.power_cap(usages)
    return findings + flags_gpu.clock(seen, len(rounds), flags_host.without_usage(rounds))


REPEATS = "REPEATS_FASTER"
OUTPUTS = "LAZY_OUTPUTS"
NEW_ANSWERS = "NEW_ANSWERS"
"""Its finding is PARITY_FAIL (flags.wrong_new_answers)."""

REPEAT_CONFIDENCE = 0.999
"""Of the interval over the pairs: a table of 30 honest rows then has a false alarm with a probability of at most 1.5%,
because only an interval wholly above the true median raises it: half of all misses."""

MAX_REPEAT_RATIO = 1.01
"""A new input may take this much longer: the project counts such times as equal everywhere (docs/decisions/0006)."""

LEAST_COMPARED = 8
"""Pairs with different right answers that are needed before the same answer to both counts as proof: where few answers
are possible, as with an arg-max, two inputs may have the same answer by chance."""

MAX_CHECKED_RATIO = 1.4
"""The fastest of these passes took at most 1.13 times the median of the loop in the published runs on a CPU."""
CHECKED_NS = 20_000
"""For each thread, beyond that multiple: a pass after a pause wakes threads and brings data back into the caches."""

COPIES = 10
"""A copy off a GPU into memory that is not page-locked, with a conversion to fp32 on top, is slower than the same copy
on the host. A wide limit is enough, because lazy work takes a whole pass."""

ARRAY_NS = {"cpu": 100_000, "cuda": 400_000}
"""For each output: a call into the library, a conversion, a wait for the device. On an H200 torch.compile took 0.21 to
0.37 ms for its one output where the host launches slowly (2026-11-29); the event clock sees lazy work there too."""

MAX_OUTPUTS_SHARE = 0.1
"""Of the median, for the time of outputs() beyond that: the full width of the widest interval of grade A
(flags.MAX_INTERVAL_HALF_WIDTH is ±5%)."""

MAX_HIDDEN_SHARE = 0.5
"""Of the median: where outputs() may take longer than that, most of a pass could be hidden in it. A choice."""

OWN_COPIES = 3
"""Copies in outputs() that hide nothing: the backend's, ours, and a conversion."""

MAX_LAZY_CALLS = 0.1
"""Share of the calls of outputs() that may take half a pass more than they may: work left to a tenth of them makes the
throughput a tenth too high. In the published runs one of 7,563 calls did."""
LEAST_LAZY_CALLS = 3
"""So many of 24 calls wait by chance in 0.2% of rows, even where every hundredth call waits."""

Checks = Mapping[str, Check]
_OLD = "measured before there was this check"


def check_work(case: Case, records: Sequence[Measured]) -> tuple[list[Finding], Checks]:
    """Findings about the rounds of one case, and by flag name in how many rounds its check was made."""
    repeats = [record.repeats for record in records if record.repeats is not None]
    interval = repeat_interval(repeats)
    findings = [*_repeats(case, records, interval), *_outputs(case, records), *_inputs(case, records)]
    too_few = _too_few(records, interval)
    new = [_new_missing(record.repeats) for record in records] if any(map(_has_new, repeats)) else []
    return findings, {
        **({NEW_ANSWERS: combined_check(new)} if new else {}),
        # Too few pairs decide nothing: then the check was made in no round.
        REPEATS: combined_check([_repeats_missing(record) or too_few for record in records]),
        OUTPUTS: combined_check([_outputs_missing(case, record) for record in records]),
    }


def repeat_interval(records: Sequence[Repeats]) -> Interval | None:
    """How many times as long a new input takes as a repeated one: the median over all pairs."""
    return ratio_interval(
        fresh / repeated
        for record in records
        for fresh, repeated in zip(record.fresh_ns, record.repeated_ns, strict=True)
        if repeated > 0
    )


def ratio_interval(pairs: Iterable[float]) -> Interval | None:
    """The median of the ratios of pairs, at REPEAT_CONFIDENCE.

    Order statistics of the pairs' ratios enclose their median whatever the distribution (David and Nagaraja, Order
    Statistics, 3rd ed., 7.1). As the order within pairs is random, that median is 1 for equal work, also while other
    processes take the CPU. None for fewer than eleven pairs: their extremes do not enclose it with this confidence.
    """
    ratios = sorted(pairs)
    rank = lower_rank(len(ratios))
    return Interval(low=ratios[rank - 1], high=ratios[-rank]) if rank else None


@cache
def lower_rank(count: int) -> int:
    """The largest k with P[Binomial(count, 1/2) < k] <= (1 - REPEAT_CONFIDENCE) / 2; 0 where there is none."""
    once_in = round(2 / (1 - REPEAT_CONFIDENCE))
    rank, below = 0, 1
    while below * once_in <= 2**count:
        rank += 1
        below += math.comb(count, rank)
    return rank


def _repeats(case: Case, records: Sequence[Measured], interval: Interval | None) -> list[Finding]:
    made = [record.repeats for record in records if record.repeats is not None]
    # Each round by itself: rounds after the first know the answers to fewer stored inputs.
    counts = [(repeats.compared, repeats.unchanged) for repeats in made]
    whole = (sum(compared for compared, _ in counts), sum(unchanged for _, unchanged in counts))
    stuck = next((count for count in (*counts, whole) if is_stuck(*count)), None)
    if stuck is not None:
        compared, unchanged = stuck
        detail = (
            f"in {unchanged} of {compared} passes on a new input, written where a stored one lay, the answer was that "
            "of a stored one"
        )
        remedy = (
            f"{case.backend} answers from memory or from a copy of its inputs: it must compute every pass, and bring "
            "copies that load() made up to date in refresh()."
        )
        return [finding("C", REPEATS, detail, remedy)]
    slower = {record.round: ratio for record in records if (ratio := _checked_over_timed(case, record))}
    if slower and 2 * len(slower) >= len(records):
        number, ratio = next(iter(slower.items()))
        detail = (
            f"the fastest pass of the repeat check took {ratio:.3g} times as long as a pass of the timed loop on "
            f"the same inputs ({len(slower)} of {len(records)} rounds, the first of them {number})"
        )
        remedy = f"{case.backend} does less while it is timed than while it is checked: it must compute every pass."
        return [finding("C", REPEATS, detail, remedy, MACHINE)]
    if interval is None or interval.low <= MAX_REPEAT_RATIO:
        return []
    pairs = sum(len(repeats.fresh_ns) for repeats in made)
    detail = (
        f"inputs never seen before took {interval.low:.3g} to {interval.high:.3g} times as long as those that rotated "
        f"({REPEAT_CONFIDENCE:.1%} interval over {pairs} pairs)"
    )
    remedy = (
        f"{case.backend} is faster where inputs repeat: turn its cache of answers off. Where the time of the model "
        "itself depends on its values, measure with the inputs that it will serve."
    )
    return [finding("C", REPEATS, detail, remedy)]


def is_stuck(compared: int, unchanged: int) -> bool:
    """Whether no new input changed the answer."""
    return compared >= LEAST_COMPARED and unchanged == compared


def _checked_over_timed(case: Case, record: Measured) -> float | None:
    # On a GPU single passes take another time than passes one after the other.
    if case.device != "cpu" or record.repeats is None:
        return None
    at_once = record.threads if case.mode == "offline" else 1  # a pass at a time has one thread at least
    # The throughput shows passes that were left out among others that were not, and the median does not.
    mean = batch_times.wall_per_batch_ns(record)
    usual = batch_ns(record) if mean is None else min(batch_ns(record), flags.in_flight(case) * mean)
    return checked_over_timed(record.repeats, usual, record.threads, at_once)


def checked_over_timed(repeats: Repeats, usual: float, threads: int, at_once: int = 1) -> float | None:
    """How many times as long the fastest pass on a stored input took in the repeat check as usual, in ns; None where
    that is near enough, and where it is unknown how long the check waited for a CPU. at_once: passes that the loop may
    run together."""
    if not repeats.repeated_ns or repeats.waited_share is None:
        return None
    # A pass that shares its CPU takes longer by the share of the time that it waits.
    fastest = min(repeats.repeated_ns) * max(0.0, 1 - repeats.waited_share)
    limit = MAX_CHECKED_RATIO * at_once * usual + CHECKED_NS * threads
    return fastest / usual if usual and fastest > limit else None


def _inputs(case: Case, records: Sequence[Measured]) -> list[Finding]:
    changed = [record.round for record in records if record.inputs_changed]
    if not changed:
        return []
    detail = f"its inputs had other contents after timing than before, in {len(changed)} of {len(records)} rounds"
    remedy = f"{case.backend} or the model writes into its inputs, so that later passes get others: let it copy them."
    return [finding("C", "INPUTS_CHANGED", detail, remedy)]


def _repeats_missing(record: Measured) -> str | None:
    return _OLD if record.repeats is None else record.repeats.missing


def _has_new(repeats: Repeats) -> bool:
    """Whether this check applies: not at the e2e boundary, nor in older records."""
    return bool(repeats.new_l2) or repeats.new_missing is not None


def _new_missing(repeats: Repeats | None) -> str | None:
    if repeats is None or not _has_new(repeats):
        return _OLD
    return repeats.new_missing


def _too_few(records: Sequence[Measured], interval: Interval | None) -> str | None:
    """Why the measured pairs decide nothing."""
    pairs = sum(len(record.repeats.fresh_ns) for record in records if record.repeats is not None)
    return f"{pairs} pairs are too few: measure more rounds" if pairs and interval is None else None


def _outputs(case: Case, records: Sequence[Measured]) -> list[Finding]:
    # At the e2e boundary outputs() is part of every sample.
    if case.boundary == "e2e":
        return []
    timed = [(record, record.outputs_time) for record in records if record.outputs_time is not None]
    hit = [detail for record, time in timed if (detail := lazy_outputs(time, batch_ns(record), case.device))]
    remedy = f"infer() and synchronize() of {case.backend} must do all of the work: outputs() may only copy its result."
    if hit:
        detail = f"{hit[0]} ({len(hit)} of {len(timed)} rounds)"
        return [finding(cap_of_rounds(len(hit), len(timed)), OUTPUTS, detail, remedy, MACHINE)]
    calls = sum(len(time.outputs_ns) for _, time in timed)
    lazy = sum(_lazy_calls(time, batch_ns(record), case.device) for record, time in timed)
    if lazy < LEAST_LAZY_CALLS or lazy <= MAX_LAZY_CALLS * calls:
        return []
    detail = (
        f"{lazy} of {calls} calls of outputs() took more than half a pass longer than copying: work was left to them"
    )
    return [finding("C", OUTPUTS, detail, remedy, MACHINE)]


def lazy_outputs(time: OutputsTime, usual_ns: float, device: Device) -> str | None:
    """That outputs() computes, in numbers; None where it only copies. usual_ns: a pass in the clock."""
    beyond_ns = _usual_ns(time) - _allowed_ns(time, device)
    if beyond_ns <= 0 or beyond_ns <= MAX_OUTPUTS_SHARE * usual_ns:
        return None
    took = f"outputs() took a median of {in_us(_usual_ns(time))} beside {in_us(usual_ns)} in the clock"
    return f"{took}, where a copy of the same arrays takes {in_us(min(time.copy_ns))}"


def _outputs_missing(case: Case, record: Measured) -> str | None:
    """Why it is unknown whether outputs() computes: on a CPU a whole short pass may fit into what a call may take."""
    time = record.outputs_time
    if case.boundary == "e2e":
        return None
    if time is None:
        return _OLD
    spare_ns = _usual_ns(time) - OWN_COPIES * min(time.copy_ns)
    seen = lazy_outputs(time, batch_ns(record), case.device) is not None
    if case.device != "cpu" or seen or spare_ns <= MAX_HIDDEN_SHARE * batch_ns(record):
        return None
    took = f"outputs() took {in_us(_usual_ns(time))} beside {in_us(batch_ns(record))} in the clock"
    return f"{took}: too short a pass to see whether outputs() computes"


def _allowed_ns(time: OutputsTime, device: Device) -> int:
    """How long a call may take. The shortest copy counts: the first ones of small arrays wait for the memory."""
    return COPIES * min(time.copy_ns) + ARRAY_NS[device] * time.arrays


def _lazy_calls(time: OutputsTime, usual_ns: float, device: Device) -> int:
    limit = _allowed_ns(time, device) + MAX_HIDDEN_SHARE * usual_ns
    return sum(call_ns > limit for call_ns in _own_ns(time))


def _usual_ns(time: OutputsTime) -> int:
    """The middle call, of two the shorter: a backend that leaves work to outputs() may do so in most passes only."""
    return sorted(_own_ns(time))[(len(time.outputs_ns) - 1) // 2]


def _own_ns(time: OutputsTime) -> list[int]:
    """How long each call took, without its thread's waits for a CPU: a call that waits is not lazy."""
    waits = time.waited_ns or (0,) * len(time.outputs_ns)
    return [max(0, call_ns - waited_ns) for call_ns, waited_ns in zip(time.outputs_ns, waits, strict=True)]
