"""The progress that a run prints: a line for each case that has ended, and on a terminal a bar."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from harness.core import cli
from harness.core.text import one_line


class RunProgress:
    """Shows one line per finished case, and on a terminal the running case. `done` of `total` cases have ended."""

    def __init__(self, total: int) -> None:
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.total = total
        self.done = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def extend(self, more: int) -> None:
        """Add cases that were not known at the start."""
        self.total += more
        self._bar.update(self._task, total=self.total)

    def running(self, label: str, phase: str) -> None:
        """Show the running case (terminal only)."""
        self._bar.update(self._task, description=escape(one_line(f"{label} · {phase}")))

    def finished(self, label: str, result: str) -> None:
        """Print one line for a case that has ended."""
        self.done += 1
        width = len(str(self.total))
        self._console.print(escape(one_line(f"[{self.done:{width}}/{self.total}] {label}  {cli.typed(result)}")))
        self._bar.advance(self._task)
