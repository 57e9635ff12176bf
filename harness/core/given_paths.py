"""Files and folders that a user names: where the path is of the other kind, the error says so."""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import MissingInputError, UsageError


def require_file(path: Path, kind: str, missing: str, in_folder: str = "") -> None:
    """Raise MissingInputError where a path is no file.

    kind: of the file, as `a bundle`. missing: the hint where nothing is there. in_folder: the hint for a folder, where
    it is another one.
    """
    if path.is_dir():
        raise MissingInputError(f"{path} is a folder, and {kind} is a file.", in_folder or missing)
    if not path.is_file():
        raise MissingInputError(f"There is no file {path}.", missing)


def require_folder(path: Path, variable: str, usual: str) -> None:
    """Raise UsageError where a path is a file, or below one; a folder need not exist.

    variable: the choice that names it. usual: an example of its value.
    """
    try:
        file = next((place for place in (path, *path.parents) if place.is_file()), None)
    except (OSError, ValueError):  # no permission, too long for a path, a zero byte: the stage reports it
        return
    if file is not None:
        beside = usual if file.parent == Path() else str(file.parent)
        raise UsageError(f"{file} is a file, and {variable} is a folder.", f"Name a folder: {variable}={beside}.")
