"""Runs one stage as a process: returns its warnings, or raises its two-line error as an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core import cli, hints
from harness.core.errors import CasesFailedError, InferometerError
from harness.pipeline import goes_on_after
from harness.processes.launcher import Code

Show = Callable[[str], None]
"""Receives each line that a stage prints."""

ERRORS: Mapping[int, type[InferometerError]] = {kind.exit_code: kind for kind in InferometerError.__subclasses__()}
"""By exit code: the most general error class with that code."""


def run_stage(
    stage: str,
    *arguments: str,
    show: Show | None = None,
    code: Code | None = None,
    front: hints.Front | None = None,
) -> tuple[str, ...]:
    """Run `python -m harness.<stage>` to its end and return its warnings.

    code: the state whose models it loads, if not the caller's own. front: the interface whose words its hints use, if
    not that of this process. Failures of single cases are not raised: their rows report them. Raises the
    InferometerError that the stage ended with, by its exit code, and RuntimeError where it crashed, which is a fault of
    Inferometer. Ctrl-C ends the stage first.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        ended = _run([sys.executable, "-m", f"harness.{stage}", *arguments], errors.fileno(), show, code, front)
        errors.seek(0)
        printed = errors.read()
    if ended != CasesFailedError.exit_code and not goes_on_after(stage, ended):
        raise stage_error(stage, ended, printed)
    return tuple(line.removeprefix("Warning: ") for line in printed.splitlines() if line.startswith("Warning: "))


def _run(command: list[str], errors: int, show: Show | None, code: Code | None, front: hints.Front | None) -> int:
    with subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(search_path()),
            **({} if front is None else {hints.FRONT: front}),
            **({} if code is None else code.environment),
        },
        cwd=None if code is None else code.root,
        start_new_session=True,  # a notebook's interrupt reaches the stage only once, from here
    ) as process:
        try:
            for line in process.stdout or ():
                if show:
                    show(line.rstrip())
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()  # the stage stops its workers and releases its lock
            raise


def search_path() -> list[str]:
    """Where this interpreter finds modules outside its own installation: classes of a user's module, and this package,
    may come from there."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    entries = [Path(__file__).parents[2], *map(Path, sys.path)]
    own = [path for entry in entries if not installed & {(path := entry.resolve()), *path.parents}]
    return [str(path) for path in dict.fromkeys(own)]


def stage_error(stage: str, code: int, printed: str) -> Exception:
    """The error that a stage printed, of the class of its exit code; RuntimeError where it printed none."""
    error = cli.last_error(printed)
    if error is None or code not in ERRORS:
        return RuntimeError(f"harness.{stage} ended with {code}:\n{printed[-2000:]}")
    return ERRORS[code](*error)
