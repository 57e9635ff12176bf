"""results/running.json: what a run measures just now. Written between turns, gone when the run ends.

results/exporting.json: the same of an export. Written before each model, gone when the stage ends.
"""

from __future__ import annotations

from typing import Literal

from harness.core.schemas.vocabulary import Record


class Running(Record):
    schema_version: Literal[1] = 1
    plan_id: str
    pid: int
    """Of the run stage."""
    place: str
    """Where that number means something: boot and pid namespace (harness/core/alive.py)."""
    started_at: str
    """When the run began."""
    turns: int
    """Processes that the run has and had to measure; further rounds count once they are asked for."""
    done: int
    """Those that have ended."""
    case_id: str
    round: int
    since: str
    """When the turn began."""


class Exporting(Record):
    schema_version: Literal[1] = 1
    plan_id: str
    pid: int
    """Of the export stage."""
    place: str
    """As in Running."""
    started_at: str
    """When the stage began."""
    models: int
    """How many it exports or finds up to date."""
    done: int
    """Those that it is through with."""
    model: str
    since: str
    """When that one began."""
