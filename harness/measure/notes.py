"""What a summary left out and why, in as few lines as a reader will read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_NAMED = 20
"""Damaged files that are named in the notes one by one; a thousand names would bury the other notes."""


@dataclass
class Notes:
    """What was left out and why: records with the same reason count together, damaged files are named."""

    other: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    unwatched: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, case_id: str, round_number: int, reason: str) -> None:
        """Remember one record that exists and must not be used."""
        self.reasons.setdefault(reason, []).append(f"{case_id}/{round_number}")

    def nobody_watched(self, case_id: str, round_number: int, reason: str) -> None:
        """Remember one record whose usage is not known."""
        self.unwatched.setdefault(reason, []).append(f"{case_id}/{round_number}")

    def lines(self) -> tuple[str, ...]:
        """Everything that a reader of the summary has to know, one line each."""
        lines = [*self.other, *self.damaged[:MAX_NAMED]]
        if len(self.damaged) > MAX_NAMED:
            lines.append(f"… and {len(self.damaged) - MAX_NAMED} more damaged files.")
        for reason, names in self.reasons.items():
            lines.append(f"{_counted(names)} left out ({_some(names)}): {reason}.")
        for reason, names in self.unwatched.items():
            lines.append(f"{_counted(names)} kept although the machine's load is unknown ({_some(names)}): {reason}.")
        return tuple(lines)


def _counted(names: Sequence[str]) -> str:
    return "1 record" if len(names) == 1 else f"{len(names)} records"


def _some(names: Sequence[str]) -> str:
    return f"{names[0]}{', …' if len(names) > 1 else ''}"
