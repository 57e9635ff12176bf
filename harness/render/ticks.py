"""Where a logarithmic axis has its ticks, in both reports (pure)."""

from __future__ import annotations

import math


def log_ticks(low: float, high: float, base: int, most: int | None = None) -> list[float]:
    """What people count in: powers of two, or 1, 2 and 5 of each decade; even steps where fewer than three of those lie
    between two different ends, as one tick alone tells no scale. Some lie beyond the ends. low: above 0.

    most: powers of two whose labels have room; of more only every second, third, … is kept, 1 always.
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
