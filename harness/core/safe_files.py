"""Opening files that may lie in a shared folder: ordinary ones only, up to a size, and for logs and locks never through
a link."""

from __future__ import annotations

import errno
import os
import stat
from enum import IntEnum
from pathlib import Path
from typing import IO

from harness.core.errors import MalformedFileError, StorageError


class Limit(IntEnum):
    """Most bytes that are read of a file, by its kind: a larger one is refused before it fills the memory. What is
    written is held to the same limit, so that no stage writes what the next one refuses."""

    TEXT = 1_000_000
    """A configuration, a claim, the line of command.txt, a setting in a model's folder: a page of text."""
    RECORD = 64 << 20
    """A record, or a report, table, page or chart. A raw record of 20,000 samples has 160 kB."""
    BUNDLE = 256 << 20
    """A bundle as it is packed; core/archive.py limits what comes out of it."""
    TRACE = 1 << 30
    """A profiler's trace, TensorRT's timing cache."""
    ARRAYS = 8 << 30
    """Inputs and reference outputs, unpacked."""
    MODULE = 16 << 30
    """A module that harness.api pickled. Other files of a model have the size in its record, else they are refused."""


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
"""What is in the place of a file, by the answer to opening it for writing without following links or waiting."""


def open_to_read(path: Path) -> IO[bytes]:
    """An ordinary file. Raises OSError as open does, of a folder too, and MalformedFileError for what only looks like a
    file: a pipe would be waited for, and a device may have no end."""
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


def read(path: Path, limit: Limit) -> bytes:
    """The content of an ordinary file. Raises as open_to_read, and MalformedFileError for one that is too large."""
    with open_to_read(path) as file:
        content = at_most(file, limit)
    if content is None:
        raise MalformedFileError(
            f"{path} has more than {limit:,} bytes, the limit of such files.", "Remove it, or name another folder."
        )
    return content


def at_most(file: IO[bytes], most: int) -> bytes | None:
    """The content of an ordinary file, as large as it is now; None where it has more than `most` bytes."""
    size = os.fstat(file.fileno()).st_size
    return file.read(size) if size <= most else None


def read_text(path: Path, limit: Limit) -> str:
    """The same, of UTF-8. Raises ValueError where it is none."""
    return read(path, limit).decode()


def open_to_write(path: Path, flags: int = os.O_WRONLY | os.O_TRUNC) -> int:
    """The descriptor of a log or a lock, made where there is none. Raises StorageError where a link or something else
    that is no ordinary file is in its place, and OSError as open does."""
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
    """What an open file is, in words; None of an ordinary one."""
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return None
    return next((name for test, name in _KINDS if test(mode)), "something unknown")


def _unreadable(path: Path, kind: str) -> MalformedFileError:
    return MalformedFileError(f"{path} is {kind} and no ordinary file.", "Name an ordinary file, or remove it.")


def _odd(path: Path, kind: str) -> StorageError:
    return StorageError(f"{path} is {kind}, and is not written to.", f"Remove it: rm {path}; or name another folder.")
