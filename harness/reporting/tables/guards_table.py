"""The guards of load rows: ratios that should be 1 (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import LoadRow
from harness.reporting import units
from harness.reporting.load_groups import is_sound, names
from harness.reporting.table import Column, Table, filled, words
from harness.reporting.units import ABSENT

GUARDS = ("repeat-input", "other-order", "other-seed")


def guards_table(rows: Sequence[LoadRow]) -> Table[LoadRow] | None:
    """Each row's ratios with their intervals; None where no row has any."""
    lines = [row for row in rows if is_sound(row) and row.guards]
    if not lines:
        return None
    called = names(lines)
    shown = [words("backend", lambda row: called[row.load_id]), *map(_column, GUARDS)]
    note = (
        "Times divided by those of usual requests, with 95% intervals: the same input again and again, another order "
        "of the inputs, schedules of another seed. Far below 1, work was skipped."
    )
    return Table(filled(shown, lines), lines, note=note)


def _column(name: str) -> Column[LoadRow]:
    def cell(row: LoadRow) -> str:
        found = next((guard for guard in row.guards if guard.name == name), None)
        if found is None:
            return ABSENT
        ends = f" {units.interval(found.interval)}" if found.interval else ""
        return f"{units.significant(found.ratio)}{ends}"

    return Column(name, cell)
