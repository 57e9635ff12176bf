"""The highest load within the bound of each deployment, and what a million requests cost there (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import LoadRow, Summary
from harness.reporting import units
from harness.reporting.figures import CSV_UNITS, LOAD, columns
from harness.reporting.labels import Line
from harness.reporting.load_groups import is_sound, knee_of, names, ranked
from harness.reporting.table import Column, Table, filled, words
from harness.reporting.tables.load_points_table import about_load, policy_name
from harness.reporting.units import ABSENT


def cheapest_table(rows: Sequence[LoadRow]) -> Table[LoadRow] | None:
    """The server rows of one group, the cheapest within the bound first; None without a sound row.

    Bold: clearly the first, which is where its highest PASS is not below the lowest FAIL of any other row.
    """
    lines = [row for row in ranked(rows) if row.scenario == "server"]
    if not lines:
        return None
    called, first = names(lines, policy=False), lines[0]
    clear = is_clear(lines)

    def name(row: LoadRow) -> str:
        return f"**{called[row.load_id]}**" if clear and row is first else called[row.load_id]

    priced = any(row.price_per_hour is not None for row in lines)
    shown: list[Column[LoadRow]] = [
        words("backend", name),
        words("batching", policy_name),
        Column("peak/s, verified", peak_text),
        Column("predicted/s", _predicted),
        Column("knee/s", lambda row: units.significant(knee_of(row))),
        Column("capacity/s", lambda row: units.significant(row.capacity_per_s)),
        Column("price an hour", lambda row: _money(row.price_per_hour)),
        Column("per million requests", lambda row: _money(row.cost_per_million)),
        Column("J/request", lambda row: units.significant(row.joules_per_request)),
    ]
    note = (
        "Peak: [highest PASS, lowest FAIL] of the measured loads; predicted: replay of the measured service times, "
        "with its 95% interval. Knee: the load with the largest rate by mean latency. Capacity: all workers always "
        "busy."
    )
    if priced:
        note += " A million requests at the highest PASS, in the currency of PRICE."
    if idle := [row.idle_w for row in lines if row.idle_w is not None]:
        note += f" Energy: the GPU's counter, less {' or '.join(sorted({f'{watts:.0f} W' for watts in idle}))} idle."
    return Table(filled(shown, lines), lines, note=note)


def is_clear(lines: Sequence[LoadRow]) -> bool:
    """Whether the first of some ranked rows has a peak that no other can reach: its PASS is at or above their FAILs."""
    first, others = lines[0], lines[1:]
    if not others or first.peak_pass_per_s is None or len({row.price_per_hour for row in lines}) > 1:
        return False
    return all(row.peak_fail_per_s is not None and row.peak_fail_per_s <= first.peak_pass_per_s for row in others)


def peak_text(row: LoadRow) -> str:
    """`[59.6, 72.8]`; where one end was not reached, its word."""
    if not row.points:
        return "no load meets it"
    if row.peak_pass_per_s is None and row.peak_fail_per_s is None:
        return "not verified"
    if row.peak_pass_per_s is None:
        return f"below {units.significant(row.peak_fail_per_s)}"
    if row.peak_fail_per_s is None:
        return f"{units.significant(row.peak_pass_per_s)} or more"
    return f"[{units.significant(row.peak_pass_per_s)}, {units.significant(row.peak_fail_per_s)}]"


def load_lines(summary: Summary) -> list[Line]:
    """A line for each load case with sound figures."""
    return [about_load(summary, row, columns(LOAD, row, CSV_UNITS)) for row in summary.loads if is_sound(row)]


def _predicted(row: LoadRow) -> str:
    if row.predicted_peak_per_s is None:
        return "no load" if row.predicted else ABSENT
    ends = f" {units.interval(row.predicted_interval)}" if row.predicted_interval else ""
    return f"{units.significant(row.predicted_peak_per_s)}{ends}"


def _money(value: float | None) -> str:
    return ABSENT if value is None else units.significant(value)
