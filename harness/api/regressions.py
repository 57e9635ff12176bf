"""Compares two runs with the stage `compare`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.api.results import Result
from harness.core import cli
from harness.core.errors import RegressionError
from harness.core.layout import Results
from harness.core.safe_files import SizeLimit, read_text
from harness.core.schemas import ComparedRow, Comparison
from harness.core.store import load
from harness.processes.stage_process import run_stage
from harness.reporting.table import DocumentBlock
from harness.reporting.tables.comparison_table import comparison_blocks, headline, terminal

Comparable = Result | str | os.PathLike[str]
"""A result of harness.api, or a results folder."""


@dataclass(frozen=True, repr=False)
class Regressions(Result):
    """A verdict for every row: SLOWER, FASTER, SAME, AMBIGUOUS, NEW, GONE or NOT COMPARABLE, with the reason."""

    comparison: Comparison

    @property
    def regressed(self) -> tuple[ComparedRow, ...]:
        """Rows that are slower by more than was allowed, beyond noise."""
        return tuple(row for row in self.comparison.rows if row.fails)

    def __bool__(self) -> bool:
        """Whether anything regressed."""
        return bool(self.regressed)

    def records(self) -> list[dict[str, Any]]:
        """A dictionary per row; ratio is current over baseline latency."""
        return [
            {
                **row.model_dump(
                    include={"case_id", "verdict", "reason", "baseline_ns", "current_ns", "ratio", "fails"}
                ),
                "ci95_low": row.ci95.low if row.ci95 else None,
                "ci95_high": row.ci95.high if row.ci95 else None,
            }
            for row in self.comparison.rows
        ]

    def blocks(self) -> list[DocumentBlock]:
        """The whole comparison."""
        return comparison_blocks(self.comparison)

    def markdown(self) -> str:
        """The whole comparison, as in comparison.md."""
        return read_text(Results(self.folder).comparison_report, SizeLimit.RECORD)

    def __repr__(self) -> str:
        return f"{terminal(self.comparison)}\n{headline(self.comparison)}".strip()


@cli.in_words_of("api")
def detect_regressions(baseline: Comparable, current: Comparable, max_regression: str | None = None) -> Regressions:
    """Compare `current` with `baseline`: results of this API or results folders, measured on the same machine.

    max_regression: accepted slow-down, as "5%" (1%). A row regresses only where the difference is significant over all
    rows and larger than this, with five rounds or more on both sides. Writes comparison.{json,md} into the
    current folder.

    Raises MissingInputError where a folder has no summary, and UsageError where no row can be compared.

    >>> from harness.api import detect_regressions
    >>> detect_regressions("results/before", "results/after", max_regression="5%")
    Traceback (most recent call last):
    harness.core.errors.MissingInputError: results/after/summary.json does not exist.
    """
    results = Results(_folder(current))
    more = () if max_regression is None else ("--max-regression", str(max_regression))
    with suppress(RegressionError):  # it is a result, recorded in the file
        run_stage("compare", "--baseline", str(_folder(baseline)), "--results", str(results.root), *more, front="api")
    return Regressions(results.root, load(results.comparison, Comparison, "make compare"))


def _folder(side: Comparable) -> Path:
    return side.folder if isinstance(side, Result) else Path(side)
