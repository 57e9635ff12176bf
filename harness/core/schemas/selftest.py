"""results/selftest.json: what trials on known work proved about the harness."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.environment import Machine
from harness.core.schemas.vocabulary import Record


class SelfTestRow(Record):
    """Work of known duration and what was reported for it."""

    case_id: str
    nominal_ns: int
    reported_ns: float
    allowed_ns: float
    """Largest bias of the target: 1% + 2 × timer overhead."""
    within: bool


class SelfTest(Record):
    """What trials on known work proved about the harness on one machine."""

    schema_version: Literal[1] = 1
    created_at: str
    machine: Machine
    rounds: int
    slowdown: float
    rows: tuple[SelfTestRow, ...]
    false_alarms: int
    equal_trials: int
    missed: int
    slowed_trials: int
    passed: bool
