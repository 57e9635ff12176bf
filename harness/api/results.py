"""Base class of all results of a profiler, and the results of a benchmark and of a load."""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core import cli, hints
from harness.core.file_sums import load_summary
from harness.core.layout import Results
from harness.core.schemas import LoadRow, Row, Summary
from harness.core.text import paragraphs
from harness.reporting import ranking
from harness.reporting.prose.conditions import short_conditions, with_short_names
from harness.reporting.prose.load_answer import load_section
from harness.reporting.table import DocumentBlock
from harness.reporting.tables.latency_table import latency_table, terminal_table
from harness.reporting.tables.load_tables import point_lines
from harness.reporting.tables.summary_table import columns_of
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
    def blocks(self) -> Sequence[DocumentBlock]:
        """Tables and texts of the result, figures below their conditions."""

    def markdown(self) -> str:
        """The result as Markdown."""
        return self._typed(blocks_text(self.blocks()))

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
        page = hints.typed_html(str(html.blocks(self.blocks())), hints.of_file(Results(self.folder).command))
        return _CLASS.sub(lambda match: f'{match[0]} style="{_STYLES[match[1]]}"', page)

    def _typed(self, text: str) -> str:
        """The text with commands of the API, or of the run that wrote the folder."""
        return hints.typed(text, hints.of_file(Results(self.folder).command))


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
        columns = columns_of(self.summary)
        return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]

    def document(self) -> Any:
        """The whole summary: rows, export, conditions."""
        return self.summary.model_dump(mode="json")

    def blocks(self) -> list[DocumentBlock]:
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
        return self._typed(paragraphs(("\n".join(parts), unmeasured, *self.remarks)))


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

    def blocks(self) -> list[DocumentBlock]:
        """The section Load of the report, without charts."""
        return load_section(self.summary, {})


@cli.in_words_of("api")
def read_results(folder: str | os.PathLike[str] = "results") -> Benchmark:
    """The rows of a results folder that `make bench` or `make aggregate` wrote, without measuring anything.

    Raises MissingInputError where the folder has no summary, and MalformedFileError where it, or a
    record that it was computed from, has changed.

    >>> from harness.api import read_results
    >>> read_results("results/before")
    Traceback (most recent call last):
    harness.core.errors.MissingInputError: results/before/summary.json does not exist.
    """
    results = Results(Path(folder))
    return Benchmark(results.root, load_summary(results.summary))
