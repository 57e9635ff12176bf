"""Checks that apply to rows: the number of rounds in which each was made, and why not in the others (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.schemas import Check, Row, Summary
from harness.reporting import ranking
from harness.reporting.labels import Line, about
from harness.reporting.table import Column, Table, words
from harness.reporting.units import ABSENT

Made = tuple[str, Sequence[Check]]
"""A check, and its outcome in each row."""


def checks_table(rows: Sequence[Row]) -> Table[Made] | None:
    """The checks that apply to the rows of one table: the number of rows in which each was made in all rounds, in some
    and in none, and why not; None where no check is recorded."""
    found: dict[str, list[Check]] = {}
    for row in rows:
        for name, check in row.checks.items():
            found.setdefault(name, []).append(check)
    return Table(_COLUMNS, sorted(found.items())) if found else None


def _in_all(made: Made) -> int:
    return sum(one.rounds >= one.of for one in made[1])


def _in_none(made: Made) -> int:
    return sum(one.rounds == 0 < one.of for one in made[1])


def _rounds(made: Made) -> str:
    return f"{sum(one.rounds for one in made[1]):,} of {sum(one.of for one in made[1]):,}"


_COLUMNS: Sequence[Column[Made]] = (
    words("check", lambda made: made[0]),
    Column("rows", lambda made: str(len(made[1]))),
    Column("in all rounds", lambda made: str(_in_all(made))),
    Column("in some", lambda made: str(len(made[1]) - _in_all(made) - _in_none(made))),
    Column("in none", lambda made: str(_in_none(made))),
    Column("rounds", _rounds),
    words(
        "why not in the others",
        lambda made: "; ".join(dict.fromkeys(one.missing for one in made[1] if one.missing)) or ABSENT,
    ),
)


def check_lines(summary: Summary) -> list[Line]:
    """A line for each check that applies to a row: in how many rounds it was made, and why not in the others."""
    return [
        about(summary, row, {"check": name, "rounds": found.rounds, "of": found.of, "missing": found.missing})
        for _, rows in ranking.by_table(summary.rows)
        for row in rows
        for name, found in row.checks.items()
    ]
