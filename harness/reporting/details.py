"""The details of a report as one Markdown document (pure: summary and chart names → text).

Its first page is harness/reporting/first_page.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.aggregation.flags import is_calibration, median_ns
from harness.core import units
from harness.core.schemas import Row, Summary
from harness.core.text import paragraphs
from harness.reporting import ranking
from harness.reporting.prose import boundaries
from harness.reporting.prose.conditions import (
    conditions,
    environment_table,
    run_conditions,
    shared_conditions,
    whole_names,
)
from harness.reporting.prose.guide import guide
from harness.reporting.prose.recommendations import recommendations_text
from harness.reporting.ranking import TableKey
from harness.reporting.table import DocumentBlock, titled_blocks
from harness.reporting.tables.cold_start_table import cold_table, engines_table
from harness.reporting.tables.energy_table import energy_table
from harness.reporting.tables.harness_error_tables import calibration_table
from harness.reporting.tables.latency_table import latency_table
from harness.reporting.tables.machine_load_table import machine_load_table
from harness.reporting.tables.roofline_table import roofline_table, uncounted_work
from harness.reporting.tables.scaling_tables import devices_table, neighbours_table, scaling_table, scaling_title
from harness.reporting.tables.tried_settings_table import tried_table
from harness.reporting.tables.validity_tables import checks_table, flags_table, unmeasured_table
from harness.reporting.writers.markdown import blocks_text, escape, section
from harness.zoo.families.known_duration import is_spin

Charts = Mapping[TableKey | None, Sequence[tuple[str, str]]]
"""Table → (alternative text, path relative to the report) of its charts; None: of the whole report."""


def document(
    summary: Summary,
    charts: Charts,
    opening: str = "",
    chart_note: str = "",
    selftest_text: str = "",
    profile: Sequence[DocumentBlock] = (),
    what_if: Sequence[DocumentBlock] = (),
    load: Sequence[DocumentBlock] = (),
    generation: Sequence[DocumentBlock] = (),
) -> str:
    """The whole text of the details.

    opening: heading and first paragraphs. chart_note: which charts were not drawn, and why. selftest_text: the result
    of the self-test. profile, what_if, load, generation: the sections with these names.
    """
    by_id, every = {row.case_id: row for row in summary.rows}, ranking.every_by_table(summary.rows)
    shared = shared_conditions(summary)
    tables = ranking.by_table(summary.rows)
    titles = table_titles([key for key, _ in tables])
    parts = [
        opening or f"# {summary.title}",
        run_conditions(summary),
        chart_note,
        _optional("Recommendations", recommendations_text(summary)),
        _optional("What if", *what_if),
        *(
            section(
                titles[key],
                conditions(summary, rows, shared),
                latency_table(rows, summary.exports.get(rows[0].model), summary.engines, summary.custom),
                _images(charts.get(key, ())),
                *(section(title, *blocks, level=3) for title, blocks in details(summary, rows, every[key], by_id)),
            )
            for key, rows in tables
        ),
        blocks_text(devices_section(summary)),
        _optional("Load", *load),
        _optional("Generation", *generation),
        _optional("Profile", *profile),
        _optional("Harness overhead", *calibration_section(summary)),
        _optional("Not measured", unmeasured_table(summary.rows)),
        _optional("Notes", "\n".join(f"- {escape(note)}" for note in summary.notes)),
    ]
    explained = guide(summary, any(units.WIDE in part for part in parts))
    parts += [
        _optional("How to read this", explained, selftest_text),
        section("Environment", provenance(summary), environment_table(summary.environments)),
    ]
    return paragraphs(parts) + "\n"


def details(
    summary: Summary, rows: Sequence[Row], every: Sequence[Row], by_id: Mapping[str, Row]
) -> list[tuple[str, list[DocumentBlock]]]:
    """(heading, blocks) of the parts below the latency table of one table; empty parts are left out.

    rows: of the latency table. every: those and the rows that are not in it. by_id: all rows of the summary, for
    baselines.
    """
    export = summary.exports.get(rows[0].model)
    cold = cold_table(rows, by_id, export, summary.engines)
    parts: dict[str, tuple[DocumentBlock | None, ...]] = {
        "Cold start": (cold, engines_table(every, export, summary.engines)) if cold else (),
        "Roofline": (roofline_table(rows, summary.roof), uncounted_work(export, summary.roof)),
        "Energy": (energy_table(rows, summary.energies),),
        "Settings that were tried": (tried_table(every),),
        "Flags": (flags_table(rows),),
        "Checks made": (checks_table(rows),),
        "Machine load while timing": (machine_load_table(rows),),
    }
    shown = ((title, [block for block in blocks if block]) for title, blocks in parts.items())
    return [(title, blocks) for title, blocks in shown if blocks]


def table_titles(keys: Sequence[TableKey]) -> dict[TableKey, str]:
    """The title of each table: its model, and in words what differs among the tables of that model."""
    titles = {}
    for key in keys:
        model_words = [_key_words(other) for other in keys if other.model == key.model]
        own = [text for place, text in enumerate(_key_words(key)) if len({words[place] for words in model_words}) > 1]
        titles[key] = f"{key.model} ({', '.join(own)})" if own else key.model
    return titles


def _key_words(key: TableKey) -> tuple[str, ...]:
    weights = "random weights" if key.weights == "seeded" else f"{key.weights} weights"
    return (
        weights,
        f"on {key.device}",
        *(boundaries.BRIEF.get(part, part) for part in boundaries.boundary_and_mode(key)),
    )


def _images(images: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"![{escape(text)}]({path})" for text, path in images)


def _optional(title: str, *blocks: DocumentBlock | None) -> str:
    return section(title, *blocks) if any(blocks) else ""


def devices_section(summary: Summary) -> list[DocumentBlock]:
    """The section on several devices that worked at the same time; empty where none did."""
    title = scaling_title(summary)
    if not title:
        return []
    by_device = devices_table(summary)
    parts = titled_blocks("By device", by_device, level=3) if by_device else []
    return titled_blocks(title, scaling_table(summary), *parts, neighbours_table(summary))


def calibration_section(summary: Summary) -> list[DocumentBlock]:
    """The harness overhead and error, from cases that compute nothing; empty where none was measured."""
    rows = [row for row in summary.rows if row.latency_ns and is_calibration(row)]
    known, idle = [row for row in rows if is_spin(row.model)], [row for row in rows if not is_spin(row.model)]
    blocks: list[DocumentBlock] = []
    if idle:
        worst = units.duration(max(map(median_ns, idle)))
        text = f"An inference that does nothing, through the same loop, takes {worst} or less"
        blocks.append(f"{text}: it is in every latency above.")
    if known:
        took = ", ".join(f"`{row.model}` took {units.duration(median_ns(row))}" for row in known)
        blocks.append(f"Work of known duration, through the same loop: {took}.")
    table = calibration_table(idle)
    return [*blocks, *([table] if table else [])]


def _minutes(first: str, last: str) -> str:
    """`2026-11-28 18:13 to 18:27 UTC`: times of records are in UTC."""
    start, end = (text[:16].replace("T", " ") for text in (first, last))
    return f"{start} to {end[11:] if end[:10] == start[:10] else end} UTC"


def provenance(summary: Summary) -> str:
    """The configuration, the plan and the time of the measurement, in a sentence."""
    if summary.measured_from:
        span = f" · measured {_minutes(summary.measured_from, summary.measured_to or summary.measured_from)}"
    else:
        span = "" if summary.loads or summary.generations or summary.copies else " · nothing measured"
    digest = f" (sha256 {summary.config_sha256[:12]})" if summary.config_sha256 else ""
    plan = "" if summary.measured_from else f" · plan {summary.plan_id}"  # the conditions of measured rows have it
    origin = f"Configuration `{summary.config}`{digest}{plan}{span}."
    return f"{origin} {whole_names(summary)}".strip()
