"""The latest result of a profiler, into files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from harness.api.results import Benchmark, Result
from harness.api.runs import Run
from harness.core.errors import UsageError
from harness.core.store import save_bytes

R = TypeVar("R", bound=Result)


class Latest:
    """Keeps the latest result and writes it where it is asked to."""

    def __init__(self) -> None:
        self._last: tuple[Result, Run] | None = None
        self._measured: Run | None = None

    def export_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the latest result whole as JSON. Raises UsageError where there is none yet."""
        return _write(path, self._latest()[0].to_json())

    def export_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the records of the latest result as CSV. Raises UsageError where there is none yet.

        >>> from harness.api import ModelProfiler
        >>> ModelProfiler("minilm-l6").export_csv("rows.csv")
        Traceback (most recent call last):
        harness.core.errors.UsageError: Nothing was profiled yet.
        """
        return _write(path, self._latest()[0].to_csv())

    def generate_html_report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the page of the latest measured result: one file that needs no network; by default in its folder.

        Raises UsageError where nothing was measured yet: `profile`, `gpu_profile` and `benchmark` have a page.
        """
        self._latest()
        if self._measured is None:
            raise UsageError("A page shows measured rows, and nothing was timed yet.", "Call profile() first.")
        page = self._measured.report()
        return page if path is None else _write(path, page.read_text(encoding="utf-8"))

    def _keep(self, result: R, run: Run) -> R:
        self._last = (result, run)
        if isinstance(result, Benchmark):
            self._measured = run
        return result

    def _latest(self) -> tuple[Result, Run]:
        if self._last is None:
            raise UsageError("Nothing was profiled yet.", "Call profile() or benchmark() first.")
        return self._last


def _write(path: str | os.PathLike[str], text: str) -> Path:
    target = Path(path)
    save_bytes(target, text.encode())
    return target
