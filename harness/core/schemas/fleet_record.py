"""Several devices and several machines.

results/copies/<case_id>.json and results/neighbours.json: one case on several devices of a host, alone and together.
Files of a plan that is measured on several machines: what a worker gets, what it returns, and fleet.json.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import (
    Device,
    FileName,
    MessageLines,
    MessageText,
    Record,
    RelativePath,
    SettingsId,
    Sha256,
)


class DeviceSlot(Record):
    """A device that works beside others: a GPU, or a share of the CPUs, with the CPUs of its process."""

    name: str
    """As CUDA_VISIBLE_DEVICES names the GPU; the number of a share of the CPUs."""
    device: Device
    gpu: str | None
    """Name by NVML; None for a share of the CPUs."""
    uuid: str | None
    cpus: tuple[int, ...]
    """Empty where its process may use all CPUs."""
    near: bool
    """True where NVML, or the kernel's NUMA nodes, report these CPUs as near; False for an equal share."""


class CopyTimes(Record):
    """One process in one situation: over its windows."""

    latency_ns: float
    """Median of a batch; in offline mode the mean."""
    per_s: float
    """Samples (images, sequences) per second of wall time."""
    batches: int


class CopyProcess(Record):
    """One process: a case on one device in one round. Both situations are of the same process, in mirrored order."""

    round: int
    slot: Annotated[int, Field(ge=0)]
    """Place in Copies.slots."""
    alone: CopyTimes
    together: CopyTimes


class CopyFailure(Record):
    """A process without times; its round does not count."""

    round: int
    slot: Annotated[int, Field(ge=0)]
    reason: MessageText


class Copies(Record):
    """A case on every device of a host at once, and on each alone, in interleaved windows of the same processes."""

    schema_version: Literal[1] = 1
    case_id: str
    settings_id: SettingsId
    created_at: str
    device: Device
    batch_size: int
    slots: tuple[DeviceSlot, ...]
    window_s: float
    processes: tuple[CopyProcess, ...]
    """Of complete rounds: one for each slot and round."""
    failures: tuple[CopyFailure, ...] = ()
    least_overlap: float | None
    """The shortest time for which all devices worked, as a share of the longest window beside it: the least of all
    windows together; None without a complete round."""


class NeighbourSample(Record):
    """A case that was measured beside the work of other devices, and then alone again on the same device."""

    case_id: str
    slot: Annotated[int, Field(ge=0)]
    spread_ns: tuple[float, ...]
    """Process medians of a batch, while the other devices worked."""
    alone_ns: tuple[float, ...]


class NeighbourCheck(Record):
    """Whether the rows of a matrix that was spread over devices were disturbed by work on the neighbours."""

    schema_version: Literal[1] = 1
    settings_id: SettingsId
    created_at: str
    slots: tuple[DeviceSlot, ...]
    assigned: dict[str, Annotated[int, Field(ge=0)]]
    """By case id: the slot that measured it."""
    wall_s: float
    """Wall time of the spread measurements."""
    busy_s: tuple[float, ...]
    """By slot: the part of `wall_s` until its last case ended."""
    samples: tuple[NeighbourSample, ...]


AttemptOutcome = Literal["complete", "refused", "lost"]
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
    """A worker's report on an attempt, beside the records of its cases."""

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
    outcome: AttemptOutcome
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
    """The units that each machine measured, and in how many attempts."""

    schema_version: Literal[1] = 1
    plan_id: FileName
    settings_id: FileName
    created_at: str
    units: tuple[FleetUnit, ...]
