"""The details of a report as one Markdown document (pure: summary and chart names → text).

Its first page is harness/reporting/first_page.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.aggregation.flags import is_calibration
from harness.core.schemas import Row, Summary
from harness.reporting import ranking, units
from harness.reporting.prose import boundaries
from harness.reporting.prose.conditions import conditions, environment_table, run_conditions, whole_names
from harness.reporting.prose.guide import guide
from harness.reporting.prose.recommendations import recommendations_text
from harness.reporting.ranking import TableKey
from harness.reporting.tables.calibration_table import calibration_table
from harness.reporting.tables.checks_table import checks_table
from harness.reporting.tables.cold_start_table import cold_table
from harness.reporting.tables.energy_table import energy_table
from harness.reporting.tables.engines_table import engines_table
from harness.reporting.tables.flags_table import flags_table
from harness.reporting.tables.latency_table import latency_table
from harness.reporting.tables.machine_load_table import machine_load_table
from harness.reporting.tables.roofline_table import roofline_table
from harness.reporting.tables.tried_settings_table import tried_table
from harness.reporting.tables.unmeasured_table import unmeasured_table
from harness.reporting.writers.markdown import escape, section, table_text

Charts = Mapping[TableKey | None, Sequence[tuple[str, str]]]
"""Table → (alternative text, path relative to the report) of its charts; None: of the whole report."""


def document(
    summary: Summary,
    charts: Charts,
    opening: str = "",
    chart_note: str = "",
    proof: str = "",
    profile: str = "",
    what_if: str = "",
    generation: str = "",
) -> str:
    """The whole text of the details.

    opening: heading and first paragraphs. chart_note: which charts were not drawn, and why. proof: the result of the
    self-test. profile, what_if, generation: the sections with these names.
    """
    by_id = {row.case_id: row for row in summary.rows}
    tables = ranking.by_table(summary.rows)
    several = ambiguous_titles(tables)
    parts = [
        opening or f"# {summary.title}",
        run_conditions(summary),
        chart_note,
        _optional("Recommendations", recommendations_text(summary)),
        _optional("What if", what_if),
        *(
            _table_section(summary, key, rows, details(summary, key, rows, by_id), charts, several)
            for key, rows in tables
        ),
        _optional("Generation", generation),
        _optional("Profile", profile),
        _optional("Harness overhead", calibrated(summary)),
        _optional("Not measured", table_text(unmeasured_table(summary.rows))),
        _optional("Left out", "\n".join(f"- {escape(note)}" for note in summary.notes)),
        section("How to read this", guide(summary), proof),
        section("Environment", provenance(summary), environment_table(summary.environments)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table_section(
    summary: Summary,
    key: TableKey,
    rows: Sequence[Row],
    below: Sequence[tuple[str, str]],
    charts: Charts,
    several: frozenset[str],
) -> str:
    return section(
        table_title(key, several),
        conditions(summary, rows),
        table_text(latency_table(rows, summary.exports.get(rows[0].model), summary.engines, summary.custom)),
        _images(charts.get(key, ())),
        *(section(title, text, level=3) for title, text in below),
    )


def details(summary: Summary, key: TableKey, rows: Sequence[Row], by_id: Mapping[str, Row]) -> list[tuple[str, str]]:
    """(heading, Markdown) of the parts below the latency table of one table; empty parts are left out.

    by_id: all rows of the summary, for baselines.
    """
    export = summary.exports.get(rows[0].model)
    costs = table_text(cold_table(rows, by_id, export, summary.engines))
    of_key = [row for row in summary.rows if ranking.table_key(row) == key]
    engines = table_text(engines_table(of_key, export, summary.engines))
    limits = table_text(roofline_table(rows, summary.roof))
    energy = table_text(energy_table(rows, summary.energies))
    tried = table_text(tried_table(summary.rows, key))
    flags = table_text(flags_table(rows))
    checks = table_text(checks_table(rows))
    meanwhile = table_text(machine_load_table(rows))
    parts = {
        "Cold start": "\n\n".join(filter(None, (costs, engines))) if costs else "",
        "Roofline": limits,
        "Energy": energy,
        "Settings that were tried": tried,
        "Flags": flags,
        "Checks made": checks,
        "Machine load while timing": meanwhile,
    }
    return [(title, text) for title, text in parts.items() if text]


def table_title(key: TableKey, several: frozenset[str]) -> str:
    """The model, and the rest of the key where the model has several tables."""
    rest = (key.weights, key.device, *boundaries.way_of(key))
    return f"{key.model} ({', '.join(rest)})" if key.model in several else key.model


def ambiguous_titles(tables: Sequence[tuple[TableKey, Sequence[Row]]]) -> frozenset[str]:
    """Models with more than one table, whose titles must name the whole key."""
    counts = Counter(key[0] for key, _ in tables)
    return frozenset(name for name, number in counts.items() if number > 1)


def _images(found: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"![{escape(text)}]({path})" for text, path in found)


def _optional(title: str, text: str) -> str:
    return section(title, text) if text else ""


def calibrated(summary: Summary) -> str:
    """The harness overhead, from cases that compute nothing; empty where none was measured."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    if not rows:
        return ""
    worst = max(row.latency_ns.median for row in rows if row.latency_ns)
    text = (
        f"An inference that does nothing, through the same loop, takes {units.duration(worst)} or less: it is in every"
    )
    return "\n\n".join([f"{text} latency above.", table_text(calibration_table(rows))])


def provenance(summary: Summary) -> str:
    """Which configuration and plan were measured, and when."""
    span = f"measured {summary.measured_from} to {summary.measured_to}" if summary.measured_from else "nothing measured"
    digest = f" (sha256 {summary.config_sha256[:12]})" if summary.config_sha256 else ""
    said = f"Configuration `{summary.config}`{digest} · plan {summary.plan_id} · {span}."
    return f"{said} {whole_names(summary)}".strip()
