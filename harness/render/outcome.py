"""The outcome of a run as one line of JSON, for logs that programs read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harness.core.schemas import Row, Summary
from harness.render import ranking

NS_PER_MS = 1e6


def outcome(exit_code: int, plan_id: str | None, summary: Summary | None) -> str:
    """Exit code, plan, how many rows have which status and grade, and the fastest row of each model.

    Where the run ended before there was a plan or a summary, what they would have told is null.
    """
    said: dict[str, Any] = {"exit_code": exit_code, "plan_id": plan_id, "rows": None, "grades": None, "fastest": None}
    if summary is not None:
        said["rows"] = Counter(row.status for row in summary.rows)
        said["grades"] = Counter(row.grade for row in summary.rows if row.grade)
        said["fastest"] = _fastest(summary)
    return json.dumps(said)


def _fastest(summary: Summary) -> dict[str, dict[str, Any] | None]:
    """Model → its fastest ranked row in the shape and table that the report's first paragraph speaks of."""
    first: dict[str, Sequence[Row]] = {}
    for key, rows in ranking.by_table(summary.rows):
        first.setdefault(key[0], rows)
    return {model: _row(ranking.by_shape(rows)[0][1]) for model, rows in first.items()}


def _row(group: Sequence[Row]) -> dict[str, Any] | None:
    """The fastest of one shape, and whether others may be just as fast; None where no row may be ranked."""
    contenders = ranking.contenders(group)
    if not contenders or (latency := contenders[0].latency_ns) is None:
        return None
    return {
        "case_id": contenders[0].case_id,
        "median_ms": latency.median / NS_PER_MS,
        "grade": contenders[0].grade,
        "undecided": ranking.winner(group) is None,
    }
