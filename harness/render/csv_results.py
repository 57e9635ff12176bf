"""CSV lines of what rows are in the report for: speed, faithfulness and memory, cost before the first answer (pure)."""

from __future__ import annotations

from harness.core.schemas import Row, Summary
from harness.measure.rows import is_calibration
from harness.render import ranking
from harness.render.units import SECOND
from harness.reporting.figures import ANSWERS, COLD, CSV_SECONDS, CSV_UNITS, MEMORY, SPEED, columns
from harness.reporting.labels import RESTS_ON_C, Line, about, ends, is_sound, per, sound_rows
from harness.reporting.tables import cold_start as cold
from harness.reporting.tables.custom_metrics import csv_columns
from harness.reporting.tables.engines import engine_of
from harness.reporting.tables.latency import file_sizes


def results(summary: Summary) -> list[Line]:
    """A line for each row of the latency tables, in their order."""
    tables = ranking.by_table(summary.rows)
    winners = {
        found.case_id
        for _, rows in tables
        for _, group in ranking.by_shape(rows)
        if (found := ranking.winner(group)) is not None
    }
    lines = []
    for key, rows in tables:
        sizes = file_sizes(rows, summary.exports.get(key[0]), summary.engines)
        for row in rows:
            file: Line = {"file_bytes": sizes.get(row.case_id)}
            figures = [columns(some, row, CSV_UNITS) for some in (SPEED, ANSWERS)]
            memory = columns(MEMORY, row, CSV_UNITS)
            remarks: Line = {
                "clearly_fastest": row.case_id in winners,
                "flags": " ".join(dict.fromkeys(flag.name for flag in row.flags)),
            }
            lines.append(about(summary, row, remarks, *figures, file, memory, _custom(summary, row)))
    return lines


def _custom(summary: Summary, row: Row) -> Line:
    """Figures of plugins, in the words of summary.csv."""
    return {name: figure(row) if is_sound(row) else None for name, figure in csv_columns(summary).items()}


def calibration(summary: Summary) -> list[Line]:
    """A line for each case that computes nothing: what the harness itself costs."""
    rows = [row for row in summary.rows if row.status == "measured" and is_calibration(row)]
    figures = tuple(figure for figure in SPEED if figure.key.startswith("latency_"))
    return [about(summary, row, columns(figures, row, CSV_UNITS)) for row in rows]


def cold_start(summary: Summary) -> list[Line]:
    """A line for each row that told what it cost until its first answer."""
    by_id = {row.case_id: row for row in summary.rows}
    return [about(summary, row, costs) for row in sound_rows(summary) if (costs := cold_costs(summary, row, by_id))]


def cold_costs(summary: Summary, row: Row, by_id: dict[str, Row]) -> Line:
    """Export, engine, load, compile, first inference in s, and when they are repaid; empty for a row that is void.

    by_id: all rows of the summary, for baselines.
    """
    costs, export = row.cold_ns, summary.exports.get(row.model)
    if costs is None or not is_sound(row):
        return {}
    engine = engine_of(row, export, summary.engines)
    baseline = by_id.get(row.speedup.baseline) if row.speedup else None
    repaid = cold.break_even(row, baseline, export, engine)
    return {
        "export_s": per(cold.export_ns(row, export, engine), SECOND),
        "engine_build_s": engine.build_s if engine else None,
        **columns(COLD, row, CSV_SECONDS),
        "until_first_answer_s": per(cold.until_first_answer_ns(costs), SECOND),
        "break_even": repaid.outcome if repaid else None,
        "break_even_requests": repaid.requests if repaid else None,
        **ends("break_even_requests", repaid.interval if repaid else None, None),
        "break_even_against": baseline.case_id if baseline else None,
        "break_even_compile_cached": repaid.cached if repaid else None,
        f"break_even{RESTS_ON_C}": repaid.doubtful if repaid else None,
    }
