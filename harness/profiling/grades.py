"""How far a profile can be trusted: its grade, by what happened while it was timed and by how its repeats agree (pure).

    A  watched, nothing disturbed it, and its repeats agree
    B  a check could not be made: it was too short to be judged, or is from before profiles were watched
    C  something disturbed it, its repeats do not agree, or what the monitor saw is missing

Of grade C, or where the parts do not explain the latency, times are shown with a mark and nothing is concluded from
them: no gain, no bound, no place beside another backend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.aggregation import flags_host
from harness.aggregation import usage as utilisation
from harness.aggregation.flags import (
    RANKED,
    Finding,
    finding,
    grade,
)
from harness.core.schemas import Environment, Flag, Grade, Usage
from harness.core.schemas.profile_record import PartsProfile
from harness.profiling.reconcile import parts_total, reconcile

MIN_REPEATS, MAX_REPEATS = 2, 5
"""Processes. One cannot agree with itself; what does not agree after five is a matter of the machine."""

MAX_REPEATING_S = 120.0
"""No further repeat begins after so long, once there are MIN_REPEATS: large models take a minute to load."""

STEADY_TOLERANCE = 0.05
"""Largest difference of two successive ratios of parts to plain latency: half of what is allowed from 1 to 0.9 or 1.1,
so that another repeat would rarely turn the outcome over."""

_AGAIN = "`make profile FORCE=1`"


def until_steady(take: Callable[[int], PartsProfile], on_gpu: bool, elapsed_s: Callable[[], float]) -> PartsProfile:
    """The last repeat, with the ratios of all: it repeats until two in a row agree.

    take: profiles in a fresh process, repeat 1 first. elapsed_s: since the first began. The last repeat is kept
    whatever it says: choosing the one nearest to the latency would make every profile look sound. A profile without
    parts is not repeated.
    """
    ratios: list[float] = []
    while True:
        parts = take(len(ratios) + 1)
        total = parts_total(parts, on_gpu)
        if total is None:
            return parts
        ratios.append(total / parts.plain_ns)
        is_over = len(ratios) >= MAX_REPEATS or elapsed_s() > MAX_REPEATING_S
        if len(ratios) >= MIN_REPEATS and (agree(ratios) or is_over):
            return parts.model_copy(update={"ratios": tuple(ratios), "steady": agree(ratios)})


def agree(ratios: Sequence[float]) -> bool:
    """Whether the last two differ by STEADY_TOLERANCE or less, of the smaller one; False of fewer."""
    low, high = sorted(ratios[-2:]) if len(ratios) > 1 else (0.0, 1.0)
    return high - low <= STEADY_TOLERANCE * low


def spread(ratios: Sequence[float]) -> float | None:
    """How far the largest ratio is above the smallest, as a share of it; None of fewer than two or of no time."""
    return max(ratios) / min(ratios) - 1 if len(ratios) > 1 and min(ratios) > 0 else None


def graded(
    parts: PartsProfile, usage: Usage | None, threads: int, on_gpu: bool, environment: Environment
) -> PartsProfile:
    """The profile with its grade, flags, and what the monitor saw. usage: of the last repeat's process; None where the
    monitor left no record. threads: that the process was given."""
    window = None if usage is None else utilisation.timed(usage)
    found = _unsteady(parts)
    if window is None:
        detail = "the monitor left no record of it, so it is unknown what else ran"
        found.append(finding("C", "UNWATCHED", detail, f"Profile it again: {_AGAIN}."))
    else:
        hits, unmade = flags_host.of_a_pass(window, threads, on_gpu, environment)
        found += [*map(_of_a_profile, hits), *_unchecked(unmade)]
    flags = tuple(one.flag for one in found)
    return parts.model_copy(update={"usage": window, "grade": grade(found), "flags": flags})


def grade_of(parts: PartsProfile) -> Grade:
    """B where it is from before profiles were watched: the check that applies could not be made."""
    return parts.grade or "B"


def flags_of(parts: PartsProfile) -> tuple[Flag, ...]:
    """Why its grade is no better."""
    if parts.grade is not None:
        return parts.flags
    detail = "it was taken before profiles were watched and repeated"
    return (Flag(name="UNWATCHED", detail=detail, remedy=f"Profile it again: {_AGAIN}."),)


def doubt(parts: PartsProfile, on_gpu: bool) -> str | None:
    """Why nothing may be concluded from a profile, in words that follow its name; None where something may."""
    if grade_of(parts) not in RANKED:
        return f"its profile has grade {grade_of(parts)} ({', '.join(dict.fromkeys(f.name for f in flags_of(parts)))})"
    sums = reconcile(parts, on_gpu)
    if sums is not None and sums.outcome == "unexplained":
        ratio = f"{sums.ratio:.2f}"
        with_reasons = "" if sums.corrected_ns == sums.parts_ns else f", {sums.corrected:.2f} with what was measured"
        return f"its parts are {ratio} of the plain latency{with_reasons}, and nothing measured covers the difference"
    return None


def _of_a_profile(one: Finding) -> Finding:
    """With the command that profiles again where that of a row is named."""
    return finding(one.caps_at, one.flag.name, one.flag.detail, one.flag.remedy.replace("make run", "make profile"))


def _unsteady(parts: PartsProfile) -> list[Finding]:
    if parts.steady is not False:
        return []
    last, before = (f"{ratio:.2f}" for ratio in (parts.ratios[-1], parts.ratios[-2]))
    detail = (
        f"after {len(parts.ratios)} repeats the parts sum to {last} of the plain latency, in the repeat before to "
        f"{before}: more than {STEADY_TOLERANCE:.0%} apart"
    )
    return [finding("C", "NOT_WARMED_UP", detail, f"Stop what else runs on this machine, then {_AGAIN}.")]


def _unchecked(unmade: Mapping[str, str]) -> list[Finding]:
    """unmade: checks that could not be made, by name, and why."""
    names: dict[str, list[str]] = {}
    for name, why in unmade.items():
        names.setdefault(why, []).append(name)
    if not names:
        return []
    detail = "; ".join(f"{', '.join(of)} not judged ({why})" for why, of in names.items())
    return [finding("B", "UNCHECKED", detail, "Profile more inferences: `make profile FORCE=1 PROFILE_RUNS=200`.")]
