"""The metrics that a limit can name, with their units and meanings: `make compare THRESHOLD=list` (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.schemas import Quantity
from harness.reporting.table import Table, word_column
from harness.reporting.thresholds import LOAD_METRICS, METRICS, TOKEN_METRICS, UNITS, LimitedFigure


@dataclass(frozen=True)
class ListedMetric:
    """A metric. of: the kind of rows that have it. doc: its meaning."""

    name: str
    of: str
    quantity: Quantity
    doc: str


def metrics_table() -> Table[ListedMetric]:
    """All metrics, by the kind of rows that have them."""
    metrics = [
        *_of("row", METRICS),
        *_of("load case", LOAD_METRICS),
        *_of("row of generation", TOKEN_METRICS),
    ]
    return Table(
        [
            word_column("metric", lambda metric: metric.name),
            word_column("of a", lambda metric: metric.of),
            word_column("limit in", lambda metric: ", ".join(unit or "no unit" for unit in UNITS[metric.quantity])),
            word_column("meaning", lambda metric: metric.doc),
        ],
        metrics,
    )


def _of(kind: str, metrics: Mapping[str, LimitedFigure[Any]]) -> list[ListedMetric]:
    return [ListedMetric(name, kind, metric.quantity, metric.figure.doc) for name, metric in metrics.items()]
