"""The engines that were built for a model: what run and aggregate admit samples by."""

from __future__ import annotations

from pathlib import Path

from harness.core import store
from harness.core.errors import FormatError, StorageError
from harness.core.layout import ModelFolder
from harness.core.schemas import EngineRecord


def built_engines(
    folder: ModelFolder, notes: list[str], sums: dict[Path, str] | None = None
) -> tuple[EngineRecord, ...]:
    """The record beside each engine of the folder, by name; what cannot be read goes into the notes. sums: as of
    store.load."""
    found = []
    for path in sorted(folder.engines.glob("*.json")):
        try:
            found.append(store.load(path, EngineRecord, "make engines", sums))
        except (FormatError, StorageError) as error:
            notes.append(f"{error.problem} {error.hint}")
    return tuple(found)
