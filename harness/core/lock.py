"""Lets only one process at a time use a results folder or a shared file, and checks whether a process that a file names
still runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import psutil

from harness.core.errors import BusyError
from harness.core.safe_files import open_to_write
from harness.core.store import translate_storage_errors


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file during the block. Raises BusyError naming the process that holds it."""
    handle = _opened(path)
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


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Hold the lock file during the block; waits for another holder, so the block must be short."""
    handle = _opened(path)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    with translate_storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return open_to_write(path, os.O_RDWR)


_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_ROUNDED_S = 2.0
"""`started_at` is cut to whole seconds, and the kernel counts a process's age in hundredths since boot."""


def place() -> str:
    """Identifies this boot and this pid namespace; empty where the system does not report them."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NAMESPACE)}"  # noqa: PTH115 - a magic link, no path
    except OSError:
        return ""


def is_alive(pid: int, where: str, started_at: str) -> bool | None:
    """Whether a process that ran at `started_at` (ISO 8601) still runs here; None where that is unknown."""
    if not where or where != place():
        return None
    try:
        return psutil.Process(pid).create_time() <= datetime.fromisoformat(started_at).timestamp() + _ROUNDED_S
    except psutil.NoSuchProcess:
        return False
