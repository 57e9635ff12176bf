"""Whether a clock, of a processor or of a card, was the same in the rounds of a row (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Grade
from harness.measure.grades import Finding, finding

MAX_CLOCK_DRIFT = 0.03
"""Between the rounds (METHOD 2.9)."""


def drift(by_round: Mapping[int, float], rounds: int, what: str, unit: str, remedy: str) -> list[Finding]:
    """A finding where one figure that moves with the clock differs between rounds by more than is allowed.

    by_round: the rounds in which it is known. rounds: all rounds of the row. The largest group of rounds that agree is
    taken for the row's clock, and a round outside of it for a hit one, as one is that nothing is known of: the headline
    is a median, which a minority of rounds cannot move far.
    """
    values = sorted(by_round.values())
    agreeing = _most_within(values)
    if agreeing == len(values):
        return []
    low, high = values[0], values[-1]
    caps_at: Grade = "C" if 2 * (rounds - agreeing) >= rounds else "B"
    detail = (
        f"{what} of the rounds lay between {low:,.{_digits(low)}f} and {high:,.{_digits(low)}f} {unit}, "
        f"{1 - low / high:.1%} apart, {MAX_CLOCK_DRIFT:.0%} allowed; {agreeing} of {rounds} rounds agree"
    )
    return [finding(caps_at, "CLOCK_DRIFT", detail, remedy)]


def _most_within(values: Sequence[float]) -> int:
    """Of sorted values, the most that lie within the allowed distance."""
    return max((sum(one <= two <= one / (1 - MAX_CLOCK_DRIFT) for two in values) for one in values), default=0)


def _digits(value: float) -> int:
    return 0 if value >= 100 else 2
