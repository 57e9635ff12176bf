"""The grade of a row from its findings (pure).

A  every check that applies was made and passed
B  right, but less certain than asked: a wide interval, fewer rounds
C  disturbed or uncertain: shown greyed, kept out of rankings
F  void: wrong outputs, or the label does not say what ran
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.core.schemas import (
    Flag,
    Grade,
)

_ORDER: Mapping[Grade, int] = {"A": 0, "B": 1, "C": 2, "F": 3}

RANKED: frozenset[Grade] = frozenset({"A", "B"})
"""Grades that may win a comparison."""


@dataclass(frozen=True)
class Finding:
    """A flag, and the best grade that a row with it can have (A: a note, costs no grade).

    causes: names of flags that may explain this one where the row has them, in place of what its remedy names.
    """

    caps_at: Grade
    flag: Flag
    causes: frozenset[str] = frozenset()


def finding(caps_at: Grade, name: str, detail: str, remedy: str, causes: frozenset[str] = frozenset()) -> Finding:
    """A Finding with its Flag."""
    return Finding(caps_at, Flag(name=name, detail=detail, remedy=remedy, caps_at=caps_at), causes)


def names_of(flags: Iterable[Flag]) -> list[str]:
    """The names of flags, each once."""
    return list(dict.fromkeys(flag.name for flag in flags))


def grade(findings: Iterable[Finding]) -> Grade:
    """The worst grade that any finding leaves; A without findings."""
    return max((problem.caps_at for problem in findings), key=_ORDER.__getitem__, default="A")


def cap_of_rounds(hit: int, rounds: int) -> Grade:
    """C where at least half of the rounds are hit, else B: a minority cannot move the headline, a median, far."""
    return "C" if 2 * hit >= rounds else "B"


def worse(first: Grade, other: Grade) -> Grade:
    """The worse of two grades."""
    return max(first, other, key=_ORDER.__getitem__)
