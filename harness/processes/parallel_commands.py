"""Runs commands in parallel, up to a number at the same time, and shows their output in whole lines."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from harness.core.errors import UsageError
from harness.core.host import limits, orphans
from harness.processes.device_slots import cpu_parts

Command = Sequence[str]
MOST_JOBS = 64
_CHUNK = 1 << 16


@dataclass(frozen=True)
class EndedCommand:
    """A command that ended. code: its exit code, or minus the signal that ended it; printed: all that it printed."""

    code: int
    printed: str

    def ending(self) -> str:
        """Its exit code or signal, in words."""
        return f"exit code {self.code}" if self.code >= 0 else f"signal {-self.code}"


@dataclass(frozen=True)
class WatchedCommand:
    """A command with its callbacks. show: called with each line that it prints; ended: with its end."""

    command: Command
    show: Callable[[str], None]
    ended: Callable[[EndedCommand], None]


@dataclass
class _Running:
    """number: the place of the command; None where it runs beside the others."""

    number: int | None
    task: WatchedCommand
    process: subprocess.Popen[bytes]
    printed: bytearray = field(default_factory=bytearray)
    shown: int = 0

    def lines(self, ended: bool) -> Iterator[str]:
        """The lines that were not shown yet; the last one need not be whole where the command has ended."""
        end = len(self.printed) if ended else self.printed.rfind(b"\n") + 1
        text = self.printed[self.shown : end].decode(errors="replace")
        self.shown = max(self.shown, end)
        return iter(text.splitlines())


def check_jobs(jobs: int, impossible: str, example: str) -> None:
    """Raise UsageError for a number of commands at the same time that is not from 1 to MOST_JOBS.

    impossible: what they cannot do, as "engines cannot be built"; example: the option with a possible number.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"{jobs} {impossible} at the same time.", f"1 to {MOST_JOBS}: {example}.")


def run(
    commands: Sequence[Command],
    most: int,
    show: Callable[[str], None],
    progress: Callable[[Sequence[int], int], None] = lambda running, ended: None,
    own_cpus: bool = False,
    after: Callable[[int, EndedCommand], None] = lambda number, end: None,
    beside: Callable[[], WatchedCommand | None] = lambda: None,
    most_beside: int = 0,
) -> list[EndedCommand]:
    """Run every command to its end, at most `most` at the same time; returns their ends in the order of the commands.

    show: called with each line that a command prints. progress: called with the places of the running commands and the
    number of ended ones, whenever one starts or ends. own_cpus: each runs on an equal share of the CPUs, where every
    share has one. after: called with the place of each command that has ended, and its end. beside: the next command to
    run beside them on all CPUs, asked whenever fewer than `most_beside` run so; None where none waits. The function
    returns when these have ended, too. All end with this process, however it ends, and before an exception leaves this
    function.
    """
    waiting = list(enumerate(commands))
    shares: list[tuple[int, ...]] = [()] * most
    if own_cpus:
        shares = cpu_parts(sorted(limits.affinity()), min(most, len(commands)), 1)
    ended: dict[int, EndedCommand] = {}
    reported: tuple[list[int], int] | None = None

    def end_of(number: int, cpus: tuple[int, ...]) -> Callable[[EndedCommand], None]:
        def keep(end: EndedCommand) -> None:
            ended[number] = end
            shares.append(cpus)
            after(number, end)

        return keep

    orphans.adopt_descendants()
    others = orphans.children()
    try:
        with closing(selectors.DefaultSelector()) as selector:
            while True:
                while waiting and len(_places(selector)) < most:
                    number, command = waiting.pop(0)
                    cpus = shares.pop(0)
                    _start(number, WatchedCommand(command, show, end_of(number, cpus)), selector, cpus)
                while _count_beside(selector) < most_beside and (following := beside()) is not None:
                    _start(None, following, selector, ())
                if (now := (_places(selector), len(ended))) != reported:
                    progress(*now)
                    reported = now
                if not selector.get_map():
                    break
                for running, end in _next_ended(selector):
                    running.task.ended(end)
    finally:
        orphans.kill_children(keep=others)
    return [ended[number] for number in range(len(commands))]


def _places(selector: selectors.BaseSelector) -> list[int]:
    """The places of the running commands."""
    return sorted(key.data.number for key in selector.get_map().values() if key.data.number is not None)


def _count_beside(selector: selectors.BaseSelector) -> int:
    return sum(key.data.number is None for key in selector.get_map().values())


def _next_ended(selector: selectors.BaseSelector) -> list[tuple[_Running, EndedCommand]]:
    """Show the output of the running commands until some have ended; returns these."""
    ended: list[tuple[_Running, EndedCommand]] = []
    while not ended:
        for key, _ in selector.select():
            end = _read(key, selector)
            if end is not None:
                ended.append((key.data, end))
    return ended


def _read(key: selectors.SelectorKey, selector: selectors.BaseSelector) -> EndedCommand | None:
    """Show the new lines of a command; returns how it ended, None while it runs."""
    running: _Running = key.data
    chunk = os.read(key.fd, _CHUNK)
    running.printed += chunk
    for line in running.lines(ended=not chunk):
        running.task.show(line)
    if chunk:
        return None
    selector.unregister(key.fileobj)
    with running.process as process:  # closes its pipe
        code = process.wait()
    return EndedCommand(code, running.printed.decode(errors="replace"))


def _start(number: int | None, task: WatchedCommand, selector: selectors.BaseSelector, cpus: tuple[int, ...]) -> None:
    with _pinned(cpus):
        process = subprocess.Popen(  # noqa: S603 - the caller's own command, no shell
            orphans.guarded(task.command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Its own session: Ctrl-C on the terminal reaches only the caller, which then ends all commands.
            start_new_session=True,
        )
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    selector.register(process.stdout, selectors.EVENT_READ, _Running(number, task, process))


@contextmanager
def _pinned(cpus: Collection[int]) -> Iterator[None]:
    """A process that starts in the block inherits these CPUs; where there are none, all of this process."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
