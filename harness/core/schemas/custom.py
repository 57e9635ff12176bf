"""Within results/summary.json: what a metric of an installed package is."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Record

Better = Literal["lower", "higher"]


class CustomMetric(Record):
    """A metric of an installed package (harness/measure/custom.py)."""

    unit: str
    better: Better
    summary: str
    plugin: str
    """Distribution and version that brought it."""
