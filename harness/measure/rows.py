"""Questions that several modules ask of a row of the summary (pure)."""

from __future__ import annotations

import math
from typing import NamedTuple

from harness.core.schemas import Boundary, Case, Device, Mode, Precision, Row, Weights
from harness.measure.grades import CALIBRATION


class GroupKey(NamedTuple):
    """What the rows of a group have in common: the one list of what tells rows apart. A field in which they may differ
    is None; so is the sequence length of a model that has none."""

    model: str
    weights: Weights
    device: Device
    boundary: Boundary | None = None
    mode: Mode | None = None
    sequence_length: int | None = None
    batch_size: int | None = None
    backend: str | None = None
    precision: Precision | None = None
    setting: str | None = None

    @classmethod
    def of(cls, one: Row | Case) -> GroupKey:
        """Everything that tells a row from the others of its summary."""
        return cls(*(getattr(one, name) for name in cls._fields))

    def without(self, *fields: str) -> GroupKey:
        """The key of the larger group whose rows may differ in these fields, too."""
        kept = (None if name in fields else value for name, value in zip(self._fields, self, strict=True))
        return GroupKey(*kept)  # type: ignore[arg-type] # model, weights and device are in every key


def is_calibration(row: Row) -> bool:
    """True where the row shows what the harness itself costs."""
    return any(flag.name == CALIBRATION for flag in row.flags)


def median_ns(row: Row) -> float:
    """The headline of one batch in ns; infinite where nothing was measured, so that such a row is never the fastest."""
    return row.latency_ns.median if row.latency_ns else math.inf


def medians_by_round(row: Row) -> dict[int, float]:
    """Process median in ns by round; empty for a row that has none."""
    latency = row.latency_ns
    if latency is None:
        return {}
    numbers = latency.process_rounds or range(1, len(latency.process_medians) + 1)
    return dict(zip(numbers, latency.process_medians, strict=True))


def slug_of(row: Row) -> str:
    """The folder name of the row's model, with which its case id begins: unique, short and of plain characters."""
    return row.case_id.rpartition(f"-{row.backend}-{row.device}-{row.precision}-b")[0] or row.model
