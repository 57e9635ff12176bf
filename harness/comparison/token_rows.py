"""Rows of generation as rows that a comparison of two runs reads: one for the ITL, one for the TTFT (pure)."""

from __future__ import annotations

from harness.aggregation.flags import CALIBRATION
from harness.aggregation.generation_rows import row_of_times
from harness.core.schemas import GenerationRow, Row, Summary, TokenTimes


def with_token_rows(summary: Summary) -> Summary:
    """The summary with two further rows for each row of generation: `<case_id>:itl` and `<case_id>:ttft`.

    Each has its times in place of latencies, so that the verdicts on latencies judge them.
    """
    found = [
        as_row(row, name, times)
        for row in summary.generations
        if not any(flag.name == CALIBRATION for flag in row.flags)
        for name, times in (("itl", row.itl_ns), ("ttft", row.ttft_ns))
        if times is not None or row.status != "measured" or row.grade == "F"
    ]
    return summary.model_copy(update={"rows": (*summary.rows, *found)})


def as_row(row: GenerationRow, name: str, times: TokenTimes | None) -> Row:
    """One kind of time of a row. times: None where the row has none."""
    further = {field: getattr(row, field) for field in ("placement", "cold_ns", "artifacts", "checks", "usage")}
    return row_of_times(row, f"{row.case_id}:{name}", row.model, times).model_copy(update=further)
