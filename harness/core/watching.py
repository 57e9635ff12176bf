"""What the run stage tells the monitor: one JSON line each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from harness.core.schemas import Record, SettingsId


class Watch(Record):
    """A case's process has begun."""

    say: Literal["watch"] = "watch"
    pid: int
    case_id: str
    round: int
    settings_id: SettingsId
    results: str
    record: str | None = None
    """Where its record goes, if not beside the samples of its round."""


class Phase(Record):
    """It has come to a phase."""

    say: Literal["phase"] = "phase"
    phase: str


class End(Record):
    """It has ended; the monitor writes what it saw."""

    say: Literal["end"] = "end"


Message = Annotated[Watch | Phase | End, Field(discriminator="say")]
MESSAGE: TypeAdapter[Watch | Phase | End] = TypeAdapter(Message)
