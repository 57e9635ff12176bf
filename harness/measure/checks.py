"""In how many of its rounds each check of a row was made, and what one costs that was not (pure).

Grade A means that every check that applies was made in every round and passed (docs/decisions/0011-watching-a-card.md).
A check is a function that gives its findings and a Check; whoever makes one hands both to with_checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.schemas import Check, Row
from harness.measure import grades
from harness.measure.grades import Finding, finding

UNCHECKED = "UNCHECKED"

OLD_RECORD = "measured before this check existed"

_OWN_FLAG = frozenset({"PARITY"})
"""Checks whose absence has a flag of its own (PARITY_UNCHECKED)."""


def check_of(reasons: Sequence[str | None]) -> Check:
    """One entry for each round of a row: None where the check was made, else why not."""
    missing = dict.fromkeys(reason for reason in reasons if reason is not None)
    return Check(rounds=reasons.count(None), of=len(reasons), missing="; ".join(missing) or None)


def unchecked(checks: Mapping[str, Check]) -> list[Finding]:
    """One finding that names every check that was not made in all rounds; none where there is no such check."""
    lacking: dict[str, list[str]] = {}
    for name, check in checks.items():
        if check.rounds < check.of and name not in _OWN_FLAG:
            where = "" if check.rounds == 0 else f" in {check.of - check.rounds} of {check.of} rounds"
            lacking.setdefault(f"not made{where} ({check.missing})", []).append(name)
    if not lacking:
        return []
    detail = "; ".join(f"{', '.join(names)} {why}" for why, names in lacking.items())
    remedy = "`make run FORCE=1` measures again with every check that this machine allows."
    return [finding("B", UNCHECKED, detail, remedy)]


def with_checks(row: Row, found: Sequence[Finding], checks: Mapping[str, Check]) -> Row:
    """A measured row with further checks and what they found: flags, UNCHECKED and grade follow."""
    made = {**row.checks, **checks}
    lacking = unchecked(made)
    kept = [flag for flag in row.flags if flag.name != UNCHECKED]
    flags = (*kept, *(one.flag for one in (*found, *lacking)))
    worst = grades.worse(row.grade or "A", grades.grade([*found, *lacking]))
    return row.model_copy(update={"checks": made, "flags": flags, "grade": worst})
