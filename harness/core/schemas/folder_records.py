"""Records about a results folder itself: current progress, the content of a bundle, the files that a stage wrote.

results/running.json: the case that a run measures now. Written between turns, deleted when the run ends.

results/exporting.json: the same for an export. Written before each model, deleted when the stage ends.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from harness.core.schemas.vocabulary import FileName, Record, RelativePath, Sha256


class Running(Record):
    schema_version: Literal[1] = 1
    plan_id: str
    pid: int
    """Process id of the stage: run, generate or load."""
    place: str
    """Boot and pid namespace in which `pid` is valid (harness/core/lock.py)."""
    started_at: str
    """Start of the run."""
    turns: int
    """Processes of the run, ended and pending; further rounds count once they are planned."""
    done: int
    """Processes that have ended."""
    case_id: str
    """Of load its load_id."""
    round: int
    """Of load 0: a case has one process."""
    since: str
    """Start of the turn."""


class Exporting(Record):
    schema_version: Literal[1] = 1
    plan_id: str
    pid: int
    """Process id of the export stage."""
    place: str
    """As in Running."""
    started_at: str
    """Start of the stage."""
    models: int
    """Number of models that it exports or that are up to date."""
    done: int
    """Models that are finished."""
    model: str
    """Name of the model; the names of those that are exported at the same time, with commas."""
    since: str
    """Time at which the last of them started, or another one ended."""


class BundledFile(Record):
    """A file of the bundle, by its path below the bundle's folder."""

    path: RelativePath
    sha256: Sha256
    size_bytes: Annotated[int, Field(ge=0)]


class Bundle(Record):
    """The files of one run. It has no date of its own: the same files give the same archive."""

    schema_version: Literal[1] = 1
    plan_id: FileName
    inferometer: str
    """Version that packed it; only the code that wrote a report gives the same bytes again."""
    git_commit: str | None
    git_dirty: bool | None
    """True where files of the checkout differed from that commit; None without a checkout."""
    images: tuple[str, ...]
    """Digests (names, where there is no digest) of the container images that the samples were taken in."""
    command: str | None
    """Command line of the plan stage; None for a plan of a version that did not store it."""
    files: tuple[BundledFile, ...]


class WrittenFiles(Record):
    schema_version: Literal[1] = 1
    files: dict[RelativePath, Sha256]
    """sha256 by path below the results folder."""
