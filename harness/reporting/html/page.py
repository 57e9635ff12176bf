"""results/report.html from a summary (pure: the same summary gives the same bytes).

The page is a list of sections, each a template with its content; the navigation is made from the same list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from markupsafe import Markup

from harness.core import units
from harness.core.schemas import Comparison, Flag, Row, Summary
from harness.reporting import details, ranking
from harness.reporting.charts import plotly_drawer, selection
from harness.reporting.charts.plotly_drawer import PlotGroup
from harness.reporting.charts.rows import filter_tags
from harness.reporting.charts.spec import Tags
from harness.reporting.first_page import MAX_MODELS, AnswerCard, answer_cards, answer_table
from harness.reporting.html import embedded
from harness.reporting.html.comparison_section import comparison_section
from harness.reporting.html.profile_section import (
    NOTHING_PROFILED,
    RunProfiles,
    group_style,
    profile_groups,
)
from harness.reporting.load_groups import SCENARIOS, by_group
from harness.reporting.prose.boundaries import short_mode
from harness.reporting.prose.conditions import (
    conditions,
    environment_table,
    run_conditions,
    shared_conditions,
    short_conditions,
)
from harness.reporting.prose.generation_text import further_blocks, generation_conditions, model_blocks
from harness.reporting.prose.guide import guide
from harness.reporting.prose.load_answer import group_title, load_answer, load_tables, rows_without_figures
from harness.reporting.prose.recommendations import recommend
from harness.reporting.ranking import TableKey
from harness.reporting.table import Column, DocumentBlock
from harness.reporting.tables.generation_table import by_model
from harness.reporting.tables.latency_table import latency_columns, table_notes
from harness.reporting.tables.validity_tables import unmeasured_table
from harness.reporting.writers import html
from harness.reporting.writers.html import KINDS

GRADE = "grade"


@dataclass(frozen=True)
class Entry:
    """One case: its cells in the order of the headers, the reasons for its grade, its software."""

    row: Row
    cells: Markup
    facts: Markup

    @property
    def flags(self) -> tuple[Flag, ...]:
        """Flags, each with its evidence and its remedy."""
        return self.row.flags


@dataclass(frozen=True)
class CaseTable:
    """A table of cases. headers: (name, `word` or `num`); the grade has a separate column before them.

    notes: the meaning of marks in the cells.
    """

    headers: tuple[tuple[str, str], ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


def case_table(summary: Summary, rows: Sequence[Row]) -> CaseTable:
    """The rows of one table (ranking.by_table) for the page."""
    export, engines = summary.exports.get(rows[0].model), summary.engines
    columns = latency_columns(rows, export, engines, summary.custom)
    columns = [column for column in columns if column.header != GRADE]
    headers = tuple((column.header, KINDS[column.align]) for column in columns)
    entries = (Entry(row, _cells(columns, row), _lines(_facts(row))) for row in rows)
    return CaseTable((*headers, ("flags", "word")), tuple(entries), tuple(table_notes(rows, export, engines)))


def _cells(columns: Sequence[Column[Row]], row: Row) -> Markup:
    """The cells of a row, the first with the row's shape. Not by the template, which would escape each again."""
    shape = Markup(' data-shape="{} · batch {}"').format(row.precision, row.batch_size)
    cells = [
        html.table_cell(KINDS[column.align], column.cell(row), shape if place == 0 else "")
        for place, column in enumerate(columns)
    ]
    return Markup("\n".join(f"  {cell}" for cell in cells))  # noqa: S704 - table_cell escapes


def _lines(facts: Iterable[tuple[str, str]]) -> Markup:
    """The lines of a list of facts."""
    lines = [f"    <dt>{name}</dt><dd>{html.escaped(text)}</dd>" for name, text in facts]
    return Markup("\n".join(lines))  # noqa: S704 - the names are ours


def _facts(row: Row) -> Iterable[tuple[str, str]]:
    latency = row.latency_ns
    if latency is not None:
        unit = units.time_unit([latency.median])
        medians = ", ".join(units.in_unit(value, unit) for value in latency.process_medians)
        yield "medians of the processes", f"{medians} {unit.name}"
        yield "samples", f"{latency.n:,} of {units.count(latency.rounds, 'process', 'processes')}"
    if row.stopped is not None:
        yield "rounds ended by", row.stopped
    if row.checks:
        yield "checks made in", ", ".join(f"{name} {check.rounds} of {check.of}" for name, check in row.checks.items())
    if row.placement is not None:
        yield "ran on", f"{row.placement.device}, {row.placement.precision}, by {row.placement.provider}"
        settings = ", ".join(f"{name}: {value}" for name, value in row.placement.settings.items())
        yield "settings read back", settings or "none"


def summary_meta(summary: Summary) -> Markup:
    """The line in the head of the page that identifies its summary."""
    return Markup('<meta name="inferometer-summary" content="{}">').format(summary.digest)


def is_made_from(page: bytes, summary: Summary) -> bool:
    """Whether a page was made from this summary, even if the summary was written again since."""
    return summary_meta(summary).encode() in page


FILTERS = ("model", "backend", "precision", "batch", "grade")
"""The page's filters, in the order of `plot.tags`."""

MAX_ABOVE = 3
"""Largest number of panels of the overview above the first table."""


@dataclass(frozen=True)
class Section:
    """One part of the page: an anchor, a heading, a template and its content."""

    anchor: str
    title: str
    template: str
    content: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def markup(self) -> Markup:
        """The section as HTML."""
        return Markup(embedded.template("section.html.j2").render(section=self))  # noqa: S704 - the template escapes


def page(
    summary: Summary,
    selftest_text: str = "",
    with_plots: bool = True,
    profile: Sequence[DocumentBlock] = (),
    profiled: RunProfiles = NOTHING_PROFILED,
    comparison: Comparison | None = None,
    what_if: Sequence[DocumentBlock] = (),
    more: str = "",
    meta: Markup | None = None,
) -> str:
    """The whole page.

    selftest_text: the result of the self-test, as Markdown; profile, what_if: the sections with these names.
    with_plots: False leaves all charts out. profiled: data of the profile's trees. comparison: with an earlier run.
    more: the rows that need further rounds, as Markdown. meta: summary_meta of the summary in its file, where names
    are shortened here.
    """
    tables = ranking.by_table(summary.rows)
    sections = list(_sections(summary, tables, with_plots, profile, profiled, comparison, what_if, more))
    sections += closing_sections(summary, has_wide(sections), selftest_text)
    has_charts = any(
        part.get("groups") for section in sections for part in (section.content, *section.content.get("parts", ()))
    )
    filters = _filters(row for _, rows in tables for row in rows)
    return document(summary, sections, summary.title, has_charts, meta or summary_meta(summary), filters)


def document(
    summary: Summary,
    sections: Sequence[Section],
    title: str,
    has_charts: bool,
    meta: Markup,
    filters: Sequence[tuple[str, list[str]]] = (),
) -> str:
    """The page of these sections. has_charts: whether any has a chart. meta: summary_meta."""
    library, program = (embedded.plotly_js() if has_charts else ""), embedded.program()
    return embedded.template("report.html.j2").render(
        title=title,
        stamp=meta,
        measured=html.inline(run_conditions(summary)),
        provenance=html.inline(details.provenance(summary)),
        sections=sections,
        filters=filters,
        style=Markup(embedded.style() + group_style()),  # noqa: S704 - files of this package
        program=Markup(program),  # noqa: S704 - the same
        library=embedded.compressed_library(library) if library else "",
        hashes=[embedded.sha256(text) for text in (library, program) if text],
    )


def _sections(
    summary: Summary,
    tables: Sequence[tuple[TableKey, list[Row]]],
    with_plots: bool,
    profile: Sequence[DocumentBlock],
    profiled: RunProfiles,
    comparison: Comparison | None,
    what_if: Sequence[DocumentBlock],
    further: str,
) -> Iterable[Section]:
    shown = [row for group in tables for row in group[1]]
    if comparison:
        content = comparison_section(comparison, short_conditions(summary, shown))
        content["groups"] = content["groups"] if with_plots else []
        yield Section("comparison", "Comparison", "compared.html.j2", content)
    yield from _summary(summary, [key[0] for key, _ in tables], further)
    families = profile_groups(profiled)
    explained = {case.case_id for group in families for case in group.cases} if profile else set()
    tabled = list(chapters(summary, tables, with_plots, explained=explained))
    overview = list(_overview(summary, tables)) if with_plots and tables else []
    # The first figures must appear within two screens: at most one row of panels may be above them.
    above = bool(overview) and len(overview[0].content["groups"][0].plots) <= MAX_ABOVE
    yield from (*overview, *tabled) if above else (*tabled, *overview)
    advice = recommend(summary)
    if advice:
        about = [(title, list(pieces)) for title, pieces in groupby(advice, key=lambda piece: piece.about)]
        yield Section("recommendations", "Recommendations", "recommendations.html.j2", {"about": about})
    if what_if:
        yield prose("what-if", "What if", *what_if)
    if over_devices := details.devices_section(summary):
        title, *blocks = over_devices
        groups = [plotly_drawer.draw(chart.spec) for chart in selection.device_charts(summary)] if with_plots else []
        content = {"groups": groups, "body": html.blocks(blocks)}
        yield Section("devices", str(title).removeprefix("## "), "devices.html.j2", content)
    yield from _loads(summary, with_plots)
    yield from _generation(summary, with_plots)
    if profile:
        plots = [plot for group in families for plot in group.all_plots] if with_plots else []
        content = {"profile_groups": families, "groups": plots, "body": html.blocks(profile)}
        yield Section("profile", "Profile", "profile.html.j2", content)
    calibrated = details.calibration_section(summary)
    if calibrated:
        yield prose("harness", "Harness overhead", *calibrated)
    unmeasured = unmeasured_table(summary.rows)
    if unmeasured:
        yield prose("not-measured", "Not measured", unmeasured)
    if summary.notes:
        yield Section("notes", "Notes", "list.html.j2", {"notes": summary.notes})


def closing_sections(summary: Summary, has_wide: bool, selftest_text: str = "") -> Iterable[Section]:
    """The explanation of what the page shows, and its environment. has_wide: whether units.WIDE occurs in the page."""
    if said := [text for text in (guide(summary, has_wide), selftest_text) if text]:
        yield prose("guide", "How to read this", *said)
    yield prose("environment", "Environment", environment_table(summary.environments))


def has_wide(sections: Iterable[Section]) -> bool:
    """Whether units.WIDE occurs in any of the sections."""
    return any(units.WIDE in section.markup for section in sections)


def _summary(summary: Summary, models: Sequence[str], further: str) -> Iterable[Section]:
    """The answers as a table and as cards; nothing without an answer."""
    if answer := answer_table(summary):
        cards = answer_cards(summary)
        more = len(cards) - MAX_MODELS
        content = {
            "answer": html.blocks([answer]),
            "cards": [(card, _card_tags(card, models)) for card in cards[:MAX_MODELS]],
            "more": f"{more} more models are below." if more > 0 else "",
            "further": html.inline(further) if further else "",
        }
        yield Section("summary", "Summary", "summary.html.j2", content)


def chapters(
    summary: Summary,
    tables: Sequence[tuple[TableKey, list[Row]]],
    with_plots: bool,
    anchor: str = "table",
    explained: Set[str] = frozenset(),
) -> Iterable[Section]:
    """A chapter per table; a table of a single row (e2e, offline) is part of the preceding chapter of its model.

    anchor: start of the anchors. explained: cases whose profile is in the page.
    """
    by_id, shared = {row.case_id: row for row in summary.rows}, shared_conditions(summary)
    every = ranking.every_by_table(summary.rows)
    drawn = selection.tables_drawn(tables) if with_plots else 0
    joined: list[tuple[TableKey, str, list[dict[str, Any]]]] = []
    for number, (key, rows) in enumerate(tables):
        joins = len(rows) == 1 and joined and joined[-1][0][:3] == key[:3]
        part = {
            "title": short_mode(rows[0]) if joins else "",
            "caption": short_conditions(summary, rows),
            "conditions": html.inline(conditions(summary, rows, shared)),
            "groups": _plots(summary, key, rows) if number < drawn else [],
            "table": case_table(summary, rows),
            "explained": explained,
            "details": [
                (title, html.blocks(blocks)) for title, blocks in details.details(summary, rows, every[key], by_id)
            ],
        }
        if joins:
            joined[-1][2].append(part)
        else:
            joined.append((key, f"{anchor}-{number + 1}", [part]))
    titles = details.table_titles([key for key, _, _ in joined])
    for key, name, parts in joined:
        content = {"model": key[0], "parts": parts}
        yield Section(name, titles[key], "table.html.j2", content)


def _overview(summary: Summary, tables: Sequence[tuple[TableKey, list[Row]]]) -> Iterable[Section]:
    """Every model in one chart; nothing for a single model, whose chapter has this chart."""
    spec = selection.overview_chart(summary, tables)
    if len(spec.panels) > 1:
        group = plotly_drawer.draw(spec)
        yield Section("overview", group.title, "overview.html.j2", {"groups": [group], "caption": spec.conditions})


def _card_tags(card: AnswerCard, models: Sequence[str]) -> Tags:
    """Values that filter a card: the tags of its fastest row, or only its model."""
    if card.fastest:
        return filter_tags(card.fastest)
    about = [model for model in models if card.where.startswith(f"{model} ")]
    return (max(about, key=len, default=None), None, None, None, None)


def _plots(summary: Summary, key: TableKey, rows: Sequence[Row]) -> list[PlotGroup]:
    return [plotly_drawer.draw(spec) for spec in selection.table_charts(summary, key, rows).values()]


def _generation(summary: Summary, with_plots: bool) -> Iterable[Section]:
    """Tables, then charts, of each model that generates; nothing without a planned case."""
    if not summary.generations:
        return
    charts = selection.generation_charts(summary) if with_plots else {}
    parts = [
        {
            "title": model,
            "body": html.blocks(model_blocks(rows)),
            "groups": [plotly_drawer.draw(chart.spec) for chart in charts.get(model, ())],
        }
        for model, rows in by_model(summary.generations).items()
    ]
    content = {
        "conditions": html.blocks([generation_conditions(summary)]),
        "parts": parts,
        "rest": html.blocks(further_blocks(summary)),
    }
    yield Section("generation", "Generation", "generation.html.j2", content)


def _loads(summary: Summary, with_plots: bool) -> Iterable[Section]:
    """The groups of load rows, each with its charts and tables; nothing without load rows."""
    if not summary.loads:
        return
    parts = [
        {
            "title": f"{group_title(key)}: {SCENARIOS[key.scenario]}",
            "groups": [plotly_drawer.draw(spec) for spec in selection.load_group_charts(summary, key, rows).values()]
            if with_plots
            else [],
            "body": html.blocks(load_tables(summary, rows)),
        }
        for key, rows in by_group(summary.loads)
    ]
    answer = html.blocks([load_answer(summary)])
    yield Section(
        "load", "Load", "load.html.j2", {"parts": parts, "lost": rows_without_figures(summary), "answer": answer}
    )


def prose(anchor: str, title: str, *blocks: DocumentBlock) -> Section:
    """A section of texts and tables."""
    return Section(anchor, title, "prose.html.j2", {"body": html.blocks(blocks)})


def _filters(rows: Iterable[Row]) -> list[tuple[str, list[str]]]:
    """(name, values) of each filter with more than one value; numbers in ascending order, words in the plan's order."""
    seen = [filter_tags(row) for row in rows]
    filters = [(name, list(dict.fromkeys(tag[place] or "" for tag in seen))) for place, name in enumerate(FILTERS)]
    ordered = [(name, sorted(values, key=int) if name == "batch" else values) for name, values in filters]
    return [(name, sorted(values) if name == "grade" else values) for name, values in ordered if len(values) > 1]
