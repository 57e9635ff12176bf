"""When a published figure counts as reproduced: the rule, on numbers alone (pure; docs/decisions/0013-claims.md).

REPRODUCED       the measured 95% interval and the published band overlap; an order: every step of it is there
NOT REPRODUCED   they lie apart; an order: a step is reversed, or is none
NOT COMPARABLE   nothing sound was measured, or the interval is so wide that it would fit anything: wider than the
                 band, and where the band is an interval that was measured, wider than VALUE_TOLERANCE too
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.schemas import Interval, Reproduced

VALUE_TOLERANCE = 0.05
"""Around a published value without an interval of its own."""

RATIO_TOLERANCE = 0.10
"""Around a ratio of two published values, each of which may be off by VALUE_TOLERANCE: 1.05 / 0.95 is 1.105."""


@dataclass(frozen=True)
class Judged:
    """A verdict, and why where the two numbers do not say it."""

    verdict: Reproduced
    reason: str | None = None


def band(published: float, tolerance: float) -> Interval:
    """What counts as the published figure: it and its relative tolerance on either side."""
    return Interval(low=published * (1 - tolerance), high=published * (1 + tolerance))


def judge(measured: Interval | None, published: Interval, also_narrow: Interval | None = None) -> Judged:
    """Hold a measured 95% interval against a published band; both ends belong to each.

    also_narrow: a second interval that the measured one need only be as narrow as to decide.
    """
    if measured is None:
        return Judged("NOT COMPARABLE", "one round has no interval: measure at least 2, ROUNDS=5")
    if measured.high < published.low or published.high < measured.low:
        return Judged("NOT REPRODUCED")
    limits = [one for one in (published, also_narrow) if one is not None]
    if all(_is_wider(measured, one) for one in limits):
        return Judged("NOT COMPARABLE", "the interval is wider than the published band: more rounds, ROUNDS=10")
    return Judged("REPRODUCED")


def judge_measured(measured: Interval | None, published: float, interval: Interval) -> Judged:
    """Hold a measured interval against another one that was measured as well.

    Two runs of the same scatter have intervals of about the same width, and which is the narrower is chance. So it is
    enough that the measured one is as narrow as what decides where no interval was published: ± VALUE_TOLERANCE.
    """
    return judge(measured, interval, band(published, VALUE_TOLERANCE))


def judge_order(steps: Sequence[tuple[str, Interval | None]]) -> Judged:
    """Judge an order by its steps: (which two, 95% interval of how many times faster the first of them is)."""
    if any(ratio is None for _, ratio in steps):
        return Judged("NOT COMPARABLE", "one round has no interval: measure at least 2, ROUNDS=5")
    known = [(name, ratio) for name, ratio in steps if ratio is not None]
    if reversed_ := [name for name, ratio in known if ratio.high < 1]:
        return Judged("NOT REPRODUCED", f"the other way round: {'; '.join(reversed_)}")
    open_ = [(name, ratio) for name, ratio in known if ratio.low <= 1]
    if not open_:
        return Judged("REPRODUCED")
    names = "; ".join(name for name, _ in open_)
    if any(_is_wider(ratio, band(1, RATIO_TOLERANCE)) for _, ratio in open_):
        return Judged("NOT COMPARABLE", f"too uncertain to compare: {names}; more rounds, ROUNDS=10")
    return Judged("NOT REPRODUCED", f"not significantly different: {names}")


def _is_wider(one: Interval, other: Interval) -> bool:
    """By the ratio of the ends, as latencies and ratios are multiplicative."""
    return one.high * other.low > other.high * one.low
