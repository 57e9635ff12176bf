"""results/selftest.json: what trials on known work proved about the harness."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.environment_record import Machine
from harness.core.schemas.vocabulary import Record


class SelfTestRow(Record):
    """Work of known duration and what was reported for it."""

    case_id: str
    nominal_ns: int
    reported_ns: float
    allowed_ns: float
    """Largest bias of the target: 1% + 2 × timer overhead."""
    within: bool


class SelfTestKind(Record):
    """Work whose processes differ, measured twice as it is and once slowed, and what the comparisons said."""

    name: str
    what: str
    """How its processes differ."""
    false_alarms: int
    """Of the equal trials: those called FASTER or SLOWER."""
    refused: int
    """Of the equal trials: those that were not compared, because a row was too uncertain. That is no false alarm."""
    equal_trials: int
    missed: int
    """Of the slowed trials: those not called SLOWER. Counted and not asked for: so small a change cannot be found."""
    slowed_trials: int


class SelfTest(Record):
    """What trials on known work proved about the harness on one machine."""

    schema_version: Literal[1] = 1
    created_at: str
    machine: Machine
    rounds: int
    slowdown: float
    rows: tuple[SelfTestRow, ...]
    false_alarms: int
    """Of work that takes the same time in every process, as the three that follow."""
    equal_trials: int
    missed: int
    slowed_trials: int
    rate: float | None = None
    """Of wrong verdicts, that the trials had to exclude at 95%. None in older files, where 95% had to be right."""
    kinds: tuple[SelfTestKind, ...] = ()
    """Work whose processes differ; none in older files."""
    passed: bool
