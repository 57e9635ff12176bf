"""Metrics of installed packages (docs/plugins.md): a further figure for every row with figures, from the row alone.

An entry point of the group `inferometer.metrics` has the metric's name and gives a Metric. Only `aggregate` imports it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from harness.core import errors, plugin_discovery
from harness.core.plugin_discovery import Plugin
from harness.core.schemas import Better, CustomMetric, Row, Summary, Unavailable

GROUP = "inferometer.metrics"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Metric:
    """One figure of a row.

    value: row → the figure in `unit`, or why there is none; reads only the row, so that aggregating again gives the
        same figure. Called for measured rows that are not void.
    unit: as tables print it, `items/s`. better: which of two figures is better. summary: one sentence.
    """

    value: Callable[[Row], float | Unavailable]
    unit: str
    better: Better
    summary: str


@dataclass(frozen=True)
class Installed:
    """A metric, and the distribution that provides it, with its version."""

    metric: Metric
    plugin: str


def installed_metrics() -> tuple[dict[str, Installed], list[str]]:
    """(metrics by name, problems of the metrics that cannot be used)."""
    points, unreadable = plugin_discovery.installed(GROUP)
    metrics: dict[str, Installed] = {}
    problems = [f"The plugin {origin} cannot be used: its entry_points.txt is not readable." for origin in unreadable]
    for point in points:
        others = [other.origin for other in points if other.name == point.name and other is not point]
        given = _load_metric(point, others)
        if isinstance(given, Metric):
            metrics[point.name] = Installed(given, point.origin)
        else:
            problems.append(f"The metric `{point.name}` of {point.origin} cannot be used: {given}.")
    return metrics, problems


def with_custom(summary: Summary, metrics: Mapping[str, Installed]) -> Summary:
    """The summary with a description of each metric, and its figure in each row that has figures."""
    if not metrics:
        return summary
    custom = {
        name: CustomMetric(
            unit=installed.metric.unit,
            better=installed.metric.better,
            summary=installed.metric.summary,
            plugin=installed.plugin,
        )
        for name, installed in metrics.items()
    }
    rows = tuple(
        row.model_copy(update={"custom": dict(_figures(row, metrics))}) if row.latency_ns is not None else row
        for row in summary.rows
    )
    return summary.model_copy(update={"custom": custom, "rows": rows})


def _figures(row: Row, metrics: Mapping[str, Installed]) -> Iterable[tuple[str, float | Unavailable]]:
    row = row.model_copy(deep=True)  # frozen, but for its dictionaries
    for name, installed in metrics.items():
        try:
            yield name, _figure(installed.metric.value(row))
        except (Exception, SystemExit) as error:
            yield name, Unavailable(unavailable=errors.reason(error))


def _figure(given: object) -> float | Unavailable:
    """The figure that a metric gave, if a record can hold it; else Unavailable."""
    if isinstance(given, Unavailable):
        return given
    if isinstance(given, bool) or not isinstance(given, int | float):
        return Unavailable(unavailable=f"the metric gave {type(given).__name__} and no number")
    return float(given) if math.isfinite(given) else Unavailable(unavailable=f"the metric gave {given}")


def _load_metric(point: Plugin, others: list[str]) -> Metric | str:
    """The metric that an entry point gives, or its problem in words."""
    if not _NAME.fullmatch(point.name):
        return "a name has small letters, digits and single underscores"
    if others:
        return f"{' and '.join(others)} has one of that name as well"
    try:
        given = point.load()
    except (Exception, SystemExit) as error:  # an error of one package must not stop the others
        return errors.reason(error)
    if not isinstance(given, Metric):
        return f"it gives {type(given).__name__} and no Metric"
    texts = (given.unit, given.summary)
    if not callable(given.value) or not all(isinstance(text, str) and text.isprintable() and text for text in texts):
        return "it needs a function, a unit and a summary of one line"
    return given if given.better in get_args(Better) else f"better is {given.better!r} and not `lower` or `higher`"
