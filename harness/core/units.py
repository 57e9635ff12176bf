"""Numbers for readers: three significant digits, one unit per column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from statistics import median

from harness.core.schemas import Interval, Kind, Row

DIGITS = 3
ABSENT = "–"
"""Shown in tables where a figure is unknown or does not apply; never 0."""
VOID = "void"
"""Shown in tables for every figure of speed of a void row, which did not time what its label says."""

MIB = 1 << 20

SAMPLE_NAMES: dict[Kind, str] = {"image": "images", "text": "sequences", "tensor": "samples"}
"""The name of the samples of a batch in a throughput."""


@dataclass(frozen=True)
class TimeUnit:
    """A unit of time and its length in nanoseconds."""

    name: str
    ns: float


NANOSECOND = TimeUnit("ns", 1)
MICROSECOND = TimeUnit("µs", 1e3)
MILLISECOND = TimeUnit("ms", 1e6)
SECOND = TimeUnit("s", 1e9)


def missing(row: Row) -> str:
    """Shown in a table in place of a figure of speed that a row does not have."""
    return ABSENT if row.void is None else VOID


def significant(value: float | None, digits: int = DIGITS) -> str:
    """A number with three significant digits: 1,230 · 12.3 · 0.0123 · 1.23e-07 · 7.09e+18."""
    if value is None:
        return ABSENT
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}"
    if abs(value) < 999 and "e" not in text:  # most figures: no commas
        return text.removesuffix(".")
    text = f"{value:.{digits - 1}e}"
    exponent = int(text.partition("e")[2] or 99)  # an infinite number has none
    if not -4 <= exponent < 9:  # two very different processes give intervals of twenty digits
        return text
    return f"{float(text):,.{max(0, digits - 1 - exponent)}f}"


def scientific(value: float | None) -> str:
    """A small number in scientific notation, for columns that span decades: 3.4e-07."""
    if value is None:
        return ABSENT
    return f"{value:.1e}" if value else "0"


def whole(number: int) -> str:
    """A count: exact below 1,000, with three significant digits above."""
    return str(number) if number < 1000 else significant(number)


def whole_number(value: float | None) -> str:
    """A number without decimals, for temperatures and powers."""
    return ABSENT if value is None else f"{value:.0f}"


def time_unit(values_ns: Iterable[float]) -> TimeUnit:
    """One unit for a column: the largest of ns, µs and ms in which the middle value is at least 1."""
    values = list(values_ns)
    middle = median(values) if values else MILLISECOND.ns
    return next((unit for unit in (MILLISECOND, MICROSECOND) if middle >= unit.ns), NANOSECOND)


def in_unit(value_ns: float | None, unit: TimeUnit) -> str:
    """A time in the unit of its column."""
    return ABSENT if value_ns is None else significant(value_ns / unit.ns)


def in_us(value_ns: float) -> str:
    """A time whose parts are compared in one sentence: 1,234.5 µs."""
    return f"{value_ns / MICROSECOND.ns:,.1f} {MICROSECOND.name}"


def divided(value: float | None, unit: float) -> float | None:
    """A value in a unit; None where it is unknown."""
    return None if value is None else value / unit


def duration(value_ns: float) -> str:
    """A single time with the unit that suits it, for running text."""
    unit = next((unit for unit in (SECOND, MILLISECOND, MICROSECOND) if value_ns >= unit.ns), NANOSECOND)
    return f"{significant(value_ns / unit.ns)} {unit.name}"


MAX_PRINTED_FACTOR = 1.5
"""Upper end over lower end beyond which an interval is not printed as digits: such an interval means that the figure is
unknown, and digits would suggest more. CSV and JSON files keep them."""
WIDE = f"[wider than ×{MAX_PRINTED_FACTOR:g}]"
"""Shown in place of both ends of an interval that is too wide to be useful."""


def wide_means(file: str) -> str:
    """The explanation of WIDE, as Markdown. file: the one that has the digits."""
    return (
        f"**{WIDE}**: the upper end of the interval is more than {MAX_PRINTED_FACTOR:g} times the lower one, so that "
        f"its digits would say nothing; {file} has them."
    )


def too_wide_to_print(interval: Interval) -> bool:
    """Whether the interval of a positive figure spans more than MAX_PRINTED_FACTOR."""
    return interval.low <= 0 or interval.high / interval.low > MAX_PRINTED_FACTOR


def interval(ends: Interval | None, divisor: float = 1, end: Callable[[float], str] = significant) -> str:
    """Both ends of an interval of a positive figure, or a note that it is too wide to be useful.

    end: formats a figure after its division.
    """
    if ends is None:
        return ABSENT
    if too_wide_to_print(ends):
        return WIDE
    return f"[{end(ends.low / divisor)}, {end(ends.high / divisor)}]"


def drawable_interval(ends: Interval | None) -> Interval | None:
    """The interval that a chart draws as a bar; None where it is too wide to print and would squeeze all others."""
    return None if ends is None or too_wide_to_print(ends) else ends


def mib(size_bytes: float | None) -> str:
    """A size in whole MiB."""
    return ABSENT if size_bytes is None else f"{size_bytes / MIB:,.0f}"


def in_mib(size_bytes: int | None) -> str:
    """A size in MiB with three significant digits, for files that differ only in precision."""
    return ABSENT if size_bytes is None else significant(size_bytes / MIB)


def cosine(value: float | None) -> str:
    """A cosine rounded down to four decimals; `>0.9999` between that and 1, and 1.0000 only for exactly 1."""
    if value is None:
        return ABSENT
    exact = Decimal(str(value))
    rounded = exact.quantize(Decimal("0.0001"), ROUND_FLOOR)
    return f">{rounded}" if rounded < exact < 1 and rounded == Decimal("0.9999") else str(rounded)


def percent(share: float | None) -> str:
    """A share as a percentage; 100% only for exactly 1."""
    if share is None:
        return ABSENT
    return "100%" if share == 1 else f"{math.floor(share * 1000) / 10:.1f}%"


def whole_percent(share: float | None) -> str:
    """A share as a whole percentage."""
    return ABSENT if share is None else f"{share:.0%}"


def share(part: float, whole: float) -> str:
    """A part of a whole as a percentage; absent where the whole is 0."""
    return percent(part / whole if whole else None)


def count(number: int, singular: str, plural: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def either(numbers: Iterable[int], singular: str) -> str:
    """`2 threads`, or `1 or 2 threads` for different numbers; empty without numbers."""
    different = sorted(set(numbers))
    return " or ".join([*map(str, different[:-1]), *(count(last, singular) for last in different[-1:])])
