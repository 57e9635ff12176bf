"""The result of a load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.api.results import Result
from harness.core.schemas import LoadRow, Summary
from harness.reporting.prose.load_answer import load_section
from harness.reporting.table import Block
from harness.reporting.tables.load_points_table import point_lines


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
