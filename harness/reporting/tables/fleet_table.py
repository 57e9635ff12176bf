"""Which machine measured what, in how many attempts, as Markdown (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Attempt, Fleet, FleetUnit
from harness.reporting import units
from harness.reporting.table import Block, Column, Table, words
from harness.reporting.units import ABSENT
from harness.reporting.writers.markdown import document_text, section, table_text


def fleet_document(fleet: Fleet, across: Sequence[Block | None] = ()) -> str:
    """The whole text: the units of each machine, and every attempt that was not complete.

    across: blocks that compare the machines (machines_table.py).
    """
    machines = {
        attempt.machine: attempt.hostname for unit in fleet.units for attempt in unit.attempts if attempt.machine
    }
    complete = sum(unit.machine is not None for unit in fleet.units)
    said = (
        f"{units.count(len(fleet.units), 'unit')} of compared cases, {complete} complete, on "
        f"{units.count(len(machines), 'machine')}. All rounds of a unit are of one machine."
    )
    links = [
        f"- [{machine}](machines/{machine}/report.md): {hostname}"
        for machine, hostname in sorted(machines.items(), key=str)
        if any(unit.machine == machine for unit in fleet.units)
    ]
    lost = [attempt for unit in fleet.units for attempt in unit.attempts if attempt.outcome != "complete"]
    parts = [
        section("Machines", said, "\n".join(links), level=1),
        section("Machines side by side", *across) if across else "",
        section("Units", table_text(_units_table(fleet.units))),
        section("Attempts that were not complete", table_text(_attempts_table(lost))) if lost else "",
    ]
    return document_text("\n\n".join(part for part in parts if part)) + "\n"


def _units_table(found: Sequence[FleetUnit]) -> Table[FleetUnit]:
    columns: list[Column[FleetUnit]] = [
        words("unit", lambda unit: unit.unit_id),
        Column("cases", lambda unit: str(len(unit.cases))),
        words("machine", lambda unit: unit.machine or ABSENT),
        Column("attempts", lambda unit: str(len(unit.attempts))),
        words("without a result because", lambda unit: "" if unit.machine else _last_reason(unit)),
    ]
    return Table(columns, found)


def _last_reason(unit: FleetUnit) -> str:
    return (unit.attempts[-1].reason or unit.attempts[-1].outcome) if unit.attempts else "never submitted"


def _attempts_table(found: Sequence[Attempt]) -> Table[Attempt]:
    columns: list[Column[Attempt]] = [
        words("unit", lambda one: one.unit_id),
        Column("attempt", lambda one: str(one.number)),
        words("outcome", lambda one: one.outcome),
        words("machine", lambda one: one.machine or ABSENT),
        words("reason", lambda one: one.reason or ABSENT),
    ]
    return Table(columns, found)
