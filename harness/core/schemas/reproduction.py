"""results/reproduce/<claim>/reproduction.json: a published result beside what was measured here."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.claim import Differing, Source
from harness.core.schemas.summary import Interval
from harness.core.schemas.vocabulary import Record

Reproduced = Literal["REPRODUCED", "NOT REPRODUCED", "NOT COMPARABLE"]


class ReproducedRow(Record):
    """One published value, ratio or order, and what became of it."""

    kind: Literal["value", "ratio", "order"]
    name: str
    unit: Literal["ms", "items/s", "x", "order"]
    published: float | None
    """None for an order, whose words stand in `name`."""
    published_ci95: Interval | None
    """As the source gives it."""
    measured: float | None
    ci95: Interval | None
    verdict: Reproduced
    reason: str | None
    differences: tuple[Differing, ...]
    """Every condition that is not the same: beside a verdict too, because a ratio is judged across them."""
    case_ids: tuple[str, ...]


class Reproduction(Record):
    """A claim held against one summary."""

    schema_version: Literal[1] = 1
    created_at: str
    claim: str
    title: str
    source: Source
    card: str
    """That it was published for."""
    conditions: dict[str, str]
    here: str | None
    """What it was measured on here and how; None where nothing was measured."""
    plan_id: str | None
    rows: tuple[ReproducedRow, ...]
