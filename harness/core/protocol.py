"""Messages between a run, its workers and its monitor: one JSON line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, PositiveInt, TypeAdapter

from harness.core.schemas import (
    Case,
    EngineOptions,
    GenerationCase,
    GenerationOptions,
    LoadCase,
    Measurement,
    Record,
    SettingsId,
    Situation,
)

GO: Mapping[Situation, bytes] = {"alone": b"a", "together": b"t"}
"""What the parent writes into the named pipe of a WindowRequest to start a window."""
OVER = b"o"
"""What it writes when the windows of all processes are over: until then each stays quiet."""
GIVE_UP = b"x"
"""What it writes where another process ended early, so that the windows cannot be completed."""
WINDOW_ENDED = "window ended"
"""Phase that a process enters after each of its windows."""


class WindowRequest(Record):
    """The timed part of a process that works beside others: windows that the parent starts one by one."""

    fifo: str
    """Path of a named pipe into which the parent writes one byte for each window, and OVER."""
    count: int
    window_s: float
    """Length of one window."""
    warm_s: float
    """Untimed work before each window, after the wait for it."""


_J = TypeVar("_J", bound="_JobBase")


class _JobBase(Record):
    """The fields of every job. measurement: in a LoadJob its timeout_s is the limit of the whole process."""

    settings_id: SettingsId
    measurement: Measurement
    threads: int
    """Of the case; in a LoadJob, of each worker of the service."""
    results: str
    models: str
    export: str | None = None
    """Path of the record of the export; None: the model's latest export, or a backend that reads none."""

    def with_absolute_paths(self: _J) -> _J:
        """The same job for the process that does it: a user's module may change its current folder."""
        places = {"results": self.results, "models": self.models, "export": self.export}
        return self.model_copy(update={name: place and str(Path(place).absolute()) for name, place in places.items()})


class CaseJob(_JobBase):
    """One case in one round, to be measured by one new process."""

    case: Case
    round: int
    engines: EngineOptions = EngineOptions()
    windows: WindowRequest | None = None
    """None: the stop rule of `measurement` ends the timed part."""


class LoadJob(_JobBase):
    """One load case: service times, and every replication that has no record yet, in one new process."""

    load: LoadCase
    engines: EngineOptions = EngineOptions()


class GenerationCaseJob(_JobBase):
    """One case of generation in one round, to be measured by one new process."""

    case: GenerationCase
    round: int
    options: GenerationOptions


TurnJob = CaseJob | GenerationCaseJob
"""A job that leaves one record a round."""
AnyJob = CaseJob | LoadJob | GenerationCaseJob
ANY_JOB: TypeAdapter[CaseJob | LoadJob | GenerationCaseJob] = TypeAdapter(AnyJob)
"""What a worker is sent; the fields of the three are different."""


class Ready(Record):
    """The server has imported its libraries; `threads` of its own threads run (1: safe to fork)."""

    event: Literal["ready"] = "ready"
    threads: int
    absent: tuple[str, ...] = ()
    """Modules that the backend requires and that this interpreter lacks."""


class Started(Record):
    """The case's process has begun: its first event."""

    event: Literal["started"] = "started"
    pid: PositiveInt


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
    pid: PositiveInt
    case_id: str
    round: int
    settings_id: SettingsId
    results: str
    record: str | None = None
    """Path of its record, if not beside the samples of its round."""


Enter = Callable[[str], None]
"""Reports that the process of a case enters a phase."""


class Phase(Record):
    """The process has reached a phase."""

    say: Literal["phase"] = "phase"
    phase: str


class End(Record):
    """The process has ended; the monitor writes its record."""

    say: Literal["end"] = "end"


Message = Annotated[Watch | Phase | End, Field(discriminator="say")]
MESSAGE: TypeAdapter[Watch | Phase | End] = TypeAdapter(Message)
