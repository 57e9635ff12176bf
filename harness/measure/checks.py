"""The checks of a row: where each applies, in how many rounds it was made, what it found (pure).

Grade A means that every check that applies was made in every round and passed (docs/decisions/0011-watching-a-card.md).
RULES is the table of what the rounds themselves prove. Whatever else judges a row, as a roof or a repeat of the run,
hands its findings and its Check to build_row (harness/measure/summarise.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.core.schemas import Case, Check, Environment, GpuUsage, Grade, Measured, UsageSummary
from harness.measure import disturbance, gpu_disturbance, grades, stats, wall_time
from harness.measure.clock_drift import drift
from harness.measure.disturbance import Judge, Round, in_usage, needs_usage, of_card
from harness.measure.grades import Finding, finding

UNCHECKED = "UNCHECKED"
ABOVE_ROOF = "ABOVE_ROOF"
"""Judged by harness/measure/roofline.py."""

_OWN_FLAG = frozenset({"PARITY"})
"""Checks whose absence has a flag of its own (PARITY_UNCHECKED)."""


@dataclass(frozen=True)
class Rule:
    """A check of single rounds.

    applies: whether it is one for a case, of which these are the rounds. Rows of backends that compute nothing have no
    checks. unmade: why it could not be made in a round. hit: what it found there; None as well where it was not made.
    """

    name: str
    applies: Callable[[Case, Sequence[Round]], bool]
    unmade: Judge
    hit: Judge
    remedy: str = ""


def _always(_case: Case, _rounds: Sequence[Round]) -> bool:
    return True


def _on_card(_case: Case, rounds: Sequence[Round]) -> bool:
    return any(one.on_gpu for one in rounds)


def _off_card(case: Case, rounds: Sequence[Round]) -> bool:
    return not _on_card(case, rounds)


def _heat_is_counted(_case: Case, rounds: Sequence[Round]) -> bool:
    """Only Intel's processors count it, and no guest shows it: elsewhere heat is seen as CLOCK_DRIFT."""
    return any(one.usage is not None and one.usage.thermal_events is not None for one in rounds)


def _made(_one: Round) -> None:
    return None


def _elsewhere(_one: Round) -> None:
    """What it finds is found over all rounds together (judge), or by harness/measure/grades.py."""
    return


def _no_parity(one: Round) -> str | None:
    return None if one.record.parity_timed is not None else "the outputs of the timed run were not compared"


def _no_looks(usage: UsageSummary) -> str | None:
    if usage.gpu is not None and usage.gpu.samples >= gpu_disturbance.MIN_LOOKS:
        return None
    looks = 0 if usage.gpu is None else usage.gpu.samples
    return usage.unavailable.get("gpu") or f"{looks} of {gpu_disturbance.MIN_LOOKS} looks at the GPU that it takes"


def _no_reasons(usage: UsageSummary) -> str | None:
    return _no_looks(usage) or usage.unavailable.get("gpu_reasons")


def _no_card_company(usage: UsageSummary) -> str | None:
    if usage.gpu is None:
        return _no_looks(usage)
    known = usage.gpu.other_processes_max is not None or usage.gpu.memory_before_bytes is not None
    return None if known else usage.unavailable.get("gpu_other_processes", "the GPU lists no processes")


def _no_card_clock(usage: UsageSummary) -> str | None:
    return _no_looks(usage) or (None if usage.gpu and usage.gpu.sm_mhz_mean else "the GPU shows no clock")


def _no_clock(one: Round) -> str | None:
    if one.on_gpu:
        return needs_usage(_no_card_clock)(one)
    if one.record.cpu_use is not None and one.record.cpu_use.work_ns:
        return None
    if one.usage is not None and one.usage.frequency_mhz_mean:
        return None
    return disturbance.OLD_RECORD


STOPPED = Rule("STOPPED", _always, disturbance.stopped_unmade, disturbance.stopped, disturbance.STOPPED)

RULES: tuple[Rule, ...] = (
    Rule("PARITY", _always, _no_parity, _elsewhere),
    Rule("PLACEMENT", _always, _made, _elsewhere),
    Rule("COTENANT", _always, disturbance.cotenant_unmade, in_usage(disturbance.cotenant), disturbance.QUIET),
    Rule("COTENANT", _on_card, needs_usage(_no_card_company), of_card(gpu_disturbance.company), gpu_disturbance.SHARED),
    Rule("STEAL", _always, needs_usage(disturbance.steal_unmade), in_usage(disturbance.steal), disturbance.STOLEN),
    Rule("CPU_QUOTA", _always, disturbance.quota_unmade, in_usage(disturbance.quota), disturbance.QUOTA),
    Rule(
        "THERMAL",
        _heat_is_counted,
        needs_usage(disturbance.thermal_unmade),
        in_usage(disturbance.thermal),
        disturbance.HOT,
    ),
    Rule("THERMAL", _on_card, needs_usage(_no_reasons), of_card(gpu_disturbance.thermal), gpu_disturbance.HOT),
    Rule("HW_SLOWDOWN", _on_card, needs_usage(_no_reasons), of_card(gpu_disturbance.slowdown), gpu_disturbance.SLOWED),
    Rule("POWER_CAP", _on_card, needs_usage(_no_reasons), _elsewhere),
    Rule("CLOCK_DRIFT", _always, _no_clock, _elsewhere),
    Rule("MAJOR_FAULTS", _always, needs_usage(lambda _usage: None), in_usage(disturbance.paging), disturbance.PAGED),
    Rule("STARVED", _always, disturbance.starved_unmade, disturbance.starved, disturbance.STARVED),
    # The card decides how fast a row on it is, whatever its host's threads do beside the one that submits.
    Rule("THREADS", _off_card, disturbance.cpu_use_unmade, disturbance.threads, disturbance.THREADS),
    Rule("AFFINITY_CHANGED", _always, disturbance.cpu_use_unmade, disturbance.allowance_changed, disturbance.CHANGED),
    STOPPED,
    Rule("SAMPLES_MISMATCH", _always, _made, _elsewhere),
    Rule("LONG_ITERATIONS", _always, _made, _elsewhere),
)
"""Every check of rounds. A name that comes twice is one check of two parts."""


def rounds_of(
    records: Sequence[Measured],
    usage: Mapping[int, UsageSummary],
    unwatched: Mapping[int, str],
    environment: Environment | None,
) -> list[Round]:
    """The records of a row, each with its witness; `usage` and `unwatched` by round."""
    return [Round(one, usage.get(one.round), unwatched.get(one.round), environment) for one in records]


def judge(case: Case, rounds: Sequence[Round]) -> tuple[list[Finding], dict[str, Check]]:
    """Everything that happened while the rounds of one case were timed, and in how many of them each check was made."""
    records, environment = [one.record for one in rounds], next((one.environment for one in rounds), None)
    found = [*_unwatched(rounds), *disturbance.other_threads(records)]
    found += [] if environment is None else disturbance.oversubscribed(records, environment)
    reasons: dict[str, list[str | None]] = {}
    for rule in RULES:
        if rule.applies(case, rounds):
            unmade = [rule.unmade(one) for one in rounds]
            before = reasons.get(rule.name, [None] * len(rounds))
            reasons[rule.name] = [first or second for first, second in zip(before, unmade, strict=True)]
            found += _in_rounds(rule, rounds, unmade)
    found += wall_time.mismatch(case, records) + wall_time.long_iterations(records)
    found += _card(rounds) if _on_card(case, rounds) else _clock(rounds)
    return found, {name: check_of(each) for name, each in reasons.items()}


def interrupted(rounds: Sequence[Round]) -> list[Finding]:
    """What was stopped, of a row that has no other check: a backend that computes nothing shows what a call costs."""
    return _in_rounds(STOPPED, rounds, [None] * len(rounds))


def check_of(reasons: Sequence[str | None]) -> Check:
    """One entry for each round of a row: None where the check was made, else why not."""
    missing = dict.fromkeys(reason for reason in reasons if reason is not None)
    return Check(rounds=reasons.count(None), of=len(reasons), missing="; ".join(missing) or None)


def unchecked(checks: Mapping[str, Check]) -> list[Finding]:
    """One finding that names every check that was not made in all rounds; none where there is no such check."""
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
    if unmade - {ABOVE_ROOF}:
        remedies.append("`make run FORCE=1` measures again with every check that this machine allows.")
    remedy = " ".join(remedies)
    return [finding("B", UNCHECKED, detail, remedy)]


def _in_rounds(rule: Rule, rounds: Sequence[Round], unmade: Sequence[str | None]) -> list[Finding]:
    """A finding with the detail of the first hit round. The headline is a median: a minority of rounds cannot move it
    far. A round in which the check was not made may have been hit as well."""
    hit = {one.record.round: detail for one in rounds if (detail := rule.hit(one)) is not None}
    if not hit:
        return []
    unknown = sum(why is not None and one.record.round not in hit for one, why in zip(rounds, unmade, strict=True))
    caps_at: Grade = "C" if 2 * (len(hit) + unknown) >= len(rounds) else "B"
    number, detail = next(iter(hit.items()))
    where = f"round {number}" if len(hit) == 1 else f"{len(hit)} of {len(rounds)} rounds, the first of them"
    return [finding(caps_at, rule.name, f"{where}: {detail}", rule.remedy)]


def _unwatched(rounds: Sequence[Round]) -> list[Finding]:
    """Rounds that the monitor left no record of: anything may have happened in them."""
    reasons = {one.record.round: one.unwatched or "no usage record" for one in rounds if one.usage is None}
    if not reasons:
        return []
    caps_at: Grade = "C" if 2 * len(reasons) >= len(rounds) else "B"
    why = "; ".join(dict.fromkeys(reasons.values()))
    detail = f"what else the machine did is not known in {len(reasons)} of {len(rounds)} rounds: {why}"
    return [finding(caps_at, "UNWATCHED", detail, "`make run FORCE=1` measures again, with the monitor beside it.")]


def _card(rounds: Sequence[Round]) -> list[Finding]:
    """What disturbed the card over all rounds; its clock decides such a row, and the processor's does not."""
    seen: dict[int, GpuUsage] = {
        one.record.round: one.usage.gpu for one in rounds if one.usage is not None and one.usage.gpu is not None
    }
    cards = list(seen.values())
    found = gpu_disturbance.foreign_memory(cards) + gpu_disturbance.power_cap(cards)
    return found + gpu_disturbance.clock(seen, len(rounds))


def _clock(rounds: Sequence[Round]) -> list[Finding]:
    """The processor's clock, by a fixed piece of work and by its frequency where one is shown: the worse of the two."""
    remedy = "Fix the clock (governor `performance`, turbo off) or let the machine warm up, then `make run FORCE=1`."
    work = {
        one.record.round: stats.median(one.record.cpu_use.work_ns) / 1e3
        for one in rounds
        if one.record.cpu_use is not None and one.record.cpu_use.work_ns
    }
    timed = drift(work, len(rounds), "a fixed piece of work took other times: the medians", "µs", remedy)
    means = {
        one.record.round: one.usage.frequency_mhz_mean
        for one in rounds
        if one.usage is not None and one.usage.frequency_mhz_mean
    }
    shown = drift(means, len(rounds), "the mean clocks", "MHz", remedy)
    return shown if grades.worse(grades.grade(timed), grades.grade(shown)) != grades.grade(timed) else timed
