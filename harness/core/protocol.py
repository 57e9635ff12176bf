"""Messages between a run, its workers and its monitor: one JSON line each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from harness.core.schemas import (
    Case,
    EngineOptions,
    GenerationCase,
    GenerationOptions,
    Measurement,
    Record,
    SettingsId,
)


class Job(Record):
    """One case in one round, to be measured by one new process."""

    case: Case
    round: int
    settings_id: SettingsId
    measurement: Measurement
    threads: int
    results: str
    models: str
    export: str | None = None
    """Path of the record of the export to be measured; None: the model's latest export."""
    engines: EngineOptions = EngineOptions()


class GenerationTask(Record):
    """One case of generation in one round, to be measured by one new process. Fields as in Job."""

    case: GenerationCase
    round: int
    settings_id: SettingsId
    measurement: Measurement
    threads: int
    results: str
    models: str
    export: str | None
    """Path of the record of its files; None for a backend that reads none."""
    options: GenerationOptions


AnyJob = Job | GenerationTask
ANY_JOB: TypeAdapter[Job | GenerationTask] = TypeAdapter(AnyJob)


class Ready(Record):
    """The server has imported its libraries; `threads` of its own threads run (1: safe to fork)."""

    event: Literal["ready"] = "ready"
    threads: int
    absent: tuple[str, ...] = ()
    """Modules that the backend requires and that this interpreter lacks."""


class Started(Record):
    event: Literal["started"] = "started"
    pid: int


class Entered(Record):
    """The case's process has reached a phase."""

    event: Literal["entered"] = "entered"
    phase: str


class Ended(Record):
    """The case's process has ended: its exit code, or minus the signal that killed it."""

    event: Literal["ended"] = "ended"
    code: int


Event = Annotated[Ready | Started | Entered | Ended, Field(discriminator="event")]
EVENT: TypeAdapter[Ready | Started | Entered | Ended] = TypeAdapter(Event)


class Watch(Record):
    """A case's process has started."""

    say: Literal["watch"] = "watch"
    pid: int
    case_id: str
    round: int
    settings_id: SettingsId
    results: str
    record: str | None = None
    """Path of its record, if not beside the samples of its round."""


class Phase(Record):
    """The process has reached a phase."""

    say: Literal["phase"] = "phase"
    phase: str


class End(Record):
    """The process has ended; the monitor writes its record."""

    say: Literal["end"] = "end"


Message = Annotated[Watch | Phase | End, Field(discriminator="say")]
MESSAGE: TypeAdapter[Watch | Phase | End] = TypeAdapter(Message)
