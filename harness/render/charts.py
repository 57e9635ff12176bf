"""Which charts a summary gets, under which names, and a bound on their number (pure: summary → figures)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from harness.core.schemas import Row, Summary
from harness.measure.alike import Alike
from harness.measure.rows import slug_of
from harness.render import ranking, ways
from harness.render.canvas import save
from harness.render.chart_cold import cold_figure
from harness.render.chart_dots import latency_figure, overview_figure, speedup_figure
from harness.render.chart_layers import layers_figure
from harness.render.chart_lines import throughput_figure
from harness.render.conditions import short_conditions
from harness.render.ranking import TableKey
from harness.render.side_by_side import title_of

__all__ = ["Chart", "Selection", "of_layers", "save", "select"]

MAX_TABLES = 12
MAX_ROWS = 600
"""Charts are drawn for the first tables up to these bounds: a third of a second each, and nobody looks at hundreds."""

MAX_OVERVIEW = 12
"""Models in the overview."""


@dataclass(frozen=True)
class Chart:
    """A chart that is drawn when it is asked for: one figure in memory at a time."""

    name: str
    alt: str
    table: TableKey | None
    draw: Callable[[], Figure]


@dataclass(frozen=True)
class Selection:
    """The charts of one report, and what was left out."""

    charts: tuple[Chart, ...] = ()
    note: str = ""

    def links(self, folder: str) -> dict[TableKey | None, list[tuple[str, str]]]:
        """Table → (alternative text, path) of its charts."""
        found: dict[TableKey | None, list[tuple[str, str]]] = {}
        for chart in self.charts:
            found.setdefault(chart.table, []).append((chart.alt, f"{folder}/{chart.name}.png"))
        return found


def select(summary: Summary) -> Selection:
    """The charts of a summary: an overview, and up to four for each of the first tables."""
    tables = ranking.by_table(summary.rows)
    if not tables:
        return Selection()
    planned: dict[TableKey, list[Row]] = {}
    for row in summary.rows:
        if row.status in ("failed", "missing"):
            planned.setdefault(ranking.table_key(row), []).append(row)
    charts = [_overview(summary, tables)]
    several = {name for name, number in Counter(key[0] for key, _ in tables).items() if number > 1}
    drawn = rows_drawn = 0
    for key, rows in tables[:MAX_TABLES]:
        if drawn and rows_drawn + len(rows) > MAX_ROWS:
            break
        stem = _stem((slug_of(rows[0]), key.weights, key.device, *ways.way_of(key)), key.model in several)
        charts += _charts_of(summary, key, rows, planned.get(key, []), stem)
        drawn, rows_drawn = drawn + 1, rows_drawn + len(rows)
    note = f"Charts are drawn for the first {drawn} of {len(tables):,} tables; the tables hold every row."
    return Selection(tuple(charts), note if drawn < len(tables) else "")


def of_layers(summary: Summary, compared: Sequence[Alike]) -> list[Chart]:
    """A chart for each of the first comparisons of profiles, in their order; their tables say the same of all."""
    return [
        Chart(
            _stem((slug_of(found.rows[0]), found.setting, found.rows[0].weights, "layers"), several=True),
            title_of(found),
            None,
            partial(layers_figure, title_of(found), found.groups, short_conditions(summary, found.rows)),
        )
        for found in compared[:MAX_TABLES]
    ]


def _overview(summary: Summary, tables: Sequence[tuple[TableKey, list[Row]]]) -> Chart:
    # One boundary and mode in one figure: the plan's first.
    way = ways.way_of(tables[0][0])
    groups = [(key[0], rows) for key, rows in tables if ways.way_of(key) == way][:MAX_OVERVIEW]
    caption = short_conditions(summary, [row for _, rows in groups for row in rows])
    title = f"{_what(tables[0][1])} by backend, at the smallest shape of each model"
    draw = partial(overview_figure, title, groups, caption)
    return Chart("overview", title, None, draw)


def _charts_of(summary: Summary, key: TableKey, rows: Sequence[Row], lost: Sequence[Row], stem: str) -> list[Chart]:
    way = ways.short(rows[0])
    model = f"{key[0]} ({way})" if way else key[0]
    caption = short_conditions(summary, rows)
    everything = [*rows, *lost]
    title = f"{model}: {_what(rows).lower()} by backend"
    charts = [Chart(f"{stem}-latency", title, key, partial(latency_figure, title, everything, caption))]
    if len({row.batch_size for row in rows if row.throughput_per_s}) > 1:
        title = f"{model}: throughput against batch size"
        charts.append(Chart(f"{stem}-throughput", title, key, partial(throughput_figure, title, rows, caption)))
    if any(row.speedup and row.speedup.baseline != row.case_id for row in rows):
        base = summary.baseline_backend
        title = f"{model}: speedup over {base} fp32"
        charts.append(Chart(f"{stem}-speedup", title, key, partial(speedup_figure, title, everything, base, caption)))
        title = f"{model}: time until the first answer against speedup"
        charts.append(Chart(f"{stem}-cold", title, key, partial(cold_figure, title, rows, base, caption)))
    return charts


def _what(rows: Sequence[Row]) -> str:
    return "Time per batch" if rows[0].mode == "offline" else "Latency"


def _stem(key: Sequence[str], several: bool) -> str:
    """A file name for the charts of a table: the model's slug, which no other model has and every file system takes,
    with the rest where a model has several tables."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(key) if several else key[0]).strip("-.")
