"""results/selftest.json: results of the harness's trials on known work."""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.environment_record import Machine
from harness.core.schemas.vocabulary import Record


class SelfTestRow(Record):
    """Work of known duration and its reported time."""

    case_id: str
    nominal_ns: int
    reported_ns: float
    allowed_ns: float
    """Largest allowed bias: 1% + 2 × timer overhead."""
    within: bool


class SelfTestKind(Record):
    """Work whose processes differ, measured twice unchanged and once slowed, and the verdicts of the comparisons."""

    name: str
    what: str
    """How its processes differ."""
    false_alarms: int
    """Equal trials with the verdict FASTER or SLOWER."""
    refused: int
    """Equal trials that were not compared because a row was too uncertain; these are not false alarms."""
    equal_trials: int
    missed: int
    """Slowed trials without the verdict SLOWER. Counted, but not limited: so small a change cannot be detected."""
    slowed_trials: int


class SelfTest(Record):
    """Results of the harness's trials on known work on one machine."""

    schema_version: Literal[1] = 1
    created_at: str
    machine: Machine
    rounds: int
    slowdown: float
    rows: tuple[SelfTestRow, ...]
    false_alarms: int
    """For work that takes the same time in every process; so are the three fields after it."""
    equal_trials: int
    missed: int
    slowed_trials: int
    rate: float | None = None
    """Rate of wrong verdicts that the trials had to exclude at 95%. None in older files, where 95% had to be right."""
    kinds: tuple[SelfTestKind, ...] = ()
    """Work whose processes differ; none in older files."""
    passed: bool
