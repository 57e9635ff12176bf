"""Several machines: their speed-ups side by side, what differs between them, and which measured what (pure).

Times of two machines are never in one table: a cell is a ratio of two rows of one machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.comparison.compatibility import differences
from harness.core import units
from harness.core.schemas import Attempt, Fleet, FleetUnit, Row, Summary
from harness.core.text import paragraphs
from harness.core.units import ABSENT, VOID
from harness.reporting import ranking
from harness.reporting.first_page import accuracy_loss
from harness.reporting.prose.conditions import machine_text
from harness.reporting.table import Column, DocumentBlock, Table, word_column
from harness.reporting.tables.scaling_tables import case_label
from harness.reporting.writers.markdown import document_text, section, table_text

MAX_ROWS = 200
"""Cases of the table, those of several machines first."""

OF_THE_RUN = ("configuration", "configuration's sha256", "plan", "settings")
"""Differences that are no facts of a machine: each measures its part of a plan."""


@dataclass(frozen=True)
class AcrossMachines:
    """A case over the baseline backend, on each machine that measured both. rows: by machine, not empty."""

    label: str
    rows: Mapping[str, Row]

    @property
    def ratios(self) -> list[float]:
        """The speed-ups that count: of rows that are not void."""
        return [row.speedup.ratio for row in self.rows.values() if row.speedup and row.grade != "F"]


def across_machines(summaries: Mapping[str, Summary]) -> list[AcrossMachines]:
    """Every case with a speed-up on any machine; those of most machines first, else in the order of the plans."""
    by_case: dict[str, dict[str, Row]] = {}
    for name, summary in summaries.items():
        for _, rows in ranking.by_table(summary.rows):
            for row in rows:
                if ranking.gain(row) is not None:
                    by_case.setdefault(row.case_id, {})[name] = row
    cases = [AcrossMachines(case_label(next(iter(rows.values()))), rows) for rows in by_case.values()]
    return sorted(cases, key=lambda case: -len(case.rows))


def machines_blocks(summaries: Mapping[str, Summary], image: str | None = None) -> list[DocumentBlock | None]:
    """The section's blocks: machines, ratios, differences. summaries: by machine, at least two. image: Markdown."""
    cases = across_machines(summaries)
    common = sum(len(case.rows) > 1 for case in cases)
    baselines = sorted({summary.baseline_backend for summary in summaries.values()})
    introduction = (
        f"Each number is the speed-up over {' or '.join(baselines)} fp32 on the same machine, with its 95% interval: "
        "times of two machines are never compared. What it costs: the loss of accuracy against fp32. "
        f"{units.count(common, 'case was', 'cases were')} measured on several machines."
    )
    further = len(cases) - MAX_ROWS
    notes = [f"{units.count(further, 'further case')} in the reports of the machines."] if further > 0 else []
    if any(ranking.is_doubtful(row) for case in cases for row in case.rows.values()):
        notes.append(ranking.DOUBT_MEANS)
    listed = "\n".join(f"- {name}: {machine_text(summary.environments)}" for name, summary in summaries.items())
    table = Table(_columns(list(summaries)), cases[:MAX_ROWS], note=" ".join(notes)) if cases else None
    return [
        introduction,
        listed,
        image,
        table or "No machine measured a backend and its baseline.",
        _differences(summaries),
    ]


def _columns(machines: list[str]) -> list[Column[AcrossMachines]]:
    def of(name: str) -> Column[AcrossMachines]:
        return Column(name, lambda case: _cell(case.rows.get(name)))

    return [
        word_column("case", lambda case: case.label),
        word_column("what it costs", lambda case: accuracy_loss([*case.rows.values()])),
        *map(of, machines),
        Column("highest ÷ lowest", _spread),
    ]


def _cell(row: Row | None) -> str:
    if row is None or row.speedup is None:
        return ABSENT
    if row.grade == "F":
        return VOID
    ends = f" {units.interval(row.speedup.ci95)}" if row.speedup.ci95 else ""
    return f"{ranking.speedup(row)}×{ends}"


def _spread(case: AcrossMachines) -> str:
    ratios = case.ratios
    return f"{units.significant(max(ratios) / min(ratios))}×" if len(ratios) > 1 else ABSENT


def _differences(summaries: Mapping[str, Summary]) -> Table[tuple[str, Mapping[str, str]]] | str:
    """Every fact of machines and libraries that differs from the first machine's."""
    names = list(summaries)
    facts: dict[str, dict[str, str]] = {}
    for name in names[1:]:
        for difference in differences(summaries[names[0]], summaries[name]):
            if difference.name not in OF_THE_RUN:
                facts.setdefault(difference.name, {names[0]: difference.baseline})[name] = difference.current
    if not facts:
        return "Drivers, libraries and processors are the same on all machines."
    rows = [(fact, {name: own.get(name, own[names[0]]) for name in names}) for fact, own in facts.items()]

    def of(name: str) -> Column[tuple[str, Mapping[str, str]]]:
        return word_column(name, lambda row: row[1][name])

    return Table([word_column("what differs", lambda row: row[0]), *map(of, names)], rows)


def fleet_document(fleet: Fleet, across: Sequence[DocumentBlock | None] = ()) -> str:
    """The whole text: the units of each machine, and every attempt that was not complete.

    across: blocks that compare the machines (machines_blocks).
    """
    machines = {
        attempt.machine: attempt.hostname for unit in fleet.units for attempt in unit.attempts if attempt.machine
    }
    complete = sum(unit.machine is not None for unit in fleet.units)
    introduction = (
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
        section("Machines", introduction, "\n".join(links), level=1),
        section("Machines side by side", *across) if across else "",
        section("Units", table_text(_units_table(fleet.units))),
        section("Attempts that were not complete", table_text(_attempts_table(lost))) if lost else "",
    ]
    return document_text(paragraphs(parts)) + "\n"


def _units_table(fleet_units: Sequence[FleetUnit]) -> Table[FleetUnit]:
    columns: list[Column[FleetUnit]] = [
        word_column("unit", lambda unit: unit.unit_id),
        Column("cases", lambda unit: str(len(unit.cases))),
        word_column("machine", lambda unit: unit.machine or ABSENT),
        Column("attempts", lambda unit: str(len(unit.attempts))),
        word_column("without a result because", lambda unit: "" if unit.machine else _last_reason(unit)),
    ]
    return Table(columns, fleet_units)


def _last_reason(unit: FleetUnit) -> str:
    return (unit.attempts[-1].reason or unit.attempts[-1].outcome) if unit.attempts else "never submitted"


def _attempts_table(attempts: Sequence[Attempt]) -> Table[Attempt]:
    columns: list[Column[Attempt]] = [
        word_column("unit", lambda attempt: attempt.unit_id),
        Column("attempt", lambda attempt: str(attempt.number)),
        word_column("outcome", lambda attempt: attempt.outcome),
        word_column("machine", lambda attempt: attempt.machine or ABSENT),
        word_column("reason", lambda attempt: attempt.reason or ABSENT),
    ]
    return Table(columns, attempts)
