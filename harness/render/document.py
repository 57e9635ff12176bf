"""The report as one Markdown document (pure: summary and chart names → text)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.core.schemas import Row, Summary
from harness.measure.rows import is_calibration
from harness.render import cold, ranking, remarks, units, ways
from harness.render.conditions import conditions, environment_table
from harness.render.energy import energy_table
from harness.render.engines import engines_table
from harness.render.guide import guide
from harness.render.headline import headline
from harness.render.markdown import escape, section
from harness.render.meanwhile import meanwhile_table
from harness.render.names import whole_names
from harness.render.ranking import TableKey
from harness.render.recommend import recommendations_text
from harness.render.roofline import roofline_table
from harness.render.tables import latency_table
from harness.render.tried import tried_table

Charts = Mapping[TableKey | None, Sequence[tuple[str, str]]]
"""Table → (alternative text, path relative to the report) of its charts; None: of the whole report."""


def document(
    summary: Summary,
    charts: Charts,
    chart_note: str = "",
    proof: str = "",
    profile: str = "",
    what_if: str = "",
    more: str = "",
) -> str:
    """The whole report.

    chart_note: which charts were not drawn, and why; proof: what the self-test found; profile, what_if: the sections
    so named; more: what further rounds would make surer.
    """
    by_id = {row.case_id: row for row in summary.rows}
    tables = ranking.by_table(summary.rows)
    several = ambiguous_titles(tables)
    parts = [
        section(summary.title, headline(summary), more, _images(charts.get(None, ())), chart_note, level=1),
        _optional("Recommendations", recommendations_text(summary)),
        _optional("What if", what_if),
        *(
            _table_section(summary, key, rows, details(summary, key, rows, by_id), charts, several)
            for key, rows in tables
        ),
        _optional("Profile", profile),
        _optional("What the harness itself costs", calibrated(summary)),
        _optional("Not measured", remarks.unmeasured_table(summary.rows)),
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
        latency_table(rows, summary.exports.get(rows[0].model), summary.engines, summary.custom),
        _images(charts.get(key, ())),
        *(section(title, text, level=3) for title, text in below),
    )


def details(summary: Summary, key: TableKey, rows: Sequence[Row], by_id: Mapping[str, Row]) -> list[tuple[str, str]]:
    """(heading, Markdown) of what stands below the latency table of one table; a part with nothing to say is left out.

    by_id: all rows of the summary, for baselines.
    """
    export = summary.exports.get(rows[0].model)
    stated = conditions(summary, rows)
    costs = cold.cold_table(rows, by_id, export, summary.engines)
    engines = engines_table([row for row in summary.rows if ranking.table_key(row) == key], export, summary.engines)
    limits = roofline_table(rows, summary.roof)
    energy = energy_table(rows, summary.energies)
    tried = tried_table(summary.rows, key)
    flags = remarks.flag_notes(rows)
    checks = remarks.checks_table(rows)
    meanwhile = meanwhile_table(rows)
    parts = {
        "Before the first answer": (costs, (stated, costs, engines)),
        f"Against the limits of the {'GPU' if rows[0].device == 'cuda' else 'CPU'}": (limits, (stated, limits)),
        "Energy": (energy, (energy,)),
        "Settings that were tried": (tried, (stated, tried)),
        "Flags": (flags, (flags,)),
        "Checks made": (checks, (checks,)),
        "Meanwhile on the machine": (meanwhile, (stated, meanwhile)),
    }
    return [(title, "\n\n".join(filter(None, texts))) for title, (needed, texts) in parts.items() if needed]


def table_title(key: TableKey, several: frozenset[str]) -> str:
    """The model, and the rest of the key where it has several tables."""
    rest = (key.weights, key.device, *ways.way_of(key))
    return f"{key.model} ({', '.join(rest)})" if key.model in several else key.model


def ambiguous_titles(tables: Sequence[tuple[TableKey, Sequence[Row]]]) -> frozenset[str]:
    """Models with more than one table, whose titles must say which one this is."""
    counts = Counter(key[0] for key, _ in tables)
    return frozenset(name for name, number in counts.items() if number > 1)


def _images(found: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"![{escape(text)}]({path})" for text, path in found)


def _optional(title: str, text: str) -> str:
    return section(title, text) if text else ""


def calibrated(summary: Summary) -> str:
    """What a case that computes nothing takes; empty where none was measured."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    if not rows:
        return ""
    worst = max(row.latency_ns.median for row in rows if row.latency_ns)
    text = (
        f"An inference that does nothing, through the same loop, takes {units.duration(worst)} or less: it is in every"
    )
    return "\n\n".join([f"{text} latency above.", conditions(summary, rows), remarks.calibration_table(rows)])


def provenance(summary: Summary) -> str:
    """Which configuration and plan were measured, and when."""
    span = f"{summary.measured_from} to {summary.measured_to}" if summary.measured_from else "nothing measured"
    digest = f" (sha256 {summary.config_sha256[:12]})" if summary.config_sha256 else ""
    said = f"Configuration `{summary.config}`{digest} · plan {summary.plan_id} · measured {span}."
    return f"{said} {whole_names(summary)}".strip()
