"""Every table of the report as a CSV file of its own, whole and not rounded (pure: summary and profiles → texts)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.core.schemas import Summary
from harness.measure.profiled import Profiled
from harness.render import csv_advice, csv_besides, csv_profiles, csv_results
from harness.render.csv_writing import csv_text
from harness.reporting.labels import Line

RESULTS: Sequence[Callable[[Summary], list[Line]]] = (
    csv_results.results,
    csv_results.cold_start,
    csv_results.calibration,
    csv_advice.recommendations,
    csv_besides.engines,
    csv_besides.roofline,
    csv_besides.energy,
    csv_besides.settings_tried,
    csv_besides.flags,
    csv_besides.checks,
    csv_besides.usage,
    csv_besides.not_measured,
    csv_besides.environments,
)
WITH_PROFILES: Sequence[Callable[[Summary, Sequence[Profiled]], list[Line]]] = (
    csv_advice.what_if,
    csv_profiles.profile_models,
    csv_profiles.profile_parameters,
    csv_profiles.profile_files,
    csv_profiles.profile_cases,
    csv_profiles.profile_sums,
    csv_profiles.profile_groups,
    csv_profiles.side_by_side_groups,
    csv_profiles.side_by_side_modules,
    csv_profiles.profile_layers,
    csv_profiles.profile_operators,
)
"""A function's name is its file's."""

NAMES = frozenset(make.__name__ for make in (*RESULTS, *WITH_PROFILES))
"""Of all tables that there can be."""


def csv_tables(summary: Summary, profiled: Sequence[Profiled]) -> dict[str, str]:
    """Name → CSV text, header first, of each table that has a line."""
    tables = {make.__name__: make(summary) for make in RESULTS}
    tables |= {make.__name__: make(summary, profiled) for make in WITH_PROFILES}
    return {name: csv_text(lines) for name, lines in tables.items() if lines}
