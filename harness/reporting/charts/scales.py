"""Limits and ticks of axes, decided once for both drawers (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.reporting.charts.spec import Axis

MAX_FINE_SPAN = 60
"""Largest ratio of the ends at which the labels of 1, 2 and 5 of each decade have room."""


def from_zero(label: str, high: float, room: float = 1.0, most: int = 4, suffix: str = "") -> Axis:
    """A linear axis from 0, so that lengths are proportional to values. room: its length in multiples of `high`."""
    end = room * high or 1.0
    return Axis(label, 0.0, end, tuple(even_ticks(0.0, end, most)), suffix=suffix)


def even_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 of a decade between the ends, including 0, in at most `most` steps."""
    rough = (high - low) / most
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough * (1 - 1e-9))
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{place * step:.6g}") for place in places]


def decades(label: str, low: float, high: float, suffix: str = "") -> Axis:
    """A logarithmic axis with 1, 2 and 5 of each decade where they have room, otherwise only 1."""
    ticks = log_ticks(low, high, 10)
    if high / low >= MAX_FINE_SPAN:
        ticks = [tick for tick in ticks if math.isclose(math.log10(tick), round(math.log10(tick)), abs_tol=1e-9)]
    return Axis(label, low, high, tuple(ticks), "log", suffix)


def doublings(label: str, low: float, high: float, most: int | None = None, suffix: str = "") -> Axis:
    """A logarithmic axis with powers of two. most: number of labels that have room."""
    return Axis(label, low, high, tuple(log_ticks(low, high, 2, most)), "log2", suffix)


def widened(values: Sequence[float]) -> tuple[float, float]:
    """Limits that leave a tenth of the logarithmic range, and at least a fifth of the value, on either side."""
    margin = max(1.2, (max(values) / min(values)) ** 0.1)
    return min(values) / margin, max(values) * margin


def log_ticks(low: float, high: float, base: int, most: int | None = None) -> list[float]:
    """Powers of two, or 1, 2 and 5 of each decade; even steps where fewer than three of these lie between two different
    ends, because a single tick shows no scale. Some ticks lie beyond the ends. low: above 0.

    most: number of labels that have room; of more powers of two only every second, third, … is kept, and always 1.
    """
    steps = (1,) if base == 2 else (1, 2, 5)
    powers = range(math.floor(math.log(low, base)) - 1, math.ceil(math.log(high, base)) + 1)
    every = 1 if most is None else max(1, math.ceil((math.log2(high / low) + 1) / most))
    ticks = [step * float(base) ** power for power in powers if power % every == 0 for step in steps]
    return _even(low, high) if low < high and sum(low <= tick <= high for tick in ticks) < 3 else ticks


def _even(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 of a decade, three to eight between the ends."""
    rough = (high - low) / 3
    decade = 10.0 ** math.floor(math.log10(rough))
    step = max(factor * decade for factor in (1, 2, 5) if factor * decade <= rough)
    places = range(math.floor(low / step), math.ceil(high / step) + 1)
    return [float(f"{place * step:.6g}") for place in places if place > 0]
