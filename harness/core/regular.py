"""Opening files that may lie in a shared folder: ordinary ones only, and for logs and locks never through a link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO

from harness.core.errors import MalformedFileError, StorageError

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
