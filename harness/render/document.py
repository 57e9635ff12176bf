"""The report as one Markdown document (pure: summary and chart names → text)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.core.schemas import Row, Summary
from harness.render import cold, ranking, remarks, units
from harness.render.conditions import conditions, environment_table
from harness.render.energy import energy_table
from harness.render.engines import engines_table
from harness.render.guide import guide
from harness.render.headline import headline
from harness.render.markdown import escape, section
from harness.render.meanwhile import meanwhile_table
from harness.render.ranking import TableKey
from harness.render.recommend import recommendations_text
from harness.render.roofline import roofline_table
from harness.render.tables import latency_table
from harness.render.tried import tried_table

Charts = Mapping[TableKey | None, Sequence[tuple[str, str]]]
"""Table → (alternative text, path relative to the report) of its charts; None: of the whole report."""


def document(summary: Summary, charts: Charts, chart_note: str = "", proof: str = "") -> str:
    """The whole report. `chart_note`: which charts were not drawn, and why. `proof`: what the self-test found."""
    by_id = {row.case_id: row for row in summary.rows}
    tables = ranking.by_table(summary.rows)
    several = _ambiguous_titles(tables)
    calibration = [row for row in summary.rows if row.status == "measured" and ranking.is_calibration(row)]
    parts = [
        section(summary.title, headline(summary), _images(charts.get(None, ())), chart_note, level=1),
        _optional("Recommendations", recommendations_text(summary)),
        *(_table_section(summary, key, rows, by_id, charts, several) for key, rows in tables),
        _optional("What the harness itself costs", _calibrated(summary, calibration)),
        _optional("Not measured", remarks.unmeasured_table(summary.rows)),
        _optional("Left out", "\n".join(f"- {escape(note)}" for note in summary.notes)),
        section("How to read this", guide(summary), proof),
        section("Environment", _provenance(summary), environment_table(summary.environments)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table_section(
    summary: Summary,
    key: TableKey,
    rows: Sequence[Row],
    by_id: Mapping[str, Row],
    charts: Charts,
    several: frozenset[str],
) -> str:
    export = summary.exports.get(rows[0].model)
    stated = conditions(summary, rows)
    costs = cold.cold_table(rows, by_id, export, summary.engines)
    engines = engines_table([row for row in summary.rows if ranking.table_key(row) == key], export, summary.engines)
    limits = roofline_table(rows, summary.roof)
    energy = energy_table(rows, summary.energies)
    tried = tried_table(summary.rows, key)
    flags = remarks.flag_notes(rows)
    meanwhile = meanwhile_table(rows)
    return section(
        _title(key, several),
        stated,
        latency_table(rows, export, summary.engines),
        _images(charts.get(key, ())),
        section("Before the first answer", stated, costs, engines, level=3) if costs else "",
        section("Against the limits of the GPU", stated, limits, level=3) if limits else "",
        section("Energy", energy, level=3) if energy else "",
        section("Settings that were tried", stated, tried, level=3) if tried else "",
        section("Flags", flags, level=3) if flags else "",
        section("Meanwhile on the machine", stated, meanwhile, level=3) if meanwhile else "",
    )


def _title(key: TableKey, several: frozenset[str]) -> str:
    model, *rest = key
    return f"{model} ({', '.join(rest)})" if model in several else model


def _ambiguous_titles(tables: Sequence[tuple[TableKey, Sequence[Row]]]) -> frozenset[str]:
    """Models with more than one table, whose titles must say which one this is."""
    counts = Counter(key[0] for key, _ in tables)
    return frozenset(name for name, number in counts.items() if number > 1)


def _images(found: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"![{escape(text)}]({path})" for text, path in found)


def _optional(title: str, text: str) -> str:
    return section(title, text) if text else ""


def _calibrated(summary: Summary, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    worst = max(row.latency_ns.median for row in rows if row.latency_ns)
    text = (
        f"An inference that does nothing, through the same loop, takes {units.duration(worst)} or less: it is in every"
    )
    return "\n\n".join([f"{text} latency above.", conditions(summary, rows), remarks.calibration_table(rows)])


def _provenance(summary: Summary) -> str:
    span = f"{summary.measured_from} to {summary.measured_to}" if summary.measured_from else "nothing measured"
    digest = f" (sha256 {summary.config_sha256[:12]})" if summary.config_sha256 else ""
    return f"Configuration `{summary.config}`{digest} · plan {summary.plan_id} · measured {span}."
