"""CLOCK_DRIFT: a figure that follows the clock of the CPU or the GPU differs between the rounds of a row (pure).

flags_host.py and flags_gpu.py have the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.aggregation.grades import Finding, finding
from harness.core.schemas import Grade

MAX_CLOCK_DRIFT = 0.03
"""Between the rounds: a choice. A row that computes follows its clock, so its latency changes as much."""


def clock_drift(
    by_round: Mapping[int, float], rounds: int, what: str, unit: str, remedy: str, unwatched: int = 0
) -> list[Finding]:
    """A finding where a figure that follows the clock differs between rounds by more than is allowed.

    by_round: the figure, for the rounds in which it is known. rounds: number of all rounds of the row. unwatched:
    rounds that lost the file with the figure. The largest group of rounds that agree counts as the row's clock. A round
    outside it counts as hit, and so does a round without the figure: the headline is a median, which a minority of
    rounds cannot move far. Unwatched rounds may have had any figure, or deleting a file would improve a grade.
    """
    values = sorted(by_round.values())
    agreeing = _most_within(values)
    if agreeing == len(values):
        likely = max(agreeing, 1)
        could_differ = unwatched > 0 and len(values) + unwatched > 1
        unwatched_is_c = 2 * unwatched >= rounds
        if not could_differ or unwatched_is_c or 2 * (rounds - likely) < rounds:
            return []
        detail = f"{what} are known in {len(values)} of {rounds} rounds, and {unwatched} were not monitored"
        return [finding("C", "CLOCK_DRIFT", detail, remedy)]
    low, high = values[0], values[-1]
    caps_at: Grade = "C" if 2 * (rounds - agreeing) >= rounds else "B"
    detail = (
        f"{what} of the rounds lay between {low:,.{_digits(low)}f} and {high:,.{_digits(low)}f} {unit}, "
        f"{1 - low / high:.1%} apart, {MAX_CLOCK_DRIFT:.0%} allowed; {agreeing} of {rounds} rounds agree"
    )
    return [finding(caps_at, "CLOCK_DRIFT", detail, remedy)]


def _most_within(values: Sequence[float]) -> int:
    """The largest number of the sorted values that lie within the allowed distance."""
    return max((sum(low <= value <= low / (1 - MAX_CLOCK_DRIFT) for value in values) for low in values), default=0)


def _digits(value: float) -> int:
    return 0 if value >= 100 else 2
