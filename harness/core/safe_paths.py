"""Keeps names from records and archives below the folder that they belong to."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from harness.core.errors import MalformedFileError

_NAME = r"[A-Za-z0-9_+][A-Za-z0-9._+=-]*"


def relative(name: str) -> str:
    """The name, if it can only mean a file below the folder that it is joined to; else raises ValueError.

    Names that Inferometer writes have no drive, backslash or control character, so these are refused.
    """
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is no path below a folder")
    return name


FILE_NAME = re.compile(_NAME)
FileName = Annotated[str, StringConstraints(pattern=rf"^{_NAME}$", max_length=200)]
"""One component of a path: ASCII letters, digits and `._+=-`, never beginning with a dot or a dash."""
RelativePath = Annotated[str, StringConstraints(max_length=400), AfterValidator(relative)]
"""A path with `/` whose text stays below the folder that it is joined to; `inside` follows links."""


def inside(folder: Path, name: str) -> Path:
    """folder/name. Raises MalformedFileError where the name, or a link in its path, leads out of the folder."""
    try:
        path = folder / PurePosixPath(relative(name))
    except ValueError as error:
        raise MalformedFileError(
            f"{name!r} is no path below {folder}.", "Do not use the file that names it; make it again here."
        ) from error
    if not path.resolve().is_relative_to(folder.resolve()):
        raise MalformedFileError(
            f"{path} is a link that leads out of {folder}.", "Replace the link by a copy of the file."
        )
    return path
