"""Builds the TensorRT engines of exported models while other models are still exported.

It builds what it can. The stage build_engine, which follows, builds the rest, and it alone reports why an engine was
not built.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.core import cli
from harness.core.errors import CasesFailedError, StorageError, UnavailableError
from harness.core.safe_files import SizeLimit, read
from harness.processes.parallel_commands import EndedCommand, WatchedCommand

COMMAND = (sys.executable, "-m", "harness.build_engine")
"""Lists or builds engines beside other commands."""


class EarlyEngines:
    """The queue of builds: for each exported model one command that lists its missing engines, then one an engine.

    models: those that need engines. options: of every command. folder: for the lists.
    """

    def __init__(self, models: Sequence[str], options: Sequence[str], folder: Path) -> None:
        self._models = models
        self._options = options
        self._folder = folder
        self._waiting: deque[WatchedCommand] = deque()
        self._stopped = False

    def exported(self, model: str, end: EndedCommand) -> None:
        """An export has ended: the model's engines join the queue, if it has the files for some."""
        if end.code == StorageError.exit_code:
            self._stop()  # a full disk takes no engine either
        elif end.code in (0, CasesFailedError.exit_code) and model in self._models:
            path = self._folder / f"{self._models.index(model)}.json"
            command = [*COMMAND, *self._options, "--models", model, "--only-list", "--list-file", str(path)]
            self._wait(WatchedCommand(command, show=lambda line: None, ended=partial(self._listed, model, path)))

    def next(self) -> WatchedCommand | None:
        """The build to start next; None where none waits."""
        return self._waiting.popleft() if self._waiting else None

    def _listed(self, model: str, path: Path, end: EndedCommand) -> None:
        if end.code == UnavailableError.exit_code:
            self._stop()  # no GPU or no TensorRT: the other models have none either
        elif path.is_file():
            for name in json.loads(read(path, SizeLimit.TEXT)):
                command = [*COMMAND, *self._options, "--models", model, "--engines", name]
                self._wait(WatchedCommand(command, show=_show, ended=partial(_built, model, name)))

    def _wait(self, task: WatchedCommand) -> None:
        if not self._stopped:
            self._waiting.append(task)

    def _stop(self) -> None:
        self._stopped = True
        self._waiting.clear()


def _show(line: str) -> None:
    """Print a line of a build; why it failed is left to the stage that tries again."""
    if not line.startswith("Warning: "):
        cli.relay(line)


def _built(model: str, name: str, end: EndedCommand) -> None:
    if end.code:
        cli.say(f"{model}: engine {name} was not built; it is tried again after the exports")
