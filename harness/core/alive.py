"""Does the process still live that a file names? Its number means nothing in another container or after a reboot."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import psutil

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_ROUNDED_S = 2.0
"""`started_at` is cut to whole seconds, and the kernel counts a process's age in hundredths since boot."""


def place() -> str:
    """Names this boot and this pid namespace; empty where the system does not tell."""
    try:
        return f"{_BOOT.read_text().strip()} {os.readlink(_NAMESPACE)}"  # noqa: PTH115 - a magic link, no path
    except OSError:
        return ""


def lives(pid: int, where: str, started_at: str) -> bool | None:
    """Whether a process that was alive at `started_at` (ISO 8601) lives here; None where that cannot be told."""
    if not where or where != place():
        return None
    try:
        return psutil.Process(pid).create_time() <= datetime.fromisoformat(started_at).timestamp() + _ROUNDED_S
    except psutil.NoSuchProcess:
        return False
