"""Opens files in possibly shared folders: only ordinary files up to a size, and logs and locks never through a link;
and keeps names from records and archives below the folder that they belong to."""

from __future__ import annotations

import errno
import os
import re
import stat
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import IO

from harness.core.errors import MalformedFileError, StorageError


class SizeLimit(IntEnum):
    """Most bytes that are read of a file, by its kind: a larger file is refused before it fills the memory. Files that
    are written have the same limit, so that no stage writes a file that the next stage refuses."""

    TEXT = 1_000_000
    """A configuration, a claim, the line of command.txt, a setting in a model's folder: a page of text."""
    RECORD = 64 << 20
    """A record, or a report, table, page or chart. A raw record of 20,000 samples has 160 kB."""
    BUNDLE = 256 << 20
    """A packed bundle; core/archive.py limits its unpacked size."""
    TRACE = 1 << 30
    """A profiler's trace, TensorRT's timing cache."""
    ARRAYS = 8 << 30
    """Inputs and reference outputs, unpacked."""
    MODULE = 16 << 30
    """A module that harness.api pickled. Other files of a model must have the size in its record."""


_FOLDER = "a folder"
_KINDS = (
    (stat.S_ISDIR, _FOLDER),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

_REFUSED = {
    errno.ELOOP: "a link",
    errno.ENXIO: "a named pipe or a socket",
    errno.EISDIR: _FOLDER,
}
"""What is at the path instead of a file, by the error of opening it for writing without following links or waiting."""


def open_to_read(path: Path) -> IO[bytes]:
    """Open an ordinary file. Raises OSError as open does, for a folder too, and MalformedFileError for a pipe, which
    would block, or a device, which may have no end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _unreadable(path, "a socket") from error
        raise
    try:
        kind = kind_of(handle)
        if kind == _FOLDER:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if kind is not None:
            raise _unreadable(path, kind)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read(path: Path, limit: SizeLimit) -> bytes:
    """The content of an ordinary file. Raises as open_to_read, and MalformedFileError for a file that is too large."""
    with open_to_read(path) as file:
        content = read_at_most(file, limit)
    if content is None:
        raise MalformedFileError(
            f"{path} has more than {limit:,} bytes, the limit of such files.", "Remove it, or name another folder."
        )
    return content


def read_at_most(file: IO[bytes], most: int) -> bytes | None:
    """The content of an ordinary file at its current size; None where it has more than `most` bytes."""
    size = os.fstat(file.fileno()).st_size
    return file.read(size) if size <= most else None


def read_text(path: Path, limit: SizeLimit) -> str:
    """The content of a UTF-8 file. Raises as `read`, and ValueError where it is not UTF-8."""
    return read(path, limit).decode()


def open_to_write(path: Path, flags: int = os.O_WRONLY | os.O_TRUNC) -> int:
    """The descriptor of a log or a lock, which is created if missing. Raises StorageError where its path is a link or
    anything else but an ordinary file, and OSError as open does."""
    try:
        handle = os.open(path, flags & ~os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        kind = _REFUSED.get(error.errno or 0)
        if kind is not None:
            raise _odd(path, kind) from error
        raise
    kind = kind_of(handle)
    if kind is not None:
        os.close(handle)
        raise _odd(path, kind)
    if flags & os.O_TRUNC:
        os.ftruncate(handle, 0)
    return handle


def kind_of(handle: int) -> str | None:
    """The kind of an open file, in words; None for an ordinary file."""
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "something unknown")


def _unreadable(path: Path, kind: str) -> MalformedFileError:
    return MalformedFileError(f"{path} is {kind} and no ordinary file.", "Name an ordinary file, or remove it.")


def _odd(path: Path, kind: str) -> StorageError:
    return StorageError(f"{path} is {kind}, and is not written to.", f"Remove it: rm {path}; or name another folder.")


def relative_name(name: str) -> str:
    """The name, if it can only mean a file below the folder that it is joined to; else raises ValueError.

    Names that Inferometer writes have no drive, backslash or control character, so these are refused.
    """
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or ":" in name or any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{name!r} is no path below a folder")
    return name


FILE_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9._+=-]*")
"""One component of a path: ASCII letters, digits and `._+=-`, never beginning with a dot or a dash."""


def path_inside(folder: Path, name: str) -> Path:
    """folder/name. Raises MalformedFileError where the name, or a link in its path, leads out of the folder."""
    try:
        path = folder / PurePosixPath(relative_name(name))
    except ValueError as error:
        raise MalformedFileError(
            f"{name!r} is no path below {folder}.", "Do not use the file that names it; make it again here."
        ) from error
    if not path.resolve().is_relative_to(folder.resolve()):
        raise MalformedFileError(
            f"{path} is a link that leads out of {folder}.", "Replace the link by a copy of the file."
        )
    return path
