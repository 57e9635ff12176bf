"""Files about a results folder itself: what a run measures now, what a bundle holds, which tables a stage wrote.

results/running.json: what a run measures just now. Written between turns, gone when the run ends.

results/exporting.json: the same of an export. Written before each model, gone when the stage ends.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.safe_paths import FileName, RelativePath
from harness.core.schemas.vocabulary import Record, Sha256


class Running(Record):
    schema_version: Literal[1] = 1
    plan_id: str
    pid: int
    """Of the run stage."""
    place: str
    """Where that number means something: boot and pid namespace (harness/core/lock.py)."""
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


class BundledFile(Record):
    """A file of the bundle, by its path below the bundle's folder."""

    path: RelativePath
    sha256: Sha256
    size_bytes: Annotated[int, Field(ge=0)]


class Bundle(Record):
    """What one run consists of. No date of its own: the same files give the same archive."""

    schema_version: Literal[1] = 1
    plan_id: FileName
    inferometer: str
    """Version that packed it; a report comes out byte for byte only with the code that wrote it."""
    git_commit: str | None
    git_dirty: bool | None
    """True where files of the checkout differed from that commit; None where there is no checkout."""
    images: tuple[str, ...]
    """Digests (names, where there is no digest) of the container images that the samples were taken in."""
    command: str | None
    """Command line of the plan stage; None for a plan that was made before it was kept."""
    files: tuple[BundledFile, ...]


class Written(Record):
    schema_version: Literal[1] = 1
    files: dict[RelativePath, Sha256]
    """sha256 by path below the results folder."""
