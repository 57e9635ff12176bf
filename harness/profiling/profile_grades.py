"""The grade of a profile, by disturbances while it was timed and by the agreement of its repeats (pure).

    A  watched, nothing disturbed it, and its repeats agree
    B  a check could not be made: it was too short to be judged, or was taken before profiles were watched
    C  something disturbed it, its repeats do not agree, or the monitor's record is missing

With grade C, or where the parts do not explain the latency, times are shown with a mark and nothing is concluded from
them: no speed-up, no upper bound, no comparison with another backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.aggregation import flags_host
from harness.aggregation.causes import BESIDES, with_causes
from harness.aggregation.grades import RANKED, Finding, finding, grade
from harness.aggregation.usage import timed_usage
from harness.core.schemas import Environment, Flag, Grade, Usage
from harness.core.schemas.profile_record import PartsProfile
from harness.profiling.reconcile import parts_total, reconcile

MIN_REPEATS, MAX_REPEATS = 2, 5
"""Processes per profile. One cannot agree with itself; after five without agreement the machine is unsteady."""

MAX_REPEATING_S = 120.0
"""No further repeat begins after this time, once there are MIN_REPEATS: large models take a minute to load."""

STEADY_TOLERANCE = 0.05
"""Largest relative difference of two successive ratios of parts to plain latency: half of the tolerance from 1 to 0.9
or 1.1, so that another repeat would rarely change the outcome."""

_AGAIN = "`make profile FORCE=1`"


def until_steady(take: Callable[[int], PartsProfile], on_gpu: bool, elapsed_s: Callable[[], float]) -> PartsProfile:
    """Repeat until two successive repeats agree; returns the last repeat, with the ratios of all.

    take: profiles in a new process, repeat 1 first. elapsed_s: since the first repeat began. The last repeat is always
    kept: choosing the repeat nearest to the latency would make every profile look sound. A profile without parts is not
    repeated.
    """
    ratios: list[float] = []
    while True:
        parts = take(len(ratios) + 1)
        total = parts_total(parts, on_gpu)
        if total is None:
            return parts
        ratios.append(total / parts.plain_ns)
        is_over = len(ratios) >= MAX_REPEATS or elapsed_s() > MAX_REPEATING_S
        if len(ratios) >= MIN_REPEATS and (last_two_agree(ratios) or is_over):
            return parts.model_copy(update={"ratios": tuple(ratios), "steady": last_two_agree(ratios)})


def last_two_agree(ratios: Sequence[float]) -> bool:
    """Whether the last two ratios differ by at most STEADY_TOLERANCE of the smaller; False with fewer than two."""
    low, high = sorted(ratios[-2:]) if len(ratios) > 1 else (0.0, 1.0)
    return high - low <= STEADY_TOLERANCE * low


def repeat_spread(ratios: Sequence[float]) -> float | None:
    """Largest ratio over the smallest, minus 1; None with fewer than two ratios or with a ratio of 0."""
    return max(ratios) / min(ratios) - 1 if len(ratios) > 1 and min(ratios) > 0 else None


def graded_profile(
    parts: PartsProfile, usage: Usage | None, threads: int, on_gpu: bool, environment: Environment
) -> PartsProfile:
    """The profile with its grade, flags, and the monitor's figures. usage: of the last repeat's process; None where the
    monitor left no record. threads: of that process."""
    window = None if usage is None else timed_usage(usage)
    findings = _unsteady(parts)
    if window is None:
        detail = "the monitor left no record of it, so it is unknown what else ran"
        findings.append(finding("C", "UNWATCHED", detail, f"Profile it again: {_AGAIN}."))
    else:
        hits, unmade = flags_host.profile_findings(window, threads, on_gpu, environment)
        findings += [*map(_profile_finding, hits), *_unchecked(unmade)]
    flags = tuple(entry.flag for entry in with_causes(findings))
    return parts.model_copy(update={"usage": window, "grade": grade(findings), "flags": flags})


def grade_of(parts: PartsProfile) -> Grade:
    """The grade; B for a profile that was taken before profiles were watched: its check could not be made."""
    return parts.grade or "B"


def flags_of(parts: PartsProfile) -> tuple[Flag, ...]:
    """The flags: reasons why the grade is no better."""
    if parts.grade is not None:
        return parts.flags
    detail = "it was taken before profiles were watched and repeated"
    return (Flag(name="UNWATCHED", detail=detail, remedy=f"Profile it again: {_AGAIN}."),)


def reason_for_doubt(parts: PartsProfile, on_gpu: bool) -> str | None:
    """Why nothing may be concluded from a profile, in words that follow its name; None if conclusions are allowed."""
    if grade_of(parts) not in RANKED:
        return f"its profile has grade {grade_of(parts)} ({', '.join(dict.fromkeys(f.name for f in flags_of(parts)))})"
    sums = reconcile(parts, on_gpu)
    if sums is not None and sums.outcome == "unexplained":
        ratio = f"{sums.ratio:.2f}"
        with_reasons = "" if sums.corrected_ns == sums.parts_ns else f", {sums.corrected:.2f} with what was measured"
        return f"its parts are {ratio} of the plain latency{with_reasons}, and nothing measured covers the difference"
    return None


def _profile_finding(disturbance: Finding) -> Finding:
    """The finding with the command that profiles again, instead of the command for a row."""
    return finding(
        disturbance.caps_at,
        disturbance.flag.name,
        disturbance.flag.detail,
        disturbance.flag.remedy.replace("make run", "make profile"),
    )


def _unsteady(parts: PartsProfile) -> list[Finding]:
    if parts.steady is not False:
        return []
    last, before = (f"{ratio:.2f}" for ratio in (parts.ratios[-1], parts.ratios[-2]))
    detail = (
        f"after {len(parts.ratios)} repeats the parts sum to {last} of the plain latency, in the repeat before to "
        f"{before}: more than {STEADY_TOLERANCE:.0%} apart"
    )
    return [finding("C", "NOT_WARMED_UP", detail, f"Stop what else runs on this machine, then {_AGAIN}.", BESIDES)]


def _unchecked(unmade: Mapping[str, str]) -> list[Finding]:
    """unmade: checks that could not be made, by name, and why."""
    names: dict[str, list[str]] = {}
    for name, why in unmade.items():
        names.setdefault(why, []).append(name)
    if not names:
        return []
    detail = "; ".join(f"{', '.join(of)} not judged ({why})" for why, of in names.items())
    return [finding("B", "UNCHECKED", detail, "Profile more inferences: `make profile FORCE=1 PROFILE_RUNS=200`.")]
