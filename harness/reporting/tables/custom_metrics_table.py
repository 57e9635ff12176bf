"""Contributions of plugins to tables, CSV and explanations: their metrics, and the plugin of a backend (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.core import units
from harness.core.schemas import CustomMetric, Row, Summary, Unavailable
from harness.reporting.table import Column
from harness.reporting.writers.markdown import escape

Metrics = Mapping[str, CustomMetric]
"""Summary.custom."""
_ARROWS = {"higher": "↑", "lower": "↓"}


def metric_columns(rows: Iterable[Row], metrics: Metrics) -> list[Column[Row]]:
    """A column for each metric that has a figure in any of the rows."""
    known = [name for name in metrics if any(isinstance(row.custom.get(name), float) for row in rows)]
    headers = {name: f"{_words(name)} {metrics[name].unit} {_ARROWS[metrics[name].better]}" for name in known}
    return [Column(header, _cell(name)) for name, header in headers.items()]


def csv_columns(summary: Summary) -> dict[str, Callable[[Row], str | float | None]]:
    """Column → figure: a column for each metric, with its unit, and one for the plugins where rows have any."""
    columns: dict[str, Callable[[Row], str | float | None]] = {}
    if any(row.plugin for row in summary.rows):
        columns["plugin"] = lambda row: row.plugin
    for name, metric in summary.custom.items():
        columns[f"custom_{name} [{metric.unit}]"] = _figure(name)
    return columns


def plugins(rows: Sequence[Row]) -> str:
    """The plugins that provide the rows' backends; empty where all are built in."""
    return ", ".join(f"plugin {name}" for name in dict.fromkeys(row.plugin for row in rows if row.plugin))


def guide_lines(summary: Summary) -> list[str]:
    """The meaning of each metric, its plugin, and why rows have no figure."""
    return [_line(name, metric, summary.rows) for name, metric in summary.custom.items()]


def _line(name: str, metric: CustomMetric, rows: Sequence[Row]) -> str:
    text = f"**{_words(name)}**: {escape(metric.summary)} {metric.better.capitalize()} is better; by {metric.plugin}."
    absent = [value.unavailable for row in rows if isinstance(value := row.custom.get(name), Unavailable)]
    return f"{text} None in {units.count(len(absent), 'row')}: {'; '.join(dict.fromkeys(absent))}." if absent else text


def _cell(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = row.custom.get(name)
        return units.significant(value) if isinstance(value, float) else units.missing(row)

    return cell


def _figure(name: str) -> Callable[[Row], float | None]:
    def figure(row: Row) -> float | None:
        value = row.custom.get(name)
        return value if isinstance(value, float) else None

    return figure


def _words(name: str) -> str:
    return name.replace("_", " ")
