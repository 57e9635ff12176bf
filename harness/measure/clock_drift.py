"""Whether a clock, of a processor or of a card, was the same in all rounds of a row (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measure.grades import Finding, finding

MAX_CLOCK_DRIFT = 0.03
"""Between the mean clocks of the rounds (METHOD 2.9)."""


def drift(means_mhz: Sequence[float], whose: str, remedy: str) -> list[Finding]:
    """A finding where the mean clocks of the rounds lie further apart than is allowed."""
    if not means_mhz or 1 - min(means_mhz) / max(means_mhz) <= MAX_CLOCK_DRIFT:
        return []
    detail = (
        f"{whose} mean clock of the rounds lay between {min(means_mhz):,.0f} and {max(means_mhz):,.0f} MHz, "
        f"{1 - min(means_mhz) / max(means_mhz):.1%} apart, {MAX_CLOCK_DRIFT:.0%} allowed"
    )
    return [finding("C", "CLOCK_DRIFT", detail, remedy)]
