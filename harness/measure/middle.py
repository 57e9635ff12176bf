"""The runs of typical length: what parts of a run are averaged over, so that they still add up to the whole (pure).

Medians of parts do not: where each run is disturbed in another part, every part's median is an undisturbed one, and
their sum falls short of every run. Means add up, and leaving the quarters of shortest and longest runs out takes from
them what makes means fragile (the interquartile mean).
"""

from __future__ import annotations

from collections.abc import Sequence


def middle_runs(spans_ns: Sequence[int]) -> list[int]:
    """Places of the runs in the middle half by length, at least one, in the order in which they ran. ValueError of
    none."""
    if not spans_ns:
        raise ValueError("no runs")
    quarter = len(spans_ns) // 4
    by_length = sorted(range(len(spans_ns)), key=spans_ns.__getitem__)
    return sorted(by_length[quarter : len(spans_ns) - quarter])


def middle_mean(spans_ns: Sequence[int]) -> int:
    """The mean length of those runs in ns."""
    chosen = middle_runs(spans_ns)
    return round(sum(spans_ns[place] for place in chosen) / len(chosen))
