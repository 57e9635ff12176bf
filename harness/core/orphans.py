"""No process outlives the one that started it, however that one ends and whatever session it moved to (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 500
"""Passes over the children: each one may have started others before it was killed."""
_PAUSE_S = 0.01


def die_with_parent(parent: int | None = None, by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel (Linux) to send this process a signal when its parent dies; elsewhere there is no such request.

    `parent`: the process that should be the parent, where it may have died before the kernel was asked.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def adopt() -> None:
    """Become the parent of every descendant whose own parent ends, instead of process 1: `sweep` then finds it, also
    where it began a session of its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> frozenset[int]:
    """Process ids of the children of this process, those that ended and wait to be reaped as well."""
    own, found = os.getpid(), set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # It may end while we look. A name may hold spaces and parentheses: count from its end (proc(5)).
        with suppress(OSError, IndexError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == own:
                found.add(int(stat.parent.name))
    return frozenset(found)


def sweep(keep: Collection[int] = ()) -> int:
    """Kill and reap every child but those, and what comes to this process as its child thereby; how many there were.

    A live child in `keep` keeps its own children. Meant for a process that has called `adopt`.
    """
    ended = 0
    for _ in range(_ROUNDS):
        left = children() - frozenset(keep)
        if not left:
            break
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with suppress(ChildProcessError):
                ended += os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(_PAUSE_S)
    return ended


def end_group(pid: int) -> None:
    """Kill a process that was not reaped yet and its group; without a group, before its setsid(), it alone."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
