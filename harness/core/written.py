"""Files that have no room for a seal (tables, charts, pages): the stage that writes them lists their sums in a record,
and the stage that reads them compares."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.core import store
from harness.core.errors import MalformedFileError, MissingInputError
from harness.core.layout import Results
from harness.core.schemas import Written
from harness.core.seal import UNSEALED


def save(results: Results, stage: str, files: Mapping[Path, bytes]) -> None:
    """Write the files of a stage, which lie below the results folder, and the record of their sums."""
    for path, content in files.items():
        store.save_bytes(path, content)
    sums = {_name(results, path): hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}
    store.save(results.written(stage), Written(files=sums))


def check(results: Results, stage: str, paths: Iterable[Path], made_by: str) -> None:
    """Raise MalformedFileError naming a file that is not what the stage wrote.

    Paths that do not exist are passed over. Files of older versions, which have no such record, count as unsealed.
    """
    there = [path for path in paths if path.is_file()]
    try:
        listed = store.load(results.written(stage), Written, made_by).files
    except MissingInputError:
        UNSEALED.update(dict.fromkeys(there))
        return
    for path in there:
        if listed.get(_name(results, path)) != store.sha256_file(path):
            raise MalformedFileError(
                f"{path} is not what `{made_by}` wrote.", f"Run `{made_by}`, or put back the file that it wrote."
            )


def _name(results: Results, path: Path) -> str:
    return path.relative_to(results.root).as_posix()
