"""Files of a plan that is measured on several machines: what a worker gets, what it returns, and fleet.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.safe_paths import FileName, RelativePath
from harness.core.schemas.vocabulary import MessageLines, MessageText, Record, Sha256

Outcome = Literal["complete", "refused", "lost"]
"""`complete`: its `run` went through all rounds, and failed cases have their reasons; `refused`: its `run` could not
begin; `lost`: the worker ended before it returned anything."""


class UnitFile(Record):
    """A file that a worker needs, by its path below the unit's folder."""

    path: RelativePath
    sha256: Sha256


class UnitRequest(Record):
    """One unit of work: the cases that are compared with each other, in all rounds. A worker gets nothing else."""

    schema_version: Literal[1] = 1
    unit_id: FileName
    attempt: Annotated[int, Field(ge=1)]
    inferometer: str
    """Version of the coordinator, and the digest of its code, which the worker must have."""
    files: tuple[UnitFile, ...]
    """results/plan.json with only these cases, the records of their exports, and the models' files."""


class AttemptReport(Record):
    """What a worker says about an attempt, beside the records of its cases."""

    schema_version: Literal[1] = 1
    unit_id: FileName
    attempt: int
    machine: FileName
    """Id of the machine: the same for all attempts on it, another for every other one."""
    hostname: str
    started_at: str
    ended_at: str
    exit_code: int
    output: MessageLines
    """End of the output of `run`."""


class Attempt(Record):
    """One attempt, as the coordinator keeps it: results/attempts/<unit_id>/<number>.json."""

    schema_version: Literal[1] = 1
    unit_id: FileName
    number: Annotated[int, Field(ge=1)]
    runner: str
    submitted_at: str
    ended_at: str
    outcome: Outcome
    machine: FileName | None
    """None where the worker was lost."""
    hostname: str | None
    reason: MessageText | None
    """Why it was refused or lost."""


class FleetUnit(Record):
    unit_id: FileName
    cases: tuple[str, ...]
    attempts: tuple[Attempt, ...]

    @property
    def machine(self) -> str | None:
        """The machine whose records count; None where no attempt is complete."""
        return next((attempt.machine for attempt in reversed(self.attempts) if attempt.outcome == "complete"), None)


class Fleet(Record):
    """Which machine measured what, in how many attempts."""

    schema_version: Literal[1] = 1
    plan_id: FileName
    settings_id: FileName
    created_at: str
    units: tuple[FleetUnit, ...]
