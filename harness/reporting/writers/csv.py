"""Every table as a CSV file, complete and not rounded, which a spreadsheet opens without running anything (pure)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from harness.core import text as sanitize
from harness.core.schemas import Summary
from harness.profiling.phases import with_phases
from harness.profiling.read_profiles import Profiled
from harness.reporting.csv_identity import Line, run_columns
from harness.reporting.figures import Value
from harness.reporting.prose.recommendations import recommend
from harness.reporting.tables import (
    cold_start_table,
    energy_table,
    generation_table,
    harness_error_tables,
    latency_table,
    load_tables,
    machine_load_table,
    profile_tables,
    roofline_table,
    scaling_tables,
    side_by_side_table,
    summary_table,
    tried_settings_table,
    validity_tables,
    what_if_table,
)

FORMULA = ("=", "+", "-", "@", "\t", "\n")
"""First characters of a cell that a spreadsheet reads as a formula (OWASP, CSV injection)."""


def recommendation_lines(summary: Summary) -> list[Line]:
    """A line for each recommendation, with the rows that it is based on."""
    return [
        {
            "about": recommendation.about,
            "rule": recommendation.rule,
            "text": recommendation.text,
            "case_ids": " ".join(recommendation.case_ids),
            **run_columns(summary),
        }
        for recommendation in recommend(summary)
    ]


RESULTS: Mapping[str, Callable[[Summary], list[Line]]] = {
    "results": latency_table.latency_lines,
    "cold_start": cold_start_table.cold_lines,
    "calibration": harness_error_tables.calibration_lines,
    "generation": generation_table.generation_lines,
    "recommendations": recommendation_lines,
    "engines": cold_start_table.engine_lines,
    "roofline": roofline_table.roofline_lines,
    "energy": energy_table.energy_lines,
    "load": load_tables.load_lines,
    "load_clients": load_tables.client_lines,
    "load_points": load_tables.point_lines,
    "load_replay": load_tables.replay_lines,
    "scaling": scaling_tables.scaling_lines,
    "devices": scaling_tables.device_lines,
    "neighbours": scaling_tables.neighbour_lines,
    "settings_tried": tried_settings_table.tried_lines,
    "flags": validity_tables.flag_lines,
    "checks": validity_tables.check_lines,
    "usage": machine_load_table.usage_lines,
    "not_measured": validity_tables.unmeasured_lines,
    "environments": summary_table.environment_lines,
}
"""File → its lines."""

WITH_PROFILES: Mapping[str, Callable[[Summary, Sequence[Profiled]], list[Line]]] = {
    "what_if": what_if_table.what_if_lines,
    "profile_models": profile_tables.model_lines,
    "profile_parameters": profile_tables.parameter_lines,
    "profile_files": profile_tables.file_lines,
    "profile_cases": profile_tables.case_lines,
    "profile_sums": profile_tables.sum_lines,
    "profile_groups": profile_tables.group_lines,
    "side_by_side_groups": side_by_side_table.group_gain_lines,
    "side_by_side_modules": side_by_side_table.module_gain_lines,
    "profile_layers": profile_tables.layer_lines,
    "profile_operators": profile_tables.operator_lines,
}

NAMES = RESULTS.keys() | WITH_PROFILES.keys()
"""Names of all possible tables."""


def csv_tables(summary: Summary, profiled: Sequence[Profiled]) -> dict[str, str]:
    """Name → CSV text, header first, of each table that has lines."""
    tables = {name: make(summary) for name, make in RESULTS.items()}
    compared = with_phases(summary, {row.row.case_id for row in profiled}.__contains__)
    tables |= {name: make(compared, profiled) for name, make in WITH_PROFILES.items()}
    return {name: csv_text(lines) for name, lines in tables.items() if lines}


def summary_text(summary: Summary) -> str:
    """summary.csv: the whole summary, a line per row, header first."""
    if not summary.rows:
        return ""
    columns = summary_table.columns_of(summary)
    return _text(columns, zip(*map(_harmless_column, columns.values()), strict=True))


def csv_text(lines: Sequence[Mapping[str, Value]]) -> str:
    """Lines with the same columns as CSV, header first (RFC 4180 except for line ends). Empty without lines."""
    if not lines:
        return ""
    columns = {name: [line[name] for line in lines] for name in lines[0]}
    return _text(columns, zip(*map(_harmless_column, columns.values()), strict=True))


def _text(header: Iterable[str], lines: Iterable[Iterable[Value]]) -> str:
    """lines: harmless."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([harmless(name) for name in header])
    writer.writerows(lines)
    return text.getvalue()


def _harmless_column(values: Sequence[Value]) -> Sequence[Value]:
    return [harmless(value) for value in values] if str in set(map(type, values)) else values


def harmless(value: Value) -> Value:
    """The value; a text that would start a formula gets an apostrophe. Figures, also negative, are unchanged."""
    return _harmless_text(value) if isinstance(value, str) else value


@lru_cache(maxsize=4_096)
def _harmless_text(value: str) -> str:
    """Most texts of a table, such as names, are in many of its lines."""
    # The writer quotes a line feed but not a carriage return, which also ends a line for many readers.
    text = sanitize.lines(value)
    # A control character before it is now a space, which some programs skip.
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip(" ").startswith(FORMULA) else text
