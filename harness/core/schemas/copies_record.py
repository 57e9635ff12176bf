"""results/copies/<case_id>.json and results/neighbours.json: one case on several devices, alone and together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import Device, MessageText, Record, SettingsId


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
