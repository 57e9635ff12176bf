"""One figure over several records, from those of them that know it (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from harness.core.schemas import Record

N = TypeVar("N", int, float)


def known(name: str, records: Sequence[Record]) -> list[N]:
    """The values of one figure that are known."""
    return [value for record in records if (value := getattr(record, name)) is not None]


def extreme(name: str, choose: Callable[[Iterable[N]], N], records: Sequence[Record]) -> N | None:
    """What `choose` (min or max) takes of them; None where nobody knows."""
    values: list[N] = known(name, records)
    return choose(values) if values else None


def mean(name: str, records: Sequence[Record], weights: Sequence[float]) -> float | None:
    """Their mean, each with its weight; None where nobody knows."""
    pairs = zip(weights, (getattr(record, name) for record in records), strict=True)
    found = [(weight, value) for weight, value in pairs if value is not None]
    return sum(weight * value for weight, value in found) / sum(weight for weight, _ in found) if found else None


def total(name: str, records: Sequence[Record]) -> int | None:
    """Their sum; None where any is unknown: a total of some of them would pass for all."""
    values: list[int] = known(name, records)
    return sum(values) if values and len(values) == len(records) else None
