"""The contract of a runner: it takes units of work and returns attempts, each with an archive or why it was lost. And
the folder of a unit where both sides see the same disk: its request, its files by content, its archive.

A runner never tries a unit again by itself: half a measurement that is repeated elsewhere in silence would mix two
machines. It runs one unit at a time on a host, because a second one would disturb the first.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.safe_files import SizeLimit, read
from harness.core.schemas import UnitRequest


@dataclass(frozen=True)
class Requirements:
    """Requirements of a unit on a machine. gpus: number of GPUs."""

    gpus: int = 0


@dataclass(frozen=True)
class EndedAttempt:
    """An attempt that has ended. archive: bytes of its .tar.xz (harness/runners/execution.py), None where it is lost.

    lost: why, in words; None where there is an archive.
    """

    unit_id: str
    number: int
    archive: bytes | None
    lost: str | None


class Runner(ABC):
    """A context manager that ends everything it started."""

    name: str

    @abstractmethod
    def submit(self, request: UnitRequest, files: Mapping[str, Path], requirements: Requirements) -> None:
        """Queue one attempt. files: by sha256, every file that the request names."""

    @abstractmethod
    def next_ended(self) -> EndedAttempt:
        """Wait until any queued attempt ends. Raises UnavailableError where none can ever run."""

    @abstractmethod
    def close(self) -> None:
        """End all attempts that still run."""

    def __enter__(self) -> Runner:
        """The runner itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def fill(root: Path, request: UnitRequest, files: Mapping[str, Path]) -> Path:
    """Write the request of an attempt, and the files that the root does not have yet; returns the unit's folder.

    files: by sha256. A file is stored once, whatever the number of units that need it.
    """
    stored = root / "files"
    stored.mkdir(parents=True, exist_ok=True)
    for file in request.files:
        target = stored / file.sha256
        if not target.exists():
            half = target.with_suffix(".half")
            half.unlink(missing_ok=True)
            try:
                os.link(files[file.sha256], half)
            except OSError:  # another disk
                shutil.copyfile(files[file.sha256], half)
            half.replace(target)
    folder = root / "units" / f"{request.unit_id}-{request.attempt}"
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(request.model_dump_json(), encoding="utf-8")
    return folder


def archive_in(folder: Path, request: UnitRequest) -> bytes | None:
    """The archive of an attempt; None where its worker left none."""
    path = folder / f"{request.attempt}.tar.xz"
    return read(path, SizeLimit.BUNDLE) if path.is_file() else None
