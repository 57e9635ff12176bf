"""Results of a profiler: their base class, those of a benchmark and a load, and the latest written to files."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from harness.api.runs import Run
from harness.core.errors import UsageError
from harness.core.safe_files import Limit, read_text
from harness.core.schemas import LoadRow, Row, Summary
from harness.core.store import save_bytes
from harness.reporting import ranking
from harness.reporting.prose.conditions import short_conditions, with_short_names
from harness.reporting.prose.load_answer import load_section
from harness.reporting.table import Block
from harness.reporting.tables.custom_metrics_table import csv_columns
from harness.reporting.tables.latency_table import latency_table, terminal_table
from harness.reporting.tables.load_tables import point_lines
from harness.reporting.tables.summary_table import COLUMNS
from harness.reporting.tables.validity_tables import flags_table, unmeasured_table
from harness.reporting.writers import html
from harness.reporting.writers.csv import csv_text
from harness.reporting.writers.markdown import blocks_text, table_text

_STYLES = {
    "scroll": "overflow-x: auto",
    "word": "text-align: left",
    "num": "text-align: right; font-variant-numeric: tabular-nums",
}
"""Styles by an element's first class: a notebook lacks our style sheet, and aligns every cell to the right."""
_CLASS = re.compile(rf'class="({"|".join(_STYLES)})\b[^"]*"')


@dataclass(frozen=True, repr=False)
class Result(ABC):
    """Typed records of the stages, shown as tables in a terminal and in a notebook.

    folder: the results folder that it was read from.
    """

    folder: Path

    @abstractmethod
    def blocks(self) -> Sequence[Block]:
        """Tables and texts of the result, figures below their conditions."""

    def markdown(self) -> str:
        """The result as Markdown."""
        return blocks_text(self.blocks())

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """A flat dictionary per row, for data frames: ns, bytes, None for unknown values."""

    def document(self) -> Any:
        """The content of `export_json`: the records."""
        return self.records()

    def to_json(self) -> str:
        """The document as JSON."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"

    def to_csv(self) -> str:
        """The records as CSV, header first; empty without records."""
        return csv_text(self.records())

    def __repr__(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return _CLASS.sub(lambda found: f'{found[0]} style="{_STYLES[found[1]]}"', str(html.blocks(self.blocks())))


@dataclass(frozen=True, repr=False)
class Benchmark(Result):
    """Rows of several configurations, as `run` measured and `aggregate` graded them.

    remarks: why a case has a different figure than in an earlier call of the same profiler.
    """

    summary: Summary
    remarks: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def rows(self) -> tuple[Row, ...]:
        """A row per configuration; a failed or impossible configuration has a row with the reason."""
        return self.summary.rows

    @property
    def fastest(self) -> tuple[Row, ...]:
        """Rows that are clearly the fastest: at most one for each batch size, sequence length, boundary and mode."""
        groups = [group for _, rows in ranking.by_table(self.rows) for _, group in ranking.by_shape(rows)]
        return tuple(row for group in groups if (row := ranking.winner(group)) is not None)

    def records(self) -> list[dict[str, Any]]:
        """The columns of summary.csv."""
        columns = {**COLUMNS, **csv_columns(self.summary)}
        return [{name: figure(row) for name, figure in columns.items()} for row in self.rows]

    def document(self) -> Any:
        """The whole summary: rows, export, conditions."""
        return self.summary.model_dump(mode="json")

    def blocks(self) -> list[Block]:
        """A table for each boundary and mode, flags with their remedies, and cases without figures, with the reason."""
        shown = with_short_names(self.summary)
        parts = [
            block
            for _, rows in ranking.by_table(shown.rows)
            for block in (short_conditions(shown, rows), latency_table(rows), flags_table(rows))
        ]
        return [block for block in (*parts, unmeasured_table(shown.rows), *self.remarks) if block]

    def __repr__(self) -> str:
        shown = with_short_names(self.summary)
        measured = [row for row in shown.rows if row.status == "measured"]
        parts = [short_conditions(shown, measured), terminal_table(shown)] if measured else []
        unmeasured = table_text(unmeasured_table(shown.rows))
        return "\n\n".join(part for part in ("\n".join(parts), unmeasured, *self.remarks) if part)


@dataclass(frozen=True, repr=False)
class Load(Result):
    """Load cases with their points, as `load` measured and `aggregate` judged them."""

    summary: Summary

    @property
    def rows(self) -> tuple[LoadRow, ...]:
        """A row per load case; a failed or impossible one has a row with the reason."""
        return self.summary.loads

    @property
    def peaks(self) -> dict[str, tuple[float | None, float | None]]:
        """(highest rate with PASS, lowest rate with FAIL) by the id of each server case."""
        return {row.load_id: (row.peak_pass_per_s, row.peak_fail_per_s) for row in self.rows if row.bound is not None}

    def records(self) -> list[dict[str, Any]]:
        """A line for each point of each load case: the columns of tables/load_points.csv."""
        return [dict(line) for line in point_lines(self.summary)]

    def document(self) -> Any:
        """The whole summary: load cases, export, conditions."""
        return self.summary.model_dump(mode="json")

    def blocks(self) -> list[Block]:
        """The section Load of the report, without charts."""
        return load_section(self.summary, {})


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
