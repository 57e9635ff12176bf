"""One stage as a process of its own: what it warned of, or its two-line error as an exception."""

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
"""Takes a line that a stage prints."""

_ERRORS: Mapping[int, type[InferometerError]] = {kind.exit_code: kind for kind in InferometerError.__subclasses__()}
"""By exit code, the widest kind of error that has it."""


def run_stage(
    stage: str,
    *arguments: str,
    show: Show | None = None,
    code: Code | None = None,
    front: hints.Front | None = None,
) -> tuple[str, ...]:
    """Run `python -m harness.<stage>` to its end and return its warnings.

    code: whose models it loads, where those are not the caller's own. front: in whose words it gives hints, where those
    are not the words of what started this process. What failed for some cases only is not raised:
    their rows say so. Raises the InferometerError that the stage ended with, by its exit code, and RuntimeError where
    it crashed, which is a fault of Inferometer. Ctrl-C ends it first.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        ended = _run([sys.executable, "-m", f"harness.{stage}", *arguments], errors.fileno(), show, code, front)
        errors.seek(0)
        said = errors.read()
    if ended != CasesFailedError.exit_code and not goes_on_after(stage, ended):
        raise _error(stage, ended, said)
    return tuple(line.removeprefix("Warning: ") for line in said.splitlines() if line.startswith("Warning: "))


def _run(command: list[str], errors: int, show: Show | None, code: Code | None, front: hints.Front | None) -> int:
    with subprocess.Popen(  # noqa: S603 - our own module, arguments as a list
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(_search_path()),
            **({} if front is None else {hints.FRONT: front}),
            **({} if code is None else code.environment),
        },
        cwd=None if code is None else code.root,
        start_new_session=True,  # a notebook's interrupt reaches the stage once, through us
    ) as process:
        try:
            for line in process.stdout or ():
                if show:
                    show(line.rstrip())
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()  # the stage stops its workers and lets its lock go
            raise


def _search_path() -> list[str]:
    """Where this interpreter finds modules besides its own installation: classes of a module that was handed over may
    come from there, and so may this package."""
    installed = {Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix)}
    entries = [Path(__file__).parents[2], *map(Path, sys.path)]
    own = [path for entry in entries if not installed & {(path := entry.resolve()), *path.parents}]
    return [str(path) for path in dict.fromkeys(own)]


def _error(stage: str, code: int, said: str) -> Exception:
    told = cli.told(said)
    if told is None or code not in _ERRORS:
        return RuntimeError(f"harness.{stage} ended with {code}:\n{said[-2000:]}")
    return _ERRORS[code](*told)
