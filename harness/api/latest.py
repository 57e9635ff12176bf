"""Writes the latest result of a profiler to files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.api.results import Benchmark, Result
from harness.api.runs import Run
from harness.core.errors import UsageError
from harness.core.safe_files import Limit, read_text
from harness.core.store import save_bytes

R = TypeVar("R", bound=Result)


@dataclass(frozen=True)
class CallResult:
    """The result of a call for a case. median: ns; settings: the configuration's section `measurement`."""

    median: float
    samples: int
    settings: Mapping[str, Any]
    measured_from: str


class Latest:
    """Keeps the latest result and writes it to files on request."""

    def __init__(self) -> None:
        self._last: tuple[Result, Run] | None = None
        self._measured: Run | None = None
        self._answers: dict[str, CallResult] = {}

    def export_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole latest result as JSON. Raises UsageError where there is none yet."""
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
        return page if path is None else _write(path, read_text(page, Limit.RECORD))

    def _keep(self, result: R, run: Run) -> R:
        if isinstance(result, Benchmark):
            self._measured = run
            answers = answers_of(result, run.settings())
            result = replace(result, remarks=contradictions(self._answers, answers))
            self._answers |= answers
        self._last = (result, run)
        return result

    def _latest(self) -> tuple[Result, Run]:
        if self._last is None:
            raise UsageError("Nothing was profiled yet.", "Call profile() or benchmark() first.")
        return self._last


def answers_of(result: Benchmark, settings: Mapping[str, Any]) -> dict[str, CallResult]:
    """The results of all cases that have a latency, by case id."""
    measured = {row.case_id: row.latency_ns for row in result.rows if row.latency_ns is not None}
    return {
        case_id: CallResult(latency.median, latency.n, settings, result.summary.measured_from or "")
        for case_id, latency in measured.items()
    }


def contradictions(before: Mapping[str, CallResult], now: Mapping[str, CallResult]) -> tuple[str, ...]:
    """A line for each case for which an earlier call gave a different median, with the differences of the two calls."""
    return tuple(
        f"`{case_id}`: an earlier call gave {before[case_id].median / 1e6:.3g} ms, this one "
        f"{answer.median / 1e6:.3g} ms. {_why(before[case_id], answer)}"
        for case_id, answer in now.items()
        if case_id in before and before[case_id].median != answer.median
    )


def _why(before: CallResult, now: CallResult) -> str:
    changed = [
        f"{name} {before.settings.get(name)} and {value}"
        for name, value in now.settings.items()
        if before.settings.get(name) != value
    ]
    if changed:
        return f"They asked for different settings: {', '.join(changed)}."
    return (
        f"Same settings, other samples: {before.samples:,} from {before.measured_from} and {now.samples:,} from "
        f"{now.measured_from}."
    )


def _write(path: str | os.PathLike[str], text: str) -> Path:
    target = Path(path)
    save_bytes(target, text.encode())
    return target
