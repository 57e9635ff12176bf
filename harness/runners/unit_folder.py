"""The folder of a unit where both sides see the same disk: its request, its files by content, its archive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.core.safe_files import Limit, read
from harness.core.schemas import UnitRequest


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
    return read(path, Limit.BUNDLE) if path.is_file() else None
