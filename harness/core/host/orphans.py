"""Ends every process with its parent, however the parent ends and whatever session the process moved to (Linux).

    python -I -S harness/core/host/orphans.py <command>…

is a guard: a process between a stage and a command that runs a user's code. When it ends, it kills every process that
the command left, also where the stage was killed and cannot do so. It needs only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 500
"""Passes over the children: each child may have started others before it was killed."""
_PAUSE_S = 0.01


def die_with_parent(parent: int | None = None, by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel (Linux) to send this process a signal when its parent dies; other systems have no such request.

    `parent`: the expected parent, which may have died before this request.
    """
    if sys.platform == "linux" and os.getppid():  # 0: the first process of a container, whose parent is outside
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def adopt_descendants() -> None:
    """Become the parent of every descendant whose own parent ends, instead of process 1: `kill_children` then finds
    it, even where it started a session of its own."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> frozenset[int]:
    """Process ids of the children of this process, including ended children that are not reaped yet."""
    own, pids = os.getpid(), set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # It may end meanwhile. A name may contain spaces and parentheses: count from its end (proc(5)).
        with suppress(OSError, IndexError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == own:
                pids.add(int(stat.parent.name))
    return frozenset(pids)


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did (field 22 of proc(5)); None where it is not shown or
    the process has ended. No other process of a case started at the same tick."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


def kill_children(keep: Collection[int] = ()) -> int:
    """Kill and reap every child not in `keep`, and the children that this process adopts thereby; returns their number.

    A live child in `keep` keeps its own children. For a process that has called `adopt`.
    """
    ended = 0
    for _ in range(_ROUNDS):
        alive = children() - frozenset(keep)
        if not alive:
            break
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in alive:
            with suppress(ChildProcessError):
                ended += os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(_PAUSE_S)
    return ended


def end_all_with(parent: int) -> None:
    """End this process and all its children when its parent dies or SIGTERM arrives. For a process that has called
    `adopt` and does not run a user's code itself, which could delay the signal."""

    def end(_signal: int, _frame: FrameType | None) -> NoReturn:
        kill_children()
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(parent, by=signal.SIGTERM)


def fork_guarded(parent: int) -> None:
    """Continue in a fork with its own session; the calling process stays as its guard and ends as the fork does.

    parent: the expected parent of the guard.
    """
    os.setsid()  # Ctrl-C goes only to the stage, which then ends both
    adopt_descendants()
    end_all_with(parent)
    guard = os.getpid()
    pid = os.fork()
    if pid:
        _guard(pid)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setsid()  # so that a time limit also ends its own children
    die_with_parent(guard)


def guarded(command: Sequence[str], announced: bool = False) -> list[str]:
    """The arguments that start a command under a guard, in its own session and with the guard's standard streams.

    announced: the first line of standard output is a `Started` of core/protocol.py with the process id of the command.
    """
    options = ["--announced"] if announced else []
    return [sys.executable, "-I", "-S", str(Path(__file__).absolute()), *options, *command]


def _guard(pid: int) -> NoReturn:
    """Wait for a child, kill all others, and end as it did."""
    _, status = os.waitpid(pid, 0)
    kill_children()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        import resource  # noqa: PLC0415 - not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # for SIGKILL, which needs no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def run_guarded(words: Sequence[str]) -> NoReturn:
    """Start a command and guard it."""
    announced = words[0] == "--announced"
    command, parent = words[announced:], os.getppid()
    adopt_descendants()
    end_all_with(parent)
    guard = os.getpid()

    def begin() -> None:
        die_with_parent(guard)
        if announced:  # by the command's process: it may run before its guard goes on
            os.write(1, b'{"event":"started","pid":%d}\n' % os.getpid())

    try:
        process = subprocess.Popen(command, start_new_session=True, preexec_fn=begin)  # noqa: S603, PLW1509 - one thread
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        os._exit(127)
    # A reader of the command's output then sees the command's end, not that of its guard.
    for number in (0, 1):
        handle = os.open(os.devnull, os.O_RDWR)
        os.dup2(handle, number)
        os.close(handle)
    _guard(process.pid)


def end_group(pid: int) -> None:
    """Kill a process that is not reaped yet, with its group; before its setsid(), when it has no group, only itself."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    run_guarded(sys.argv[1:])
