"""One run at a time in a results folder: a lock that the kernel gives back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.core.errors import BusyError
from harness.core.regular import open_to_write
from harness.core.store import translate_storage_errors


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file for the life of the block. Raises BusyError naming the process that holds it."""
    with translate_storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open_to_write(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
            raise BusyError(
                f"Another run (process {holder}) is measuring into {path.parent}.",
                "Wait for it, or name another folder: RESULTS=<folder>.",
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)
