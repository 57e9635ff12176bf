"""Stages in forked processes: what they printed and how they ended, and whether anything of them is left (Linux)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with one thread may be forked

import psutil

from harness import aggregate, export, plan, run
from harness.core import cli, store
from harness.core.errors import InferometerError
from harness.core.host import orphans
from harness.core.layout import Models, Results
from harness.core.schemas import Plan, Summary

GUARD_S = 240.0
"""Longest life of a stage here: an attempt that takes longer hangs."""
LEAVING_S = 15.0
"""For processes whose parent was killed to follow it."""

Stage = Callable[[Sequence[str]], None]


class FaultError(Exception):
    """An attempt that did not hold: what was lost, false or unreadable."""


class MissedError(Exception):
    """An attempt that hit nothing, as a process that ended first: it is tried again."""


@dataclass
class Ended:
    """How a stage ended: exit code (negative: minus the signal) and what it printed."""

    code: int
    out: str
    err: str

    def refused(self) -> None:
        """Raise FaultError unless it is an error of two lines."""
        lines = self.err.splitlines()
        pair = lines[-2:]
        if not 2 <= self.code <= 12:
            raise FaultError(f"exit code {self.code}, where an error of two lines was expected: {self.err[-500:]}")
        if len(pair) < 2 or not pair[0].startswith("Error: ") or not pair[1].startswith("Hint:  "):
            raise FaultError(f"no error of two lines: {self.err[-500:]}")


@dataclass
class Started:
    """A stage in a process and a session of its own."""

    pid: int
    out: Path
    err: Path
    status: int | None = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status if pid else None
        return self.status is not None

    def wait(self, guard_s: float = GUARD_S) -> Ended:
        """Its end. Raises FaultError where it hangs, leaves a traceback or steers a terminal."""
        deadline = time.monotonic() + guard_s
        while not self.poll():
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise FaultError(f"it did not end within {guard_s:g} s: {self.err.read_text(errors='replace')[-300:]}")
            time.sleep(0.01)
        said = [path.read_bytes().decode(errors="replace") for path in (self.out, self.err)]
        ended = Ended(os.waitstatus_to_exitcode(self.status or 0), *said)
        if "Traceback" in ended.err or ended.code == cli.CRASHED:
            raise FaultError(f"a traceback: {ended.err[-800:]}")
        if any(not (letter.isprintable() or letter in "\n\t") for letter in ended.out + ended.err):
            raise FaultError(f"control characters were printed: {(ended.out + ended.err)[-300:]!r}")
        return ended


def start(stage: Stage, *arguments: str, place: Path, prepare: Callable[[], None] | None = None) -> Started:
    """Fork a stage: its libraries are here already. prepare: is called in the new process."""
    place.mkdir(parents=True, exist_ok=True)
    name = f"{stage.__module__}-{time.monotonic_ns()}"
    out, err = place / f"{name}.out", place / f"{name}.err"
    for path in (out, err):
        path.touch()  # here, since the stage may be killed before it comes to open them
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Started(pid, out, err)
    code = cli.CRASHED
    try:
        os.setsid()
        for number, target, flags in ((0, Path(os.devnull), os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
            handle = os.open(target, flags | (os.O_CREAT if number else 0), 0o666)
            os.dup2(handle, number)
            os.close(handle)
        if prepare is not None:
            prepare()
        cli.main(stage, arguments)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def call(stage: Stage, *arguments: str, place: Path, prepare: Callable[[], None] | None = None) -> Ended:
    """Run a stage to its end."""
    return start(stage, *arguments, place=place, prepare=prepare).wait()


@dataclass
class Folders:
    """A results folder with its models. output: where what stages print goes."""

    root: Path
    output: Path
    results: Results = field(init=False)
    models: Models = field(init=False)

    def __post_init__(self) -> None:
        self.results, self.models = Results(self.root / "results"), Models(self.root / "models")

    def options(self, stage: Stage) -> list[str]:
        """The folders, as options of a stage."""
        both = ["--results", str(self.results.root), "--models-dir", str(self.models.root)]
        return both if stage in (run.stage, export.export, aggregate.stage) else both[:2]

    def start(self, stage: Stage, *more: str, prepare: Callable[[], None] | None = None) -> Started:
        """Begin a stage on these folders."""
        return start(stage, *self.options(stage), *more, place=self.output, prepare=prepare)

    def call(self, stage: Stage, *more: str, prepare: Callable[[], None] | None = None) -> Ended:
        """Run a stage on these folders to its end."""
        return self.start(stage, *more, prepare=prepare).wait()

    def well(self, stage: Stage, *more: str) -> Ended:
        """Run a stage that must succeed."""
        ended = self.call(stage, *more)
        if ended.code:
            raise FaultError(f"{stage.__module__} ended with {ended.code}: {ended.err[-500:]}")
        return ended

    def planned(self, text: str) -> Plan:
        """Write a configuration and plan it."""
        config = self.output / "config.yaml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(text)
        self.well(plan.stage, "--config", str(config))
        return store.load(self.results.plan, Plan, "make plan")

    def records(self) -> dict[Path, int]:
        """When each raw record was written, by path; all are whole. Raises FaultError where one is damaged."""
        result = {}
        for path in self.results.raw.glob("*/*.json"):
            if path.stem.isdecimal():
                try:
                    store.load_raw(path)
                except InferometerError as error:
                    raise FaultError(f"half a record: {error.problem}") from error
                result[path] = path.stat().st_mtime_ns
        return result

    def summary(self) -> Summary:
        """Aggregate and read."""
        self.well(aggregate.stage)
        return store.load(self.results.summary, Summary, "make aggregate")


def nothing_is_left() -> None:
    """Raise FaultError where a process outlives the stage that was killed: what lost its parent is a child of ours."""
    deadline = time.monotonic() + LEAVING_S
    while left := _living():
        if time.monotonic() > deadline:
            names = [" ".join(process.cmdline())[:80] for process in left]
            orphans.kill_children()
            raise FaultError(f"left behind: {names}")
        time.sleep(0.05)


def _living() -> list[psutil.Process]:
    result = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE and process.ppid() == os.getpid():
                os.waitpid(process.pid, os.WNOHANG)
            elif process.status() != psutil.STATUS_ZOMBIE:
                result.append(process)
    return result
