"""Selects the charts of a summary, with names and a limit on their number (pure: summary → specifications).

A new chart of a table needs a module in this folder and a line in CHARTS; both reports show it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from harness.aggregation.flags import slug_of
from harness.core.schemas import GenerationRow, LoadRow, Row, Summary
from harness.profiling.side_by_side import ComparedProfiles
from harness.reporting import ranking
from harness.reporting.charts import profile_charts
from harness.reporting.charts.generation_charts import itl_against_context, tokens_against_batch, ttft_against_prompt
from harness.reporting.charts.latency_charts import latency, overview, throughput
from harness.reporting.charts.load_charts import batching_map, load_curve
from harness.reporting.charts.rows import TableRows
from harness.reporting.charts.scaling_chart import scaling_chart
from harness.reporting.charts.spec import Dots, Spec
from harness.reporting.charts.speedup_charts import cold_start, speedup
from harness.reporting.load_groups import LoadGroup, by_group
from harness.reporting.prose import boundaries
from harness.reporting.prose.conditions import short_conditions
from harness.reporting.prose.generation_text import short_generation_conditions
from harness.reporting.prose.load_answer import load_conditions
from harness.reporting.ranking import TableKey
from harness.reporting.tables.generation_table import by_model
from harness.reporting.tables.scaling_tables import scaled_cases

CHARTS: Mapping[str, Callable[[TableRows], Spec | None]] = {
    "latency": latency,
    "throughput": throughput,
    "speedup": speedup,
    "cold": cold_start,
}
"""End of the file's name → chart of one table, None where it has nothing to draw; in the order of the reports."""

MAX_TABLES = 12
MAX_ROWS = 600
"""Charts are drawn for the first tables up to these limits: each takes a third of a second, and readers need few."""

MAX_OVERVIEW = 12
"""Models in the overview."""


@dataclass(frozen=True)
class Chart:
    """A chart and its file's name. table: the table that it belongs to; None for a chart of the whole report."""

    name: str
    table: TableKey | None
    spec: Spec


@dataclass(frozen=True)
class Selection:
    """The charts of one report, and a note on those that were left out."""

    charts: tuple[Chart, ...] = ()
    note: str = ""

    def links(self, folder: str) -> dict[TableKey | None, list[tuple[str, str]]]:
        """Table → (alternative text, path) of its charts."""
        links: dict[TableKey | None, list[tuple[str, str]]] = {}
        for chart in self.charts:
            links.setdefault(chart.table, []).append((chart.spec.title, f"{folder}/{chart.name}.png"))
        return links


def select(summary: Summary) -> Selection:
    """The charts of a summary: an overview, and the charts of the first tables."""
    tables = ranking.by_table(summary.rows)
    over_devices = device_charts(summary)
    if not tables:
        return Selection(tuple(over_devices))
    charts = [Chart("overview", None, overview_chart(summary, tables)), *over_devices]
    several = {name for name, number in Counter(key.model for key, _ in tables).items() if number > 1}
    drawn = tables_drawn(tables)
    for key, rows in tables[:drawn]:
        stem = _stem(
            (slug_of(rows[0]), key.weights, key.device, *boundaries.boundary_and_mode(key)), key.model in several
        )
        charts += [Chart(f"{stem}-{name}", key, spec) for name, spec in table_charts(summary, key, rows).items()]
    note = f"Charts are drawn for the first {drawn} of {len(tables):,} tables; the tables have every row."
    return Selection(tuple(charts), note if drawn < len(tables) else "")


def tables_drawn(tables: Sequence[tuple[TableKey, Sequence[Row]]]) -> int:
    """Number of tables that have charts, from the first table on."""
    drawn = rows_drawn = 0
    for _, rows in tables[:MAX_TABLES]:
        if drawn and rows_drawn + len(rows) > MAX_ROWS:
            break
        drawn, rows_drawn = drawn + 1, rows_drawn + len(rows)
    return drawn


def table_charts(summary: Summary, key: TableKey, rows: Sequence[Row]) -> dict[str, Spec]:
    """The charts of one table, by the end of their file's name."""
    mode = boundaries.short_mode(rows[0])
    lost = [row for row in summary.rows if row.status in ("failed", "missing") and ranking.table_key(row) == key]
    model = f"{key.model} ({mode})" if mode else key.model
    table = TableRows(model, rows, lost, summary.baseline_backend, short_conditions(summary, rows))
    return {name: spec for name, chart in CHARTS.items() if (spec := chart(table))}


def overview_chart(summary: Summary, tables: Sequence[tuple[TableKey, Sequence[Row]]]) -> Dots:
    """The overview of all models; it has a single boundary and mode, the plan's first."""
    first = boundaries.boundary_and_mode(tables[0][0])
    groups = [(key.model, rows) for key, rows in tables if boundaries.boundary_and_mode(key) == first]
    groups = groups[:MAX_OVERVIEW]
    return overview(groups, short_conditions(summary, [row for _, rows in groups for row in rows]))


def device_charts(summary: Summary) -> list[Chart]:
    """The chart of the cases that ran on all devices at once, if there are any."""
    cases = scaled_cases(summary)
    if not cases:
        return []
    return [Chart("scaling", None, scaling_chart(cases, short_conditions(summary, [case.row for case in cases])))]


def layer_charts(summary: Summary, compared: Sequence[ComparedProfiles]) -> list[Chart]:
    """A chart for each of the first comparisons of profiles, in order; the tables have the figures of all."""
    return [
        Chart(
            _stem(
                (slug_of(comparison.rows[0]), comparison.setting, comparison.rows[0].weights, "layers"), several=True
            ),
            None,
            profile_charts.by_group(comparison, short_conditions(summary, comparison.rows)),
        )
        for comparison in compared[:MAX_TABLES]
    ]


TOKEN_CHARTS: Mapping[str, Callable[[Sequence[GenerationRow], str], Spec | None]] = {
    "itl": itl_against_context,
    "tokens": tokens_against_batch,
    "ttft": ttft_against_prompt,
}
"""End of the file's name → chart of one model's generation, None where it has nothing to draw."""


def generation_charts(summary: Summary) -> dict[str, list[Chart]]:
    """The charts of the first models that generate, by model."""
    charts: dict[str, list[Chart]] = {}
    conditions = short_generation_conditions(summary)
    for model, rows in [*by_model(summary.generations).items()][:MAX_TABLES]:
        stem = _stem((rows[0].case_id.partition(f"-{rows[0].backend}-")[0], "generation"), several=True)
        specs = {name: chart(rows, conditions) for name, chart in TOKEN_CHARTS.items()}
        charts[model] = [Chart(f"{stem}-{name}", None, spec) for name, spec in specs.items() if spec is not None]
    return charts


def all_charts(charts: Mapping[str, Sequence[Chart]]) -> list[Chart]:
    """The charts of all models."""
    return [chart for model_charts in charts.values() for chart in model_charts]


def images_of(charts: Mapping[str, Sequence[Chart]], folder: str) -> dict[str, list[tuple[str, str]]]:
    """Model → (alternative text, path) of its charts."""
    return {
        model: [(chart.spec.title, f"{folder}/{chart.name}.png") for chart in model_charts]
        for model, model_charts in charts.items()
    }


@dataclass(frozen=True)
class LoadChart:
    """A chart of a group of load rows."""

    group: LoadGroup
    chart: Chart


LOAD_CHARTS: Mapping[str, Callable[[LoadGroup, Sequence[LoadRow], str], Spec | None]] = {
    "load": load_curve,
    "batching": batching_map,
}
"""End of the file's name → chart of one group of load rows, None where it has nothing to draw."""


def load_charts(summary: Summary) -> list[LoadChart]:
    """The charts of the first groups of load rows, in the order of the report."""
    groups = by_group(summary.loads)
    several = {name for name, number in Counter(key.model for key, _ in groups).items() if number > 1}
    charts = []
    for key, rows in groups[:MAX_TABLES]:
        device = "service" if key.service else key.device
        rest = (key.scenario, key.bound, device, key.weights, str(key.sequence_length or ""), key.bits)
        place = "" if key.service else f"{rows[0].device}-"
        slug = rows[0].load_id.rpartition(f"-{rows[0].backend}-{place}")[0] or key.model
        stem = _stem((slug, *filter(None, rest)), key.model in several)
        for name, spec in load_group_charts(summary, key, rows).items():
            charts.append(LoadChart(key, Chart(f"{stem}-{name}", None, spec)))
    return charts


def load_links(charts: Sequence[LoadChart], folder: str) -> dict[LoadGroup, list[tuple[str, str]]]:
    """Group → (alternative text, path) of its charts."""
    links: dict[LoadGroup, list[tuple[str, str]]] = {}
    for chart in charts:
        links.setdefault(chart.group, []).append((chart.chart.spec.title, f"{folder}/{chart.chart.name}.png"))
    return links


def load_group_charts(summary: Summary, key: LoadGroup, rows: Sequence[LoadRow]) -> dict[str, Spec]:
    """The charts of one group, by the end of their file's name."""
    conditions = load_conditions(summary, rows)
    return {name: spec for name, chart in LOAD_CHARTS.items() if (spec := chart(key, rows, conditions))}


def _stem(key: Sequence[str], several: bool) -> str:
    """A file name for the charts of a table: the model's slug, which is unique and valid in every file system, with the
    rest of the key where a model has several tables."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(key) if several else key[0]).strip("-.")
